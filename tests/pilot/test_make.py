import shutil
from dataclasses import replace

import pytest

from tadpole.errors import UsageError
from tadpole.grading.grader import PytestGrader
from tadpole.pilot import make, taskdir
from tadpole.pilot.candidate import Candidate, Site
from tadpole.pilot.hide import locate
from tadpole.pilot.journal import TABLE, Step, yield_of
from tadpole.pilot.proposers.singlesite import SingleSite
from tadpole.pilot.validate import Validator
from tadpole.pilot.verdict import Dropped, DropReason, Stage
from tadpole.progress import Progress
from tadpole.rundir import RunDir
from tadpole.task import FileChange

COUNT = 2


class Watched(Validator):
    """The real thing, counted."""

    calls = 0

    async def validate(self, snapshot, candidate, name):
        self.calls += 1
        return await super().validate(snapshot, candidate, name)


@pytest.fixture(scope="module")
def grader(engine, store):
    return PytestGrader(engine, store)


@pytest.fixture
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
def first(tmp_path_factory):
    """Where the first test leaves its tasks for the others."""
    return tmp_path_factory.mktemp("tasks")


async def test_a_repository_becomes_validated_tasks(run, first, snapshot, grader):
    tasks = await run(first)
    assert len(tasks) == COUNT
    assert taskdir.load_set(first) == tasks
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


async def test_after_a_crash_it_goes_on_to_the_same_tasks(
    run, first, tmp_path, store, engine, grader
):
    journal = first / f"{TABLE}.jsonl"
    rows = journal.read_bytes().splitlines(keepends=True)
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    (copy / f"{TABLE}.jsonl").write_bytes(b"".join(rows[:-1]) + rows[-1][:30])  # torn
    watched = Watched(store, engine, grader)
    again = await run(copy, validator=watched)
    assert again == taskdir.load_set(first)
    untimed = RunDir(first).rows(TABLE, Step)
    found = RunDir(copy).rows(TABLE, Step)
    assert found == untimed
    assert 1 <= watched.calls <= make.WORKERS + 1
    nothing = Watched(store, engine, grader)
    assert await run(copy, validator=nothing) == again
    assert nothing.calls == 0


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

    tasks = await run(tmp_path, count=9, proposer=Two())
    assert len(tasks) <= 2
    assert yield_of(tmp_path).proposed == 2


def candidate(snapshot, path, old, new, function, operator="cmp_boundary"):
    text = (snapshot.tree / path).read_bytes().decode()
    offset = text.index(old)
    line = text.count("\n", 0, offset) + 1
    site = Site(path, offset, old, new, line, (line,))
    content = text[:offset] + new + text[offset + len(old) :]
    change = FileChange(path, content.encode())
    return Candidate("test", operator, (change,), (function,), (site,))


@pytest.mark.parametrize(
    "path, old, new, function, reason",
    [
        ("pond/shapes.py", "width < 0", "width <= 0", "area", DropReason.SURVIVED),
        ("pond/shapes.py", "total = 0", "import os; os._exit(0)", "perimeter", DropReason.VANISHED),
        ("pond/shapes.py", "class Square:", "class Round:", "area", DropReason.UNREACHED),
        ("pond/words.py", "def clean", "1 / 0\r\ndef clean", "clean", None),
        ("pond/shapes.py", "total = 0", "while True: pass", "perimeter", DropReason.HANGS),
    ],
)
async def test_every_other_ending_has_its_reason(
    snapshot, store, engine, grader, path, old, new, function, reason
):
    validator = Validator(store, engine, grader)
    odd = candidate(snapshot, path, old, new, function)
    if reason is None:  # a file that cannot be imported
        odd = replace(odd, sites=(replace(odd.sites[0], lines=(17, 18)),))
        reason = DropReason.BREAKS_COLLECTION
    if reason is DropReason.UNREACHED:
        odd = replace(odd, sites=(replace(odd.sites[0], lines=(18,)),))
    with pytest.raises(Dropped) as caught:
        await validator.validate(snapshot, odd, "pond-x")
    assert caught.value.reason is reason
