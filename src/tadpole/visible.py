"""Text of others made safe: to keep, and to print where a terminal would obey some of it."""

import unicodedata

# Python counts them as printable, and nothing is seen of them: fillers, a blank pattern, joiners,
# and selectors of a variant.
_UNSEEN = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180F, 0x2800, 0x3164, 0xFFA0),
            *(*range(0x180B, 0x180E), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
        ),
    )
)
_EMOJI_STYLE = "\ufe0e\ufe0f"
_STYLED = "#*0123456789\u203c\u2049\u2139\u3030"  # beside all symbols


def visible(text: str, *, lines: bool = False) -> str:
    """``text`` with every control, format, unseen and unassigned character spelled out.

    ``lines``: line ends and tabs stay as they are. Bytes that are no UTF-8, carried as
    surrogates, become ``\\xNN``. The result is safe to print on a terminal.
    """
    return "".join(
        char
        if (char.isprintable() and not unseen(char, before)) or (lines and char in "\n\t")
        else _spelled(char)
        for before, char in zip(" " + text, text, strict=False)
    )


def unseen(char: str, before: str) -> bool:
    """Whether nothing is seen of ``char``, though it counts as printable.

    ``before`` is the character that it follows: of an emoji, its style may be said.
    """
    if char in _EMOJI_STYLE and (unicodedata.category(before) in ("So", "Sm") or before in _STYLED):
        return before in _UNSEEN
    return char in _UNSEEN


def whole(text: str) -> str:
    """``text`` with ``?`` for half characters (lone surrogates), which no file or record takes."""
    return text.encode("utf-8", "replace").decode()


def _spelled(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or code == 0x7F:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\x{code:02x}")
    return f"<U+{code:04X}>"
