"""The gate: everything that can be found out about a proposal without a person.

Guards against: a patch that breaks tests, weakens them, brings security problems, secrets,
hidden characters or files that run by themselves, and goes unnoticed. All that runs anything
runs in fresh boxes over the base; nothing of the attempt's own box is used but its change.

Does not guard against: a wrong change that no test sees. That is why a person decides.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

from tadpole.errors import SandboxDied, SandboxStartError
from tadpole.protocols import SandboxEngine
from tadpole.repos.testrun import TestReport
from tadpole.trace import Record
from tadpole.visible import visible
from tadpole.workbench.base import Base
from tadpole.workbench.change import Change
from tadpole.workbench.environment import Environment, recipe_of
from tadpole.workbench.finding import Action, Check, Finding, Severity
from tadpole.workbench.oddtext import odd_text
from tadpole.workbench.policy import GatePolicy, GateRules
from tadpole.workbench.pythoncode import python_findings
from tadpole.workbench.regression import Regression, Suite, TestsOutcome, compare
from tadpole.workbench.riskypath import line_counts, risky_paths
from tadpole.workbench.scanners import ScannerRun, ScanOutcome, Tools, scan

_HIGH, _MEDIUM, _LOW, _INFO = Severity.HIGH, Severity.MEDIUM, Severity.LOW, Severity.INFO


class Verdict(StrEnum):
    """What the gate says; better first."""

    PASS = "pass"
    WARN = "warn"
    BLOCK = "block"


class Size(Record):
    """How large a change is."""

    files: int
    added: int
    removed: int


class GateReport(Record):
    """All evidence, and what the policy makes of it."""

    format: Literal[1] = 1
    verdict: Verdict
    blocks: tuple[Finding, ...]  # those for which the policy says block
    warnings: tuple[Finding, ...]
    ignored: tuple[Finding, ...]
    tests: Regression
    scanners: tuple[ScannerRun, ...]
    size: Size


@dataclass
class Gate:
    """What judging needs. ``tree`` is the written base; ``rules`` were read from the base."""

    engine: SandboxEngine
    environment: Environment
    base: Base
    tree: Path
    rules: GateRules
    tools: Tools | None = None  # scanners that may be there or not; None: as they are here
    _before: TestReport | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def judge(self, change: Change, statement: str) -> GateReport:
        """Judge one change. Raises SandboxUnavailable."""
        recipe = recipe_of(self.base, self.environment)
        suite = Suite(self.engine, self.environment, recipe, self.rules.tests, self.tree)
        tests = await compare(suite, change.delta, await self._on_base(suite))
        asked, files = self.rules.scanners, self.base.files
        scanned = await scan(
            self.engine, self.tree, change, base=files, policy=asked, tools=self.tools
        )
        # Quick, but a hostile or large file can make it slow: not on the event loop.
        read = await asyncio.to_thread(_read, change, statement, self.rules.gate)
        size = await asyncio.to_thread(_size, change)
        links = [
            Finding(
                check=Check.LINK,
                severity=_INFO,
                path=visible(path),
                rule="leads-out",
                message="a link of the repository that leads out of it: nothing is written there",
            )
            for path in self.base.leading_out()
        ]
        found = [*_of_tests(tests), *_of_scanners(scanned.runs), *scanned.findings, *read, *links]
        by = {action: [f for f in found if self._action(f) is action] for action in Action}
        verdict = Verdict.PASS
        if by[Action.WARN]:
            verdict = Verdict.WARN
        if by[Action.BLOCK]:
            verdict = Verdict.BLOCK
        return GateReport(
            verdict=verdict,
            blocks=tuple(by[Action.BLOCK]),
            warnings=tuple(by[Action.WARN]),
            ignored=tuple(by[Action.IGNORE]),
            tests=tests,
            scanners=scanned.runs,
            size=size,
        )

    async def _on_base(self, suite: Suite) -> TestReport | None:
        """The run without any patch, made once; None where it has to be tried again."""
        async with self._lock:
            if self._before is None:
                with contextlib.suppress(SandboxStartError, SandboxDied):
                    self._before = await suite.run(())
            return self._before

    def _action(self, finding: Finding) -> Action:
        return self.rules.gate.action(finding.check)


def _read(change: Change, statement: str, limits: GatePolicy) -> list[Finding]:
    return [
        *odd_text(change),
        *python_findings(change),
        *risky_paths(change, statement, limits),
    ]


def _size(change: Change) -> Size:
    counts = [line_counts(file) for file in change.files]
    return Size(
        files=len(change.files),
        added=sum(added for added, _ in counts),
        removed=sum(removed for _, removed in counts),
    )


def _of_tests(tests: Regression) -> list[Finding]:
    def told(check: Check, severity: Severity, message: str) -> Finding:
        return Finding(check=check, severity=severity, tool="tests", message=message)

    if tests.outcome is TestsOutcome.COULD_NOT_RUN:
        return [told(Check.TESTS_NOT_RUN, _HIGH, f"the tests could not run: {tests.reason}")]
    if tests.outcome is TestsOutcome.NO_TESTS:
        return [told(Check.NO_TESTS, _MEDIUM, "there are no tests: nothing speaks for this change")]
    lists = (
        (Check.NEWLY_FAILING, _HIGH, "newly fails", tests.newly_failing),
        (Check.STILL_FAILING, _LOW, "fails, with the patch as without", tests.still_failing),
        (Check.FLAKY, _LOW, "passes and fails without a reason", tests.flaky),
    )
    return [told(check, sev, f"{i} {what}") for check, sev, what, ids in lists for i in ids]


def _of_scanners(runs: tuple[ScannerRun, ...]) -> list[Finding]:
    return [
        Finding(
            check=Check.SCANNER_NOT_RUN,
            severity=_MEDIUM,
            tool=run.tool,
            message=f"{run.tool} {_told(run.outcome)}: {run.detail}",
        )
        for run in runs
        if run.outcome not in (ScanOutcome.RAN, ScanOutcome.NO_RULES)
    ]


def _told(outcome: ScanOutcome) -> str:
    if outcome is ScanOutcome.NOT_CHECKED:
        return "could not check everything"
    return f"did not run ({outcome.value.replace('_', ' ')})"
