from pathlib import Path

import pytest

from tadpole.outcome import TestStatus
from tadpole.protocols import ExecReason, Sandbox
from tadpole.repos import baseline
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.repos.testrun import run_tests, with_reporter
from tadpole.task import FileChange

AREA, ODD, HANG = "tests/test_area.py", "tests/test_odd.py", "tests/test_hang.py"


@pytest.fixture
async def box(store: Store, snapshot: Snapshot):
    box = await store.engine.start(with_reporter(store.box(snapshot)))
    yield box
    await box.close()


async def test_every_test_has_its_id_and_status(
    store: Store, snapshot: Snapshot, box: Sandbox
) -> None:
    report = await run_tests(box, snapshot.recipe, store.python(snapshot), details=True)
    names = {node_id.removeprefix(f"{ODD}::"): s for node_id, s in report.statuses.items()}
    assert names == {
        f"{AREA}::test_square[a | b[x]::y z]": TestStatus.PASSED,
        f"{AREA}::test_square[two]": TestStatus.PASSED,
        f"{AREA}::test_negative": TestStatus.PASSED,
        f"{AREA}::TestBox::test_volume": TestStatus.PASSED,
        "test_first": TestStatus.PASSED,
        "test_needs_first": TestStatus.PASSED,
        "test_needs_hash_seed": TestStatus.PASSED,
        "test_needs_a_quick_machine": TestStatus.PASSED,
        "test_needs_no_quick_machine": TestStatus.PASSED,
        "test_red": TestStatus.FAILED,
        "test_skipped": TestStatus.SKIPPED,
        "test_expected_to_fail": TestStatus.XFAILED,
        "test_passes_unexpectedly": TestStatus.XPASSED,
        "test_set_up": TestStatus.ERROR,
        "test_tear_down": TestStatus.ERROR,
    }
    assert report.exit_code == 1
    assert report.collected
    assert report.finished
    assert set(report.seconds) == set(report.statuses)
    red = report.failures[f"{ODD}::test_red"]
    assert red.message == "assert (1 + 1) == 3"
    assert (red.path, red.line) == (ODD, 20)
    assert red.frames == f"{ODD}:20:"
    assert "no set-up" in report.failures[f"{ODD}::test_set_up"].message


async def test_a_long_message_keeps_its_end(store: Store, snapshot: Snapshot, box: Sandbox) -> None:
    text = b"def test_words():\n    found = 'five'\n    assert 'six' in found, 'word ' * 2000\n"
    await box.write([FileChange("tests/test_long.py", text)])
    asked = "tests/test_long.py::test_words"
    report = await run_tests(box, snapshot.recipe, store.python(snapshot), [asked])
    message = report.failures[asked].message
    assert message.startswith("AssertionError: word word")
    assert message.endswith("assert 'six' in 'five'") and len(message) < 2100


async def test_only_what_is_asked_for_runs_and_what_is_not_there_is_missing(
    store: Store, snapshot: Snapshot, box: Sandbox
) -> None:
    asked = [
        f"{ODD}::test_needs_first",
        f"{AREA}::test_square[a | b[x]::y z]",
        f"{AREA}::test_gone",
        "tests/gone.py::test_x",
    ]
    report = await run_tests(box, snapshot.recipe, store.python(snapshot), asked)
    assert dict(report.statuses) == {
        asked[0]: TestStatus.FAILED,  # its helper did not run
        asked[1]: TestStatus.PASSED,
        asked[2]: TestStatus.MISSING,
        asked[3]: TestStatus.MISSING,
    }
    nothing = await run_tests(box, snapshot.recipe, store.python(snapshot), asked[3:])
    assert dict(nothing.statuses) == {asked[3]: TestStatus.MISSING}
    assert not nothing.passed


async def test_maxfail_and_reverse(store: Store, snapshot: Snapshot, box: Sandbox) -> None:
    recipe, python = snapshot.recipe, store.python(snapshot)
    report = await run_tests(box, recipe, python, reverse=True, maxfail=1, hash_seed=1)
    assert list(report.statuses) == [f"{ODD}::test_tear_down"]


async def test_a_module_that_cannot_be_collected(
    store: Store, snapshot: Snapshot, box: Sandbox
) -> None:
    await box.write([FileChange(AREA, b"def broken(:\n")])
    asked = [f"{AREA}::test_negative", f"{ODD}::test_first"]
    report = await run_tests(box, snapshot.recipe, store.python(snapshot), asked)
    assert list(report.statuses.values()) == [TestStatus.PASSED, TestStatus.MISSING]
    assert "SyntaxError" in report.collection_errors[AREA]


