"""Which lines a change adds, and the stretches of text around them."""

import difflib
from dataclasses import dataclass
from functools import lru_cache

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


@lru_cache(maxsize=64)  # one change is asked about many times, each time the same
def stretches(old: bytes | None, new: bytes | None) -> tuple[Stretch, ...]:
    """What a file gains and where it loses, in the order of the new text.

    Only what lies between the first and the last difference is compared line by line.
    """
    before, after = lines_of(old or b""), lines_of(new or b"")
    shorter = min(len(before), len(after))
    head = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    left = shorter - head
    tail = next((n for n in range(left) if before[-1 - n] != after[-1 - n]), left)
    old_part, new_part = before[head : len(before) - tail], after[head : len(after) - tail]
    matcher = difflib.SequenceMatcher(None, old_part, new_part, autojunk=False)
    return tuple(
        Stretch(head + start + 1, tuple(new_part[start:end]))
        for tag, _, _, start, end in matcher.get_opcodes()
        if tag != "equal"
    )


def lines_of(content: bytes) -> list[str]:
    """The lines of a file, by Python's own rule, without their endings."""
    return LINE_END.split(content.decode("utf-8", "replace"))


def squeezed(text: str) -> str:
    """A text with every run of blanks as one: indentation and wrapping do not hide a copy."""
    return " ".join(text.split())
