import asyncio
from dataclasses import replace

import pytest
from test_taskdir import new_task

from tadpole.errors import UsageError
from tadpole.outcome import Outcome, StopReason
from tadpole.pilot.calibrate import TABLE, VERDICTS, Calibrated, Measured, calibrate, fill_quota
from tadpole.pilot.decision import Verdict
from tadpole.pilot.diversity import Caps, Quota
from tadpole.pilot.split import split
from tadpole.progress import Progress
from tadpole.rundir import RunDir
from tadpole.task import Hint, Provenance, Source
from tadpole.trace import Attempt

HINTS = tuple(Hint(rung, f"words {rung}") for rung in range(7))


class Frog:
    """Solves a task in its first ``passes[rung]`` samples; ``broken`` attempts break before."""

    def __init__(self, passes, broken=0, policy="frog"):
        self.passes = passes
        self.broken = broken
        self.policy = policy
        self.made = []
        self.running = self.most = 0

    async def __call__(self, task, sample):
        self.made.append((task.rung, sample))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        solved = self.solves(task, sample)
        outcome = Outcome.RESOLVED if solved else Outcome.WRONG_PATCH
        if self.broken:
            self.broken -= 1
            outcome = Outcome.INFRASTRUCTURE
        return Attempt(
            task=task.id,
            task_name=task.name,
            policy=self.policy,
            sample=sample,
            stop=StopReason.AGENT,
            outcome=outcome,
            reward=None if outcome is Outcome.INFRASTRUCTURE else float(solved),
            turns=1,
            generated_tokens=1,
            seconds=0.0,
        )

    def solves(self, task, sample):
        return sample < self.passes.get(task.rung, 0)


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


TASK = new_task(hints=HINTS)


async def measure(frog, run, tasks=(TASK,), **settings):
    quiet = Progress(quiet=True)
    return await calibrate(
        list(tasks), attempt=frog, rundir=run, progress=quiet, **{"samples": 4, **settings}
    )


@pytest.mark.parametrize(
    "passes, settings, rung",
    [
        ({6: 2}, {}, 6),  # inside the band where it starts
        ({6: 4, 5: 4, 4: 1}, {}, 4),  # always solved: tell less
        ({2: 0, 3: 0, 4: 3}, {"start_rung": 2}, 4),  # never solved: tell more
        ({6: 0}, {}, None),  # nothing more to tell
        ({rung: 4 for rung in range(7)}, {}, None),  # three moves are not enough
        ({rung: 4 for rung in range(1, 7)}, {"start_rung": 0, "max_moves": 9}, None),
        ({6: 4, 5: 0}, {}, None),  # jumps over the band: no way back and forth
        ({6: 1}, {"band": (0.3, 0.8)}, None),
        ({6: 2}, {"start_rung": 99}, 6),
        ({6: 0, 5: 2}, {"start_rung": 5, "samples": 8, "probe": 4, "band": (0.0, 0.3)}, 5),
    ],
)
async def test_the_walk_on_the_ladder(run, passes, settings, rung):
    found = await measure(Frog(passes), run, **settings)
    assert [one.task.rung for one in found] == ([] if rung is None else [rung])
    rows = run.rows(VERDICTS, Measured)
    assert [row.kept for row in rows].count(True) == len(found)
    assert all(row.kept == (row.verdict is Verdict.KEEP) for row in rows)


@pytest.mark.parametrize(
    "passes, settings, count",
    [
        ({6: 1}, {}, (1, 2)),  # one of each settles 1..3 of 4
        ({6: 2}, {}, (2, 3)),
        ({6: 3}, {}, (3, 4)),
        ({6: 3}, {"samples": 8, "band": (0.375, 0.625)}, (3, 6)),
        ({6: 5}, {"samples": 8, "band": (0.375, 0.625), "probe": 4}, None),  # 4 of 4: probed out
        ({6: 5}, {"samples": 8, "band": (0.375, 0.625)}, (5, 8)),
    ],
)
async def test_it_stops_as_soon_as_the_verdict_is_fixed(run, passes, settings, count):
    frog = Frog(passes)
    found = await measure(frog, run, max_moves=0, **settings)
    assert [(one.passes, one.valid) for one in found] == ([count] if count else [])
    assert len(frog.made) == (count[1] if count else 4)