async def test_a_library_that_ends_the_process_on_import(
    store: Store, snapshot: Snapshot, box: Sandbox
) -> None:
    await box.write([FileChange("shapes/__init__.py", b"import os\nos._exit(0)\n")])
    asked = [f"{AREA}::test_negative"]
    report = await run_tests(box, snapshot.recipe, store.python(snapshot), asked)
    assert dict(report.statuses) == {asked[0]: TestStatus.MISSING}
    assert not report.collected
    assert not report.finished


async def test_a_test_that_ends_the_run_has_not_passed(
    store: Store, snapshot: Snapshot, box: Sandbox
) -> None:
    text = (
        b"import pytest\n\n\ndef test_before():\n    pass\n\n\n"
        b"def test_ends():\n    pytest.exit('enough', returncode=0)\n"
    )
    await box.write([FileChange("tests/test_exit.py", text)])
    asked = [f"tests/test_exit.py::{name}" for name in ("test_before", "test_ends")]
    report = await run_tests(box, snapshot.recipe, store.python(snapshot), asked)
    assert dict(report.statuses) == {
        asked[0]: TestStatus.PASSED,
        asked[1]: TestStatus.MISSING,
    }


async def test_a_thread_that_a_test_leaves_behind_is_not_waited_for(
    store: Store, snapshot: Snapshot, box: Sandbox
) -> None:
    text = (
        b"import threading, time\n\n\ndef test_leaves_one():\n"
        b"    threading.Thread(target=time.sleep, args=(100,)).start()\n"
    )
    await box.write([FileChange("tests/test_thread.py", text)])
    asked = ["tests/test_thread.py::test_leaves_one"]
    report = await run_tests(box, snapshot.recipe, store.python(snapshot), asked)
    assert report.passed == set(asked)
    assert report.finished and report.exit_code == 0 and report.wall < 90


async def test_bad_configuration_is_told(store: Store, snapshot: Snapshot, box: Sandbox) -> None:
    await box.write([FileChange("pytest.ini", b"[pytest]\naddopts = --no-such-option\n")])
    report = await run_tests(box, snapshot.recipe, store.python(snapshot))
    assert report.exit_code == 4
    assert not report.statuses
    assert "--no-such-option" in report.output_tail


async def test_a_hanging_test_is_stopped_and_a_vanishing_one_leaves_the_rest_missing(
    store: Store, snapshot: Snapshot, hanging: Path
) -> None:
    spec = with_reporter(store.box(snapshot, hanging))
    box = await store.engine.start(spec)
    try:
        asked = [f"{HANG}::{name}" for name in ("test_before", "test_swallows", "test_leaves")]
        recipe, python = snapshot.recipe, store.python(snapshot)
        report = await run_tests(box, recipe, python, asked, test_seconds=0.2)
        assert list(report.statuses.values()) == [
            TestStatus.PASSED,
            TestStatus.FAILED,
            TestStatus.MISSING,
        ]
        assert report.failures[asked[1]].message == "Failed: took longer than its limit"
        assert not report.finished
        report = await run_tests(box, recipe, python, asked[:2], timeout=2.0)
        assert list(report.statuses.values()) == [TestStatus.PASSED, TestStatus.MISSING]
        assert report.reason is ExecReason.TIMEOUT
        named = {f"{HANG}::test_spins": 0.2}
        report = await run_tests(box, recipe, python, [*named], test_seconds=named)
        assert list(report.statuses.values()) == [TestStatus.FAILED]
    finally:
        await box.close()


async def test_coverage_names_the_tests_of_each_line(
    store: Store, snapshot: Snapshot, box: Sandbox
) -> None:
    cover, omit = baseline.patterns(snapshot.recipe)
    recipe, python = snapshot.recipe, store.python(snapshot)
    report = await run_tests(box, recipe, python, cover=cover, omit=omit)
    assert report.coverage is not None
    lines = report.coverage.lines["shapes/area.py"]
    assert set(report.coverage.lines) == {"shapes/area.py"}
    group = report.coverage.sets[lines[6]]
    assert [report.coverage.ids[index] for index in group] == [f"{AREA}::test_negative"]
    assert 21 not in lines
