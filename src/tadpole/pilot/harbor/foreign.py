"""Reads a Harbor task that somebody else made, as far as a box can provide its environment.

A box has a Python environment and a work tree, no image. So a task is taken where its Dockerfile
does nothing but copy files and install Python packages on a Python image, and where its tests are
pytest's. Everything else is refused with the reason; nothing of it is run here.
"""

import shlex
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from tadpole.repos.files import from_directory
from tadpole.task import FileChange
from tadpole.tomlfile import parse_toml, table


class ImportReason(StrEnum):
    """Why a Harbor task cannot be run here. The text is for a person."""

    NO_TASK = "it is no Harbor task: task.toml or instruction.md is missing or unreadable"
    STEPS = "it has several steps"
    COMPOSE = "its environment is more than one container"
    IMAGE = "its environment is an image that is not Python's own"
    SETUP = "its Dockerfile does more than copy files and install Python packages"
    HARDWARE = "it wants accelerators, services or another system"
    NO_PYTEST = "its tests are not pytest's, or lie in no file of their own"
    NO_SOLUTION = "it has no solution/solve.sh"
    PLACES = "its tests name a work directory of their own"
    NO_TESTS_BEFORE = "its repository has no tests of its own that pass"


class NotImportable(Exception):
    """Ends the reading of one task."""

    def __init__(self, reason: ImportReason, detail: str = "") -> None:
        super().__init__(f"{reason.value}{f' ({detail})' if detail else ''}")
        self.reason = reason


@dataclass
class Foreign:
    """What was read. ``tests`` are the files of tests/, by their path there."""

    name: str
    statement: str
    workdir: str = "/"
    tree: dict[str, FileChange] = field(default_factory=dict)
    requirements: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    tests: dict[str, FileChange] = field(default_factory=dict)
    solution: Path = Path()


def read(directory: Path) -> Foreign:
    """Read a task directory. Raises NotImportable."""
    try:
        settings = parse_toml((directory / "task.toml").read_text("utf-8"))
        environment = table(settings, "environment")
        statement = (directory / "instruction.md").read_text("utf-8")
    except (OSError, ValueError):
        raise NotImportable(ImportReason.NO_TASK) from None
    _check(directory, settings, environment)
    found = Foreign(directory.name, statement.strip(), solution=directory / "solution")
    _build(found, directory / "environment")
    script = _text(directory / "tests" / "test.sh")
    found.tests = {
        path: change
        for path, change in from_directory(directory / "tests").items()
        if path.endswith(".py")
    }
    if "pytest" not in script or not any(_is_test(path) for path in found.tests):
        raise NotImportable(ImportReason.NO_PYTEST)
    if not (found.solution / "solve.sh").is_file():
        raise NotImportable(ImportReason.NO_SOLUTION)
    if found.workdir not in ("/", "/repo") and any(
        f"{found.workdir}/".encode() in (change.content or b"") for change in found.tests.values()
    ):
        raise NotImportable(ImportReason.PLACES, found.workdir)
    found.statement = found.statement.replace(f"{found.workdir.rstrip('/')}/", "")
    return found


def _check(directory: Path, settings: dict[str, Any], environment: dict[str, Any]) -> None:
    if settings.get("steps") or (directory / "steps").is_dir():
        raise NotImportable(ImportReason.STEPS)
    if any((directory / "environment").glob("*compose.y*ml")):
        raise NotImportable(ImportReason.COMPOSE)
    if environment.get("docker_image") or not (directory / "environment/Dockerfile").is_file():
        raise NotImportable(ImportReason.IMAGE)
    wanted = ("gpus", "tpu", "mcp_servers", "healthcheck")
    if any(environment.get(name) for name in wanted) or environment.get("os") == "windows":
        raise NotImportable(ImportReason.HARDWARE)


def _build(found: Foreign, context: Path) -> None:
    """Follow the Dockerfile."""
    text = _text(context / "Dockerfile").replace("\\\n", " ")
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        match word.upper():
            case "FROM":
                image = rest.split()[0].removeprefix("docker.io/").removeprefix("library/")
                if image.partition("@")[0].partition(":")[0] != "python":
                    raise NotImportable(ImportReason.IMAGE, image)
            case "WORKDIR":
                found.workdir = str(PurePosixPath(found.workdir) / rest.strip())
            case "ENV":
                _variables(found, rest)
            case "COPY" | "ADD":
                _copy(found, context, rest)
            case "RUN":
                for command in rest.split("&&"):
                    _run(found, command.strip())
            case "" | "USER" | "LABEL" | "CMD" | "ENTRYPOINT" | "EXPOSE":
                pass
            case _ if word.startswith("#"):
                pass
            case _:
                raise NotImportable(ImportReason.SETUP, word)


def _variables(found: Foreign, rest: str) -> None:
    for part in shlex.split(rest):
        name, equals, value = part.partition("=")
        if equals and not name.startswith("PYTHON") and name != "PATH":
            found.env[name] = value


def _copy(found: Foreign, context: Path, rest: str) -> None:
    *sources, target = [word for word in shlex.split(rest) if not word.startswith("--")]
    top = PurePosixPath(found.workdir)
    place = top / target
    if not place.is_relative_to(top):
        raise NotImportable(ImportReason.SETUP, f"copies to {target}")
    for name in sources:
        source = (context / name).resolve()
        if not source.is_relative_to(context.resolve()) or not source.exists():
            raise NotImportable(ImportReason.SETUP, f"copies {name}")
        within = place.relative_to(top)
        if source.is_file():
            whole = within / source.name if target.endswith(("/", ".")) else within
            mode = bool(source.stat().st_mode & 0o100)
            found.tree[whole.as_posix()] = FileChange(whole.as_posix(), source.read_bytes(), mode)
            continue
        for path, change in from_directory(source).items():
            whole = within / path
            if whole.as_posix() != "Dockerfile":
                found.tree[whole.as_posix()] = FileChange(
                    whole.as_posix(), change.content, change.executable
                )


def _run(found: Foreign, command: str) -> None:
    words = shlex.split(command)
    words = words[2:] if words[:2] in (["python", "-m"], ["python3", "-m"]) else words
    if words[:2] in (["pip", "install"], ["pip3", "install"]):
        for word in words[2:]:
            if word in ("-r", "-e") or word.startswith((".", "/", "--index", "--extra-index")):
                if word != "-e" and not word.startswith("."):
                    raise NotImportable(ImportReason.SETUP, command)
                continue  # the package itself: it is imported from the tree
            if not word.startswith("-"):
                found.requirements.append(word)
        return
    if words and words[0] not in ("git", "useradd", "chown", "mkdir", "true"):
        raise NotImportable(ImportReason.SETUP, command[:60])


def _is_test(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.startswith("test_") or name.endswith("_test.py")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return ""
