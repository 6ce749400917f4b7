"""Write: a file with this content."""

import os

from .files import resolve
from .seen import remember
from .storing import parents, store, unmake


def write(workdir: str, file_path: str, content: str) -> str:
    """The observation of a Write. Raises OSError; then nothing has changed."""
    real, shown = resolve(workdir, file_path)
    if os.path.isdir(real):
        raise IsADirectoryError(f"{shown} is a directory; give the path of a file")
    data, made = content.encode("utf-8"), parents(real, shown)
    try:
        store(real, data)
    except BaseException:
        unmake(made)
        raise
    remember(real, content)
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
