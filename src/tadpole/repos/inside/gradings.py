"""Grades several trees one after the other, each in a forked process of its own.

A program of its own, with a JSON request on standard input. What grades is the program of the
request itself, as it comes for a box of its own; here Python and pytest are loaded once for all of
them, nothing of the repository is, and what one compiles is kept by content for the next.

Guards against: a grading that hangs or kills its process. Does not guard against changes that mean
harm, which could reach what comes after them: those get a box of their own.
"""

import base64
import contextlib
import gc
import importlib
import json
import os
import sys
import time
from typing import Any

import _pytest.config
from codecache import keep_code
from forked import forked
from treefiles import NoLayout, changed

for _name in ("codecache", "forked", "treefiles"):
    del sys.modules[_name]  # the repository may have modules of these names
_OUTPUT = 4096  # bytes kept of what a grading prints
_SETTLED = 0.03  # seconds after which a file is no longer taken for one that a test just wrote
Fact = dict[str, Any]


def grading(request: Fact, asked: Fact) -> Fact:
    """One of them: how its process ended, what it printed first and last, and its report."""
    told = json.loads(asked["job"])
    fed, out, err = (os.memfd_create(name) for name in ("job", "out", "err"))
    os.write(fed, asked["job"].encode())
    os.lseek(fed, 0, os.SEEK_SET)

    def work() -> int:
        for number, descriptor in enumerate((fed, out, err)):
            os.dup2(descriptor, number)
        start, *arguments = request["program"]
        sys.argv = ["-c", *arguments]
        exec(compile(start, "<string>", "exec"), {"__name__": "__main__"})
        return 0

    try:
        ended = forked(work, told["seconds"] + 5)
        last = max(0, os.fstat(err).st_size - _OUTPUT)
        return {
            "code": ended.code if ended.code >= 0 else 128 - ended.code,  # as a shell says it
            "late": ended.late,
            "stdout": os.pread(out, _OUTPUT, 0).decode("utf-8", "replace"),
            "stderr": os.pread(err, _OUTPUT, last).decode("utf-8", "replace"),
            "report": _content(asked["report"]),
        }
    finally:
        for descriptor in (fed, out, err):
            os.close(descriptor)


def _content(path: str) -> "str | None":
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return base64.b64encode(file.read()).decode()
    return None


def main() -> int:
    """Read the request, and write one line for each grading as it ends.

    Of one whose files cannot stand in the tree, the line says only that.
    """
    request = json.loads(sys.stdin.buffer.read())
    del sys.path[0]  # where this program lies
    keep_code(request["code"])
    for name in _pytest.config.default_plugins:
        importlib.import_module("_pytest." + name)
    gc.freeze()  # a collection in a child would copy every page
    with open(request["out"], "w", encoding="utf-8") as out:
        for asked in request["gradings"]:
            try:
                with changed(asked["files"], asked["later"]):
                    time.sleep(_SETTLED)
                    fact = grading(request, asked)
            except NoLayout as error:
                fact = {"no_layout": str(error)}
            out.write(json.dumps(fact) + "\n")
            out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
