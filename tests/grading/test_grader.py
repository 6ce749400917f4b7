"""Grading in a real box: what passes, what does not, and what could not be told."""

import asyncio
import shutil
import sys
from dataclasses import replace

import pytest
from calc_task import BUGGY, GOOD, TESTS, CountingEngine, FixedStore, new_task

from tadpole.errors import SandboxDied, SandboxStartError, SandboxUnavailable, SourceError
from tadpole.grading.grader import PytestGrader
from tadpole.outcome import GradeStatus
from tadpole.task import FileChange, Recipe

GRADED, INVALID, TAMPERED = GradeStatus.GRADED, GradeStatus.INVALID, GradeStatus.TAMPERED
NOISE = FileChange("notes.txt", b"thoughts")


def everything(task):
    return {*task.fail_to_pass, *task.pass_to_pass}


@pytest.mark.slow
async def test_gold_is_resolved_again_and_again(engine, store, task):
    for _ in range(5):
        grade = await PytestGrader(engine, store).grade(task, task.gold)
        assert (grade.status, grade.resolved, grade.failing) == (GRADED, True, ())
        assert grade.reason == "all 6 tests passed"
    assert engine.starts == 5


async def test_an_unfixed_bug_fails_exactly_fail_to_pass(grader, task):
    grade = await grader.grade(task, [NOISE])
    assert (grade.status, grade.resolved) == (GRADED, False)
    assert grade.failing == task.fail_to_pass  # ids with spaces and classes, as pytest has them
    assert "4 of 6 tests did not pass" in grade.reason
    assert "\n" not in grade.reason


async def test_empty_patch_is_graded_without_a_run(grader, engine, task):
    grade = await grader.grade(task, [])
    assert (grade.status, grade.resolved, grade.reason) == (GRADED, False, "empty patch")
    assert set(grade.failing) == everything(task)
    assert engine.starts == 0


async def test_only_dropped_files_are_an_empty_patch(grader, engine, task):
    grade = await grader.grade(task, [FileChange("tests/test_new.py", b""), NOISE][:1])
    assert (grade.resolved, grade.dropped) == (False, ("tests/test_new.py",))
    assert grade.reason == "empty patch: no file is taken into grading (1 test file)"
    assert engine.starts == 0


async def test_legitimate_work_of_every_kind_is_resolved(grader, task):
    delta = [
        FileChange(
            "calc/core.py",
            b"from calc.deep.sums import add\r\n\r\nfrom calc.deep import double\r\n"
            b"import calc.log\r\n",
        ),
        FileChange("calc/deep/__init__.py", b"def double(a):\n    return a + a\n"),
        FileChange("calc/deep/sums.py", b"def add(a, b):\n    return a + b\n", executable=True),
        FileChange("data/blob.bin", bytes(range(256))),
        FileChange("old.txt", None),
        FileChange("new name \u00e9.txt", b"one\r\ntwo\r\n"),
        FileChange("tests/test_mine.py", b"def test_mine(): assert False\n"),
        FileChange("calc/log.py", b"open('/repo/tests/new.log', 'w').write('mine')\n"),
    ]
    grade = await grader.grade(task, delta)
    assert grade.resolved, grade
    assert grade.dropped == ("tests/test_mine.py",)


async def test_syntax_error_fails_every_expected_test(grader, task):
    """T2: absence never passes."""
    grade = await grader.grade(task, [FileChange("calc/core.py", b"def add(:\n")])
    assert (grade.status, grade.resolved) == (GRADED, False)
    assert set(grade.failing) == everything(task)
    assert "did not run" in grade.reason


async def test_end_of_the_process_at_import_did_not_run(grader, task):
    """T3."""
    grade = await grader.grade(task, [FileChange("calc/core.py", b"import os\nos._exit(0)\n")])
    assert (grade.status, grade.resolved) == (GRADED, False)
    assert set(grade.failing) == everything(task)
    assert "exit status 0" in grade.reason


async def test_agent_edits_of_test_files_are_replaced(grader, task):
    """T10: agent's change, then the tests."""
    weak = b"def test_add(): pass\ndef test_double(): pass\n"
    delta = [FileChange("tests/test_core.py", weak), FileChange("tests/test_classic.py", None)]
    grade = await grader.grade(task, [*delta, NOISE])
    assert grade.failing == task.fail_to_pass
    assert grade.dropped == ("tests/test_core.py", "tests/test_classic.py")
    assert "1 hidden test, 1 test file" in grade.reason
    assert (await grader.grade(task, [*delta, *task.gold])).resolved


