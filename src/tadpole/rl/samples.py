"""What of an episode is trained on. Pure."""

from tadpole.trace import Tokens, Trace


def contexts(trace: Trace) -> tuple[Tokens, ...]:
    """The unbroken contexts of an episode, each of which is trained on with its own prefix."""
    return trace.segments


def versions(trace: Trace) -> tuple[int, int]:
    """(oldest, newest) version that sampled a token of it; without any: newer than all, -1."""
    found = [version for one in contexts(trace) for version in one.versions if version >= 0]
    return (min(found), max(found)) if found else (1 << 30, -1)
