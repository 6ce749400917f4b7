"""The five Leaf tools, as they run inside the sandbox. One file, standard library, Python 3.6+.

Protects the work tree from its tools: bytes that an edit does not name stay as they are (line
endings, byte order mark, bytes that are not UTF-8, mode, symlinks), a refused call changes
nothing, and no refusal is silent. It does not isolate anything: paths are kept to the work
directory and /tmp as a service to the model, the sandbox around this file is the wall.
"""

# Old syntax throughout, for this also runs where Python is 3.6. What only some calls need is
# imported by these: a box starts often, and its first call waits for all that is up here.

import bisect
import itertools
import os
import re
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    RunBash = Callable[[str, float], dict[str, Any]]

READ_CHARS = 20000
BASH_CHARS = 30000
GLOB_FILES = 1000
ERROR_CHARS = 4000
FILE_BYTES = 50 << 20
BASH_SECONDS = 120.0
MILLISECONDS_FROM = 10000  # a `timeout` this large was meant in milliseconds
BOM = b"\xef\xbb\xbf"

# What each tool takes: (name, type, required), in the order in which it is told to the model.
_UNTOLD = ("timeout_ms", "max_chars")  # accepted, but not offered
PARAMETERS: "dict[str, tuple[tuple[str, type, bool], ...]]" = {
    "Read": (
        ("file_path", str, True),
        ("offset", int, False),
        ("limit", int, False),
        ("max_chars", int, False),
    ),
    "Write": (("file_path", str, True), ("content", str, True)),
    "Edit": (
        ("file_path", str, True),
        ("old_string", str, True),
        ("new_string", str, True),
        ("replace_all", bool, False),
    ),
    "Glob": (("pattern", str, True), ("path", str, False), ("max_chars", int, False)),
    "Bash": (
        ("command", str, True),
        ("description", str, False),
        ("timeout", float, False),
        ("timeout_ms", float, False),
        ("max_chars", int, False),
    ),
}
_WORDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}

# Real path -> texts of the file that the model may still hold in its context (this session).
_seen: "dict[str, list[str]]" = {}
SEEN_CHARS = 4000000  # of all of them: a box keeps little while it waits

_CUT_NOTE = b"\n[... %d bytes cut ...]\n"  # stands where a bounded stream was cut


class Unfinished(Exception):
    """A command that did not come to its own end; its text is the whole observation."""


def call(name: str, arguments: "Any", workdir: str, run_bash: "RunBash") -> "tuple[str, bool]":
    """Run one tool and return ``(text, is_error)``; never raises for what the model did.

    ``run_bash(command, seconds)`` returns a dict with ``code``, ``stdout`` and ``stderr``
    (bytes), ``reason`` ("exited", "timeout", "memory", "cpu", "output", "signal"), ``seconds``, and
    where a stream was bounded ``stdout_cut``/``stderr_cut``: bytes dropped from its middle.
    """
    try:
        given = coerced(name, arguments)
        if name == "Bash":
            return _bash(run_bash, **given), False
        tools: dict[str, Callable[..., str]] = dict(
            Read=_read, Write=_write, Edit=_edit, Glob=_glob
        )
        return tools[name](workdir, **given), False
    except Unfinished as unfinished:
        return str(unfinished), True
    except OSError as error:
        what = error.strerror or str(error)
        if error.strerror and error.filename:
            what += f": {error.filename}"
        return _told(error, what), True
    except Exception as error:  # an observation must come back whatever happens
        return _told(error, str(error)), True


def _told(error: Exception, what: str) -> str:
    """A refusal; what it repeats of the call does not fill the window."""
    cut = f"\n[truncated {len(what) - ERROR_CHARS} chars]" if len(what) > ERROR_CHARS else ""
    return f"{type(error).__name__}: {what[:ERROR_CHARS]}{cut}"


