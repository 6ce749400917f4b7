"""The few episodes that a report shows: chosen so that they tell something, cut to be read."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tadpole.errors import RunError
from tadpole.evals.scoreboard import Scoreboard, settled
from tadpole.outcome import Outcome
from tadpole.rundir import RunDir
from tadpole.trace import Attempt, ToolCall, Trace

TEXT = 4000  # characters shown of one text


@dataclass(frozen=True)
class Episode:
    """One episode to be read turn by turn."""

    title: str
    attempt: Attempt
    trace: Trace
    patch: str


def choose(
    run: RunDir,
    attempts: Sequence[Attempt],
    before: Scoreboard | None,
    after: Scoreboard | None,
) -> list[Episode]:
    """A task that training made solvable, before and after; then what still goes wrong."""
    rows = [row for row in settled(attempts) if row.trace]
    one = {row.task: row for row in rows if before and row.policy == before.policy
           and row.outcome is not Outcome.RESOLVED}  # fmt: skip
    other = [row for row in rows if after and row.policy == after.policy]
    picked: list[tuple[str, Attempt]] = []
    solved = [row for row in other if row.outcome is Outcome.RESOLVED]
    pair = next((row for row in solved if row.task in one), None)
    if pair is not None:
        picked += [("before training", one[pair.task]), ("after training", pair)]
    elif solved:
        picked.append(("after training", solved[0]))
    for outcome in (Outcome.WRONG_PATCH, Outcome.LIMIT_HIT, Outcome.EMPTY_PATCH, Outcome.TAMPERED):
        picked += [("after training", row) for row in other if row.outcome is outcome][:1]
    if not other:
        picked += [("before training", row) for row in one.values()][:2]
    episodes = [_read(run, title, row) for title, row in picked]
    return [episode for episode in episodes if episode is not None]


def _read(run: RunDir, title: str, row: Attempt) -> Episode | None:
    try:
        trace = run.load_trace(row.trace)
        patch = (run.path / row.patch).read_text(errors="replace") if row.patch else ""
    except (RunError, OSError):
        return None  # an episode less; the rows still count
    return Episode(title, row, trace, patch)


def clip(text: str, limit: int = TEXT) -> str:
    """The head and the tail of a long text, and how much is left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"


def prose(text: str) -> str:
    """What a turn says before its first tool call."""
    return re.split(r"<tool_call>|<function=", text, maxsplit=1)[0].strip()


def call_line(call: ToolCall) -> str:
    """A tool call for a person: name, and one argument a line."""
    arguments = [f"{name}: {_plain(value)}" for name, value in call.arguments.items()]
    return "\n".join([call.name, *arguments])


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
