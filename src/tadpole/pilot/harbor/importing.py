"""Makes tasks of Harbor task directories: ours are checked and copied, others proven anew.

Another's task becomes what a written candidate is (:mod:`tadpole.pilot.written`): its repository a
directory source, its solution what ``solve.sh`` changes in a box, its tests new files. So it passes
the same gates, and is graded and trained on like every other task.
"""

import io
import re
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

import tomli_w

from tadpole.errors import SourceError, TaskError
from tadpole.pilot import taskdir
from tadpole.pilot.harbor.foreign import Foreign, ImportReason, NotImportable, read
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.pilot.written import Written, edited_functions, is_test
from tadpole.repos import files
from tadpole.repos.snapshot import Snapshot
from tadpole.task import FileChange, TaskKind

SOURCES = ".sources"  # beside the tasks: the repositories that came with them
_SECONDS = 600.0  # of a solution
_PLACE = "/tmp/.solution"


@dataclass(frozen=True)
class Imported:
    """What became of one directory: a task's name, or why there is none."""

    directory: str
    task: str = ""
    reason: ImportReason | DropReason | None = None
    detail: str = ""


async def import_tasks(directory: Path, out: Path, validator: Validator) -> list[Imported]:
    """Import a task directory, or all of a directory of them, into ``out``.

    Raises TaskError where there is none, SandboxError or GraderError where it could not be told.
    """
    places = [directory] if (directory / "task.toml").exists() else []
    places = places or sorted(path.parent for path in directory.glob("[!.]*/task.toml"))
    if not places:
        raise TaskError(f"{directory} holds no Harbor tasks: name a directory with a task.toml")
    return [await _one(place, out, validator) for place in places]


async def _one(place: Path, out: Path, validator: Validator) -> Imported:
    name = place.resolve().name
    try:
        task = taskdir.load(place)
    except TaskError as error:
        if "no tadpole task" not in str(error):
            return Imported(name, reason=ImportReason.NO_TASK, detail=str(error))
    else:
        return Imported(name, taskdir.save(task, out).name)
    try:
        foreign = read(place)
        snapshot = await _snapshot(foreign, out, validator)
        written = await _written(foreign, snapshot, validator)
        made = await validator.validate(snapshot, written, _named(name))
    except NotImportable as error:
        return Imported(name, reason=error.reason, detail=str(error))
    except Dropped as error:
        return Imported(name, reason=error.reason, detail=str(error))
    return Imported(name, taskdir.save(made, out).name)


async def _snapshot(foreign: Foreign, out: Path, validator: Validator) -> Snapshot:
    """The repository as a directory source, with the packages that its image would have."""
    root = out.resolve() / SOURCES / _named(foreign.name)
    root.mkdir(parents=True, exist_ok=True)
    said = {"requirements": foreign.requirements, "env": foreign.env}
    project = foreign.tree.get("pyproject.toml")
    text = (project.content or b"").decode("utf-8", "replace") if project else ""
    if any(said.values()) and "[tool.tadpole]" not in text:
        text = f"{text.rstrip()}\n\n{tomli_w.dumps({'tool': {'tadpole': said}})}".lstrip()
        foreign.tree["pyproject.toml"] = FileChange("pyproject.toml", text.encode())
    files.write(root, foreign.tree.values())
    try:
        return await validator.store.snapshot(str(root))
    except SourceError as error:
        raise NotImportable(ImportReason.NO_TESTS_BEFORE, str(error)) from None


async def _written(foreign: Foreign, snapshot: Snapshot, validator: Validator) -> Written:
    """Run the solution in a box, and take what it changed."""
    links = {"/solution": _PLACE}
    if re.fullmatch(r"/\w+", foreign.workdir) and foreign.workdir != "/repo":
        links[foreign.workdir] = "/tmp/.work"
    box = await validator.engine.start(replace(validator.store.box(snapshot), links=links))
    try:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(foreign.solution, arcname=".")
        script = f"ln -s /repo /tmp/.work; mkdir {_PLACE} && tar -xf - -C {_PLACE}"
        await box.exec(["sh", "-c", script], timeout=60, stdin=packed.getvalue())
        await box.exec(["bash", "/solution/solve.sh"], timeout=_SECONDS)
        delta = await box.delta()
    finally:
        await box.close()
    gold = tuple(change for change in delta if not is_test(change.path, snapshot.recipe))
    place = next(iter(snapshot.recipe.test_paths), "tests").rstrip("/")
    place = "tests" if place in ("", ".") or place.endswith(".py") else place
    tests = tuple(
        FileChange(f"{place}/harbor/{path}", change.content)
        for path, change in foreign.tests.items()
    )
    start = {
        change.path: file.read_bytes() if (file := snapshot.tree / change.path).is_file() else None
        for change in gold
    }
    return Written(
        proposer="harbor",
        operator="import",
        changes=(),
        functions=edited_functions(start, {c.path: c.content for c in gold}) or ("<module>",),
        sites=(),
        kind=TaskKind.FEATURE,
        statement=foreign.statement,
        gold=gold,
        tests=tests,
        author=f"harbor:{foreign.name}",
    )


def _named(name: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "task"