def coerced(name: str, arguments: "Any") -> "dict[str, Any]":
    """The arguments of a call in their proper types. Raises ValueError or TypeError."""
    if name not in PARAMETERS:
        raise ValueError("unknown tool {}; use one of {}".format(name, ", ".join(PARAMETERS)))
    if not isinstance(arguments, dict):
        raise TypeError(f"the arguments of {name} must be a JSON object")
    types = {key: kind for key, kind, _ in PARAMETERS[name]}
    takes = "{} takes {}".format(name, ", ".join(key for key in types if key not in _UNTOLD))
    given = {}
    for key, value in arguments.items():
        known = "file_path" if key == "path" and "file_path" in types else key
        if known not in types:
            raise TypeError(f"there is no parameter {key}; {takes}")
        if value is not None:
            given[known] = _typed(known, value, types[known])
    for key, _, required in PARAMETERS[name]:
        if required and key not in given:
            raise TypeError(f"{key} is missing; {takes}")
    for key in ("file_path", "pattern", "command"):
        if given.get(key) == "":
            raise ValueError(f"{key} is empty; {takes}")
    return given


def seconds(timeout: "float | None" = None, timeout_ms: "float | None" = None) -> float:
    """The seconds that a Bash call's ``timeout`` (or ``timeout_ms``) asks for."""
    if timeout_ms is not None:
        value = timeout_ms / 1000.0
    elif timeout is None:
        value = BASH_SECONDS
    else:
        value = timeout / 1000.0 if timeout >= MILLISECONDS_FROM else timeout
    if not 0 < value < float("inf"):
        raise ValueError("timeout must be a number of seconds above 0")
    return value


def _room(most: int, max_chars: int) -> int:
    """Characters of a result: a small window may ask for fewer than the tool's own limit."""
    return min(most, max(200, max_chars)) if max_chars > 0 else most


def _typed(key: str, value: "Any", kind: type) -> "Any":
    plain = not isinstance(value, bool)
    if kind is str:
        if isinstance(value, int) and plain:
            value = str(value)
        if isinstance(value, str):
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise ValueError(f"{key} holds half a surrogate pair, not text") from None
            return value
    elif kind is bool:
        word = value.strip().lower() if isinstance(value, str) else value
        if word in ("true", "false") or isinstance(word, bool) or word in (0, 1):
            return word in ("true", True)
    else:
        try:
            number = float(value.strip() if isinstance(value, str) else value) if plain else None
            if number is not None and (kind is float or number == int(number)):
                return kind(number)
        except (ValueError, TypeError, OverflowError):
            pass
    shown = repr(value) if len(repr(value)) < 40 else repr(value)[:40] + "..."
    raise TypeError(f"{key} must be {_WORDS[kind]}, not {shown}")


# --- Read ------------------------------------------------------------------------------------


