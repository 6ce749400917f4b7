"""Security scanners over the touched files, before and after, in a box of their own.

Guards against: a scanner that a hostile file crashes, hangs or makes run code (it only reads, in
a box without network), comments that silence it, and old problems blamed on the patch: what the
file held before is no finding. A scanner that is not installed or failed is said to be so, and
what one was given and did not read is named.

Does not guard against: what the scanners do not know. They look at touched files alone.
"""

import asyncio
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
from tadpole.repos.files import Files
from tadpole.repos.recipe import discover
from tadpole.trace import Record
from tadpole.workbench import audit, semgrep
from tadpole.workbench.change import Change
from tadpole.workbench.environment import Environment
from tadpole.workbench.finding import Check, Finding, Severity
from tadpole.workbench.policy import ScannersPolicy
from tadpole.workbench.semgrep import Program, Rules

SCANNERS = {"bandit": "bandit", "detect-secrets": "detect_secrets"}  # distribution -> module
_INSTALL = "pip install 'tadpole[use]'"
_PROGRAM = "/opt/scan/scan.py"
_RULES = "/opt/rules"  # semgrep's, of this machine
_SECONDS = 600.0
_NAMED = 20  # files that a scanner did not read, by name
_BY_SEVERITY = {
    Severity.HIGH: Check.SECURITY_HIGH,
    Severity.MEDIUM: Check.SECURITY_MEDIUM,
    Severity.LOW: Check.SECURITY_LOW,
    Severity.INFO: Check.SECURITY_LOW,
}


class ScanOutcome(StrEnum):
    """Whether a scanner says anything."""

    RAN = "ran"
    NO_RULES = "no_rules"  # semgrep is there, and has nothing to go by
    NOT_CHECKED = "could_not_check"  # it ran, and could not tell of everything
    NOT_INSTALLED = "not_installed"
    FAILED = "failed"


class ScannerRun(Record):
    """One scanner of one gate."""

    tool: str
    version: str = ""
    outcome: ScanOutcome
    detail: str = ""


@dataclass(frozen=True)
class Tools:
    """Programs that are used where they are installed. None or empty: they are not."""

    semgrep: Program | None = None
    pip_audit: tuple[str, ...] = ()

    @classmethod
    def installed(cls) -> "Tools":
        """Those of this machine."""
        return cls(semgrep.program(), audit.program())


@dataclass(frozen=True)
class Scan:
    """What all scanners say."""

    runs: tuple[ScannerRun, ...]
    findings: tuple[Finding, ...]


async def scan(
    engine: SandboxEngine,
    tree: Path,
    change: Change,
    *,
    base: Files,
    policy: ScannersPolicy,
    tools: Tools | None = None,
) -> Scan:
    """Scan the touched files of ``change``, ``tree`` being its base, with files ``base``.

    ``tools``: the programs that may be there or not; None: as this machine has them. Raises
    SandboxUnavailable.
    """
    tools = tools or Tools.installed()
    there = [n for n, module in SCANNERS.items() if importlib.util.find_spec(module) is not None]
    scans = [
        Scan((ScannerRun(tool=name, outcome=ScanOutcome.NOT_INSTALLED, detail=_INSTALL),), ())
        for name in SCANNERS
        if name not in there
    ]
    ours = Environment(Path(sys.prefix) if sys.prefix != sys.base_prefix else None, "ours")
    if there:
        versions = {name: version(name) for name in there}
        scans.append(await _compared(_Scanning(engine, tree, change, ours, versions)))
    scans += [
        await _semgrep(engine, tree, change, base=base, asked=policy.semgrep, program=tools.semgrep)
    ]
    scans += [await _audit(change, policy, tools.pip_audit)]
    return Scan(
        tuple(r for s in scans for r in s.runs), tuple(f for s in scans for f in s.findings)
    )


async def _semgrep(
    engine: SandboxEngine,
    tree: Path,
    change: Change,
    *,
    base: Files,
    asked: str,
    program: Program | None,
) -> Scan:
    """Nothing where it is neither installed nor has rules."""

    def told(outcome: ScanOutcome, detail: str) -> Scan:
        return Scan((ScannerRun(tool=semgrep.TOOL, outcome=outcome, detail=detail),), ())

    try:
        rules = semgrep.rules(base, asked)
    except ValueError as error:
        return told(ScanOutcome.FAILED, str(error))
    if program is None:
        if rules is None:
            return Scan((), ())
        return told(ScanOutcome.NOT_INSTALLED, "its rules are there: pip install semgrep")
    if rules is None:
        return told(ScanOutcome.NO_RULES, "put them at .semgrep.yml, or name them: SEMGREP_RULES")
    versions = {semgrep.TOOL: ""}
    return await _compared(
        _Scanning(engine, tree, change, program.environment, versions, program.path, rules)
    )


