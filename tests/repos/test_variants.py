"""Variants in forked processes end as they would in a fresh run, whatever the change is."""

import asyncio
from dataclasses import replace

import pytest

from tadpole.outcome import TestStatus
from tadpole.protocols import ExecReason
from tadpole.repos.testrun import run_tests, with_reporter
from tadpole.repos.variants import Variant, run_variants
from tadpole.task import FileChange

AREA = "shapes/area.py"


def edited(snapshot, old: str, new: str, path: str = AREA) -> tuple[FileChange, ...]:
    text = (snapshot.tree / path).read_text()
    assert text.count(old) == 1
    return (FileChange(path, text.replace(old, new).encode()),)


async def test_a_swapped_change_gives_what_a_fresh_run_gives(store, snapshot):
    ids = snapshot.baseline.stable
    changes = [
        edited(snapshot, "side < 0", "side <= 1"),  # a body: swapped
        edited(snapshot, "side * side", "side + side"),
        edited(snapshot, "    return side * side\n", "    pass\n"),
        edited(snapshot, "self.side = side", "self.side = None"),
        edited(snapshot, "self.side**3", "self.side**2"),  # behind a decorator
        edited(snapshot, "def square(side)", "def square(side=2, scale=1)"),  # a signature
        edited(snapshot, "UNIT = 1", "UNIT = 1 / 0", "shapes/__init__.py"),  # module level
        edited(snapshot, "@functools.cache", "@property"),
        edited(snapshot, "import functools", "import functools, sys; sys.exit(3)"),
        (),
    ]
    imported = {path: snapshot.baseline.imported(path) for path in snapshot.baseline.files}
    box = await store.engine.start(with_reporter(store.box(snapshot)))
    try:
        variants = [Variant(change, ids) for change in changes]
        variants += [Variant(change, None) for change in changes[:2]]
        reports = await run_variants(
            box, snapshot.recipe, store.python(snapshot), variants, imported=imported
        )
        assert not await box.delta()  # the tree is as it was
    finally:
        await box.close()
    found, whole = reports[: len(changes)], reports[len(changes) :]
    warm = [one.warm for one in found]
    assert warm == [True] * 5 + [False] * 4 + [True]
    turn = asyncio.Semaphore(2)

    async def afresh(change):
        async with turn:
            fresh = await store.engine.start(with_reporter(store.box(snapshot)))
            try:
                await fresh.write(change)
                return await run_tests(fresh, snapshot.recipe, store.python(snapshot), ids)
            finally:
                await fresh.close()

    reals = await asyncio.gather(*map(afresh, changes))
    for change, one, real in zip(changes, found, reals, strict=True):
        assert one.statuses == real.statuses, change
    for one, all_of_it in zip(found, whole, strict=False):
        assert not all_of_it.warm
        assert {i: all_of_it.statuses[i] for i in ids} == one.statuses


FREEZES = """import gc


def pytest_collection_finish():
    gc.freeze()
"""
RENAMES = """from shapes import area

for function in (area.square, area.Box.__init__, area.Box.volume.__wrapped__, area.never_run):
    function.__code__ = function.__code__.replace(co_filename="elsewhere.py")
"""

LAZY = """import sys, types


class Lazy(types.ModuleType):
    def __getattribute__(self, name):
        raise ImportError("what it needs is not installed")


sys.modules["lazy"] = Lazy("lazy")
"""


@pytest.mark.parametrize(
    "conftest, warm",
    [(FREEZES, True), (RENAMES, False), (LAZY, True)],
    ids=["frozen", "renamed", "lazy"],
)
async def test_no_edit_is_lost_on_functions_that_are_hard_to_find(store, snapshot, conftest, warm):
    ids = snapshot.baseline.stable
    wrong = edited(snapshot, "side * side", "side + side + 1")
    imported = {path: snapshot.baseline.imported(path) for path in snapshot.baseline.files}
    box = await store.engine.start(with_reporter(store.box(snapshot)))
    try:
        await box.write((FileChange("tests/conftest.py", conftest.encode()),))
        [report] = await run_variants(
            box,
            snapshot.recipe,
            store.python(snapshot),
            [Variant(wrong, ids)],
            imported=imported,
        )
    finally:
        await box.close()
    assert report.warm is warm
    assert {i for i in ids if i not in report.passed} == {i for i in ids if "test_square" in i}


async def test_one_variant_that_never_ends_does_not_take_the_others_with_it(store, snapshot):
    ids = snapshot.baseline.stable
    loop = edited(snapshot, "    return side * side\n", "    while True:\n        pass\n")
    dies = edited(snapshot, "    return side * side\n", "    import os\n    os._exit(0)\n")
    crash = "    import os\n    os.kill(os.getpid(), 11)\n"
    crashes = edited(snapshot, "    return side * side\n", crash)
    variants = [
        Variant(loop, ids, limits=dict.fromkeys(ids, 0.3)),
        Variant(loop, ids, seconds=0.5),
        Variant(dies, ids),
        Variant(crashes, ids),
        Variant((), ids, maxfail=1, reverse=True),
    ]
    imported = {path: snapshot.baseline.imported(path) for path in snapshot.baseline.files}
    box = await store.engine.start(with_reporter(store.box(snapshot)))
    try:
        limited, cut, dead, crashed, sound = await run_variants(
            box, snapshot.recipe, store.python(snapshot), variants, imported=imported
        )
    finally:
        await box.close()
    [square, _] = [i for i in ids if "test_square" in i]
    assert limited.finished and square in limited.hung
    assert limited.statuses[square] is TestStatus.FAILED
    assert [one.reason for one in (limited, cut, dead, crashed)] == [
        *(ExecReason.EXITED, ExecReason.CPU, ExecReason.EXITED, ExecReason.SIGNAL)
    ]
    for one in (cut, dead, crashed):
        assert not one.finished
        assert one.statuses[square] is TestStatus.MISSING
    assert sound.passed == set(ids)
    assert list(sound.statuses) == list(reversed(ids))


async def test_one_variant_that_fills_the_memory_is_the_only_one_that_it_harms(store, snapshot):
    """The box ends all that runs in it: the others run again, in the tree as it was."""
    ids = snapshot.baseline.stable
    fills = edited(
        snapshot,
        "    return side * side\n",
        "    import time\n    kept = b'x' * (1200 << 20)\n    time.sleep(20)\n",
    )
    wrong = edited(snapshot, "side * side", "side + side + 1")
    imported = {path: snapshot.baseline.imported(path) for path in snapshot.baseline.files}
    spec = with_reporter(store.box(snapshot))
    spec = replace(spec, limits=replace(spec.limits, memory=600 << 20))
    box = await store.engine.start(spec)
    try:
        variants = [Variant(one, ids) for one in ((), fills, wrong, (), fills)]
        reports = await run_variants(
            box, snapshot.recipe, store.python(snapshot), variants, imported=imported
        )
        assert not await box.delta()  # also after the last one
    finally:
        await box.close()
    sound, first, noticed, again, last = reports
    assert sound.passed == again.passed == set(ids)
    for one in (first, last):
        assert one.reason is ExecReason.MEMORY and not one.finished
    assert noticed.finished and noticed.collected
    assert [i for i in ids if i not in noticed.passed] == [i for i in ids if "test_square" in i]