def _read(workdir: str, file_path: str, offset: int = 1, limit: int = 0, max_chars: int = 0) -> str:
    real, shown = _resolve(workdir, file_path)
    data = _load(workdir, real, shown)
    text = _decode(data)
    _remember(real, text)
    if not text:
        return shown + "\n[the file is empty]"
    lines = text.split("\n")
    ends = lines[-1] == ""
    if ends:
        lines.pop()
    total, offset = len(lines), max(1, offset)
    if offset > total:
        raise ValueError(f"{shown} ends at line {total}; offset {offset} is past it")
    last = min(total, offset - 1 + limit) if limit > 0 else total
    room = max(100, _room(READ_CHARS, max_chars) - len(shown))
    out, notes, number = [shown], [], offset
    while number <= last:
        entry = f"{number}. {_visible(lines[number - 1])}"
        if len(entry) + 1 > room:
            break
        out.append(entry)
        room -= len(entry) + 1
        number += 1
    if number == offset:  # one line fills the whole room
        import shlex

        line = lines[number - 1]
        widths = (4 if "\udc80" <= char <= "\udcff" else 1 for char in line[:room])
        most = room - len(f"{number}. ")
        part = sum(1 for end in itertools.accumulate(widths) if end <= most)
        out.append(f"{number}. {_visible(line[:part])}")
        done = len(line[:part].encode("utf-8", "surrogateescape"))
        done += 0 if number > 1 or not data.startswith(BOM) else len(BOM)
        notes.append(
            f"[truncated {len(line) - part} chars] line {number} is {len(line):,} characters; "
            f"showing 1-{part:,}. To read on use Bash: "
            f"sed -n {number}p -- {shlex.quote(shown)} | cut -b {done + 1}-"
        )
        number += 1
    if number <= last:
        left = sum(len(line) + 1 for line in lines[number - 1 : last])
        notes.append(
            f"[truncated {left} chars] showing lines {offset}-{number - 1} of {total}; "
            f"read on with offset={number}"
        )
    elif last == total and not ends:
        notes.append("[no newline at end of file]")
    strange = len(re.findall("[\udc80-\udcff]", text))
    if strange:
        notes.append(
            f"[{strange} bytes are not UTF-8 and shown as \\xNN; Edit keeps them, but "
            "old_string must leave them out]"
        )
    return "\n".join(out + notes)


def _visible(line: str) -> str:
    line = line[:-1] if line.endswith("\r") else line
    return re.sub("[\udc80-\udcff]", lambda byte: "\\x%02x" % (ord(byte.group()) - 0xDC00), line)


# --- Write and Edit --------------------------------------------------------------------------


def _write(workdir: str, file_path: str, content: str) -> str:
    real, shown = _resolve(workdir, file_path)
    if os.path.isdir(real):
        raise IsADirectoryError(f"{shown} is a directory; give the path of a file")
    data, made = content.encode("utf-8"), _parents(real, shown)
    try:
        _store(real, data)
    except BaseException:
        _unmake(made)
        raise
    _remember(real, content)
    done = f"Wrote {shown} ({len(data)} bytes)."
    if real.endswith(".py") and "\n" not in content.strip() and "\\n" in content:
        import ast

        try:
            ast.parse(content)
        except (SyntaxError, ValueError):
            done += (
                "\nWarning: the file is one line with a literal \\n in it and does not parse as "
                "Python. If line breaks were meant, write it again with real ones."
            )
    return done


def _edit(
    workdir: str, file_path: str, old_string: str, new_string: str, replace_all: bool = False
) -> str:
    real, shown = _resolve(workdir, file_path)
    data = _load(workdir, real, shown)
    if not old_string:
        raise ValueError("old_string is empty; to replace the whole file use Write")
    if old_string == new_string:
        raise ValueError("old_string and new_string are the same, so nothing would change")
    text, old = _decode(data), old_string.replace("\r\n", "\n")
    flat = text.replace("\r\n", "\n")
    found = _positions(flat, old, len(old) if replace_all else 1)
    if not found:
        raise ValueError(_why_not(flat, old, shown, _seen.get(real, ())))
    if len(found) > 1 and not replace_all:
        lines = [str(flat.count("\n", 0, at) + 1) for at in found[:10]]
        raise ValueError(
            "old_string occurs {} times in {} (lines {}{}); add the lines around the one you mean, "
            "or set replace_all to true".format(
                len(found), shown, ", ".join(lines), ", ..." if len(found) > 10 else ""
            )
        )
    # Positions in `flat` lead back to `text` by the number of CRLF pairs before them.
    pairs = [pair.start() - k for k, pair in enumerate(re.finditer("\r\n", text))]
    pieces, done = [], 0
    for at in found:
        start = at + bisect.bisect_left(pairs, at)
        stop = at + len(old) + bisect.bisect_left(pairs, at + len(old))
        pieces += [text[done:start], _with_endings(new_string, text, start, stop)]
        done = stop
    result = "".join(pieces) + text[done:]
    if result == text:
        raise ValueError(
            "nothing would change: old_string and new_string differ in line endings alone, and "
            f"Edit keeps those of {shown}; to change them use Bash"
        )
    for version in (text, result):
        _remember(real, version)
    bom = BOM if data.startswith(BOM) else b""
    _store(real, bom + result.encode("utf-8", "surrogateescape"))
    plural = "" if len(found) == 1 else "s"
    return f"Edited {shown} ({len(found)} replacement{plural})."


