"""The groups that a climb on verl has rolled out, by the rows of the processes that play them.

verl hands its trainer the groups that it trains on, and of the others a count. A row of ours is
about all that were rolled out, as that of a local climb is.
"""

from collections.abc import Iterator

from tadpole.engines.verl.places import SESSIONS
from tadpole.outcome import OUTCOME_POLICY
from tadpole.rl.advantage import has_signal
from tadpole.rl.metrics import ROLLOUTS
from tadpole.rundir import RunDir
from tadpole.trace import Attempt

Group = list[Attempt]


class Rolled:
    """Reads on in the rollouts of a run, from where they stand when it is made.

    ``size`` is the number of episodes of a group.
    """

    def __init__(self, rundir: RunDir, size: int):
        self._path, self._size = rundir.table(ROLLOUTS), size
        self._read = self._path.stat().st_size if self._path.exists() else 0
        self._begun: dict[tuple[str, int], Group] = {}  # groups that are not whole yet

    def without_signal(self) -> list[Group]:
        """The groups that became whole since this was asked last and have rewards all alike."""
        found = []
        for attempt in self._new():
            if not OUTCOME_POLICY[attempt.outcome].trust:
                continue  # its episode is made again, or its group thrown away
            drawing = (attempt.task, attempt.sample // SESSIONS)
            group = self._begun.setdefault(drawing, [])
            group.append(attempt)
            if len(group) == self._size:
                del self._begun[drawing]
                if not has_signal([float(one.reward or 0.0) for one in group]):
                    found.append(group)
        return found

    def _new(self) -> Iterator[Attempt]:
        if not self._path.exists():
            return
        with self._path.open("rb") as table:
            table.seek(self._read)
            data = table.read()
        whole = data[: data.rfind(b"\n") + 1]  # the last line may be being written
        self._read += len(whole)
        for line in whole.splitlines():
            yield Attempt.model_validate_json(line)
