"""When attempts at a task have said enough about its pass rate: pure, and nothing but counts.

A task belongs to the round when of N attempts at it a number inside the band succeed, never none
and never all. The verdict is often fixed long before: when whatever the rest brings would not
change it, the rest is not made. A probe goes further and gives up a task that was never (or
always) solved in its first attempts: that can be wrong, and saves most of what fixed N costs.
``bench/calibration.py`` shows what each choice costs and finds.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

_HAIR = 1e-9  # 0.3 * 10 is a hair above 3


class Verdict(StrEnum):
    """What is known of a task's pass rate."""

    OPEN = "could not tell"  # more attempts are owed
    KEEP = "inside the band"
    TOO_HARD = "solved too rarely"
    TOO_EASY = "solved too often"


@dataclass(frozen=True)
class Rule:
    """N attempts, the pass rates that are kept, and the attempts of the probe.

    ``probe`` 0, or ``samples`` and more: nothing is given up before its verdict is fixed.
    """

    samples: int = 8
    low: float = 0.0
    high: float = 1.0
    probe: int = 0

    @property
    def fewest(self) -> int:
        """Least successes of N that are kept: 1 or more, because none teaches nothing."""
        return max(1, math.ceil(self.low * self.samples - _HAIR))

    @property
    def most(self) -> int:
        """Most successes of N that are kept: N - 1 or fewer, because all teach nothing."""
        return min(self.samples - 1, math.floor(self.high * self.samples + _HAIR))

    @property
    def possible(self) -> bool:
        """Whether any count of successes is kept at all."""
        return self.fewest <= self.most

    def verdict(self, passes: int, valid: int) -> Verdict:
        """What ``passes`` of ``valid`` attempts say; OPEN where more could still change it.

        Only attempts that count are given: what infrastructure broke is in neither number.
        """
        left = max(0, self.samples - valid)
        if passes > self.most:
            return Verdict.TOO_EASY
        if passes + left < self.fewest:
            return Verdict.TOO_HARD
        if passes >= self.fewest and passes + left <= self.most:
            return Verdict.KEEP
        if 0 < self.probe <= valid:
            if passes == 0:
                return Verdict.TOO_HARD
            if passes == valid:
                return Verdict.TOO_EASY
        return Verdict.OPEN

    def owed(self, passes: int, valid: int) -> int:
        """How many more attempts are needed in any case: the fewest that can fix a verdict.

        They may be made side by side without making one for nothing. 0 where it is fixed.
        """
        for more in range(self.samples - valid + 1):
            fixed = (self.verdict(passes + won, valid + more) for won in range(more + 1))
            if any(verdict is not Verdict.OPEN for verdict in fixed):
                return more
        return 0
