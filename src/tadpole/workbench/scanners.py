"""Security scanners over the touched files, before and after, in a box of their own.

Guards against: a scanner that a hostile file crashes, hangs or makes run code (it only reads, in
a box without network), comments that silence it, and old problems blamed on the patch: what the
file held before is no finding. A scanner that is not installed or failed is said to be so.

Does not guard against: what the scanners do not know. They look at touched files alone.
"""

import importlib.util
import json
import secrets
import sys
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tadpole.errors import SandboxDied, SandboxStartError
from tadpole.protocols import Sandbox, SandboxEngine
from tadpole.repos.box import WORKDIR
from tadpole.repos.recipe import discover
from tadpole.trace import Record
from tadpole.workbench.change import Change
from tadpole.workbench.environment import Environment
from tadpole.workbench.finding import Check, Finding, Severity

SCANNERS = {"bandit": "bandit", "detect-secrets": "detect_secrets"}  # distribution -> module
_INSTALL = "pip install 'tadpole[use]'"
_PROGRAM = "/opt/scan/scan.py"
_SECONDS = 300.0
_BY_SEVERITY = {
    Severity.HIGH: Check.SECURITY_HIGH,
    Severity.MEDIUM: Check.SECURITY_MEDIUM,
    Severity.LOW: Check.SECURITY_LOW,
    Severity.INFO: Check.SECURITY_LOW,
}


class ScanOutcome(StrEnum):
    """Whether a scanner says anything."""

    RAN = "ran"
    NOT_INSTALLED = "not_installed"
    FAILED = "failed"


class ScannerRun(Record):
    """One scanner of one gate."""

    tool: str
    version: str = ""
    outcome: ScanOutcome
    detail: str = ""


@dataclass(frozen=True)
class Scan:
    """What all scanners say."""

    runs: tuple[ScannerRun, ...]
    findings: tuple[Finding, ...]


async def scan(engine: SandboxEngine, tree: Path, change: Change) -> Scan:
    """Scan the touched files of ``change``, ``tree`` being its base. Raises SandboxUnavailable."""
    there = [n for n, module in SCANNERS.items() if importlib.util.find_spec(module) is not None]
    runs = [
        ScannerRun(tool=name, outcome=ScanOutcome.NOT_INSTALLED, detail=_INSTALL)
        for name in SCANNERS
        if name not in there
    ]
    if not there:
        return Scan(tuple(runs), ())
    try:
        before, after = await _both(engine, tree, change, there)
    except (SandboxStartError, SandboxDied, OSError, ValueError, KeyError) as error:
        failed = ScanOutcome.FAILED
        runs += [ScannerRun(tool=n, outcome=failed, detail=str(error)[:300]) for n in there]
        return Scan(tuple(runs), ())
    found: list[Finding] = []
    for name in there:
        why = before[name]["error"] or after[name]["error"]
        outcome = ScanOutcome.FAILED if why else ScanOutcome.RAN
        runs.append(ScannerRun(tool=name, version=version(name), outcome=outcome, detail=why[:300]))
        if not why:
            found += _new(before[name]["found"], after[name]["found"], change)
    return Scan(tuple(runs), tuple(found))


async def _both(
    engine: SandboxEngine, tree: Path, change: Change, tools: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    environment = Environment(Path(sys.prefix) if sys.prefix != sys.base_prefix else None, "ours")
    spec = environment.spec(tree, discover({}))
    here = Path(__file__).with_name("inside") / "scan.py"
    # Nothing of the tree may be imported by what reads it.
    env = {name: value for name, value in spec.env.items() if name != "PYTHONPATH"}
    box = await engine.start(replace(spec, mounts={**spec.mounts, _PROGRAM: here}, env=env))
    try:
        texts = [file for file in change.files if not file.binary]
        old = [f.path for f in texts if f.before is not None]
        new = [f.path for f in texts if f.after is not None]
        before = await _run(box, environment.python, old, tools)
        await box.write(change.delta)
        return before, await _run(box, environment.python, new, tools)
    finally:
        await box.close()


async def _run(box: Sandbox, python: str, paths: list[str], tools: list[str]) -> dict[str, Any]:
    out = f"/tmp/scan-{secrets.token_hex(8)}.json"
    given = [f"{WORKDIR}/{path}" for path in paths]
    request = json.dumps({"paths": given, "scanners": tools, "out": out}).encode()
    done = await box.exec([python, "-I", _PROGRAM], timeout=_SECONDS, stdin=request)
    try:
        answer: dict[str, Any] = json.loads(await box.read(out))
    except FileNotFoundError:
        last = next(iter(done.stderr.strip().splitlines()[-1:]), f"exit code {done.code}")
        raise ValueError(f"{done.reason.value}: {last}") from None
    return answer


def _new(
    before: list[dict[str, Any]], after: list[dict[str, Any]], change: Change
) -> list[Finding]:
    sides = {file.path: file for file in change.files}

    def key(item: dict[str, Any], new: bool) -> tuple[str, str, bytes]:
        path = item["path"].removeprefix(f"{WORKDIR}/")
        lines = (sides[path].side(new=new).content or b"").splitlines()
        at = item["line"] - 1
        return path, item["rule"], lines[at].strip() if 0 <= at < len(lines) else b""

    known = Counter(key(item, False) for item in before)
    found = []
    for item in after:
        if known[key(item, True)]:
            known[key(item, True)] -= 1
            continue
        severity = Severity(item["severity"]) if item["severity"] != "undefined" else Severity.LOW
        secret = item["tool"] == "detect-secrets"
        found.append(
            Finding(
                check=Check.SECRET if secret else _BY_SEVERITY[severity],
                severity=severity,
                path=item["path"].removeprefix(f"{WORKDIR}/"),
                line=item["line"],
                tool=item["tool"],
                rule=item["rule"],
                message=item["message"],
            )
        )
    return found
