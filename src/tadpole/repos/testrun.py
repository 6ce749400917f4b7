"""Runs tests in a sandbox and reads exact node ids and statuses, never standard output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tadpole.outcome import TestStatus
from tadpole.protocols import ExecReason, Sandbox, SandboxSpec
from tadpole.task import Recipe


@dataclass(frozen=True)
class Failure:
    """Why a test did not pass."""

    message: str  # "AssertionError: assert 3 == 4"; may have several lines
    path: str = ""  # where it was raised, relative to the work directory where inside it
    line: int = 0
    text: str = ""  # pytest's report of it; empty unless details were asked for


@dataclass(frozen=True)
class TestReport:
    """One test run. Where ids were asked for, exactly those are in ``statuses``."""

    __test__ = False  # not a test class for pytest

    statuses: Mapping[str, TestStatus]  # in the order they ran
    seconds: Mapping[str, float]  # set-up, call and tear-down together
    exit_code: int
    collected: bool  # False: pytest never got through collection
    output_tail: str = ""
    failures: Mapping[str, Failure] = field(default_factory=dict)
    collection_errors: Mapping[str, str] = field(default_factory=dict)  # node id -> message
    contexts: Mapping[str, Mapping[int, Sequence[str]]] = field(default_factory=dict)
    reason: ExecReason = ExecReason.EXITED
    wall: float = 0.0

    @property
    def passed(self) -> frozenset[str]:
        """Ids that passed."""
        return frozenset(i for i, s in self.statuses.items() if s is TestStatus.PASSED)


def with_reporter(spec: SandboxSpec) -> SandboxSpec:
    """The same box with the reporter bound read-only, so that :func:`run_tests` works in it."""
    raise NotImplementedError


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
    cover: Sequence[Path] | None = None,
) -> TestReport:
    """Run the suite (``ids`` None) or exactly these node ids."""
    raise NotImplementedError