def _positions(text: str, part: str, step: int) -> "list[int]":
    found, at = [], text.find(part)
    while at >= 0:
        found.append(at)
        at = text.find(part, at + step)
    return found


def _with_endings(new: str, text: str, start: int, stop: int) -> str:
    """``new`` with the line endings of what it replaces, else those of the lines around."""
    endings = re.findall("\r?\n", text[start:stop])
    if not endings:
        near = re.compile("\r?\n").search(text, stop)
        endings = [near.group()] if near else re.findall("\r?\n", text[:start])[-1:] or ["\n"]
    count = itertools.count()

    def ending(match: "Any") -> str:
        own = str(endings[min(next(count), len(endings) - 1)])
        return own if match.group() == "\n" else str(match.group())

    return re.sub("\r?\n", ending, new)


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


def _why_not(flat: str, old: str, shown: str, earlier: "Sequence[str]") -> str:
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
    text = _visible(line)
    return repr(text) if len(text) <= 300 else repr(text[:300]) + "..."


def _escaped(line: str) -> str:
    return ascii(_visible(line[:300]))


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


# --- Glob ------------------------------------------------------------------------------------


def _glob(workdir: str, pattern: str, path: str = ".", max_chars: int = 0) -> str:
    segments = [part for part in os.path.expanduser(pattern).split("/") if part not in ("", ".")]
    base = "/" if pattern.startswith("/") else path
    # Leading parts that exist as they are written are taken so, brackets and all.
    while len(segments) > 1 and os.path.isdir(os.path.join(workdir, base, segments[0])):
        base = os.path.join(base, segments.pop(0))
    real, shown = _resolve(workdir, base)
    if not os.path.isdir(real):
        raise NotADirectoryError(f"{shown} is not a directory")
    if len(segments) == 1 and os.path.isfile(os.path.join(real, segments[0])):
        found = list(segments)
    else:
        depth = None if "**" in segments else len(segments)
        try:
            match = re.compile(_regex(segments) + r"\Z", re.DOTALL).match
        except re.error as error:
            raise ValueError(f"the pattern cannot be read: {error}") from None
        found = [name for name in _files(real, depth) if match(name)]
    names = sorted(name if shown == "." else os.path.join(shown, name) for name in found)
    lengths = itertools.accumulate(len(name) + 1 for name in names)
    fitting = sum(1 for end in lengths if not max_chars or end <= _room(end, max_chars))
    more = len(names) - min(GLOB_FILES, fitting)
    if more > 0:
        names = [*names[: len(names) - more], f"... {more} more files"]
    return "\n".join(map(_named, names)) or "No files matched."


def _named(name: str) -> str:
    """A path on one line, whatever is in it."""
    return re.sub("[\x00-\x1f\x7f]", lambda char: f"\\x{ord(char.group()):02x}", _visible(name))


def _files(top: str, depth: "int | None" = None) -> "Iterator[str]":
    """Relative paths of the files below ``top``; .git and linked directories are not entered."""
    left = [("", 0)]  # no recursion: a tree may be deeper than Python's stack
    while left:
        inside, level = left.pop()
        try:
            with os.scandir(os.path.join(top, inside)) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError:  # closed, gone, or named longer than can be opened
            continue
        below = []
        for entry in entries:
            name = os.path.join(inside, entry.name)
            if entry.is_dir(follow_symlinks=False):
                if entry.name != ".git" and (depth is None or level < depth - 1):
                    below.append((name, level + 1))
            elif _is_file(entry):
                yield name
        left += reversed(below)