async def test_only_a_pass_is_a_pass(grader, task):
    bodies = {
        "skipped": "import pytest; pytest.skip('no')",
        "xfailed": "import pytest; pytest.xfail('no')",
        "set_aside": "import unittest; raise unittest.SkipTest",
    }
    source = GOOD + "".join(f"\n\ndef {n}():\n    {body}\n" for n, body in bodies.items()).encode()
    tests = "from calc import core\n" + "".join(f"def test_{n}(): core.{n}()\n" for n in bodies)
    ids = tuple(f"tests/test_pass.py::test_{n}" for n in bodies)
    hidden = (*task.hidden, FileChange("tests/test_pass.py", tests.encode()))
    task = replace(task, hidden=hidden, pass_to_pass=(*task.pass_to_pass, *ids))
    grade = await grader.grade(task, [FileChange("calc/core.py", source)])
    assert (grade.status, grade.resolved) == (GRADED, False)
    assert grade.failing == ids
    for node, status in zip(ids, ("skipped", "xfailed", "skipped"), strict=True):
        assert f"{node} {status}" in grade.reason


async def test_a_hang_is_the_changes_fault(grader):
    """A24: by processor time, so that a busy machine is not held against the change."""
    hang = GOOD + b"\n\ndef double(a):\n    while True: pass\n"
    task = new_task(test_seconds=2.0)
    grade = await grader.grade(task, [FileChange("calc/core.py", hang)])
    assert (grade.status, grade.resolved) == (GRADED, False)
    assert grade.reason.startswith("timed out")  # by the clock where the machine is very busy
    assert set(task.pass_to_pass) & set(grade.failing)


@pytest.mark.slow
async def test_a_run_that_sleeps_ends_by_the_clock_and_is_not_kept(engine, grader):
    sleep = GOOD + b"\n\ndef double(a):\n    import time; time.sleep(1000)\n"
    for _ in range(2):  # a busy machine could have been the reason
        grade = await grader.grade(new_task(test_seconds=2.0), [FileChange("calc/core.py", sleep)])
        assert (grade.status, grade.resolved, grade.reason) == (GRADED, False, "timed out")
    assert engine.starts == 2


async def test_configuration_of_pytest_comes_from_the_start_tree(grader, task):
    evil = b"[tool.pytest.ini_options]\naddopts = '--collect-only -p calc.evil'\n"
    grade = await grader.grade(task, [*task.gold, FileChange("pyproject.toml", evil)])
    assert (grade.resolved, grade.dropped) == (True, ()), grade


SWAPPED = [
    *(FileChange("data", b"a file now"), FileChange("data/blob.bin", None)),
    *(FileChange("old.txt", None), FileChange("old.txt/part", b"a folder now")),
]


async def test_a_file_may_take_the_place_of_a_folder_and_the_other_way_round(grader, task):
    for ours in (grader, grader.trusting):
        grade = await ours.grade(task, [*task.gold, *SWAPPED])
        assert grade.resolved, grade
        back = b"open('data/blob.bin'), open('old.txt')\n"
        assert (await ours.grade(task, [FileChange("calc/core.py", GOOD + back)])).resolved


@pytest.mark.parametrize("path", ["data", "old.txt/part", "setup.cfg/part"])
async def test_files_that_cannot_stand_where_they_are_are_a_wrong_change(
    path, engine, tree, task, tmp_path
):
    """As where the deletion of what stands there is not taken into grading."""
    shutil.copytree(tree, tmp_path / "tree")
    (tmp_path / "tree/setup.cfg").write_text("")
    grader = PytestGrader(engine, FixedStore(tmp_path / "tree"))
    delta = [*task.gold, FileChange(path, b""), FileChange("setup.cfg", None)]
    for ours in (grader, grader.trusting):
        grade = await ours.grade(task, delta)
        assert (grade.status, grade.resolved) == (GRADED, False), grade
        assert "cannot stand where they are" in grade.reason
        assert set(grade.failing) == everything(task)
    assert engine.starts == 2  # told at once


