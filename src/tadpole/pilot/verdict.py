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
    FREE = "the grader passes an empty patch"
    UNSOLVED = "the grader does not pass the repair"
    WEAK = "the tests notice too few wrong repairs"
    DUPLICATE = "the same function and the same tests as another task"


class Stage(StrEnum):
    """How far a candidate came."""

    PROPOSED = "proposed"
    NOTICED = "noticed by tests"
    CONFIRMED = "confirmed"
    GATED = "through the grader"
    KEPT = "kept"


LAST_STAGE: dict[DropReason, Stage] = {
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
    DropReason.FREE: Stage.CONFIRMED,
    DropReason.UNSOLVED: Stage.CONFIRMED,
    DropReason.WEAK: Stage.CONFIRMED,
    DropReason.DUPLICATE: Stage.GATED,
}


class Dropped(Exception):
    """Ends the validation of one candidate."""

    def __init__(self, reason: DropReason) -> None:
        super().__init__(reason.value)
        self.reason = reason
