import pytest

from tadpole.config import load
from tadpole.errors import UsageError
from tadpole.outcome import Outcome, StopReason
from tadpole.pilot.decision import Verdict
from tadpole.pilot.harvest import NOT_MEASURED, Mark, harvest
from tadpole.pilot.journal import COSTS, TABLE, Cost, Step
from tadpole.pilot.split import Part, Place, Split, save_split
from tadpole.pilot.verdict import DropReason
from tadpole.pilot.walk import TABLE as ATTEMPTS
from tadpole.pilot.walk import VERDICTS, Measured
from tadpole.rundir import RunDir
from tadpole.task import TaskKind
from tadpole.trace import Attempt

# (repository, operator, kind, reason or task name)
STEPS = [
    ("a", "cmp", TaskKind.BUG_FIX, DropReason.ALIKE),
    ("a", "cmp", TaskKind.BUG_FIX, DropReason.SURVIVED),
    ("a", "cmp", TaskKind.BUG_FIX, DropReason.UNSTABLE),
    ("a", "cmp", TaskKind.BUG_FIX, "t-1"),
    ("a", "body", TaskKind.FEATURE, DropReason.UNSOLVED),
    ("a", "body", TaskKind.FEATURE, "t-2"),
    ("b", "body", TaskKind.FEATURE, DropReason.WEAK),
    ("b", "cmp", TaskKind.BUG_FIX, "t-3"),
    ("b", "cmp", TaskKind.BUG_FIX, "t-4"),
    ("b", "cmp", TaskKind.BUG_FIX, "t-5"),
]


@pytest.fixture
def run(tmp_path):
    run = RunDir.create(tmp_path / "run", load())
    making = RunDir(run.directory("tasks"))
    for index, (source, operator, kind, end) in enumerate(STEPS):
        reason = end if isinstance(end, DropReason) else None
        step = Step(
            source=source,
            index=index,
            candidate=f"{index}",
            operator=operator,
            path="m.py",
            function="f",
            reason=reason,
            task="" if reason else end,
            kind=kind,
        )
        making.append(TABLE, step)
        making.append(COSTS, Cost(source=source, index=index, seconds=1, cpu_seconds=0.5))
    return run


def counts(*numbers):
    return dict(zip(Mark, numbers, strict=True))


def test_before_calibration(run):
    found = harvest(run.path)
    assert found.counts == counts(10, 8, 7, 6, 5, None, None)
    assert found.groups["repository"]["a"] == counts(6, 4, 3, 2, 2, None, None)
    assert list(found.groups["repository"]) == ["b", "a"]
    assert found.groups["kind"]["feature"] == counts(3, 3, 3, 2, 1, None, None)
    assert found.reasons == {r.value: 1 for _, _, _, r in STEPS if isinstance(r, DropReason)}
    assert (found.cpu_seconds, found.each(found.cpu_seconds)) == (5.0, 1.0)
    assert (found.rollouts, found.each(found.rollouts)) == (None, None)
    assert harvest(run.path / "tasks") == found
    assert "CPU seconds: 5, 1.0 a task made" in str(found)


def measure(run, name, *verdicts):
    for rung, verdict in enumerate(verdicts):
        row = Measured(
            task=f"{name}{rung}",
            name=name,
            rung=rung,
            passes=1,
            valid=2,
            kept=verdict is Verdict.KEEP,
            verdict=verdict,
        )
        run.append(VERDICTS, row)


def test_after_calibration(run):
    measure(run, "t-1", Verdict.TOO_HARD, Verdict.KEEP)
    measure(run, "t-2", Verdict.TOO_HARD)
    measure(run, "t-3", Verdict.KEEP)
    measure(run, "t-4", Verdict.OPEN)
    for sample in range(6):
        outcome = Outcome.INFRASTRUCTURE if sample == 5 else Outcome.RESOLVED
        attempt = Attempt(
            task="t",
            task_name="t-1",
            policy="p",
            sample=sample,
            stop=StopReason.AGENT,
            outcome=outcome,
            reward=None,
            turns=1,
            generated_tokens=1,
            seconds=1,
        )
        run.append(ATTEMPTS, attempt)
    assert harvest(run.path).counts == counts(10, 8, 7, 6, 5, 2, None)
    place = Place(name="t-1", id="t-11", rung=1, part=Part.TRAIN, passes=1, valid=2)
    save_split(run, Split(places=(place,)))
    found = harvest(run.path)
    assert found.counts == counts(10, 8, 7, 6, 5, 2, 1)
    later = {name: found.reasons[name] for name in list(found.reasons) if "solved" in name}
    assert later == {Verdict.TOO_HARD.value: 1}
    assert found.reasons[Verdict.OPEN.value] == found.reasons[NOT_MEASURED] == 1
    assert found.reasons[DropReason.CAPPED.value] == 1  # calibrated, and not taken
    assert (found.rollouts, found.broken, found.each(found.rollouts)) == (5, 1, 5.0)
    assert "rollouts: 5, 5.0 a task kept" in str(found)
    assert found.body()["rollouts_each"] == 5.0
    # Every candidate that is not kept has a reason.
    assert sum(found.reasons.values()) == 10 - 1


def test_a_directory_without_a_journal_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no journal of task making: name a run"):
        harvest(tmp_path)
