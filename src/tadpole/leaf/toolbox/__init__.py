"""The five Leaf tools, as they run inside the sandbox: standard library, Python 3.6+.

Protects the work tree from its tools: bytes that an edit does not name stay as they are (line
endings, byte order mark, bytes that are not UTF-8, mode, symlinks), a refused call changes
nothing, and no refusal is silent. It does not isolate anything: paths are kept to the work
directory and /tmp as a service to the model, the sandbox around this package is the wall.

Old syntax throughout, for this also runs where Python is 3.6. What only some calls need is
imported by these: a box starts often, and its first call waits for all that is up here.
"""

from .arguments import PARAMETERS, coerced, seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    RunBash = Callable[[str, float], dict[str, Any]]

__all__ = ["ERROR_CHARS", "PARAMETERS", "call", "coerced", "seconds"]

ERROR_CHARS = 4000


def call(name: str, arguments: "Any", workdir: str, run_bash: "RunBash") -> "tuple[str, bool]":
    """Run one tool and return ``(text, is_error)``; never raises for what the model did.

    ``run_bash(command, seconds)`` returns a dict with ``code``, ``stdout`` and ``stderr``
    (bytes), ``reason`` ("exited", "timeout", "memory", "cpu", "output", "signal"), ``seconds``, and
    where a stream was bounded ``stdout_cut``/``stderr_cut``: bytes dropped from its middle.
    """
    try:
        return _ran(name, coerced(name, arguments), workdir, run_bash)
    except OSError as error:
        what = error.strerror or str(error)
        if error.strerror and error.filename:
            what += f": {error.filename}"
        return _told(error, what), True
    except Exception as error:  # an observation must come back whatever happens
        return _told(error, str(error)), True


def _ran(
    name: str, given: "dict[str, Any]", workdir: str, run_bash: "RunBash"
) -> "tuple[str, bool]":
    if name == "Bash":
        from .bash import bash

        return bash(run_bash, **given)
    if name == "Read":
        from .read import read

        return read(workdir, **given), False
    if name == "Write":
        from .write import write

        return write(workdir, **given), False
    if name == "Edit":
        from .edit import edit

        return edit(workdir, **given), False
    from .glob import glob

    return glob(workdir, **given), False


def _told(error: Exception, what: str) -> str:
    """A refusal; what it repeats of the call does not fill the window."""
    cut = f"\n[truncated {len(what) - ERROR_CHARS} chars]" if len(what) > ERROR_CHARS else ""
    return f"{type(error).__name__}: {what[:ERROR_CHARS]}{cut}"
