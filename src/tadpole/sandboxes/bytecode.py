"""The compiled form of the files that run inside a box: a box cannot write, and starts often.

Kept where Python keeps it (``__pycache__``), by the interpreter that runs the box. Where it
cannot be written the box compiles for itself, and starts some tens of milliseconds later.
"""

import os
from functools import cache
from pathlib import Path

from tadpole import process

# What is fresh is left alone, and what somebody else made meanwhile is not replaced: a box that
# is starting may have it mounted.
_COMPILE = """
import os, py_compile, struct, sys
from importlib.util import MAGIC_NUMBER, cache_from_source

def fresh(made, source):
    status = os.stat(source)
    stamps = int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF
    try:
        with open(made, "rb") as file:
            return file.read(16) == MAGIC_NUMBER + struct.pack("<3I", 0, *stamps)
    except OSError:
        return False

def compiled(source):
    made = cache_from_source(source)
    if fresh(made, source):
        return made
    beside = made + "." + str(os.getpid())
    py_compile.compile(source, cfile=beside, doraise=True)
    try:
        os.link(beside, made)
    except FileExistsError:
        if not fresh(made, source):
            os.replace(beside, made)
    if os.path.exists(beside):
        os.unlink(beside)
    return made

for source in sys.argv[1:]:
    try:
        print(compiled(source))
    except (OSError, py_compile.PyCompileError):
        print()
"""


@cache
def compiled(python: Path, sources: tuple[Path, ...]) -> dict[Path, Path]:
    """The bytecode file of each source, for ``python``; sources without one are left out."""
    argv: list[str | Path] = [python, "-I", "-S", "-c", _COMPILE, *sources]
    lines = process.run(argv, timeout=60).stdout.decode().splitlines()
    pairs = zip(sources, map(Path, lines), strict=False)
    return {source: made for source, made in pairs if os.path.isfile(made)}
