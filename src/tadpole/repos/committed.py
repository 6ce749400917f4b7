"""Whether the test files of a start tree are still those that it was made with.

Guards against: tests in the cache that were changed, cut or removed since (by a person, another
program or a failing disk): what other tests say of a change is no grade. The hidden tests that a
task brings along are checked where it is loaded (:mod:`tadpole.pilot.taskdir`).

Does not guard against: whoever changes file and commit alike. A box can write to neither.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from tadpole.errors import TaskError
from tadpole.repos import git
from tadpole.task import Task


class Committed:
    """Remembers what the commit of each start tree holds."""

    def __init__(self) -> None:
        self._blobs: dict[str, Mapping[str, str]] = {}

    async def check(self, task: Task, tree: Path) -> None:
        """Raises TaskError where a test file that decides about ``task`` is not as committed."""
        paths = sorted(_deciding(task))
        if task.id not in self._blobs:
            self._blobs[task.id] = await git.blobs(tree, paths) if paths else {}
        blobs = self._blobs[task.id]
        for path in paths:
            if _blob(tree / path) != blobs.get(path):
                raise TaskError(
                    f"{path} of {task.name} was changed in the cache after the task's tree was "
                    f"made, so nothing can be graded by it: restore it below {tree}, or remove "
                    "the cache"
                )


def _deciding(task: Task) -> set[str]:
    """Test files of the start tree, and the conftest files that they see."""
    files = {node.partition("::")[0] for node in (*task.fail_to_pass, *task.pass_to_pass)}
    for file in list(files):
        parts = file.split("/")[:-1]
        files |= {"/".join([*parts[:depth], "conftest.py"]) for depth in range(len(parts) + 1)}
    return files - {change.path for change in task.hidden}


def _blob(file: Path) -> str | None:
    """Git's name for the content of a regular file; None where there is none."""
    if file.is_symlink() or not file.is_file():
        return None
    content = file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
