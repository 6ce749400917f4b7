"""Characters that a person would not see, made visible; and found in what a patch adds.

Guards against: text that reads otherwise than it runs (bidirectional controls, zero-width
characters: CVE-2021-42574), text that is there and shows nothing (fillers, variation selectors),
and terminal escape codes in file names, code, or a model's words.
"""

import unicodedata

from tadpole.visible import unseen, visible
from tadpole.workbench.change import Change
from tadpole.workbench.finding import Check, Finding, Severity

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def odd_text(change: Change) -> list[Finding]:
    """Paths and added lines with characters that hide or reorder what is written."""
    found = []
    for file in change.files:
        if visible(file.path) != file.path:
            found.append(
                Finding(
                    check=Check.ODD_TEXT,
                    severity=Severity.HIGH,
                    path=file.path,
                    rule="path",
                    message=f"characters that cannot be seen in its name: {visible(file.path)}",
                )
            )
        if file.binary:
            continue
        old = set(_lines(file.side(new=False).content))
        for number, line in enumerate(_lines(file.side(new=True).content), start=1):
            pairs = zip(" " + line, line, strict=False)
            odd = sorted({char for before, char in pairs if _hides(char, before)})
            if odd and line not in old:
                told = " ".join(f"U+{ord(c):04X}" for c in odd)
                found.append(
                    Finding(
                        check=Check.ODD_TEXT,
                        severity=Severity.HIGH,
                        path=file.path,
                        line=number,
                        rule="hidden-character",
                        message=f"holds characters that cannot be seen: {told}",
                    )
                )
    return found


def _lines(content: bytes | None) -> list[str]:
    return (content or b"").decode("utf-8", "surrogateescape").split("\n")


def _hides(char: str, before: str) -> bool:
    if char.isprintable():
        return unseen(char, before)
    if char in "\t\r\f" or 0xDC80 <= ord(char) <= 0xDCFF:
        return False
    return char in _BIDI or unicodedata.category(char) in ("Cf", "Cc", "Co", "Cn", "Zl", "Zp")
