"""Solvers and proposals for the tests, made from the real parts."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from plain_venv import plain_venv

from tadpole.leaf.calls import CallFormat, render
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.profile import make_profile
from tadpole.protocols import Sampling
from tadpole.rundir import RunDir
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.scripted import ScriptedPolicy
from tadpole.settings import LeafConfig, ProfileName
from tadpole.task import FileChange
from tadpole.trace import ToolCall
from tadpole.workbench import job as jobs
from tadpole.workbench import proposal
from tadpole.workbench.base import Base, read_base, write_tree
from tadpole.workbench.change import Change, change_of
from tadpole.workbench.environment import Environment
from tadpole.workbench.gate import Gate, GateReport, Size, Verdict
from tadpole.workbench.job import Job
from tadpole.workbench.key import SigningKey
from tadpole.workbench.leafsolver import LeafSolver
from tadpole.workbench.passport import BaseFacts, Passport, SandboxFacts, sha256
from tadpole.workbench.places import config_dir, work_dir
from tadpole.workbench.policy import GateRules, read_policy
from tadpole.workbench.proposal import Proposal
from tadpole.workbench.regression import Regression, TestsOutcome
from tadpole.workbench.usergit import UserGit
from tests.tiny import byte_tokenizer

VENV = Path(sys.prefix)  # it has pytest
BUGGY = "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 2\n"
FIXED = BUGGY.replace("a - b", "a + b")
TESTS = (
    "from calc import add, double\n\n\n"
    "def test_add():\n    assert add(2, 3) == 5\n\n\n"
    "def test_double():\n    assert double(4) == 8\n"
)


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    argv = ["git", "-C", str(root), *identity, *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def put(root: Path, files: dict[str, str | bytes]) -> None:
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())


def census(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a directory, .git included: mode and content, links as what they say."""
    found = {}
    for folder, names, leaves in os.walk(root):
        for name in (*leaves, *(n for n in names if os.path.islink(os.path.join(folder, n)))):
            path = os.path.join(folder, name)
            content = (
                os.readlink(path).encode() if os.path.islink(path) else Path(path).read_bytes()
            )
            found[os.path.relpath(path, root)] = (os.lstat(path).st_mode, content)
    return found


def edit(base: Base, files: dict[str, str | bytes | None], runs: tuple[str, ...] = ()) -> Change:
    """A change as a box would leave it."""
    delta = [
        FileChange(path, text.encode() if isinstance(text, str) else text, path in runs)
        for path, text in files.items()
    ]
    return change_of(base, delta)


async def gate_of(root: Path, scratch: Path, engine: BubblewrapEngine) -> Gate:
    base = read_base(UserGit(root), dirty=False)
    tree = scratch / f"tree-{base.digest[:8]}"
    await write_tree(base, tree)
    return Gate(engine, Environment(plain_venv(), "as given"), base, tree, read_policy(base.files))


def call(name: str, **arguments: object) -> str:
    return render(ToolCall(name=name, arguments=arguments), CallFormat.HERMES)


def solver(engine, turns: Sequence[object]) -> LeafSolver:
    """The real loop and box over turns that are said whatever is asked."""
    profile = make_profile(ProfileName.COMPACT, CallFormat.HERMES)
    dialogue = Dialogue(byte_tokenizer(), CallFormat.HERMES, profile)
    settings = LeafConfig(profile=ProfileName.COMPACT, max_turns=10)
    return LeafSolver(engine, ScriptedPolicy(dialogue, turns), dialogue, settings, Sampling())


def job_for(root: Path, base: Base, attempts: int = 1, issue: str = "add() is wrong") -> Job:
    return Job(
        issue=issue,
        repository=str(root),
        commit=base.commit,
        dirty=base.dirty,
        base=base.digest,
        attempts=attempts,
        seed=1,
        model="scripted",
        venv="",
    )


REPORT = GateReport(
    verdict=Verdict.PASS,
    blocks=(),
    warnings=(),
    ignored=(),
    tests=Regression(outcome=TestsOutcome.COMPARED, command="pytest"),
    scanners=(),
    size=Size(files=1, added=1, removed=1),
)


def proposed(
    root: Path,
    change: Change,
    *,
    dirty: bool = False,
    report: GateReport = REPORT,
    run: RunDir | None = None,
) -> Proposal:
    """A proposal on disk whose evidence is as given: for what comes after the gate."""
    base = read_base(UserGit(root), dirty=dirty)
    key = SigningKey.open(config_dir())
    run = run or jobs.create(work_dir(root), job_for(root, base))
    patch = change.patch()
    passport = Passport(
        proposal=change.id,
        made_at=jobs.now(),
        statement="add() is wrong\nIt subtracts.",
        base=BaseFacts(commit=base.commit, digest=base.digest, dirty=dirty),
        change_sha256=sha256(change.model_dump_json().encode()),
        patch_sha256=sha256(patch),
        trace_sha256=sha256(b""),
        trace="traces/0.json.gz",
        sandbox=SandboxFacts(engine="session", call_seconds=1, memory=1, processes=1, disk=1),
        model="scripted-0",
        harness="tadpole test",
        commands=(),
        rules=GateRules(),
        gate=report,
    )
    place = run.directory(f"proposals/{change.id}")
    proposal.save(place, change, patch, passport.signed(key))
    return proposal.load(place, key)