async def test_k_and_n_are_kept_with_policy_harness_and_rule(run):
    await measure(Frog({6: 1}), run, policy="frog", harness="cafe", band=(0.1, 0.9), probe=3)
    (row,) = run.rows(VERDICTS, Measured)
    assert (row.passes, row.valid, row.policy, row.harness) == (1, 2, "frog", "cafe")
    assert (row.samples, row.low, row.high, row.probe) == (4, 0.1, 0.9, 3)
    assert (row.verdict, row.kept, row.rung, row.task) == (Verdict.KEEP, True, 6, TASK.id)


async def test_broken_attempts_are_made_again_and_never_counted(run):
    frog = Frog({6: 2}, broken=4)
    found = await measure(frog, run)
    assert (found[0].passes, found[0].valid) == (2, 3)
    missing = Frog({6: 2}, broken=5)  # the first sample breaks three times
    found = await measure(missing, run, [new_task(name="m-1", hints=HINTS)])
    assert (found[0].passes, found[0].valid) == (1, 2)
    frog = Frog({6: 2}, broken=999)
    assert await measure(frog, run, [new_task(name="m-2", hints=HINTS)]) == []
    assert len(frog.made) == 12
    row = run.rows(VERDICTS, Measured)[-1]
    assert (row.name, row.valid, row.verdict) == ("m-2", 0, Verdict.OPEN)


async def test_it_goes_on_where_it_stopped(run):
    await measure(Frog({6: 4, 5: 3}), run, policy="frog")
    path, verdicts = run.table(TABLE), run.table(VERDICTS)
    rows, judged = path.read_bytes().splitlines(keepends=True), verdicts.read_bytes()
    path.write_bytes(b"".join(rows[:5]) + rows[5][:20])  # torn in the second rung
    again = Frog({6: 4, 5: 3})
    found = await measure(again, run, policy="frog")
    assert again.made == [(5, 1), (5, 2), (5, 3)]
    assert (found[0].task.rung, found[0].passes) == (5, 3)
    assert verdicts.read_bytes() == judged
    other = Frog({6: 4, 5: 3}, policy="toad")
    await measure(other, run, policy="toad")
    assert len(other.made) == 8


async def test_attempts_run_side_by_side_but_no_more_than_told(run):
    frog = Frog({6: 2})
    tasks = [new_task(name=f"m-{number}", hints=HINTS) for number in range(5)]
    found = await measure(frog, run, tasks, concurrency=3)
    assert frog.most == 3
    assert [one.task.name for one in found] == [task.name for task in tasks]


async def test_an_exception_ends_it_as_it_is(run):
    async def broken(task, sample):
        raise KeyError("odd")

    with pytest.raises(KeyError):
        await measure(broken, run)


async def test_a_band_that_holds_no_count_is_refused(run):
    with pytest.raises(UsageError, match=r"no number of successes in 4 attempts lies between"):
        await measure(Frog({}), run, band=(0.3, 0.4))


class Paced(Frog):
    """Takes another time for every attempt, and solves by the task's number."""

    def __init__(self, pace):
        super().__init__({})
        self.pace = pace

    async def __call__(self, task, sample):
        number = int(task.name.partition("-")[2])
        for _ in range(self.pace * (number * 7 + sample * 3) % 11):
            await asyncio.sleep(0)
        return await super().__call__(task, sample)

    def solves(self, task, sample):
        return sample < int(task.name.partition("-")[2]) % 5


POOL = [new_task(name=f"m-{number}", hints=HINTS[:2], rung=0) for number in range(12)]


