import asyncio

import pytest
from test_taskdir import new_task

from tadpole.outcome import Outcome, StopReason
from tadpole.pilot.calibrate import TABLE, VERDICTS, Measured, calibrate
from tadpole.pilot.split import split
from tadpole.progress import Progress
from tadpole.rundir import RunDir
from tadpole.task import Hint, Provenance
from tadpole.trace import Attempt

HINTS = tuple(Hint(rung, f"words {rung}") for rung in range(7))


class Frog:
    """Solves a task ``passes[rung]`` times of four; None: infrastructure breaks."""

    def __init__(self, passes, broken=0):
        self.passes = passes
        self.broken = broken
        self.made = []
        self.running = self.most = 0

    async def __call__(self, task, sample):
        self.made.append((task.rung, sample))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        solved = sample < self.passes.get(task.rung, 0)
        outcome = Outcome.RESOLVED if solved else Outcome.WRONG_PATCH
        if self.broken:
            self.broken -= 1
            outcome = Outcome.INFRASTRUCTURE
        return Attempt(
            task=task.id,
            task_name=task.name,
            policy="frog",
            sample=sample,
            stop=StopReason.AGENT,
            outcome=outcome,
            reward=None if outcome is Outcome.INFRASTRUCTURE else float(solved),
            turns=1,
            generated_tokens=1,
            seconds=0.0,
        )


@pytest.fixture
def run(tmp_path):
    return RunDir(tmp_path)


TASK = new_task(hints=HINTS)


async def measure(frog, run, tasks=(TASK,), **settings):
    quiet = Progress(quiet=True)
    return await calibrate(
        list(tasks), attempt=frog, samples=4, rundir=run, progress=quiet, **settings
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
    ],
)
async def test_the_walk_on_the_ladder(run, passes, settings, rung):
    found = await measure(Frog(passes), run, **settings)
    assert [one.task.rung for one in found] == ([] if rung is None else [rung])
    for one in found:
        assert (one.passes, one.valid) == (passes[rung], 4)
    rows = run.rows(VERDICTS, Measured)
    assert [row.kept for row in rows].count(True) == len(found)


async def test_broken_attempts_are_made_again_and_never_counted(run):
    frog = Frog({6: 2}, broken=5)
    found = await measure(frog, run)
    assert (found[0].passes, found[0].valid) == (2, 4)
    frog = Frog({6: 2}, broken=999)
    assert await measure(frog, run, [new_task(name="m-2", hints=HINTS)]) == []
    assert len(frog.made) == 12


async def test_it_goes_on_where_it_stopped(run):
    await measure(Frog({6: 4, 5: 2}), run)
    path = run.table(TABLE)
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:5]) + rows[5][:20])  # torn in the second rung
    again = Frog({6: 4, 5: 2})
    found = await measure(again, run)
    assert again.made == [(5, 1), (5, 2), (5, 3)]
    assert (found[0].task.rung, found[0].passes) == (5, 2)
    other = Frog({6: 4, 5: 2})
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
