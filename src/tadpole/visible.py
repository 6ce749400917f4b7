"""Text of others made safe: to keep, and to print where a terminal would obey some of it."""


def visible(text: str, *, lines: bool = False) -> str:
    """``text`` with every control, format and unassigned character spelled out.

    ``lines``: line ends and tabs stay as they are. Bytes that are no UTF-8, carried as
    surrogates, become ``\\xNN``. The result is safe to print on a terminal.
    """
    return "".join(c if lines and c in "\n\t" else _shown(c) for c in text)


def whole(text: str) -> str:
    """``text`` with ``?`` for half characters (lone surrogates), which no file or record takes."""
    return text.encode("utf-8", "replace").decode()


def _shown(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or code == 0x7F:
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char, f"\\x{code:02x}")
    return f"<U+{code:04X}>"
