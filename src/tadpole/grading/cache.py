"""What a grade is kept by: gradings of one key come out the same."""

import hashlib
from collections.abc import Sequence

from tadpole.grading.report import PROGRAM
from tadpole.outcome import Tier
from tadpole.task import FileChange, Task

VERSION = 5  # to be raised with every change of the rules outside of the bootstrap


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
