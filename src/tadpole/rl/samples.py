"""What of an episode is trained on. Pure."""

from collections.abc import Iterable

from tadpole.trace import Tokens, Trace


def contexts(trace: Trace) -> tuple[Tokens, ...]:
    """The unbroken contexts of an episode, each of which is trained on with its own prefix."""
    return trace.segments


def lags(traces: Iterable[Trace], update: int) -> list[int]:
    """By how many updates each trained token lags behind the weights that ``update`` trains."""
    return [
        update - 1 - version
        for trace in traces
        for tokens in contexts(trace)
        for version, mask in zip(tokens.versions, tokens.loss_mask, strict=True)
        if mask
    ]


def versions(trace: Trace) -> tuple[int, int]:
    """(oldest, newest) version that sampled a token of it; without any: newer than all, -1."""
    found = [version for one in contexts(trace) for version in one.versions if version >= 0]
    return (min(found), max(found)) if found else (1 << 30, -1)
