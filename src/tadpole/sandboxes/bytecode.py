"""The compiled form of the files that run inside a box: a box cannot write, and starts often.

Kept where Python keeps it (``__pycache__``), by the interpreter that runs the box. Where it
cannot be written the box compiles for itself, and starts some tens of milliseconds later.
"""

import os
from functools import cache
from pathlib import Path

from tadpole import process

_COMPILE = """
import os, py_compile, sys
for source in sys.argv[1:]:
    try:
        print(py_compile.compile(source, doraise=True))
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
