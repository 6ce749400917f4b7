"""One record of an episode, from session to training sample to audit.

Token ids are those that the policy sampled and saw: nothing is ever tokenized again. All four
token lists of a :class:`Tokens` have one length, one unbroken context. An episode has one of
them, and two more for every compaction: the context in which the policy wrote its summary, and
the one that it went on from. Each sampled token has mask 1 in exactly one of them.
"""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tadpole.outcome import GradeStatus, Outcome, StopReason, Tier

FORMAT: Literal[1] = 1
TRACE_FORMAT: Literal[2] = 2  # 1 had neither compactions nor recoveries; it is read as it is


class Record(BaseModel):
    """Base of all persisted rows: frozen, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(Record):
    """One call as parsed from the policy's text; ``error`` says why it could not be run."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    error: str | None = None
    repaired: bool = False  # the parser had to guess at the syntax
    call_id: str = ""


class Observation(Record):
    """What a tool call gave back, as the policy saw it."""

    text: str
    error: bool = False
    seconds: float = 0.0


class Turn(Record):
    """One assistant turn: the raw text, what was read from it, and what the calls returned."""

    text: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    observations: tuple[Observation, ...] = ()
    generated_tokens: int = 0
    sample_seconds: float = 0.0


class Compaction(Record):
    """The window was full: the policy wrote a summary and went on from that."""

    turn: int  # turns before it
    dropped: int  # oldest whole turns that were left out when it was asked for the summary
    before: int  # tokens of context that called for it
    after: int  # tokens of context that it went on from; 0 where no summary came of it
    text: str  # all that the policy wrote
    summary: str  # the same without its reasoning
    generated_tokens: int = 0
    sample_seconds: float = 0.0


class Tokens(Record):
    """One context as the policy saw it. Prompt and tool tokens: mask 0, log-probability 0."""

    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()  # nats, under the sampling distribution
    loss_mask: tuple[int, ...] = ()  # 1 where the policy generated the token in this context
    versions: tuple[int, ...] = ()  # policy version that sampled it, -1 elsewhere

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if len({len(self.ids), len(self.logprobs), len(self.loss_mask), len(self.versions)}) > 1:
            raise ValueError("ids, logprobs, loss_mask and versions differ in length")
        return self


class Trace(Record):
    """One episode. ``tokens`` is its last context, ``earlier`` are those before a compaction."""

    format: Literal[1, 2] = TRACE_FORMAT
    task: str  # task id
    policy: str  # fingerprint of the policy at the start of the episode
    seed: int
    system: str
    statement: str
    turns: tuple[Turn, ...]
    stop: StopReason
    tokens: Tokens = Tokens()
    earlier: tuple[Tokens, ...] = ()
    compactions: tuple[Compaction, ...] = ()
    recoveries: int = 0  # how often the environment died and was made again
    seconds: float = 0.0
    error: str = ""  # for the stops that are not graded

    @property
    def segments(self) -> tuple[Tokens, ...]:
        """All contexts in order; what is trained on is each of them with its own prefix."""
        return (*self.earlier, self.tokens)

    @property
    def generated_tokens(self) -> int:
        """Tokens that the policy generated over the whole episode, its summaries included."""
        summaries = sum(one.generated_tokens for one in self.compactions)
        return summaries + sum(turn.generated_tokens for turn in self.turns)


class Grade(Record):
    """What the grader says of one work tree."""

    status: GradeStatus
    resolved: bool = False
    failing: tuple[str, ...] = ()  # expected ids that did not pass
    dropped: tuple[str, ...] = ()  # files of the agent that were not taken into grading
    reason: str = ""  # one line, for a person
    tier: Tier = Tier.HARDENED  # how it was proven
    seconds: float = 0.0


class Attempt(Record):
    """One row per attempt at a task: identity is (task, policy, sample)."""

    format: Literal[1] = FORMAT
    task: str
    task_name: str
    policy: str
    sample: int  # index among the attempts of this policy at this task
    stop: StopReason
    outcome: Outcome
    reward: float | None  # raw task reward; None where it must not be trusted
    turns: int
    generated_tokens: int
    seconds: float
    grade: Grade | None = None
    trace: str = ""  # path in the run directory
    patch: str = ""