async def _audit(change: Change, policy: ScannersPolicy, argv: tuple[str, ...]) -> Scan:
    """Nothing where no dependency is new."""
    # On a thread, because a hostile file can make it slow.
    asked, unread = await asyncio.to_thread(audit.new_requirements, change)
    if not asked and not unread:
        return Scan((), ())

    def told(outcome: ScanOutcome, detail: str, found: tuple[Finding, ...] = ()) -> Scan:
        return Scan((ScannerRun(tool=audit.TOOL, outcome=outcome, detail=detail[:600]),), found)

    if not policy.pip_audit:
        return told(ScanOutcome.NOT_CHECKED, "the policy says pip_audit = false")
    if not argv:
        return told(ScanOutcome.NOT_INSTALLED, "pip install pip-audit")
    try:
        done = await audit.audit(argv, asked)
    except OSError as error:
        return told(ScanOutcome.FAILED, str(error))
    unknown = "; ".join(filter(None, [*unread, done.unknown]))
    outcome = ScanOutcome.NOT_CHECKED if unknown else ScanOutcome.RAN
    return told(outcome, unknown, done.findings)


async def _compared(work: "_Scanning") -> Scan:
    """What is new after the change, of all tools in one environment."""
    try:
        before, after = await _both(work)
    except (SandboxStartError, SandboxDied, OSError, ValueError, KeyError) as error:
        failed = ScanOutcome.FAILED
        why = str(error)[:300]
        return Scan(tuple(ScannerRun(tool=n, outcome=failed, detail=why) for n in work.tools), ())
    runs, found = [], list[Finding]()
    for name, known in work.tools.items():
        why = before[name]["error"] or after[name]["error"]
        unread = _named(after[name]["unread"])  # of the side that would be applied
        outcome = ScanOutcome.NOT_CHECKED if unread else ScanOutcome.RAN
        outcome = ScanOutcome.FAILED if why else outcome
        told = known or after[name].get("version", "")
        detail = why[:300] or unread
        runs.append(ScannerRun(tool=name, version=told, outcome=outcome, detail=detail))
        if not why:
            found += _new(before[name]["found"], after[name]["found"], work.change)
    return Scan(tuple(runs), tuple(found))


def _named(unread: list[tuple[str, str]]) -> str:
    """Files that a scanner did not read, for a person; empty where there are none."""
    lines = list(dict.fromkeys(f"{path} ({why})" if path else why for path, why in unread))
    more = f"; and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    return f"not read: {'; '.join(lines[:_NAMED])}{more}" if lines else ""


@dataclass(frozen=True)
class _Scanning:
    engine: SandboxEngine
    tree: Path
    change: Change
    environment: Environment
    tools: dict[str, str]  # name -> version, where that is known
    program: str = ""  # semgrep's, in the box
    rules: Rules | None = None


async def _both(work: _Scanning) -> tuple[dict[str, Any], dict[str, Any]]:
    engine, tree, change, environment = work.engine, work.tree, work.change, work.environment
    spec = environment.spec(tree, discover({}))
    here = Path(__file__).with_name("inside") / "scan.py"
    # Nothing of the tree may be imported by what reads it.
    env = {name: value for name, value in spec.env.items() if name != "PYTHONPATH"}
    mounts = {**spec.mounts, _PROGRAM: here}
    if work.rules and work.rules.outside:
        mounts[_RULES] = work.rules.outside
    texts = [file for file in change.files if not file.binary]
    old = [f.path for f in texts if f.before is not None]
    new = [f.side(new=True) for f in texts if f.after is not None]
    # Beside the base, so that one start of the scanners does for both: it takes longer than they.
    beside = f"scan-{secrets.token_hex(8)}"
    ask = {
        "scanners": list(work.tools),
        "program": work.program,
        # Those of the tree are the base's.
        "rules": f"{WORKDIR}/{work.rules.inside}" if work.rules and work.rules.inside else _RULES,
        "sides": [[WORKDIR, old], [f"{WORKDIR}/{beside}", [file.path for file in new]]],
    }
    box = await engine.start(replace(spec, mounts=mounts, env=env))
    try:
        await box.write([replace(file, path=f"{beside}/{file.path}") for file in new])
        before, after = await _run(box, environment.python, ask)
        return before, after
    finally:
        await box.close()


async def _run(box: Sandbox, python: str, ask: dict[str, Any]) -> list[dict[str, Any]]:
    """What each scanner says of each side."""
    out = f"/tmp/scan-{secrets.token_hex(8)}.json"
    request = json.dumps({**ask, "out": out}).encode()
    done = await box.exec([python, "-I", _PROGRAM], timeout=_SECONDS, stdin=request)
    try:
        answer: list[dict[str, Any]] = json.loads(await box.read(out))
    except FileNotFoundError:
        last = next(iter(done.stderr.strip().splitlines()[-1:]), f"exit code {done.code}")
        raise ValueError(f"{done.reason.value}: {last}") from None
    return answer


def _new(
    before: list[dict[str, Any]], after: list[dict[str, Any]], change: Change
) -> list[Finding]:
    sides = {file.path: file for file in change.files}

    def key(item: dict[str, Any], new: bool) -> tuple[str, str, bytes]:
        path = item["path"]
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
                path=item["path"],
                line=item["line"],
                tool=item["tool"],
                rule=item["rule"],
                message=item["message"],
            )
        )
    return found