async def test_recipe_arguments_paths_and_root_conftest_are_used(engine, tmp_path):
    test = b"from calc import core\ndef test_it(word): assert core.add(1, 1) == 2 == len(word)\n"
    files = {
        "src/calc/core.py": BUGGY,
        "conftest.py": b"import pytest\n@pytest.fixture\ndef word(request):\n"
        b"    return request.config.getoption('--word')\n"
        b"def pytest_addoption(parser): parser.addoption('--word')\n",
    }
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    task = new_task(
        recipe=Recipe(
            import_paths=("src",),
            packages=("calc",),
            test_paths=("spec",),
            pytest_args=("--word=ab", "-o", "python_files=check_*.py", "-x"),
        ),
        gold=(FileChange("src/calc/core.py", GOOD),),
        hidden=(FileChange("spec/unit/check_it.py", test),),
        fail_to_pass=("spec/unit/check_it.py::test_it",),
        pass_to_pass=(),
    )
    grader = PytestGrader(engine, FixedStore(tmp_path))
    assert (await grader.grade(task, task.gold)).resolved
    assert not (await grader.grade(task, [NOISE])).resolved


async def test_a_missing_id_never_passes(grader, task):
    task = replace(task, pass_to_pass=(*task.pass_to_pass, "tests/test_core.py::test_gone"))
    grade = await grader.grade(task, task.gold)
    assert (grade.status, grade.failing) == (GRADED, ("tests/test_core.py::test_gone",))
    assert "missing" in grade.reason


# --- infrastructure ------------------------------------------------------------------------------


async def test_a_failed_start_is_tried_again(store, task):
    engine = CountingEngine([SandboxStartError("busy"), SandboxDied("gone")])
    assert (await PytestGrader(engine, store).grade(task, task.gold)).resolved
    assert engine.starts == 3


async def test_starts_that_keep_failing_are_invalid_and_not_kept(store, task):
    engine = CountingEngine([SandboxStartError("no\nroom")] * 3)
    grader = PytestGrader(engine, store)
    grade = await grader.grade(task, task.gold)
    assert (grade.status, grade.resolved) == (INVALID, False)
    assert grade.reason.endswith("no room")
    assert (await grader.grade(task, task.gold)).resolved


class Killing(CountingEngine):
    """The real engine; what is graded in the first ``kills`` boxes is killed."""

    kills = 0

    async def start(self, spec):
        box = await super().start(spec)
        if self.starts <= self.kills:
            await box.write([FileChange("kill", b"")])
        return box


KILLED = FileChange(
    "calc/core.py",
    GOOD + b"import os\nif os.path.exists('/repo/kill'): os.kill(os.getpid(), 9)\n",
)


async def test_a_run_that_is_killed_is_made_once_more(store, task):
    """For the memory that another one took."""
    engine = Killing()
    engine.kills = 1
    assert (await PytestGrader(engine, store).grade(task, [KILLED])).resolved
    assert engine.starts == 2


async def test_a_run_that_is_killed_twice_is_graded_and_not_kept(store, task):
    engine = Killing()
    engine.kills = 2
    grader = PytestGrader(engine, store)
    grade = await grader.grade(task, [KILLED])
    assert (grade.status, grade.resolved, engine.starts) == (GRADED, False, 2)
    assert "exit status 137, no final record" in grade.reason
    assert (await grader.grade(task, [KILLED])).resolved


async def test_no_isolation_stops_everything(store, task):
    engine = CountingEngine([SandboxUnavailable("no user namespaces")])
    with pytest.raises(SandboxUnavailable):
        await PytestGrader(engine, store).grade(task, task.gold)


async def test_an_environment_without_pytest_is_invalid(engine, store, task):
    class Other(FixedStore):
        def python(self, of, /):
            return "/usr/bin/python3"

    grade = await PytestGrader(engine, Other(store.tree)).grade(task, task.gold)
    assert grade.status is INVALID
    assert "test environment does not work" in grade.reason


async def test_a_box_that_cannot_be_described_is_invalid(engine, store, task):
    class Broken(FixedStore):
        async def spec(self, task):
            raise SourceError("boltons 1.0 is gone from the index")

    grade = await PytestGrader(engine, Broken(store.tree)).grade(task, task.gold)
    assert (grade.status, engine.starts) == (INVALID, 0)
    assert "gone from the index" in grade.reason


# --- the cache -----------------------------------------------------------------------------------


async def test_the_same_change_is_graded_once(grader, engine, task):
    first = await grader.grade(task, task.gold)
    with_test = [*task.gold, FileChange("tests/test_mine.py", b"")]
    second = await grader.grade(task, with_test)  # the same accepted change
    assert engine.starts == 1
    assert (first.resolved, second.resolved) == (True, True)
    assert (first.dropped, second.dropped) == ((), ("tests/test_mine.py",))
    await grader.grade(replace(task, name="calc-0002"), task.gold)
    assert engine.starts == 2


