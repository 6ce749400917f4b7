"""Keeps a policy's reasoning apart from what it says and calls."""

_OPEN, _CLOSE = "<think>", "</think>"


def split(text: str, *, opened: bool = False) -> tuple[str, str]:
    """``(reasoning, the rest)`` of one turn.

    ``opened``: the prompt already ended inside the reasoning. A closing tag without an opening
    one counts where no tool call comes before it; reasoning without an end is all reasoning.
    """
    body = text.lstrip()
    inside = opened or body.startswith(_OPEN)
    if body.startswith(_OPEN):
        body = body[len(_OPEN) :]
    reasoning, closing, rest = body.partition(_CLOSE)
    called = "<tool_call" in reasoning or "<function=" in reasoning
    if closing and (inside or not called):
        return reasoning.strip(), rest
    return (body.strip(), "") if inside else ("", text)