@pytest.mark.parametrize("budget", [8, 20, 40])
async def test_timing_changes_neither_verdicts_nor_what_a_budget_leaves_out(tmp_path, budget):
    told = set()
    for pace in (0, 1, 2, 5):
        run = RunDir(tmp_path / f"{pace}")
        run.path.mkdir()
        frog = Paced(pace)
        found = await measure(frog, run, POOL, budget=budget, concurrency=1 + pace, policy="frog")
        assert len(frog.made) <= budget
        told.add((run.table(VERDICTS).read_bytes(), tuple(one.task.name for one in found)))
    assert len(told) == 1
    measured = {row.name for row in run.rows(VERDICTS, Measured)}
    assert measured == {task.name for task in POOL[: len(measured)]}  # the first ones
    assert 0 < len(measured) < len(POOL)


async def test_a_budget_below_one_task_is_refused(run):
    with pytest.raises(UsageError, match="a budget of 15 attempts does not cover one task, which"):
        await measure(Frog({6: 2}), run, budget=15)  # four rungs of four attempts


async def test_a_quota_ends_it_and_its_caps_leave_out(run):
    def of(number, repository, operator):
        made = Provenance("p", operator, edited_files=("m.py",), edited_functions=(f"f{number}",))
        source = Source("pypi", repository, "1", "0" * 64)
        return new_task(name=f"m-{number}", hints=HINTS, provenance=made, source=source)

    tasks = [of(number, "ab"[number > 3], "xy"[number % 2]) for number in range(8)]
    frog = Frog({6: 2})
    found = await measure(frog, run, tasks, quota=Quota(4, Caps(repository=0.5)), concurrency=1)
    assert [one.task.name for one in found] == ["m-0", "m-1", "m-4", "m-5"]
    assert len(run.rows(VERDICTS, Measured)) == 6  # the last two are not measured any more
    few = await measure(Frog({6: 2}), run, tasks, quota=Quota(8, Caps(operator=0.25)))
    assert [one.task.name for one in few] == ["m-0", "m-1", "m-2", "m-3"]
    same = [replace(task, provenance=tasks[0].provenance) for task in tasks]
    one = await measure(Frog({6: 2}), run, same, quota=Quota(8, Caps(function=1)))
    assert len(one) == 2  # the same function in two repositories


@pytest.mark.parametrize(
    "quota, there, kept, asked",
    [
        (3, 100, 3, []),  # every second is learnable: 8 give 4
        (4, 100, 4, []),
        (5, 100, 5, [10]),  # one more needs two
        (12, 100, 12, [16, 24]),  # never more than twice as many
        (12, 14, 7, [16, 24]),  # and no more than there are
    ],
)
async def test_more_are_made_until_a_quota_is_full(quota, there, kept, asked):
    every = [new_task(name=f"m-{number}") for number in range(there)]
    made = []

    async def measured(tasks):
        return [Calibrated(task, 1, 2) for task in tasks if int(task.name[2:]) % 2][:quota]

    async def more(count):
        made.append(count)
        return every[:count]

    found = await fill_quota(quota, every[:8], measured, more)
    assert (len(found), made) == (kept, asked)


def editing(number, *paths):
    return new_task(name=f"m-{number:02}", provenance=Provenance("p", edited_files=paths))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_no_file_is_on_both_sides(share, seed):
    tasks = [editing(n, f"m{n % 7}.py") for n in range(20)] + [editing(20, "m1.py", "m2.py")]
    train, held = split(tasks, share, seed)
    assert split(tasks, share, seed) == (train, held)
    assert sorted(task.name for task in train + held) == [task.name for task in tasks]
    files = [{p for t in part for p in t.provenance.edited_files} for part in (train, held)]
    assert not files[0] & files[1]
    assert abs(len(held) - share * len(tasks)) <= 3
    assert bool(train) == (share < 1) and bool(held) == (share > 0)


def test_one_file_alone_is_trained_on():
    train, held = split([editing(1, "m.py"), editing(2, "m.py")], 0.3, 0)
    assert (len(train), held) == (2, [])
