"""The history of a local git clone: what each commit changed, and in which words.

Only reads, and only plumbing that runs neither hooks nor filters nor anything else that the
clone's own configuration names.
"""

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tadpole import process
from tadpole.errors import SourceError
from tadpole.repos import git

_SECONDS = 120.0
_MODES = ("100644", "100755")


@dataclass(frozen=True)
class Edit:
    """A Python file that a commit changed and that was there before and after it."""

    path: str
    before: str  # blob ids
    after: str


@dataclass(frozen=True)
class Commit:
    """One commit that is no merge."""

    id: str
    words: str  # its message as it stands
    edits: tuple[Edit, ...]
    others: tuple[str, ...]  # Python files that came, went, or changed their kind


class Clone:
    """A git clone on this machine. Every method raises SourceError where git cannot read it."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def commits(self, version: str, most: int) -> Iterator[Commit]:
        """The newest ``most`` commits up to a version that touch Python files, newest first."""
        told = self._git(
            *("-c", "log.showSignature=false", "log", "-z", "--raw", "--no-abbrev", "--no-renames"),
            *("--no-merges", "--no-ext-diff", "--no-textconv", "--encoding=UTF-8"),
            *(f"--max-count={most}", "--format=%x01%H%x00%B%x02", version, "--", "*.py"),
        )
        for record in told.split(b"\x01")[1:]:
            head, _, raw = record.partition(b"\x02")
            name, _, words = head.partition(b"\0")
            edits, others = _changes(raw)
            text = words.decode("utf-8", "replace").strip()
            yield Commit(name.decode(), text, tuple(edits), tuple(others))

    def blob(self, name: str) -> bytes:
        """The bytes of a file in some commit."""
        return self._git("cat-file", "blob", name)

    def reverted(self, edit: Edit, now: bytes) -> bytes | None:
        """The file of today without what an edit did; None where other changes are in the way.

        A three-way merge: the edit is taken back where it is, never where the text looks alike.
        """
        with tempfile.TemporaryDirectory(prefix="tadpole-") as folder:
            parts = {"now": now, "after": self.blob(edit.after), "before": self.blob(edit.before)}
            for name, content in parts.items():
                (Path(folder) / name).write_bytes(content)
            done = process.run(
                ["git", "merge-file", "-p", "-q", *parts],
                cwd=Path(folder),
                env={**git.environment(), "GIT_CEILING_DIRECTORIES": folder},
                timeout=_SECONDS,
            )
        return done.stdout if done.ok and not done.stdout_cut else None

    def _git(self, *arguments: str) -> bytes:
        try:
            done = process.run(
                ["git", "-C", str(self.place), *arguments],
                env={**git.environment(), "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"},
                timeout=_SECONDS,
                head=64 << 20,
            )
        except FileNotFoundError:
            raise SourceError("git is not installed: apt install git") from None
        if not done.ok:
            raise SourceError(f"git cannot read {self.place}: {done.last_line()}")
        return done.stdout


def _changes(raw: bytes) -> tuple[list[Edit], list[str]]:
    edits, others = [], []
    fields = raw.strip(b"\0\n").split(b"\0")
    for about, path in zip(fields[::2], fields[1::2], strict=False):
        match = re.fullmatch(r":(\d+) (\d+) (\w+) (\w+) (\w)", about.decode().strip())
        name = path.decode("utf-8", "replace")
        if match is not None and match[5] == "M" and {match[1], match[2]} <= set(_MODES):
            edits.append(Edit(name, match[3], match[4]))
        else:
            others.append(name)
    return edits, others
