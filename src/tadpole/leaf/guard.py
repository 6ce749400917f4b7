"""Notices a policy that goes round in circles: warns it once, then ends the episode."""

import json
import re
from enum import StrEnum

from tadpole.trace import Observation, ToolCall

WARNING = (
    "[You are repeating yourself: the same call gave the same result again. Do something else, "
    "or answer without a call to finish. The next repetition ends the work.]"
)
# A test run's time is no new result: "in 61.05s (0:01:01)".
_DURATION = re.compile(r"\bin \d+(?:\.\d+)?s\b(?: \(\d+:\d\d:\d\d\))?")
_UNCOUNTED = "description"  # says the same of a command in other words


class Verdict(StrEnum):
    """What the guard says after a call."""

    FINE = "fine"
    WARN = "warn"
    STOP = "stop"


class LoopGuard:
    """Caught: one call with one result three times in a row, two of them in turn (A-B-A-B), three
    calls in a row that cannot be read. A call whose result changes (polling) is not a loop."""

    def __init__(self) -> None:
        self._history: list[str] = []
        self._warned = False  # once in an episode
        self._told = False  # the policy has seen the warning: it has answered since

    def next_turn(self) -> None:
        """The policy has read what was observed so far, and speaks again."""
        self._told = self._warned

    def see(self, call: ToolCall, observation: Observation) -> Verdict:
        """Take note of one call and its result."""
        if call.error is not None:
            key = "unreadable"
        else:
            told = {name: value for name, value in call.arguments.items() if name != _UNCOUNTED}
            arguments = json.dumps(told, sort_keys=True)
            key = f"{call.name} {arguments} {_DURATION.sub('', observation.text)}"
        self._history = [*self._history[-3:], key]
        if not self._circles():
            return Verdict.FINE
        if self._warned:  # the rest of a turn was written before its warning could be read
            return Verdict.STOP if self._told else Verdict.FINE
        self._warned = True
        return Verdict.WARN

    def _circles(self) -> bool:
        last = self._history[-3:]
        if len(last) == 3 and len(set(last)) == 1:
            return True
        return len(self._history) == 4 and self._history[:2] == self._history[2:]
