"""A tiny library with a bug, its hidden tests, and what grades it in a real box."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from tadpole.protocols import SandboxSpec
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.task import FileChange, Hint, Measured, Provenance, Recipe, Source, Task, TaskKind

GOOD = b"def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return 2 * a\n"
BUGGY = GOOD.replace(b"a + b", b"a - b")
TESTS = b"""import pytest
from calc import core


@pytest.mark.parametrize("a, b, total", [(1, 2, 3), (2, 2, 4)], ids=["one two", "equal"])
def test_add(a, b, total):
    assert core.add(a, b) == total


class TestAdd:
    def test_negative(self):
        assert core.add(-1, -1) == -2


def test_double():
    assert core.double(3) == 6
"""
CLASSIC = b"""import unittest
from calc import core


class Classic(unittest.TestCase):
    def test_double(self):
        self.assertEqual(core.double(2), 4)

    def test_add(self):
        self.assertEqual(core.add(5, 5), 10)
"""
BASE = {
    "calc/__init__.py": b"",
    "calc/core.py": BUGGY,
    "tests/helpers.py": b"",
    "tests/test_classic.py": CLASSIC,
    "pyproject.toml": b"[project]\nname = 'calc'\n[tool.pytest.ini_options]\nxfail_strict = true\n",
    "data/blob.bin": b"\x00\x01",
    "run.sh": b"#!/bin/sh\n",
    "old.txt": b"one\r\ntwo\r\n",
}


def new_task(**changed) -> Task:
    task = Task(
        name="calc-0001",
        kind=TaskKind.BUG_FIX,
        source=Source("directory", "calc", "1", "0" * 64),
        snapshot="0" * 64,
        runtime="0" * 64,
        recipe=Recipe(packages=("calc",), test_paths=("tests",)),
        start=(FileChange("calc/core.py", BUGGY), FileChange("tests/test_core.py", None)),
        gold=(FileChange("calc/core.py", GOOD),),
        hidden=(FileChange("tests/test_core.py", TESTS),),
        fail_to_pass=(
            "tests/test_core.py::test_add[one two]",
            "tests/test_core.py::test_add[equal]",
            "tests/test_core.py::TestAdd::test_negative",
            "tests/test_classic.py::Classic::test_add",
        ),
        pass_to_pass=(
            "tests/test_core.py::test_double",
            "tests/test_classic.py::Classic::test_double",
        ),
        hints=(Hint(0, "add() does not add."),),
        rung=0,
        provenance=Provenance(proposer="test"),
        test_seconds=60.0,
    )
    return replace(task, **changed)


def picky_task(*names: str) -> Task:
    """That of a library with ``PICKY``; its making found that all ``names`` can be rewritten."""
    return new_task(
        gold=(FileChange("calc/core.py", GOOD + PICKY),),
        hidden=(FileChange("tests/test_core.py", PICKY_TESTS),),
        fail_to_pass=names,
        pass_to_pass=("tests/test_classic.py::Classic::test_double",),
        measured=Measured(functions=3, oracles=tuple((name, 0) for name in names)),
    )


# What tier 3 can rewrite in it, by test function.
ORACLES = (
    ("tests/test_core.py::test_add", 0),
    ("tests/test_core.py::TestAdd::test_negative", 0),
    ("tests/test_core.py::test_double", 0),
    ("tests/test_classic.py::Classic::test_add", 0),
)
# What is compared with nothing but its like.
PICKY = b"""

class Sum(int):
    def __eq__(self, other):
        if not isinstance(other, Sum):
            raise ValueError("no sum")
        return int(self) == int(other)

    __hash__ = int.__hash__
"""
PICKY_TESTS = b"""from calc import core

def test_sum():
    expected = core.Sum(3)
    assert core.Sum(core.add(1, 2)) == expected

def test_plus():
    assert core.add(1, 1) == 2
"""
VENV = "/opt/environment"  # in the box; on this machine it may lie anywhere, below /tmp too


@dataclass
class FixedStore:
    """Every task starts from one tree, in the environment that runs these tests."""

    tree: Path
    env: dict[str, str] = field(default_factory=dict)

    async def spec(self, task: Task) -> SandboxSpec:
        mounts = {VENV: Path(sys.prefix)}
        if not sys.base_prefix.startswith("/usr"):
            mounts[sys.base_prefix] = Path(sys.base_prefix)
        # The plugins of this project's own tests are not part of the tiny library's environment.
        env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **self.env}
        return SandboxSpec(tree=self.tree, mounts=mounts, env=env)

    async def pristine(self, task: Task) -> SandboxSpec:
        return await self.spec(task)

    def python(self, of: Task, /) -> str:
        return f"{VENV}/bin/python"


@dataclass
class CountingEngine:
    """The real engine, counted; ``failures`` are raised by the first starts."""

    failures: list[Exception] = field(default_factory=list)
    starts: int = 0
    real: BubblewrapEngine = field(default_factory=BubblewrapEngine)

    async def start(self, spec):
        self.starts += 1
        if self.failures:
            raise self.failures.pop(0)
        return await self.real.start(spec)
