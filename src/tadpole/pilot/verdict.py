"""Why a candidate became no task. Kept in the journal and counted in the yield report."""

from enum import StrEnum


class DropReason(StrEnum):
    """The text is for a person."""

    SURVIVED = "no test notices the change"
    BREAKS_COLLECTION = "tests can no longer be collected"
    VANISHED = "a stable test did not run"
    HANGS = "a test no longer ends"
    TOO_SLOW = "the tests took too long"
    TOO_MANY = "too many tests fail"
    UNREACHED = "a failing test does not execute the change"
    UNSTABLE = "not the same result under other hash seeds or in another order"
    SUITE_DIFFERS = "the whole suite does not fail in the same tests"
    NOTHING_STAYS = "no test is left that must stay green"
    UNHIDEABLE = "a failing test cannot be taken out of its file"
    VISIBLE_BROKEN = "the tests that stay visible do not run without the hidden ones"
    UNDICTATED = "the repair cannot be told by a unique text"
    PART_IDLE = "one of its bugs changes nothing of its own"
    FREE = "the grader passes a change that does nothing"
    OTHERS_FAIL = "without the repair the grader sees other tests fail"
    NO_STATEMENT = "no statement, or one that is far too short or long"
    NO_TESTS = "no tests were written"
    NO_SOLUTION = "no solution was written"
    TESTS_CHANGED = "tests of the repository were changed: new ones belong in files of their own"
    UNREADABLE = "a file that was written is no Python, or far too large"
    OWN_TESTS_FAIL = "the written tests do not pass on the written solution"
    BREAKS_TESTS = "the solution breaks tests that passed"
    SOLUTION_EDITS_TESTS = "the solution edits tests, or what runs them"
    STATEMENT_LEAKS = "the statement quotes the solution or the tests"
    READABLE = "a copy of the solution or of a hidden test can be read"
    UNTOLD = "the statement leaves out what the tests ask for"
    UNSOLVED = "the grader does not pass the repair"
    PASSES_DELETED = "the grader passes the repair without the edited function"
    PASSES_BROKEN = "the grader passes an edited file that is no Python"
    WEAK = "the tests notice too few wrong repairs"
    DUPLICATE = "the same function and the same tests as another task"
    ALIKE = "nearly the same repair as another task"
    CAPPED = "the round has enough that are like it"


class Stage(StrEnum):
    """How far a candidate came."""

    PROPOSED = "proposed"
    NOTICED = "noticed by tests"
    CONFIRMED = "confirmed"
    GATED = "through the grader"
    KEPT = "kept"


LAST_STAGE: dict[DropReason, Stage] = {
    DropReason.ALIKE: Stage.PROPOSED,
    DropReason.CAPPED: Stage.PROPOSED,
    DropReason.SURVIVED: Stage.PROPOSED,
    DropReason.BREAKS_COLLECTION: Stage.PROPOSED,
    DropReason.VANISHED: Stage.PROPOSED,
    DropReason.HANGS: Stage.PROPOSED,
    DropReason.TOO_SLOW: Stage.PROPOSED,
    DropReason.UNDICTATED: Stage.PROPOSED,
    DropReason.TOO_MANY: Stage.NOTICED,
    DropReason.UNREACHED: Stage.NOTICED,
    DropReason.UNSTABLE: Stage.NOTICED,
    DropReason.SUITE_DIFFERS: Stage.NOTICED,
    DropReason.NOTHING_STAYS: Stage.NOTICED,
    DropReason.UNHIDEABLE: Stage.NOTICED,
    DropReason.VISIBLE_BROKEN: Stage.NOTICED,
    DropReason.PART_IDLE: Stage.NOTICED,
    DropReason.NO_STATEMENT: Stage.PROPOSED,
    DropReason.NO_TESTS: Stage.PROPOSED,
    DropReason.NO_SOLUTION: Stage.PROPOSED,
    DropReason.TESTS_CHANGED: Stage.PROPOSED,
    DropReason.UNREADABLE: Stage.PROPOSED,
    DropReason.OWN_TESTS_FAIL: Stage.PROPOSED,
    DropReason.BREAKS_TESTS: Stage.PROPOSED,
    DropReason.SOLUTION_EDITS_TESTS: Stage.PROPOSED,
    DropReason.STATEMENT_LEAKS: Stage.PROPOSED,
    DropReason.READABLE: Stage.CONFIRMED,
    DropReason.UNTOLD: Stage.PROPOSED,
    DropReason.FREE: Stage.CONFIRMED,
    DropReason.UNSOLVED: Stage.CONFIRMED,
    DropReason.OTHERS_FAIL: Stage.CONFIRMED,
    DropReason.PASSES_DELETED: Stage.CONFIRMED,
    DropReason.PASSES_BROKEN: Stage.CONFIRMED,
    DropReason.WEAK: Stage.CONFIRMED,
    DropReason.DUPLICATE: Stage.GATED,
}


class Dropped(Exception):
    """Ends the validation of one candidate. ``detail``: what tells more, in words."""

    def __init__(self, reason: DropReason, detail: str = "") -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.detail = detail
