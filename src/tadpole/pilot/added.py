"""Which lines a change adds, and the stretches of text around them."""

import difflib
from dataclasses import dataclass

from tadpole.pilot.code import LINE_END


@dataclass(frozen=True)
class Stretch:
    """Lines that a change adds, one after the other: 1-based, in the new text; may be none.

    Where lines are only taken out, ``first`` is the line that now stands in their place and
    ``lines`` is empty.
    """

    first: int
    lines: tuple[str, ...]

    @property
    def numbers(self) -> range:
        """The lines whose execution means that the change was reached."""
        return range(self.first, self.first + max(1, len(self.lines)))


def stretches(old: bytes | None, new: bytes | None) -> list[Stretch]:
    """What a file gains and where it loses, in the order of the new text."""
    before, after = lines_of(old or b""), lines_of(new or b"")
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return [
        Stretch(start + 1, tuple(after[start:end]))
        for tag, _, _, start, end in matcher.get_opcodes()
        if tag != "equal"
    ]


def lines_of(content: bytes) -> list[str]:
    """The lines of a file, by Python's own rule, without their endings."""
    return LINE_END.split(content.decode("utf-8", "replace"))


def squeezed(text: str) -> str:
    """A text with every run of blanks as one: indentation and wrapping do not hide a copy."""
    return " ".join(text.split())
