"""Runs tests in a sandbox and reads exact node ids and statuses, never standard output."""

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tadpole.outcome import TestStatus
from tadpole.protocols import ExecReason, ExecResult, Sandbox, SandboxSpec
from tadpole.task import Recipe

PROGRAMS = "/opt/testrun"  # in the box
TAIL = 4000  # characters of output kept in a report
_QUIET = {
    "pytest-cov": "--no-cov",
    "pytest-xdist": "-n0",
    "pytest-randomly": "-pno:randomly",
    "hypothesis": "--hypothesis-seed=0",
}


@dataclass(frozen=True)
class Failure:
    """Why a test did not pass."""

    message: str  # "AssertionError: assert 3 == 4"; may have several lines
    path: str = ""  # where it was raised, relative to the work directory where inside it
    line: int = 0
    frames: str = ""  # "PATH:LINE:" a line, in the tree, outermost first; empty unless asked for


@dataclass(frozen=True)
class LineCoverage:
    """Which tests execute which lines. Equal sets of tests are stored once."""

    ids: tuple[str, ...]
    sets: tuple[tuple[int, ...], ...]  # of indices into ``ids``
    lines: Mapping[str, Mapping[int, int]]  # path -> line -> index into ``sets``
    imported: Mapping[str, tuple[int, ...]]  # path -> lines that ran while no test did


@dataclass(frozen=True)
class TestReport:
    """One test run. Where ids were asked for, exactly those are in ``statuses``."""

    __test__ = False  # not a test class for pytest

    statuses: Mapping[str, TestStatus]  # in the order they ran
    seconds: Mapping[str, float]  # set-up, call and tear-down together
    exit_code: int  # of pytest; that of the process where pytest never ended
    collected: bool  # False: pytest never got through collection
    output_tail: str = ""
    failures: Mapping[str, Failure] = field(default_factory=dict)
    collection_errors: Mapping[str, str] = field(default_factory=dict)  # node id -> message
    coverage: LineCoverage | None = None
    reason: ExecReason = ExecReason.EXITED
    wall: float = 0.0  # seconds, start of the interpreter included
    finished: bool = False  # pytest came to its end by itself
    hung: frozenset[str] = frozenset()  # ids that were ended at their limit
    warm: bool = False  # in a process that had loaded the tree before the change
    cpu: float = 0.0  # seconds of processor time; 0 where not measured
    selected: int | None = None  # tests that collection left to be run; None: it had no end

    @property
    def passed(self) -> frozenset[str]:
        """Ids that passed."""
        return frozenset(i for i, s in self.statuses.items() if s is TestStatus.PASSED)


def with_reporter(spec: SandboxSpec) -> SandboxSpec:
    """The same box with the reporter bound read-only, so that tests can be run in it."""
    here = Path(__file__).with_name("inside")
    return replace(spec, mounts={**spec.mounts, PROGRAMS: here})


async def run_tests(
    sandbox: Sandbox,
    recipe: Recipe,
    python: str,
    ids: Sequence[str] | None = None,
    *,
    timeout: float = 300.0,
    test_seconds: float | Mapping[str, float] | None = None,
    maxfail: int = 0,
    details: bool = False,
    reverse: bool = False,
    hash_seed: int = 0,
    pace: int = 1,
    cover: Sequence[str] = (),
    omit: Sequence[str] = (),
    workdir: str = "/repo",
) -> TestReport:
    """Run the suite (``ids`` None) or exactly these node ids, in a box made by with_reporter.

    ``test_seconds`` limits each test (a mapping: those named). ``maxfail`` stops early, 0 never.
    ``details`` asks for the frames of each failure. ``reverse`` runs the last test first.
    ``pace`` lets the clocks that tests see run so many times as fast.
    ``cover`` are absolute patterns of files whose lines are recorded per test, less ``omit``.
    What the tests do, hang included, comes back in the report; raises SandboxDied alone.
    """
    limits = test_seconds if isinstance(test_seconds, Mapping) else {}
    out = f"/tmp/testrun-{secrets.token_hex(8)}.jsonl"
    files = recipe.test_paths if ids is None else tuple(dict.fromkeys(map(_file, ids)))
    request = {
        "ids": None if ids is None else list(ids),
        "paths": list(files),
        "options": [*options(recipe, workdir), *asked(maxfail)],
        "reverse": reverse,
        "limit": test_seconds if isinstance(test_seconds, int | float) else None,
        "limits": dict(limits),
        "details": details,
        "pace": pace,
        "cover": list(cover),
        "omit": list(omit),
        "out": out,
    }
    argv = ["env", f"PYTHONHASHSEED={hash_seed}", python, f"{PROGRAMS}/reporter.py"]
    result = await sandbox.exec(argv, timeout=timeout, stdin=json.dumps(request).encode())
    try:
        written = await sandbox.read(out)
    except FileNotFoundError:
        written = b""
    return report(written.splitlines(), result, ids)


