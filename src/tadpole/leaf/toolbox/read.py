"""Read: the lines of a file with their numbers, those of `grep -n`."""

import itertools
import re

from .arguments import room as room_of
from .files import BOM, decode, load, resolve, visible
from .seen import remember

READ_CHARS = 20000


def read(workdir: str, file_path: str, offset: int = 1, limit: int = 0, max_chars: int = 0) -> str:
    """The observation of a Read. Raises ValueError, OSError."""
    real, shown = resolve(workdir, file_path)
    data = load(workdir, real, shown)
    text = decode(data)
    remember(real, text)
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
    room = max(100, room_of(READ_CHARS, max_chars) - len(shown))
    out, notes, number = [shown], [], offset
    while number <= last:
        entry = f"{number}. {visible(lines[number - 1])}"
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
        out.append(f"{number}. {visible(line[:part])}")
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
