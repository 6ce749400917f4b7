"""A table: one JSON row a line, in a file that is only ever appended to.

What survives a crash: a row is on disk (``fdatasync``) before :func:`append` returns. A line that
a crash tore is dropped when read, and cut off by the next append. Several processes may append:
each holds a lock on the file meanwhile.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from tadpole.errors import RunError

Row = TypeVar("Row", bound=BaseModel)


def append(path: Path, row: BaseModel) -> None:
    """Add a row, durably. A torn last line is cut off first.

    Raises OSError (no space...); the table is then as it was before.
    """
    line = row.model_dump_json().encode() + b"\n"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        end = _whole(descriptor)
        try:
            _write_all(descriptor, line)
            os.fdatasync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)  # also unlocks


def rows(path: Path, model: type[Row]) -> list[Row]:
    """All whole rows in the order of appending; none where the table does not exist.

    Raises RunError on a row of an unknown format version or one that does not fit.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]
    return [_row(model, line, f"{path} line {n}") for n, line in enumerate(lines, start=1)]


def parsed(model: type[Row], body: Any, where: str) -> Row:
    """A record as JSON holds it; ``where`` it was found. Raises RunError."""
    field = model.model_fields.get("format")
    if field is not None and isinstance(body, dict):
        known = get_args(field.annotation)  # older ones among them, where they can be read
        if body.get("format") not in known:
            raise RunError(
                f"{where} has format {body.get('format')!r}, this tadpole knows "
                f"{' and '.join(map(repr, known))}: read it with the version that wrote it"
            )
    try:
        # In JSON mode: lists become tuples and strings become enums, nothing else is bent.
        return model.model_validate_json(json.dumps(body))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise RunError(f"{where} is no {model.__name__}: {name}: {first['msg']}") from None


def _row(model: type[Row], line: bytes, where: str) -> Row:
    try:
        body = json.loads(line)
    except ValueError as error:
        raise RunError(
            f"{where} is damaged ({error}): restore the file, or remove that line"
        ) from None
    return parsed(model, body, where)


def _whole(descriptor: int) -> int:
    """Cut a torn last line off; returns the size that is left. The lock is held."""
    end = os.fstat(descriptor).st_size
    position, tail = end, b""
    while position > 0 and b"\n" not in tail:
        step = min(65_536, position)
        position -= step
        tail = os.pread(descriptor, step, position)
    whole = position + tail.rfind(b"\n") + 1 if b"\n" in tail else 0
    if whole != end:
        os.ftruncate(descriptor, whole)
    return whole


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
