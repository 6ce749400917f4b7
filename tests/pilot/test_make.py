import asyncio
import shutil
from dataclasses import replace

import pytest
import roundmaking

from tadpole.errors import UsageError
from tadpole.grading.grader import PytestGrader
from tadpole.pilot import make, taskdir
from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.hide import locate
from tadpole.pilot.journal import TABLE, Step, yield_of
from tadpole.pilot.proposers.singlesite import SingleSite
from tadpole.pilot.trial import Rules
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import Dropped, DropReason, Stage
from tadpole.progress import Progress
from tadpole.rundir import RunDir
from tadpole.task import FileChange

COUNT = 2


class Watched(Validator):
    """The real thing, counted."""

    judged = 0

    async def validate(self, snapshot, candidate, name):
        self.judged += 1
        return await super().validate(snapshot, candidate, name)


@pytest.fixture(scope="module")
def grader(engine, store):
    return PytestGrader(engine, store)


@pytest.fixture(scope="module")
def run(repository, store, engine, grader):
    async def made(out, count=COUNT, seed=0, **more):
        return await make.make_tasks(
            [repository],
            count=count,
            seed=seed,
            store=store,
            engine=engine,
            grader=grader,
            out=out,
            progress=Progress(quiet=True),
            **more,
        )

    return made


@pytest.fixture(scope="module")
def first(run, tmp_path_factory):
    """Where tasks were made, for every test here to look at."""
    out = tmp_path_factory.mktemp("tasks")
    assert asyncio.run(run(out)) == taskdir.load_set(out)
    return out


async def test_a_repository_becomes_validated_tasks(first, snapshot, grader):
    tasks = taskdir.load_set(first)
    assert len(tasks) == COUNT
    for task in tasks:
        pristine = {c.path: (snapshot.tree / c.path).read_bytes() for c in task.gold}
        assert {c.path: c.content for c in task.gold} == pristine
        assert all(path.startswith("pond/") for path in pristine)
        changed = {c.path: c.content for c in task.start}
        for node_id in task.fail_to_pass:
            path, chain = locate(node_id)
            assert f"def {chain[-1]}(".encode() not in changed[path]
        assert {"tests/conftest.py"} < {c.path for c in task.hidden}
        assert not set(task.fail_to_pass) & set(task.pass_to_pass)
        words = task.statement.split("`")  # In `path` replace `old` with `new`.
        if len(words) == 7:
            text = changed[words[1]].decode()
            assert text.count(words[3]) == 1
            assert text.replace(words[3], words[5]).encode() == pristine[words[1]]
        assert (await grader.grade(task, task.gold)).resolved
        assert not (await grader.grade(task, ())).resolved


async def test_the_yield_is_told_by_stage_and_reason(first):
    found = yield_of(first)
    steps = RunDir(first).rows(TABLE, Step)
    assert found.proposed == len(steps) == found.reached[Stage.PROPOSED]
    assert found.reached[Stage.KEPT] == COUNT
    assert sum(found.reasons.values()) == found.proposed - COUNT
    assert "kept" in str(found)
    assert [step.index for step in steps] == list(range(len(steps)))


async def crashed(run, made, copy, quick):
    """Go on with a copy whose journal ends in the middle of a line; then there is nothing to do."""
    journal = made / f"{TABLE}.jsonl"
    rows = journal.read_bytes().splitlines(keepends=True)
    shutil.copytree(made, copy)
    (copy / f"{TABLE}.jsonl").write_bytes(b"".join(rows[:-1]) + rows[-1][:30])  # torn
    watched = quick()
    again = await run(copy, validator=watched)
    assert again == taskdir.load_set(made)
    assert RunDir(copy).rows(TABLE, Step) == RunDir(made).rows(TABLE, Step)
    assert 1 <= watched.judged <= make.WORKERS + 1
    nothing = quick()
    assert await run(copy, validator=nothing) == again
    assert nothing.judged == 0