def _file(node_id: str) -> str:
    return node_id.split("::", 1)[0]


def options(recipe: Recipe, workdir: str) -> list[str]:
    """What every run of a suite is given."""
    given = [
        *recipe.pytest_args,
        f"--rootdir={workdir}",  # node ids are relative to it, whatever is selected
        "--continue-on-collection-errors",
        "--color=no",
        "-p",
        "no:cacheprovider",
    ]
    plugins = {re.split(r"==| @ ", name)[0] for name in recipe.requirements}
    # What would come between the tests and the reporter, where the suite asks for it.
    given += [option for name, option in _QUIET.items() if name in plugins]
    return given


def asked(maxfail: int) -> list[str]:
    """What one run is given besides. Long tracebacks cost more than the tests."""
    return [f"--maxfail={maxfail}", "--tb=line"]


def report(lines: Iterable[bytes], result: ExecResult, ids: Sequence[str] | None) -> TestReport:
    """Read what the reporter wrote, up to where it was ended."""
    statuses: dict[str, TestStatus] = {}
    seconds: dict[str, float] = {}
    failures: dict[str, Failure] = {}
    broken: dict[str, str] = {}
    hung: set[str] = set()
    ended: dict[str, Any] = {}
    for line in lines:
        try:
            fact = json.loads(line)
        except ValueError:
            continue  # the last line of a run that was killed
        if "id" in fact:
            statuses[fact["id"]] = TestStatus(fact["status"])
            seconds[fact["id"]] = fact["seconds"]
            if "hung" in fact:
                hung.add(fact["id"])
            if "message" in fact:
                where = (fact.get("path", ""), fact.get("line", 0), fact.get("frames", ""))
                failures[fact["id"]] = Failure(fact["message"], *where)
        elif "broken" in fact:
            broken[fact["broken"]] = fact["message"]
        else:
            ended.update(fact)
    if ids is not None:
        ran = [node_id for node_id in statuses if node_id in set(ids)]
        missing = dict.fromkeys(ids, TestStatus.MISSING)
        statuses = {node_id: statuses[node_id] for node_id in ran} | {
            node_id: status for node_id, status in missing.items() if node_id not in statuses
        }
    return TestReport(
        statuses=statuses,
        seconds=seconds,
        exit_code=ended.get("exit", result.code),
        collected="collected" in ended,
        output_tail=(result.stdout + result.stderr)[-TAIL:],
        failures=failures,
        collection_errors=broken,
        coverage=_coverage(ended["coverage"]) if "coverage" in ended else None,
        reason=result.reason,
        wall=result.seconds,
        finished="exit" in ended,
        hung=frozenset(hung),
        warm=bool(ended.get("warm")),
        cpu=float(ended.get("cpu", 0.0)),
        selected=ended.get("collected"),
    )


def _coverage(found: Mapping[str, Any]) -> LineCoverage:
    return LineCoverage(
        ids=tuple(found["ids"]),
        sets=tuple(tuple(group) for group in found["sets"]),
        lines={
            path: {int(line): group for line, group in lines.items()}
            for path, lines in found["lines"].items()
        },
        imported={path: tuple(lines) for path, lines in found["imported"].items()},
    )
