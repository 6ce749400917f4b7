"""Grades already given, by task and change: in memory, and on disk where a place is named."""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from tadpole.grading.report import PROGRAM
from tadpole.outcome import Tier
from tadpole.task import FileChange, Task
from tadpole.trace import Grade

VERSION = 4  # to be raised with every change of the rules outside of the bootstrap


def grader_version() -> str:
    """Names the rules and the program that grade: 12 hex digits."""
    digest = hashlib.sha256(f"grader {VERSION}".encode())
    for source in PROGRAM:
        digest.update(source.encode())
    return digest.hexdigest()[:12]


def grade_key(task: Task, accepted: Sequence[FileChange], tier: Tier) -> str:
    """Names a grading by its content: task, accepted change, tier, and version of the grader."""
    digest = hashlib.sha256(f"grade {VERSION} {tier.value} {task.id}".encode())
    parts = [source.encode() for source in PROGRAM]
    for change in sorted(accepted, key=lambda change: change.path):
        kind = b"gone" if change.content is None else b"exec" if change.executable else b"file"
        parts += [change.path.encode("utf-8", "surrogateescape"), kind, change.content or b""]
    for part in parts:
        digest.update(b"%d " % len(part) + part)
    return digest.hexdigest()


class GradeCache:
    """Holds grades that would come out the same again. Safe with other processes beside it."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._memory: dict[str, Grade] = {}

    def get(self, key: str) -> Grade | None:
        """The grade, or None; an unreadable file is as good as none."""
        if key not in self._memory and self._directory is not None:
            with contextlib.suppress(OSError, ValidationError):
                self._memory[key] = Grade.model_validate_json(self._path(key).read_bytes())
        return self._memory.get(key)

    def put(self, key: str, grade: Grade) -> None:
        """Keep a grade. A full disk costs the entry, not the grading."""
        self._memory[key] = grade
        if self._directory is None:
            return
        with contextlib.suppress(OSError):
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            try:
                beside.write_text(grade.model_dump_json(), encoding="utf-8")
                os.replace(beside, path)
            finally:
                beside.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        assert self._directory is not None
        return self._directory / "grades" / key[:2] / f"{key}.json"