def _is_file(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads round in a circle
        return False


def _regex(segments: "Sequence[str]") -> str:
    parts: list[str] = []
    for k, segment in enumerate(segments):
        if segment == "**":
            if segments[k + 1 : k + 2] == ["**"]:
                continue
            parts.append(".+" if k == len(segments) - 1 else "(?:[^/]+/)*")
            continue
        tokens = re.findall(
            r"\[!?\]?[^\]/]*\]|\{[^{}/]*,[^{}/]*\}|.", re.sub(r"\*+", "*", segment), re.DOTALL
        )
        one = "".join(_token(token) for token in tokens)
        parts.append(one if k == len(segments) - 1 else one + "/")
    return "".join(parts)


def _token(token: str) -> str:
    if token in ("*", "?"):
        return "[^/]*" if token == "*" else "[^/]"
    if token[0] == "{" and len(token) > 1:
        return "(?:" + "|".join(_regex([part]) for part in token[1:-1].split(",")) + ")"
    if token[0] == "[" and len(token) > 2:
        body = token[1:-1].replace("\\", "\\\\").replace("[", "\\[")
        return "[" + ("^" + body[1:] if body[0] == "!" else body) + "]"
    return re.escape(token)


# --- Bash ------------------------------------------------------------------------------------


def _bash(
    run_bash: "RunBash",
    command: str,
    *,
    description: str = "",
    timeout: "float | None" = None,
    timeout_ms: "float | None" = None,
    max_chars: int = 0,
) -> str:
    limit, most = seconds(timeout, timeout_ms), _room(BASH_CHARS, max_chars)
    result = run_bash(command, limit)
    out, err = result["stdout"], result["stderr"]
    sections = "STDOUT:\n{}\nSTDERR:\n{}".format(
        _clipped(out, result.get("stdout_cut", 0), max(most // 2, most - len(err))),
        _clipped(err, result.get("stderr_cut", 0), max(most // 2, most - len(out))),
    )
    endings = {
        "timeout": f"Timed out after {limit:g} s; nothing of it is still running",
        "memory": "Ended: it used more memory than there is",
        "cpu": "Ended: it used more processor time than it may",
        "output": "Ended: it printed more than may be printed",
    }
    if result["reason"] in endings:
        raise Unfinished(endings[result["reason"]] + "\n" + sections)
    return "Exit code: {}\n{}".format(result["code"], sections)


def _clipped(data: bytes, cut: int, room: int) -> str:
    """Head and tail of an output: what matters in a test run stands at its end."""
    head, note, tail = data.partition(_CUT_NOTE % cut) if cut else (data, b"", b"")
    if not note:
        middle = len(data) // 2 if cut or len(data) > room else len(data)
        head, tail = data[:middle], data[middle:]
    begin, end = head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
    if not cut and len(begin) + len(end) <= room:
        return data.decode("utf-8", "replace")
    first, last = begin[: room // 2], end[max(0, len(end) - room // 2) :]
    dropped = cut + len(begin) + len(end) - len(first) - len(last)
    return f"{first}\n[truncated {dropped} chars]\n{last}"


# --- files -----------------------------------------------------------------------------------


def _resolve(workdir: str, path: str) -> "tuple[str, str]":
    """``(real path, path as it is shown)``; raises PermissionError for what is outside."""
    asked = os.path.normpath(os.path.join(workdir, os.path.expanduser(path)))
    real, root = os.path.realpath(asked), os.path.realpath(workdir)
    if not (_inside(real, root) or _inside(real, os.path.realpath("/tmp"))):
        raise PermissionError(f"{path} is outside; use paths under {workdir} (or under /tmp)")
    for top, name in ((os.path.normpath(workdir), asked), (root, real)):
        if _inside(name, top):
            return real, os.path.relpath(name, top)
    return real, real


def _inside(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def _load(workdir: str, real: str, shown: str) -> bytes:
    try:
        info = os.stat(real)
    except FileNotFoundError:
        names = _near(workdir, os.path.basename(real))
        hint = "; did you mean {}?".format(" or ".join(names)) if names else "; find it with Glob"
        raise FileNotFoundError(f"there is no file {shown}{hint}") from None
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(f"{shown} is a directory; list it with Glob")
    if not stat.S_ISREG(info.st_mode):
        raise ValueError(f"{shown} is no regular file (a pipe, socket or device)")
    if info.st_size > FILE_BYTES:
        raise ValueError(f"{shown} has {info.st_size:,} bytes, too many; use Bash")
    with open(real, "rb") as file:
        data = file.read()
    if b"\0" in data:
        raise ValueError(f"{shown} is binary, {len(data):,} bytes")
    return data


def _decode(data: bytes) -> str:
    return data[len(BOM) if data.startswith(BOM) else 0 :].decode("utf-8", "surrogateescape")


def _near(workdir: str, name: str) -> "list[str]":
    files = list(itertools.islice(_files(os.path.realpath(workdir)), 20000))
    same = [path for path in files if os.path.basename(path) == name]
    if not same:
        import difflib

        close = difflib.get_close_matches(name, {os.path.basename(path) for path in files}, 3, 0.6)
        same = [path for path in files if os.path.basename(path) in close]
    return same[:3]


def _parents(real: str, shown: str) -> "list[str]":
    """Make the directories of a file, outermost first; all of them or none."""
    missing: list[str] = []
    folder = os.path.dirname(real)
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        name = os.path.basename(folder)
        raise NotADirectoryError(f"{shown}: {name} is a file, and nothing can lie below it")
    made: list[str] = []
    try:
        for folder in reversed(missing):
            os.mkdir(folder)
            made.append(folder)
    except OSError:
        _unmake(made)
        raise
    return made


def _unmake(folders: "list[str]") -> None:
    for folder in reversed(folders):
        os.rmdir(folder)


def _store(real: str, data: bytes) -> None:
    """Replace a file's content in one step; its mode is kept, and a full disk changes nothing.

    A file that has other names too (hard links), or whose directory takes no other file, is
    written where it is.
    """
    folder = os.path.dirname(real)
    try:
        info = os.stat(real)
    except FileNotFoundError:
        info = None
    if info is not None and (info.st_nlink > 1 or not os.access(folder, os.W_OK | os.X_OK)):
        return _overwrite(real, data)
    descriptor, part = _beside(folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        if info is not None:
            os.chmod(part, stat.S_IMODE(info.st_mode))
        os.replace(part, real)
    except BaseException:
        os.unlink(part)
        raise


def _beside(folder: str) -> "tuple[int, str]":
    """A new file in a directory; what lies there already is somebody's, whatever its name."""
    for number in itertools.count():
        part = os.path.join(folder, f".leaf-{os.getpid()}-{number}.part")
        try:
            return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), part
        except FileExistsError:
            continue
    raise AssertionError


def _overwrite(real: str, data: bytes) -> None:
    with open(real, "rb+", buffering=0) as file:
        before = file.read()
        try:
            _put(file, data)
        except BaseException:  # a full disk: there was room for what was there
            _put(file, before)
            raise


def _put(file: "Any", data: bytes) -> None:
    view = memoryview(data)
    file.seek(0)
    while view:
        view = view[file.write(view) :]
    file.truncate()


def _remember(real: str, text: str) -> None:
    kept = [version for version in _seen.pop(real, []) if version != text]
    _seen[real] = [*kept, text][-4:] if len(text) < 1000000 else kept
    while sum(len(text) for versions in _seen.values() for text in versions) > SEEN_CHARS:
        del _seen[next(iter(_seen))]  # what was looked at least lately
