import asyncio
import random
from dataclasses import replace

import pytest
from authors import NOTE, PLACE, SOLUTION, STATEMENT, TESTS, left, server, write

from tadpole.errors import ModelError, RunError
from tadpole.grading.grader import PytestGrader
from tadpole.outcome import StopReason
from tadpole.pilot import taskdir
from tadpole.pilot.drafts import Draft, Drafts, Kept
from tadpole.pilot.proposers.author import Author, candidate
from tadpole.pilot.trial import Rules
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.task import FileChange, TaskKind


@pytest.fixture
def validator(store, engine):
    return Validator(store, engine, PytestGrader(engine, store), Rules(mutants=3))


def drafted(snapshot, kind=TaskKind.FEATURE, **files):
    """A draft without an episode: the files as if an author had left them."""
    found = left(**files)
    more = found.pop("more", None)
    if more:
        text = (snapshot.tree / "pond/shapes.py").read_text()
        found["pond/shapes.py"] = text + more
    kept = tuple(Kept.of(FileChange(path, text.encode())) for path, text in found.items())
    return Draft(number=0, kind=kind, author="m", seed=1, stop=StopReason.AGENT, files=kept)


async def test_a_sound_author_behind_a_server_makes_a_task(desk, snapshot, validator, tmp_path):
    served = server(left())
    desk = desk(served.url)
    await write(desk, snapshot)
    tools = [tool["function"]["name"] for tool in served.seen[0][2]["tools"]]
    assert tools == ["Read", "Write", "Edit", "Glob", "Bash"]
    (proposed,) = Author(desk.directory, 1).propose(snapshot, random.Random(0))
    task = await validator.validate(snapshot, proposed, "pond-0001")
    assert task.kind is TaskKind.FEATURE and task.provenance.author == "openai:writer"
    assert task.provenance.edited_functions == ("diagonal",)
    assert {i.partition("::")[2].partition("[")[0] for i in task.fail_to_pass} == {
        "test_diagonal",
        "test_negative_sides_have_none",
    }
    assert f"{PLACE}::test_area_is_as_before" in task.pass_to_pass
    assert [change.path for change in task.gold] == ["pond/shapes.py"]
    assert [change.path for change in task.hidden if change.path == PLACE] == [PLACE]
    assert task.start == () and task.statement.startswith(STATEMENT.strip())
    assert task.measured.mutants >= 3 and task.measured.kill_rate >= 0.7
    assert "To change: `pond/shapes.py`." in task.hints[-1].text
    assert taskdir.load(taskdir.save(task, tmp_path / "set")) == task
    assert list((tmp_path / "run" / "traces").rglob("*")) or desk.rundir.path.exists()
    served.shutdown()


async def test_what_was_written_is_not_asked_for_again(desk, snapshot):
    served = server(left(), left(tests=None))
    desk = desk(served.url)
    first = await write(desk, snapshot, count=2)
    asked = len(served.seen)
    assert await write(desk, snapshot, count=2) == first and len(served.seen) == asked
    proposed = list(Author(desk.directory, 9).propose(snapshot, random.Random(0)))
    again = list(Author(desk.directory, 9).propose(snapshot, random.Random(7)))
    assert [one.key for one in proposed] == [one.key for one in again]
    assert proposed[0].key != proposed[1].key
    served.shutdown()


async def test_a_server_that_is_gone_is_one_line_and_no_draft(desk, snapshot):
    served = server(left())
    served.shutdown()
    served.server_close()
    gone = desk(served.url)
    with pytest.raises(ModelError, match=r"the author could not go on: .*cannot be reached"):
        await write(gone, snapshot)
    assert Drafts(gone.directory, snapshot.key).all(9) == []


async def test_a_damaged_draft_is_told(desk, snapshot, tmp_path):
    drafts = Drafts(tmp_path, snapshot.key)
    drafts.save(drafted(snapshot))
    (path,) = tmp_path.rglob("*.json")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(RunError, match="remove it"):
        drafts.load(0)


VACUOUS = """from pond import shapes


def test_area():
    assert shapes.area(3, 4) == 12
"""
QUICK = """import time

from pond import shapes


def test_it_is_quick():
    begun = time.perf_counter()
    assert shapes.diagonal(3, 4) == 5
    time.sleep(0.05)
    assert time.perf_counter() - begun < 20


def test_area_is_as_before():
    assert shapes.area(3, 4) == 12
"""
BESIDE = """def test_something():
    import os.path
    assert os.path.exists("tests/marker.txt")
"""
WRONG = TESTS.replace("(3, 4, 5)", "(3, 4, 6)")
BREAKING = SOLUTION + "\n\ndef perimeter(width, height):\n    return 0\n"
SECRET = SOLUTION.replace("height * height) ** 0.5", "height * height) ** 0.5\n\n\nLIMIT = 4711\n")
QUOTING = STATEMENT + "\nUse `return (width * width + height * height) ** 0.5` for it."
SPOILING = STATEMENT + "\nFor example `assert shapes.diagonal(width, height) == wanted`."
SILENT = STATEMENT.replace("`diagonal(width, height)`", "for the way across")
UNNAMED = STATEMENT.replace('"a side is negative"', "that says why").replace(
    "ValueError", "an error"
)


