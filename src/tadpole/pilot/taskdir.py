"""Tasks on disk, as Harbor task directories.

::

    boltons-0007/
      task.toml              Harbor's settings; ours under [metadata.tadpole]
      instruction.md         the statement in force
      environment/           Dockerfile, runtime.json, start/ (files that differ from the source)
      tests/                 test.sh, grade.py, expected.json, hidden/ (whole test files)
      solution/              solve.sh, files/ (the repair)

``load(save(task))`` gives an equal task. Loading checks the format version, the hash of every
file, and the task's own content hash: what was changed by hand is not the same task any more.
"""

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

import tomli_w

from tadpole.errors import TaskError
from tadpole.pilot.harbor import files
from tadpole.task import (
    FORMAT,
    FileChange,
    Hint,
    Measured,
    Provenance,
    Recipe,
    Source,
    Task,
    TaskKind,
)
from tadpole.tomlfile import parse_toml

_BESIDE = re.compile(r"\..+\.[0-9a-f]{8}(\.old)?")
_PARTS = {"start": "environment/start", "gold": "solution/files", "hidden": "tests/hidden"}


def save(task: Task, directory: Path, calibration: Mapping[str, Any] | None = None) -> Path:
    """Write ``directory/<task name>`` as a whole, over one that is there; returns its path.

    ``calibration`` is kept beside the task and is no part of its identity.
    """
    place = directory / task.name
    beside = directory / f".{task.name}.{secrets.token_hex(4)}"
    directory.mkdir(parents=True, exist_ok=True)
    try:
        for name, content, executable in _contents(task, calibration):
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o755 if executable else 0o644)
        for part in _PARTS.values():
            (beside / part).mkdir(parents=True, exist_ok=True)
        if place.exists():
            old = beside.with_name(beside.name + ".old")
            os.replace(place, old)
            os.replace(beside, place)
            shutil.rmtree(old)
        else:
            os.replace(beside, place)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    return place


