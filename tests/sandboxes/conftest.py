"""A small tree, a tiny toolbox, and a census of host processes for the sandbox tests."""

import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tadpole.errors import SandboxUnavailable
from tadpole.protocols import Limits, SandboxSpec
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.sandboxes.container import ContainerEngine
from tadpole.sandboxes.docker import docker
from tadpole.sandboxes.probe import Engine, command_lines
from tadpole.sandboxes.session import Session
from tadpole.settings import BoxKind

Start = Callable[..., Awaitable[Session]]

TOOLBOX = """
import time
calls = []
def call(name, arguments, workdir, run_bash):
    calls.append(name)
    if name == "Bash":
        result = run_bash(arguments["command"], arguments.get("timeout", 20))
        return "%s %s %s" % (result["code"], result["reason"], result["stdout"].decode()), False
    if name == "Read":
        return open(arguments["file_path"]).read(), False
    if name == "Write":
        with open(arguments["file_path"], "w") as handle:
            handle.write(arguments["content"])
        return "wrote", False
    if name == "Calls":
        return " ".join(calls), False
    if name == "Hang":
        time.sleep(600)
    raise KeyError(name)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    here = tmp_path / "tree"
    (here / "pkg" / "deep").mkdir(parents=True)
    (here / "pkg" / "core.py").write_text("value = 1\n")
    (here / "pkg" / "deep" / "leaf.py").write_text("leaf = 1\n")
    (here / "run.sh").write_text("#!/bin/sh\necho run\n")
    (here / "run.sh").chmod(0o755)
    (here / "link.py").symlink_to("pkg/core.py")
    (here / ".git").mkdir()
    (here / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return here


# Where a flat box takes the same way through the code as a session.
_ALIKE = tuple(f"test_box_{name}.py" for name in ("basics", "delta", "life", "tools"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.name in _ALIKE and "[flat" in item.name:
            item.add_marker(pytest.mark.slow)


BACKENDS = [
    BoxKind.SESSION,
    BoxKind.FLAT,
    pytest.param(BoxKind.CONTAINER, marks=pytest.mark.slow),
]


@pytest.fixture(params=BACKENDS, ids=lambda kind: kind.value)
def kind(request: pytest.FixtureRequest) -> BoxKind:
    """Every kind of box: whatever takes a box of this file is a part of the contract of all."""
    if request.param is BoxKind.CONTAINER:
        request.getfixturevalue("needs_docker")
    return request.param


@pytest.fixture
def needs_docker() -> None:
    """Skip where no container engine answers."""
    try:
        docker()
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def toolbox(tmp_path: Path) -> Path:
    package = tmp_path / "tools"
    package.mkdir()
    (package / "__init__.py").write_text(TOOLBOX)
    return package


@pytest.fixture
def engine(kind: BoxKind, toolbox: Path) -> Engine:
    if kind is BoxKind.CONTAINER:
        return ContainerEngine(toolbox=toolbox)
    return BubblewrapEngine(toolbox, kind)


def state_of(tree: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content of everything in a tree."""
    return {
        str(path.relative_to(tree)): (
            path.lstat().st_mode,
            os.readlink(path).encode() if path.is_symlink() else path.read_bytes(),
        )
        for path in tree.rglob("*")
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture
async def start(engine: Engine, tree: Path) -> AsyncIterator[Start]:
    """Starts boxes; after each test the host's tree is as it was and no process is left."""
    running: list[Session] = []
    before: list[dict[str, tuple[int, bytes]]] = []

    async def go(limits: Limits | None = None, **options: object) -> Session:
        spec = SandboxSpec(tree=tree, limits=limits or Limits(), **options)  # type: ignore
        before.append(state_of(tree))
        running.append(await engine.start(spec))
        return running[-1]

    yield go
    inits = [sandbox.init_pid() for sandbox in running]
    for sandbox in running:
        await sandbox.close()
    assert not any(pid and os.path.exists(f"/proc/{pid}") for pid in inits)
    assert not any(str(tree).encode() in line for line in command_lines())
    assert not before or state_of(tree) == before[0]


@pytest.fixture
async def box(start: Start) -> Session:
    return await start()


class Census:
    """Host processes that carry a mark in their command line."""

    def __init__(self) -> None:
        self.mark = f"600.{secrets.randbelow(10**9):09d}"  # an argument that sleep accepts

    def count(self) -> int:
        return sum(
            any(word.endswith(self.mark.encode()) for word in line.split(b"\0"))
            for line in command_lines()
        )


@pytest.fixture
def census() -> Census:
    return Census()