@pytest.mark.parametrize(
    "files, reason",
    [
        ({"tests": None}, DropReason.NO_TESTS),
        ({"tests": "def helper():\n    pass\n"}, DropReason.NO_TESTS),
        ({"statement": None}, DropReason.NO_STATEMENT),
        ({"statement": "Do it."}, DropReason.NO_STATEMENT),
        ({"more": None}, DropReason.NO_SOLUTION),
        ({"more": "\n\ndef diagonal(:\n"}, DropReason.UNREADABLE),
        ({"tests/test_shapes.py": "def test_area():\n    pass\n"}, DropReason.TESTS_CHANGED),
        ({"tests/conftest.py": "import pytest\n"}, DropReason.TESTS_CHANGED),
        ({"conftest.py": "import pytest\n"}, DropReason.SOLUTION_EDITS_TESTS),
        ({"statement": QUOTING}, DropReason.STATEMENT_LEAKS),
        ({"statement": SPOILING}, DropReason.STATEMENT_LEAKS),
        ({"statement": SILENT}, DropReason.UNTOLD),
        ({"statement": UNNAMED}, DropReason.UNTOLD),
    ],
)
async def test_parts_that_cannot_do_are_dropped_with_the_reason(snapshot, validator, files, reason):
    proposed = candidate(snapshot, drafted(snapshot, **files))
    assert proposed.files and proposed.functions  # the journal has something to say of it
    with pytest.raises(Dropped) as caught:
        await validator.validate(snapshot, proposed, "pond-0001")
    assert caught.value.reason is reason


def beside(snapshot):
    """Its test fails without the solution's other file, which no line of it executes."""
    proposed = candidate(snapshot, drafted(snapshot, **{"tests": BESIDE, "tests/marker.txt": "x"}))
    return replace(
        proposed,
        gold=(*proposed.gold, *(c for c in proposed.tests if c.path.endswith("marker.txt"))),
        tests=tuple(c for c in proposed.tests if not c.path.endswith("marker.txt")),
    )


async def test_what_only_runs_can_tell_is_dropped_with_the_reason(snapshot, validator):
    others = {
        DropReason.SURVIVED: candidate(snapshot, drafted(snapshot, tests=VACUOUS)),
        DropReason.OWN_TESTS_FAIL: candidate(snapshot, drafted(snapshot, tests=WRONG)),
        DropReason.BREAKS_TESTS: candidate(snapshot, drafted(snapshot, more=BREAKING)),
        DropReason.UNREACHED: beside(snapshot),
        DropReason.UNSTABLE: candidate(snapshot, drafted(snapshot, tests=QUICK)),
    }
    ends = await asyncio.gather(
        *(validator.validate(snapshot, one, "pond-0001") for one in others.values()),
        return_exceptions=True,
    )
    assert all(isinstance(end, Dropped) for end in ends), ends
    assert [end.reason for end in ends] == list(others)
    told = (
        "tests/test_diagonal.py::test_it_is_quick under hash seed 2 in reverse order, with clocks"
    )
    assert ends[-1].detail.startswith(told)


class Hurried:
    """An engine in whose boxes the first runs of tests are given no time."""

    def __init__(self, engine, runs):
        self.engine, self.runs = engine, runs

    async def start(self, spec):
        return HurriedBox(await self.engine.start(spec), self.runs)


class HurriedBox:
    def __init__(self, box, runs):
        self.box, self.left = box, runs

    def __getattr__(self, name):
        return getattr(self.box, name)

    async def exec(self, argv, *, timeout, stdin=b""):
        if argv[-1].endswith("/reporter.py") and self.left:
            self.left, timeout = self.left - 1, 0.01
        return await self.box.exec(argv, timeout=timeout, stdin=stdin)


async def test_a_run_that_the_clock_ends_once_says_nothing(snapshot, store, engine):
    proposed, grader = candidate(snapshot, drafted(snapshot)), PytestGrader(engine, store)
    quiet = await Validator(store, engine, grader).validate(snapshot, proposed, "pond-0001")
    busy = Validator(store, Hurried(engine, 1), grader)
    task = await busy.validate(snapshot, proposed, "pond-0001")
    assert (task.fail_to_pass, task.pass_to_pass) == (quiet.fail_to_pass, quiet.pass_to_pass)
    with pytest.raises(Dropped) as caught:
        await Validator(store, Hurried(engine, 2), grader).validate(snapshot, proposed, "p-1")
    assert caught.value.reason is DropReason.TOO_SLOW


FIXED = """from pond import shapes


def test_a_single_side_still_has_a_perimeter():
    assert shapes.perimeter(3, 0) == 6


def test_both_sides_count():
    assert shapes.perimeter(2, 5) == 14
"""
REPORT = """`perimeter` of `pond.shapes` is wrong for rectangles that are no squares: the longer
the one side is compared with the other, the further off it is. It shall be the way all around.
"""


async def test_a_bug_that_the_author_put_in(snapshot, store, engine):
    """Old tests that notice it become hidden ones, and are cut out of their file."""
    right = (snapshot.tree / "pond/shapes.py").read_text()
    wrong = right.replace("total += 2 * side", "total = 2 * side")
    assert wrong != right
    files = {"more": None, "tests": None, "statement": REPORT, "tests/test_around.py": FIXED}
    draft = drafted(snapshot, TaskKind.BUG_FIX, **files, **{".task/before/pond/shapes.py": wrong})
    validator = Validator(store, engine, PytestGrader(engine, store))
    task = await validator.validate(snapshot, candidate(snapshot, draft), "pond-0001")
    assert task.kind is TaskKind.BUG_FIX
    assert {change.path for change in task.start} == {"pond/shapes.py", "tests/test_shapes.py"}
    assert task.gold[0].content == right.encode()
    assert "tests/test_shapes.py::test_perimeter" in task.fail_to_pass
    shown = next(c.content for c in task.start if c.path == "tests/test_shapes.py")
    assert b"test_perimeter" not in shown and b"test_scaled" in shown
    assert task.provenance.edited_functions == ("perimeter",)
    assert NOTE not in {change.path for change in (*task.start, *task.gold, *task.hidden)}
