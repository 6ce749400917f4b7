"""Runs tests on many variants of a tree in one box, each in a forked process of its own.

Most of a test run is spent on starting Python and pytest, and on loading the suite. Here that
is done once (:mod:`tadpole.repos.inside.forkserver`): a variant costs its tests and little else.
A variant whose change cannot be swapped into a loaded process is run afresh; what comes back is
the same either way. Guards and gaps are those of the fork server.
"""

import base64
import json
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from tadpole.errors import SandboxDied
from tadpole.protocols import ExecReason, ExecResult, Sandbox
from tadpole.repos.testrun import PROGRAMS, TestReport, asked, options, report
from tadpole.task import FileChange, Recipe

_CODE = "/tmp/testrun-code"  # in the box
_START = 120.0  # seconds, for the suite to be collected
_BACK = 60.0  # and for the tree to be put back
_WALL = 6  # of one variant by the clock: this many times its processor time, and some


@dataclass(frozen=True)
class Variant:
    """One change of the tree, and what to run on it."""

    changes: tuple[FileChange, ...]
    ids: tuple[str, ...] | None  # None: the whole suite, always in a fresh process
    seconds: float = 60.0  # of processor time, for all of it
    limits: Mapping[str, float] = field(default_factory=dict)  # id -> seconds of its own
    limit: float | None = None  # of each other test
    maxfail: int = 0  # stops early; 0 never
    details: bool = False  # the frames of each failure
    reverse: bool = False  # the last test first
    fresh: bool = False  # in a process that imports and collects everything itself


async def run_variants(
    sandbox: Sandbox,
    recipe: Recipe,
    python: str,
    variants: Sequence[Variant],
    *,
    imported: Mapping[str, Sequence[int]],
    hash_seed: int = 0,
    workdir: str = "/repo",
) -> list[TestReport]:
    """One report for each variant, in a box made by with_reporter; its tree is left as it was.

    ``imported`` are the lines of each source file that run at import (a file that is absent is
    never swapped). A variant that takes the whole run with it, as one does that fills the memory,
    is run again without those before it; if it does so again it has what it wrote so far and the
    reason. Raises SandboxDied, also where no variant could be begun.
    """
    found: list[TestReport] = []
    while len(found) < len(variants):
        found += await _some(
            sandbox, recipe, python, variants[len(found) :], imported, hash_seed, workdir
        )
    return found


async def _some(  # noqa: PLR0917
    sandbox: Sandbox,
    recipe: Recipe,
    python: str,
    variants: Sequence[Variant],
    imported: Mapping[str, Sequence[int]],
    hash_seed: int,
    workdir: str,
) -> list[TestReport]:
    """Reports of the first variants: all, or those before the one that ended the run; of that one
    alone where it was the first.
    """
    out = f"/tmp/testrun-{secrets.token_hex(8)}.jsonl"
    kept = f"{out}.kept"
    paths = {path for one in variants for path in (change.path for change in one.changes)}
    request = {
        "options": options(recipe, workdir),
        "paths": list(recipe.test_paths),
        "variants": [_told(one, recipe) for one in variants],
        "imported": {path: list(imported[path]) for path in sorted(paths & imported.keys())},
        "code": _CODE,
        "out": out,
        "kept": kept,
    }
    argv = ["env", f"PYTHONHASHSEED={hash_seed}", python, f"{PROGRAMS}/forkserver.py"]
    most = _START + sum(_WALL * one.seconds + 30 for one in variants)
    result = await sandbox.exec(argv, timeout=most, stdin=json.dumps(request).encode())
    try:
        written = await sandbox.read(out)
    except FileNotFoundError:
        written = b""
    facts: list[list[bytes]] = [[] for _ in variants]
    ended: dict[int, int] = {}  # number -> the signal that ended it, or 0
    for line in written.splitlines():
        try:
            fact = json.loads(line)
        except ValueError:
            continue  # of a process that was killed
        number = fact["variant"]
        if "refused" in fact:
            facts[number].clear()
        facts[number].append(line)
        if "signal" in fact:
            ended[number] = fact["signal"]
    last = next((number for number in range(len(variants)) if number not in ended), None)
    if last is not None:
        back = await sandbox.exec([python, f"{PROGRAMS}/treefiles.py", kept], timeout=_BACK)
        if back.code:
            raise SandboxDied(f"the tree could not be put back: {back.stderr[-300:]}")
    if last == 0 and not facts[0]:
        said = result.stderr.strip()[-300:]
        raise SandboxDied(f"no variant could be begun ({result.reason.value}): {said}")
    count = len(variants) if last is None else max(1, last)
    return [
        report(facts[number], _own(result, ended.get(number)), variants[number].ids)
        for number in range(count)
    ]


def _own(result: ExecResult, ended_by: int | None) -> ExecResult:
    """What the result of the whole run says about one variant; None: it never came back."""
    if ended_by is None:
        return result
    reason = ExecReason.SIGNAL if ended_by else ExecReason.EXITED
    if ended_by in (signal.SIGXCPU, signal.SIGKILL):  # what its limit sends
        reason = ExecReason.CPU
    return replace(result, reason=reason, code=1, stdout="", stderr="")


def _told(variant: Variant, recipe: Recipe) -> dict[str, object]:
    """A variant as the fork server reads it."""
    body = asdict(variant)
    del body["changes"]
    files = [
        (
            change.path,
            None if change.content is None else base64.b64encode(change.content).decode(),
            change.executable,
        )
        for change in variant.changes
    ]
    ids = variant.ids
    paths = recipe.test_paths if ids is None else dict.fromkeys(i.split("::", 1)[0] for i in ids)
    return {
        **body,
        "files": files,
        "paths": list(paths),
        "gives_up": True,
        "options": asked(variant.maxfail),
        "fresh": variant.fresh or ids is None,
    }
