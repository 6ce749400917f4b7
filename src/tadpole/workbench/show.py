"""What a reviewer sees of a proposal, for the terminal and the page alike: evidence first."""

from dataclasses import dataclass

from tadpole.visible import visible
from tadpole.workbench.finding import Finding
from tadpole.workbench.gate import GateReport, Verdict
from tadpole.workbench.passport import SandboxFacts
from tadpole.workbench.proposal import Proposal
from tadpole.workbench.regression import TestsOutcome
from tadpole.workbench.riskypath import line_counts
from tadpole.workbench.scanners import ScanOutcome

_LONGEST = 4000  # lines of one file's diff


@dataclass(frozen=True)
class FileDiff:
    """One file's part of a patch, safe to print."""

    path: str
    what: str  # "changed", "new", "deleted"
    added: int
    removed: int
    lines: tuple[str, ...]  # of a unified diff, from its first "@@"
    note: str = ""  # instead of lines, or after them


@dataclass(frozen=True)
class View:
    """All of it, in the order in which it is shown."""

    id: str
    verdict: Verdict
    issue: str
    facts: tuple[tuple[str, str], ...]
    tests: tuple[tuple[str, str], ...]
    scanners: tuple[str, ...]
    blocks: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    commands: tuple[str, ...]
    files: tuple[FileDiff, ...]
    decision: str


def view(proposal: Proposal) -> View:
    """What is shown of ``proposal``; no character in it is one that a terminal would obey."""
    passport, gate = proposal.passport, proposal.passport.gate
    base = passport.base
    size = gate.size
    files = f"{size.files} {'file' if size.files == 1 else 'files'}"
    facts = (
        ("base", f"{base.commit[:12]}{' with what was not committed' if base.dirty else ''}"),
        ("change", f"{files}, +{size.added} -{size.removed} lines"),
        ("model", visible(passport.model)),
        ("harness", visible(passport.harness)),
        *sandbox_rows(passport.sandbox),
        ("made", passport.made_at),
    )
    decision = passport.decision
    decided = ""
    if decision:
        decided = f"{decision.ruling.value.replace('_', ' ')} by {decision.reviewer}, {decision.at}"
        decided += f": {decision.reason}" if decision.reason else ""
    return View(
        id=proposal.id,
        verdict=gate.verdict,
        issue=visible(passport.statement, lines=True),
        facts=facts,
        tests=_tests(gate),
        scanners=tuple(
            f"{run.tool} {run.version}: {run.outcome.value.replace('_', ' ')}"
            + (f" ({visible(run.detail)})" if run.outcome is not ScanOutcome.RAN else "")
            for run in gate.scanners
        ),
        blocks=tuple(map(_safe, gate.blocks)),
        warnings=tuple(map(_safe, gate.warnings)),
        commands=tuple(visible(run.command) for run in passport.commands),
        files=_diffs(proposal),
        decision=visible(decided),
    )


def sandbox_rows(facts: SandboxFacts) -> list[tuple[str, str]]:
    """What held the model while it worked."""
    bounds = (
        f"{facts.call_seconds:g} s a command",
        f"{facts.memory >> 20:,} MiB of memory",
        f"{facts.processes} processes",
        f"{facts.disk >> 20:,} MiB of disk",
    )
    network = f"only {', '.join(facts.network)}" if facts.network else "none"
    rows = [
        ("sandbox", f"{facts.engine or 'of an unknown kind'}; {', '.join(bounds)}"),
        ("mounted", ", ".join(map(visible, facts.mounts)) + " (read-only)"),
        ("network", network),
    ]
    for seen in facts.reached:
        place, times = f"{visible(seen.host)}:{seen.port}", f"{seen.times} times"
        moved = f"{times}, {seen.sent:,} bytes out, {seen.received:,} in"
        rows.append(("reached" if seen.allowed else "refused", f"{place}, {moved}"))
    return rows


def _safe(finding: Finding) -> Finding:
    words = {"path": visible(finding.path), "message": visible(finding.message)}
    return finding.model_copy(update=words)


def _tests(gate: GateReport) -> tuple[tuple[str, str], ...]:
    tests = gate.tests
    command = ("command", visible(tests.command))
    if tests.outcome is TestsOutcome.COULD_NOT_RUN:
        return (command, ("could not run", visible(tests.reason)))
    if tests.outcome is TestsOutcome.NO_TESTS:
        return (command, ("result", "there are no tests"))
    rows = [command, ("passed", f"{tests.before_passed} before, {tests.after_passed} after")]
    if tests.old_tests:
        rows.append(("old tests", "the patch touches tests: the suite also ran with the old ones"))
    named = (
        ("newly failing", tests.newly_failing),
        ("newly passing", tests.newly_passing),
        ("still failing", tests.still_failing),
        ("flaky", tests.flaky),
    )
    for name, ids in named:
        shown = ", ".join(map(visible, ids[:10])) + (f" and {len(ids) - 10} more" * (len(ids) > 10))
        rows.append((name, shown or "none"))
    return tuple(rows)


def _diffs(proposal: Proposal) -> tuple[FileDiff, ...]:
    parts = _parts(proposal.patch)
    found = []
    for number, file in enumerate(proposal.change.files):
        lines = parts[number] if number < len(parts) else []
        what = "new" if file.before is None else "deleted" if file.after is None else "changed"
        added, removed = line_counts(file)
        note = ""
        if file.binary:
            lines, note = [], f"binary, {len(file.side(new=True).content or b'')} bytes"
        if len(lines) > _LONGEST:
            note = f"{len(lines) - _LONGEST} more lines: {proposal.directory / 'patch.diff'}"
            lines = lines[:_LONGEST]
        if file.before and file.after and file.before.executable != file.after.executable:
            note = f"{note} mode: {'executable' if file.after.executable else 'plain'}".strip()
        shown = tuple(visible(line, lines=True) for line in lines)
        found.append(FileDiff(visible(file.path), what, added, removed, shown, note))
    return tuple(found)


def _parts(patch: bytes) -> list[list[str]]:
    """The hunks of each file, in the order of the patch (that of the paths in bytes)."""
    parts: list[list[str]] = []
    inside = False
    for line in patch.decode("utf-8", "surrogateescape").split("\n"):
        if line.startswith("diff --git "):
            parts.append([])
            inside = False
        elif parts:
            inside = inside or line.startswith("@@ ")
            if inside:
                parts[-1].append(line)
    for part in parts:
        while part and not part[-1]:
            part.pop()
    return parts