async def test_after_a_crash_it_goes_on_to_the_same_tasks(run, tmp_path):
    await run(tmp_path / "made", validator=roundmaking.Quick(), count=4)
    await crashed(
        lambda *given, **more: run(*given, count=4, **more),
        tmp_path / "made",
        tmp_path / "copy",
        roundmaking.Quick,
    )


@pytest.mark.slow
async def test_after_a_crash_real_runs_say_the_same(run, first, tmp_path, store, engine, grader):
    await crashed(run, first, tmp_path / "copy", lambda: Watched(store, engine, grader))


async def test_other_settings_are_refused(run, first):
    for more in ({"seed": 1}, {"max_dictated_chars": 30}):
        with pytest.raises(UsageError, match="choose another directory"):
            await run(first, **more)


async def test_closed_files_are_left_alone(run, tmp_path, repository, store, engine, grader):
    class Refusing(Validator):
        async def validate(self, snapshot, candidate, name):
            raise Dropped(DropReason.SURVIVED)

    location = (await store.snapshot(repository)).source.location
    tried = []
    for closed in ((), {(location, "pond/shapes.py"), ("elsewhere", "pond/words.py")}):
        out = tmp_path / str(len(tried))
        await run(out, validator=Refusing(store, engine, grader), closed=closed)
        tried.append([step.path for step in RunDir(out).rows(TABLE, Step)])
    assert "pond/shapes.py" in tried[0]
    assert tried[1] == [path for path in tried[0] if path != "pond/shapes.py"] != []


async def test_a_small_source_gives_what_it_has(run, tmp_path, repository):
    class Two(SingleSite):
        def propose(self, snapshot, rng):
            found = super().propose(snapshot, rng)
            return iter([next(found), next(found)])

    quick = roundmaking.Quick()
    tasks = await run(tmp_path, count=9, proposer=Two(), validator=quick)
    assert len(tasks) == sum(step.task != "" for step in RunDir(tmp_path).rows(TABLE, Step)) <= 2
    assert yield_of(tmp_path).proposed == quick.judged == 2


def candidate(snapshot, path, old, new, function, operator="cmp_boundary"):
    text = (snapshot.tree / path).read_bytes().decode()
    offset = text.index(old)
    line = text.count("\n", 0, offset) + 1
    site = Site(path, offset, old, new, line, (line,))
    content = text[:offset] + new + text[offset + len(old) :]
    change = FileChange(path, content.encode())
    return Candidate("test", operator, (change,), (function,), (site,))


OTHER_ENDINGS = {
    DropReason.SURVIVED: ("pond/shapes.py", "width < 0", "width <= 0", "area"),
    DropReason.VANISHED: ("pond/shapes.py", "total = 0", "import os; os._exit(0)", "perimeter"),
    DropReason.UNREACHED: ("pond/shapes.py", "class Square:", "class Round:", "area"),
    # A file that cannot be imported.
    DropReason.BREAKS_COLLECTION: ("pond/words.py", "def clean", "1 / 0\r\ndef clean", "clean"),
    DropReason.HANGS: ("pond/shapes.py", "total = 0", "while True: pass", "perimeter"),
}
LINES = {DropReason.BREAKS_COLLECTION: (17, 18), DropReason.UNREACHED: (18,)}


async def test_every_other_ending_has_its_reason(snapshot, store, engine, grader):
    validator = Validator(store, engine, grader, Rules(shortest_limit=0.5))
    odd = [candidate(snapshot, *edit) for edit in OTHER_ENDINGS.values()]
    odd = [
        replace(one, sites=(replace(one.sites[0], lines=LINES.get(reason, one.sites[0].lines)),))
        for reason, one in zip(OTHER_ENDINGS, odd, strict=True)
    ]
    validator.expect(snapshot, odd)
    for reason, one in zip(OTHER_ENDINGS, odd, strict=True):
        with pytest.raises(Dropped) as caught:
            await validator.validate(snapshot, one, "pond-x")
        assert caught.value.reason is reason
