"""Authors of tasks for the tiny library: what a model would type, well or badly."""

import json

from tadpole.progress import Progress
from tadpole.task import TaskKind
from tests.chat_server import Server, call, completion

SOLUTION = '''

def diagonal(width, height):
    """The way from one corner to the opposite one."""
    if width < 0 or height < 0:
        raise ValueError("a side is negative")
    return (width * width + height * height) ** 0.5
'''
TESTS = """import pytest

from pond import shapes


@pytest.mark.parametrize("width, height, wanted", [(3, 4, 5), (0, 7, 7), (8, 6, 10)])
def test_diagonal(width, height, wanted):
    assert shapes.diagonal(width, height) == wanted


def test_negative_sides_have_none():
    with pytest.raises(ValueError, match="a side is negative"):
        shapes.diagonal(-1, 2)


def test_area_is_as_before():
    assert shapes.area(3, 4) == 12
"""
STATEMENT = """Add a function `diagonal(width, height)` to the module `pond.shapes`. It gives the
length of the straight way from one corner of a rectangle to the opposite one, as a number. A
negative side makes it raise ValueError with the message "a side is negative".
"""
PLACE = "tests/test_diagonal.py"
NOTE = ".task/statement.md"


def left(**changed):
    """The files of a sound author, some of them changed (None: not written)."""
    files = {"more": SOLUTION, PLACE: TESTS, NOTE: STATEMENT} | {
        {"statement": NOTE, "tests": PLACE}.get(name, name): text for name, text in changed.items()
    }
    return {path: text for path, text in files.items() if text is not None}


def typed(files):
    """The calls that leave these files; "more" is appended to the module."""
    calls = []
    for number, (path, text) in enumerate(files.items()):
        arguments = {"file_path": path, "content": text}
        name = "Write"
        if path == "more":
            name, arguments = "Bash", {"command": f"cat >> pond/shapes.py <<'END'{text}END\n"}
        calls.append(call(name, json.dumps(arguments), f"c{number}"))
    return calls


def server(*authors):
    """A real server behind which these authors sit, one episode each."""
    found = Server()
    found.script = []
    for files in authors:
        found.script += [completion("", "tool_calls", tool_calls=typed(files)), completion("Done.")]
    return found


async def write(desk, snapshot, kinds=(TaskKind.FEATURE,), count=1):
    """Drafts of these kinds in turn."""
    with Progress.silent().task("write", total=count) as bar:
        return await desk.write_drafts(snapshot, kinds, count, 0, bar)
