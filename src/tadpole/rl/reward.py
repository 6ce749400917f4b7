"""Rewards of one episode. Pure.

Two rewards are kept apart: the RAW task reward decides which groups are trained on, the SHAPED
reward (length term on successes only) gives the advantage.
"""

import math

from tadpole.outcome import OUTCOME_POLICY, Outcome, StopReason


def raw_reward(outcome: Outcome, stop: StopReason, truncated: float = 0.5) -> float | None:
    """1 for a success that ended by itself, ``truncated`` for one that a limit cut, else 0.

    None where the attempt must not be used at all (the environment failed).
    """
    if not OUTCOME_POLICY[outcome].trust:
        return None
    if outcome is not Outcome.RESOLVED:
        return 0.0
    return 1.0 if stop is StopReason.AGENT else truncated


def shaped_reward(raw: float, generated: int, *, free: int, alpha: float, floor: float) -> float:
    """Length shaping of whole successes: 1 - alpha ln(n / N) beyond N = ``free`` tokens.

    ``generated`` counts the tokens that the policy generated. ``alpha`` 0 switches it off.
    ``floor`` keeps a success at or above a truncated success. Anything below 1 is left alone.
    """
    if raw < 1.0 or alpha == 0 or generated <= free:
        return raw
    return max(floor, 1.0 - alpha * math.log(generated / free))
