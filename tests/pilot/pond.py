"""A tiny real library with tests, and a pip that installs from the running environment."""

import importlib.metadata
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tadpole.repos.pip import Pip

SHAPES = '''"""Shapes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:

    def only_for_checkers(a, b):
        return a + b


def area(width, height):
    """The area of a rectangle. Negative sides count as zero.

    Returns a number.
    """
    if width < 0 or height < 0:
        return 0
    return width * height


def perimeter(width, height):
    """How far it is around."""
    total = 0
    for side in (width, height):
        total += 2 * side
    return total


def scaled(sizes, factor, floor=0):
    found = []
    for size in sizes:
        if size is None:
            continue
        found.append(max(size * factor, floor))
    return found


class Square:
    """A square."""

    def __init__(self, side):
        self.side = side
        self.name = "square"

    def __repr__(self):
        return "Square(%d)" % (self.side + 0)

    def grow(self, by=1):
        """Make it larger."""
        self.side = self.side + by
        return self

    async def later(self, factor):
        if not factor:
            return self.side
        return self.side * factor
'''
WORDS = '''"""Words."""


def first(text, count=1):
    """The first words of a text."""
    words = text.split(" ")
    return words[:count]


def shout(text, mark="!", *, twice=False):
    if not text:
        return ""
    loud = text.upper() + mark
    return loud + loud if twice else loud


def clean(text):
    text = text.strip()
    text = text.replace("-", " ")
    return text


def outer(left, right):
    try:
        return left[1:] + right[:-1]
    except TypeError:
        return None
'''
TEST_SHAPES = '''"""Tests of shapes."""

import asyncio

import pytest

from pond import shapes

SIDE = 3


@pytest.fixture
def square():
    return shapes.Square(SIDE)


@pytest.mark.parametrize("width, height, wanted", [(2, 3, 6), (1, 1, 1), (-1, 5, 0)])
def test_area(width, height, wanted):
    assert shapes.area(width, height) == wanted


def test_area_of_nothing():
    assert shapes.area(0, 4) == 0


def test_perimeter():
    assert shapes.perimeter(2, 3) == 10


def test_scaled():
    assert shapes.scaled([1, None, 2], 3) == [3, 6]


class TestSquare:
    def test_grow(self, square):
        assert square.grow().side == SIDE + 1

    def test_grow_by(self, square):
        assert square.grow(by=4).side == SIDE + 4

    @pytest.mark.filterwarnings("ignore")
    def test_later(self, square):
        assert asyncio.run(square.later(2)) == 6
        assert asyncio.run(square.later(0)) == 3


def test_name(square):
    assert square.name == "square"
'''
TEST_WORDS = '''"""Tests of words."""

import unittest

from pond.words import clean, first, outer, shout


class WordsTest(unittest.TestCase):
    def test_first(self):
        self.assertEqual(first("a b c", 2), ["a", "b"])

    def test_shout(self):
        self.assertEqual(shout("hey"), "HEY!")
        self.assertEqual(shout("hey", twice=True), "HEY!HEY!")

    def test_silence(self):
        self.assertEqual(shout(""), "")


def test_clean():
    assert clean(" a-b ") == "a b"


def test_outer():
    assert outer([1, 2], [3, 4]) == [2, 3]
    assert outer(1, 2) is None
'''
FILES = {
    "pond/__init__.py": '"""A pond."""\n',
    "pond/shapes.py": SHAPES,
    "pond/words.py": WORDS.replace("\n", "\r\n"),  # as files from other systems are
    "tests/conftest.py": '"""Nothing yet."""\n',
    "tests/test_shapes.py": TEST_SHAPES,
    "tests/test_words.py": TEST_WORDS,
}


def build(root: Path) -> Path:
    """Write the library."""
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text.encode())
    return root


@dataclass(frozen=True)
class LocalPip(Pip):
    """Installs by copying from the environment that runs the tests: no network."""

    async def install(self, python, requirements, **_):
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = python.parent.parent / "lib" / version / "site-packages"
        for name in ("pytest", "coverage", "pluggy", "iniconfig", "packaging", "pygments"):
            distribution = importlib.metadata.distribution(name)
            for file in distribution.files or ():
                source = Path(distribution.locate_file(file))
                if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
                    continue
                target = site / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
