"""Reading what a box answers. It may say anything: whatever is no answer raises.

Protects against: a delta with paths that lead out of the work tree or name one twice, more of
anything than was asked for, text that no file and no tokenizer takes. The readers raise one of
:data:`NONSENSE` for it, and the session ends the box.
"""

from dataclasses import dataclass
from typing import Any

from tadpole.protocols import ExecReason, ExecResult, LeftOut, LeftOutReason
from tadpole.task import FileChange
from tadpole.trace import Observation
from tadpole.visible import whole

DELTA_FILES, DELTA_BYTES = 5_000, 64 << 20  # of one delta, at most
NONSENSE = (
    *(AttributeError, IndexError, KeyError, TypeError, ValueError),
    *(OverflowError, RecursionError),
)
_TEXT_LIMIT = 1 << 20  # characters of an observation


@dataclass(frozen=True)
class Traits:
    """What this machine made of a box."""

    overlay: bool = False  # False: the tree was copied
    nested: bool = False  # False: commands have no process namespace of their own
    inodes: bool = False  # whether the number of files is bounded
    notes: tuple[str, ...] = ()


def traits(answer: dict[str, Any], _: list[bytes]) -> Traits:
    """The answer to a setup."""
    overlay, nested, inodes = (bool(answer[name]) for name in ("overlay", "nested", "inodes"))
    return Traits(overlay, nested, inodes, tuple(map(str, answer["notes"])))


def observation(answer: dict[str, Any], _: list[bytes]) -> Observation:
    """A tool's."""
    if len(answer["text"]) > _TEXT_LIMIT:
        raise ValueError("a giant observation")
    return Observation(text=whole(answer["text"]), error=answer["error"], seconds=answer["seconds"])


def result(answer: dict[str, Any], blobs: list[bytes]) -> ExecResult:
    """A program's."""
    return ExecResult(
        code=int(answer["code"]),
        reason=ExecReason(answer["reason"]),
        stdout=blobs[0].decode("utf-8", "replace"),
        stderr=blobs[1].decode("utf-8", "replace"),
        seconds=float(answer["seconds"]),
    )


def changes(
    answer: dict[str, Any], blobs: list[bytes]
) -> tuple[tuple[FileChange, ...], tuple[LeftOut, ...]]:
    """A delta, and what else differs."""
    files = answer["files"]
    if len(files) > DELTA_FILES or sum(map(len, blobs)) > DELTA_BYTES:
        raise ValueError("a delta larger than was asked for")
    paths = [item["path"] for item in files]
    if not all(map(_stays_inside, paths)) or len(set(paths)) != len(paths):
        raise ValueError("a delta with paths that no work tree has")
    found = [
        FileChange(item["path"], None if item["deleted"] else blob, bool(item["executable"]))
        for item, blob in zip(files, blobs, strict=True)
    ]
    left_out = [
        LeftOut(LeftOutReason[reason.upper()], int(count), tuple(map(_shown, paths[:1000])))
        for reason, (count, paths) in answer["left_out"].items()
    ]
    return tuple(found), tuple(left_out)


def _shown(path: str) -> str:
    return whole(path[:200])


def _stays_inside(path: str) -> bool:
    path.encode("utf-8")  # surrogates: UnicodeEncodeError, a ValueError
    parts = path.split("/")
    return "\0" not in path and not any(part in ("", ".", "..", ".git") for part in parts)


def failure(answer: dict[str, Any]) -> Exception:
    """What a request raises that the box refused."""
    message, code = str(answer["failure"]), answer.get("errno")
    # ENOENT becomes FileNotFoundError.
    return OSError(int(code), message) if code else ValueError(message)
