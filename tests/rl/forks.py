"""Work that is killed again and again, in children of one process: nothing is imported anew."""

import os
import random
import signal
import time
from collections.abc import Callable


def killed_often(
    work: Callable[[], None],
    seen: Callable[[], int],
    kills: int,
    rng: random.Random,
    most: float = 0.5,
) -> int:
    """Begin ``work`` ``kills`` times and end each with kill -9; how often it was still at it.

    ``seen`` measures what it has left on disk: most are killed some time after they have left
    something new (up to ``most`` seconds), some earlier.
    """
    hits = 0
    for _ in range(kills):
        before, deadline = seen(), time.monotonic() + 120
        child = os.fork()
        if not child:
            try:
                work()
            finally:
                os._exit(0)
        early = rng.random() < 0.2
        while not early and seen() <= before and time.monotonic() < deadline:
            if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.01)
        time.sleep(rng.uniform(0, most))
        os.kill(child, signal.SIGKILL)
        hits += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    return hits
