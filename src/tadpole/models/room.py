"""How much of a context a prompt leaves to answer in."""

from collections.abc import Sequence

from tadpole.errors import ContextFull, ModelError


def room(prompt_ids: Sequence[int], max_context: int) -> int:
    """Tokens that may follow ``prompt_ids``.

    Raises ContextFull where that is none, and ModelError for a prompt of no tokens.
    """
    if not prompt_ids:
        raise ModelError("an empty prompt cannot be continued")
    left = max_context - len(prompt_ids)
    if left <= 0:
        raise ContextFull(f"{len(prompt_ids)} prompt tokens, {max_context} are the limit")
    return left