def sweep(directory: Path) -> None:
    """Remove what a killed :func:`save` left beside its place. Nobody else may be saving there."""
    for path in directory.glob(".*"):
        if _BESIDE.fullmatch(path.name) and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def load(directory: Path) -> Task:
    """Read a task directory. Raises TaskError where it is none, damaged, or of another format."""
    try:
        body = parse_toml((directory / "task.toml").read_text("utf-8"))
        ours = body["metadata"]["tadpole"]
        found = ours["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TaskError(f"{directory} is no tadpole task: {_told(error)}") from None
    if found != FORMAT:
        raise TaskError(
            f"{directory} has task format {found!r}, this tadpole knows {FORMAT}: make it again "
            "with `tadpole tasks make`"
        )
    try:
        task = _task(directory, body, ours)
        statement = (directory / "instruction.md").read_bytes()
    except TaskError:
        raise
    except (OSError, KeyError, TypeError, AttributeError, ValueError, StopIteration) as error:
        raise TaskError(f"{directory} is incomplete: {_told(error)}") from None
    if task.id != ours["id"] or statement != task.statement.encode() + b"\n":
        raise TaskError(f"{directory} was changed after it was made: make it again, or undo that")
    return task


def load_set(directory: Path) -> list[Task]:
    """All tasks of a directory, sorted by name. Raises TaskError where there is none."""
    places = sorted(path.parent for path in directory.glob("[!.]*/task.toml"))
    if not places:
        raise TaskError(f"{directory} holds no tasks: make some with `tadpole tasks make`")
    return sorted((load(place) for place in places), key=lambda task: task.name)


def calibration(directory: Path) -> dict[str, Any]:
    """What was saved beside a task; empty where nothing was."""
    body = parse_toml((directory / "task.toml").read_text("utf-8"))
    found: dict[str, Any] = body["metadata"]["tadpole"].get("calibration", {})
    return found


def _contents(
    task: Task, calibration: Mapping[str, Any] | None
) -> Sequence[tuple[str, bytes, bool]]:
    made = [
        ("task.toml", tomli_w.dumps(_settings(task, calibration)).encode(), False),
        ("instruction.md", task.statement.encode() + b"\n", False),
        ("environment/Dockerfile", files.dockerfile(task), False),
        ("environment/runtime.json", files.runtime(task), False),
        ("tests/test.sh", files.TEST_SH, True),
        ("tests/grade.py", files.grader(), False),
        ("tests/expected.json", files.expected(task), False),
        ("solution/solve.sh", files.solve_sh(task.gold), True),
    ]
    for part, place in _PARTS.items():
        changes: tuple[FileChange, ...] = getattr(task, part)
        made += [
            (f"{place}/{change.path}", change.content, change.executable)
            for change in changes
            if change.content is not None
        ]
    return made


def _settings(task: Task, calibration: Mapping[str, Any] | None) -> dict[str, Any]:
    ours: dict[str, Any] = {
        "format": FORMAT,
        "id": task.id,
        "kind": task.kind.value,
        "snapshot": task.snapshot,
        "runtime": task.runtime,
        "rung": task.rung,
        "test_seconds": task.test_seconds,
        "fail_to_pass": list(task.fail_to_pass),
        "pass_to_pass": list(task.pass_to_pass),
        "source": asdict(task.source),
        "recipe": asdict(task.recipe),
        "provenance": asdict(task.provenance),
        "measured": _measured(task.measured),
    }
    if calibration is not None:
        ours["calibration"] = dict(calibration)
    ours["hints"] = [asdict(hint) for hint in task.hints]
    ours |= {part: [_listed(change) for change in getattr(task, part)] for part in _PARTS}
    seconds = {"timeout_sec": round(task.test_seconds + 60)}
    offline = {"network_mode": "no-network"}
    return {
        "schema_version": "1.4",
        "artifacts": [files.WORKDIR],
        "task": {
            "name": f"tadpole/{task.name}",
            "version": "1.0.0",
            "description": f"{task.kind.value} in {task.source.location} {task.source.version}",
        },
        "metadata": {"tadpole": ours},
        "verifier": {"environment_mode": "separate", **offline, **seconds},
        "agent": {"timeout_sec": 10_800, "user": files.USER, **offline},
        "environment": {**offline, "workdir": files.WORKDIR, "cpus": 1, "memory_mb": 2048},
    }


def _measured(measured: Measured) -> dict[str, Any]:
    body: dict[str, Any] = {
        "mutants": measured.mutants,
        "killed": measured.killed,
        "functions": measured.functions,
    }
    if measured.oracles is not None:  # TOML has no null
        body["oracles"] = dict(measured.oracles)
    return body


def _remeasured(body: Mapping[str, Any]) -> Measured:
    oracles = body.get("oracles")
    counts = {name: int(body.get(name, 0)) for name in ("mutants", "killed", "functions")}
    return Measured(**counts, oracles=None if oracles is None else tuple(oracles.items()))


def _listed(change: FileChange) -> dict[str, Any]:
    digest = "" if change.content is None else hashlib.sha256(change.content).hexdigest()
    return {"path": change.path, "sha256": digest, "executable": change.executable}


def _task(directory: Path, body: Mapping[str, Any], ours: Mapping[str, Any]) -> Task:
    recipe: dict[str, Any] = {
        name: tuple(tuple(item) if name == "env" else item for item in value)
        for name, value in ours["recipe"].items()
    }
    provenance: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in ours["provenance"].items()
    }
    parts: dict[str, tuple[FileChange, ...]] = {
        part: tuple(_read(directory / place, listed) for listed in ours[part])
        for part, place in _PARTS.items()
    }
    return Task(
        name=body["task"]["name"].removeprefix("tadpole/"),
        kind=TaskKind(ours["kind"]),
        source=Source(**ours["source"]),
        snapshot=ours["snapshot"],
        runtime=ours["runtime"],
        recipe=Recipe(**recipe),
        start=parts["start"],
        gold=parts["gold"],
        hidden=parts["hidden"],
        fail_to_pass=tuple(ours["fail_to_pass"]),
        pass_to_pass=tuple(ours["pass_to_pass"]),
        hints=tuple(Hint(**hint) for hint in ours["hints"]),
        rung=ours["rung"],
        provenance=Provenance(**provenance),
        test_seconds=float(ours["test_seconds"]),  # no part of the hash, nor is what follows
        measured=_remeasured(ours.get("measured", {})),
    )


def _read(place: Path, listed: Mapping[str, Any]) -> FileChange:
    path, digest = listed["path"], listed["sha256"]
    if PurePosixPath(path).is_absolute() or not path or ".." in path.split("/"):
        raise TaskError(f"{place} names a file outside the work tree: {path!r}")
    if not digest:
        return FileChange(path, None, listed["executable"])
    content = (place / path).read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise TaskError(f"{place / path} was changed after the task was made: undo that")
    return FileChange(path, content, listed["executable"])


def _told(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{error.filename} is missing"
    if isinstance(error, KeyError):
        return f"{error.args[0]} is missing"
    return " ".join(str(error).split()) or type(error).__name__