async def test_concurrent_equal_requests_share_one_run(grader, engine, task):
    grades = await asyncio.gather(*(grader.grade(task, task.gold) for _ in range(5)))
    assert engine.starts == 1
    assert all(grade.resolved for grade in grades)


async def test_a_cancelled_request_does_not_harm_the_others(grader, engine, task):
    first = asyncio.create_task(grader.grade(task, task.gold))
    second = asyncio.create_task(grader.grade(task, task.gold))
    await asyncio.sleep(0.1)
    first.cancel()
    assert (await second).resolved
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_nothing_is_written_to_the_start_tree(grader, tree, task):
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
    await grader.grade(task, task.gold)
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*")} == before
    assert TESTS not in [path.read_bytes() for path in tree.rglob("*") if path.is_file()]


_watching = False
_started: list[str] = []


def _watch(event, arguments):
    """What this process starts; a hook cannot be taken out again."""
    if _watching and event == "subprocess.Popen":
        _started.append(str(arguments[1][0]))


async def test_grading_shares_no_place_with_an_agent_and_starts_no_git_here(engine, store, task):
    global _watching
    marks = ["/tmp/mark", "/dev/shm/mark", "/repo/mark", "/repo/.git/hooks/post-checkout"]
    agent = await engine.start(await store.spec(task))
    sys.addaudithook(_watch)
    try:
        script = f"mkdir -p .git/hooks; touch {' '.join(marks)}; ls {' '.join(marks)}"
        assert (await agent.exec(["/bin/bash", "-c", script], timeout=30)).code == 0
        look = f"\nimport os\nassert not [path for path in {marks} if os.path.exists(path)]\n"
        delta = [FileChange("calc/core.py", GOOD + look.encode()), FileChange(".git/config", b"x")]
        _watching = True
        grade = await PytestGrader(engine, store).grade(task, delta)
    finally:
        _watching = False
        await agent.close()
    assert grade.resolved, grade
    assert "git" not in [program.rpartition("/")[2] for program in _started]


async def test_tests_of_every_kind_pass(engine, tmp_path):
    test = b"""import unittest
from unittest import mock
import pytest
from hypothesis import given, settings, strategies as st
from calc import core

@pytest.fixture(scope="module", params=[1, 2])
def number(request):
    return request.param

@pytest.fixture(autouse=True)
def around(monkeypatch):
    monkeypatch.setattr("builtins.input", lambda: "x")
    yield

@pytest.mark.asyncio
async def test_async():
    assert core.add(1, 1) == 2

@settings(max_examples=5, database=None)
@given(st.integers(), st.integers())
def test_given(a, b):
    assert core.add(a, b) == a + b

def test_number(number, capfd, tmp_path):
    assert core.add(number, 0) == number and input() == "x"

@mock.patch("calc.core.double", return_value=7)
def test_patched(double):
    assert core.double(1) == 7

class Base:
    @pytest.fixture(scope="class", autouse=True)
    def once(self, request):
        assert not hasattr(request.cls, "done")
        request.cls.done = True
        yield

    def test_inherited(self):
        assert core.add(1, 2) == 3

class TestDerived(Base):
    @staticmethod
    def test_static():
        assert core.add(1, 2) == 3

class Classic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert not hasattr(cls, "done")
        cls.done = True

    def test_sub(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertEqual(core.add(n, n), 2 * n)

    async def _helper(self): pass

class Loop(unittest.IsolatedAsyncioTestCase):
    async def test_loop(self):
        self.assertEqual(core.add(1, 1), 2)
"""
    names = ["test_async", "test_given", "test_number[1]", "test_number[2]", "test_patched"]
    names += ["TestDerived::test_inherited", "TestDerived::test_static"]
    names += ["Classic::test_sub", "Loop::test_loop"]
    (tmp_path / "calc").mkdir()
    (tmp_path / "calc" / "core.py").write_bytes(BUGGY)
    task = new_task(
        hidden=(FileChange("tests/test_kinds.py", test),),
        fail_to_pass=tuple(f"tests/test_kinds.py::{name}" for name in names),
        pass_to_pass=(),
        recipe=Recipe(packages=("calc",), pytest_args=("-p", "pytest_asyncio.plugin")),
    )
    grade = await PytestGrader(engine, FixedStore(tmp_path)).grade(task, task.gold)
    assert grade.resolved, grade
