"""How things end, as enums, and the one table that says what each ending means.

"Failed" never stands for "could not tell": an infrastructure failure is an outcome of its
own, is tried again, and never becomes a reward of 0.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class StopReason(StrEnum):
    """Why an episode ended."""

    AGENT = "agent"  # a turn without a tool call: the policy is done
    MAX_TURNS = "max_turns"
    MAX_CONTEXT_LEN = "max_context_len"
    MAX_TOKENS_PER_TURN = "max_tokens_per_turn"
    MAX_TIME = "max_time"
    LOOP = "loop"  # the loop guard warned once and the policy went on repeating itself
    LLM_QUERY_ERROR = "llm_query_error"
    TOOL_ERROR = "tool_error"  # the sandbox, not the model's arguments
    CANCELLED = "cancelled"


class TestStatus(StrEnum):
    """How one test ended; anything that is not listed as expected counts as MISSING."""

    __test__ = False  # not a test class for pytest

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"
    MISSING = "missing"


class GradeStatus(StrEnum):
    """What a grading can say."""

    GRADED = "graded"
    INVALID = "invalid"  # infrastructure: the sample is not used
    TAMPERED = "tampered"  # evidence of cheating: reward 0, evidence kept


class Tier(IntEnum):
    """How a grade was proven (the research that it follows has a tier 2, which is none here)."""

    HARDENED = 1  # one run, observed from several sides
    CHALLENGED = 3  # and runs of rewritten tests, of which only the host knows which must fail


class Outcome(StrEnum):
    """Where one attempt at a task landed; the scoreboard's columns."""

    RESOLVED = "resolved"
    WRONG_PATCH = "wrong_patch"
    EMPTY_PATCH = "empty_patch"
    LIMIT_HIT = "limit_hit"  # not resolved, and a limit cut the episode
    TAMPERED = "tampered"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True)
class Policy:
    """What to do with an attempt that ended in some way."""

    grade: bool  # does its final work tree go to the grader?
    retry: bool  # is the same attempt owed again?
    trust: bool  # may its reward be trained on and counted in a scoreboard?


STOP_POLICY: dict[StopReason, Policy] = {
    StopReason.AGENT: Policy(grade=True, retry=False, trust=True),
    StopReason.MAX_TURNS: Policy(grade=True, retry=False, trust=True),
    StopReason.MAX_CONTEXT_LEN: Policy(grade=True, retry=False, trust=True),
    StopReason.MAX_TOKENS_PER_TURN: Policy(grade=True, retry=False, trust=True),
    StopReason.MAX_TIME: Policy(grade=True, retry=False, trust=True),
    StopReason.LOOP: Policy(grade=True, retry=False, trust=True),
    StopReason.LLM_QUERY_ERROR: Policy(grade=False, retry=True, trust=False),
    StopReason.TOOL_ERROR: Policy(grade=False, retry=True, trust=False),
    StopReason.CANCELLED: Policy(grade=False, retry=True, trust=False),
}

OUTCOME_POLICY: dict[Outcome, Policy] = {
    Outcome.RESOLVED: Policy(grade=True, retry=False, trust=True),
    Outcome.WRONG_PATCH: Policy(grade=True, retry=False, trust=True),
    Outcome.EMPTY_PATCH: Policy(grade=True, retry=False, trust=True),
    Outcome.LIMIT_HIT: Policy(grade=True, retry=False, trust=True),
    Outcome.TAMPERED: Policy(grade=True, retry=False, trust=True),
    Outcome.INFRASTRUCTURE: Policy(grade=False, retry=True, trust=False),
}


class Counting(StrEnum):
    """How a scoreboard counts an attempt whose work tree was graded so."""

    RESULT = "result"  # as what the tests said
    FAILURE = "failure"  # as not resolved, in a column of its own
    APART = "apart"  # in no rate: nothing is known


@dataclass(frozen=True)
class GradePolicy:
    """What to do with a grade."""

    retry: bool  # is the grading (and so the attempt) owed again?
    train: bool  # may its reward be trained on?
    count: Counting


GRADE_POLICY: dict[GradeStatus, GradePolicy] = {
    GradeStatus.GRADED: GradePolicy(retry=False, train=True, count=Counting.RESULT),
    GradeStatus.INVALID: GradePolicy(retry=True, train=False, count=Counting.APART),
    # The policy did that by itself, so that it has to learn that it is worth nothing.
    GradeStatus.TAMPERED: GradePolicy(retry=False, train=True, count=Counting.FAILURE),
}


def outcome_of(
    stop: StopReason, status: GradeStatus | None, resolved: bool, empty: bool
) -> Outcome:
    """Place an attempt. ``status`` is None where the work tree was never graded."""
    if not STOP_POLICY[stop].trust or status is None:
        return Outcome.INFRASTRUCTURE
    counted = GRADE_POLICY[status].count
    if counted is Counting.APART:
        return Outcome.INFRASTRUCTURE
    if counted is Counting.FAILURE:
        return Outcome.TAMPERED
    if resolved:
        return Outcome.RESOLVED
    if stop is not StopReason.AGENT:
        return Outcome.LIMIT_HIT
    return Outcome.EMPTY_PATCH if empty else Outcome.WRONG_PATCH
