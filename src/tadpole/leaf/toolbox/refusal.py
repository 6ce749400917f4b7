"""Why a text is not in a file, as the next thing to do."""

import re

from .files import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CURLY = {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'}


def _unnumbered(text: str) -> str:
    return re.sub(r"(?m)^[ \t]*\d+(\. |\.$|[:|\t])", "", text)


def _alike(text: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFKC", re.sub("[\u200b-\u200f\u2060\ufeff\xad]", "", text))


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')


# What may be wrong with an old_string: (the reason, done to the text, done to the file too).
_SLIPS: "tuple[tuple[str, Callable[[str], str], bool], ...]" = (
    ("leave out the line numbers that Read puts before each line", _unnumbered, False),
    ("it has backslash escapes where the file has the characters themselves", _unescaped, False),
    (
        "it differs only in trailing spaces",
        lambda text: re.sub(r"(?m)[ \t]+$", "", text),
        True,
    ),
    ("it differs only in indentation", lambda text: re.sub(r"(?m)^[ \t]+", "", text), True),
    ("it has other quotes than the file", lambda text: text.translate(_CURLY), True),
    ("it differs only in upper and lower case", lambda text: text.lower(), True),
    ("it has other characters that look the same", _alike, True),
)


def why_not(flat: str, old: str, shown: str, earlier: "Sequence[str]") -> str:
    """Why ``old`` is not in the file, as the next thing to do."""
    if any(old in version.replace("\r\n", "\n") for version in earlier if version != flat):
        return f"{shown} has changed since you read it and old_string is gone; Read it again"
    lines, wanted = flat.split("\n"), old.split("\n")
    for reason, change, both in _SLIPS:
        needle, hay = change(old), change(flat) if both else flat
        at = hay.find(needle) if needle.strip() else -1
        if at >= 0:
            first = hay.count("\n", 0, at)
            here = lines[first : first + needle.count("\n") + 1]
            why = _indentation(here, wanted) if "indentation" in reason else reason
            quoted = _escaped if change is _alike else _quoted
            shows = "\n".join(quoted(line) for line in here[:8])
            return f"old_string is not in {shown}: {why}. From line {first + 1} it has:\n{shows}"
    return f"old_string is not in {shown}{_nearest(lines, wanted)}"


def _quoted(line: str) -> str:
    text = visible(line)
    return repr(text) if len(text) <= 300 else repr(text[:300]) + "..."


def _escaped(line: str) -> str:
    return ascii(visible(line[:300]))


def _indentation(here: "Sequence[str]", wanted: "Sequence[str]") -> str:
    def any_with(lines: "Sequence[str]", begin: str) -> bool:
        return any(line.startswith(begin) for line in lines)

    if any_with(here, "\t") and any_with(wanted, " "):
        return "indented with tabs here, spaces in your text"
    if any_with(here, " ") and any_with(wanted, "\t"):
        return "indented with spaces here, tabs in your text"
    return "it differs only in indentation"


def _nearest(lines: "Sequence[str]", wanted: "Sequence[str]") -> str:
    """Where the file comes closest to the wanted lines, and the first line that differs."""
    wanted = [line.strip() for line in wanted if line.strip()] or [""]
    numbered = [(k, line.strip()) for k, line in enumerate(lines, 1) if line.strip()]
    numbered.append((len(lines), ""))
    best = (0, 0)
    for k in [k for k, (_, line) in enumerate(numbered) if line == wanted[0]][:50]:
        same = 1
        while same < len(wanted) and numbered[k + same][1] == wanted[same]:
            same += 1
        if best[0] < same < len(wanted):
            best = (same, k)
    if best[0]:
        number, line = numbered[sum(best)]
        return f": line {number} there is {_quoted(line)}, in your text {_quoted(wanted[best[0]])}"
    import difflib

    short = [line for _, line in numbered[:20000] if len(line) < 300]
    for close in difflib.get_close_matches(wanted[0][:300], short, 1, 0.6):
        number = next(k for k, line in numbered if line == close)
        return f"; the closest line is {number}: {_quoted(lines[number - 1])}"
    return "; Read the file and copy the text exactly"
