"""Rewards come again from stored patches: the same ones, once, and changed ones are told."""

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from synthetic import make_attempt, make_task
from test_command_line import called, tadpole

from tadpole.config import Config
from tadpole.errors import RunError
from tadpole.evals.policies import PolicyRole, PolicyRow, note_policy
from tadpole.evals.predictions import predictions
from tadpole.evals.regrade import TABLE, Regraded, regrade_run
from tadpole.grading.patch import git_patch
from tadpole.job import Job
from tadpole.outcome import GradeStatus, Outcome, Tier
from tadpole.progress import Progress
from tadpole.rundir import RunDir
from tadpole.scripted import ScriptedEngine, ScriptedGrader
from tadpole.task import FileChange
from tadpole.trace import Grade
from tadpole.workshop import Workshop

OLD = FileChange("boltons/part1.py", b"x = 1\n\n\n")
NEW = FileChange("boltons/part1.py", b"x = 2\r\n\n\n", executable=True)


@dataclass(frozen=True)
class Trees:
    """A store whose start trees are one directory."""

    place: Path

    async def tree(self, task):
        return self.place


def right(task, delta):
    return tuple(delta) == (NEW,)


@pytest.fixture
def job(run: RunDir, tmp_path: Path):
    (tmp_path / "tree/boltons").mkdir(parents=True)
    (tmp_path / "tree" / OLD.path).write_bytes(OLD.content)

    def made(verdict=right) -> Job:
        engine, grader = ScriptedEngine(), ScriptedGrader(verdict)
        workshop = Workshop(tmp_path, engine, Trees(tmp_path / "tree"), grader)
        return Job(Config(), run, workshop, Progress(quiet=True))

    return made


@pytest.fixture
def tasks(run: RunDir):
    tasks = [make_task(1), make_task(6)]
    good = run.save_patch(git_patch({OLD.path: OLD}, [NEW]), "eval/good")
    bad = run.save_patch(git_patch({OLD.path: OLD}, [FileChange("a", b"\0")]), "eval/bad")
    run.append("eval", make_attempt(tasks[0], "p", 0, Outcome.RESOLVED, patch=good))
    run.append("eval", make_attempt(tasks[0], "p", 1, Outcome.WRONG_PATCH, patch=bad))
    run.append("eval", make_attempt(tasks[1], "p", 0, Outcome.RESOLVED, patch=bad))
    run.append("rollouts", make_attempt(tasks[1].at_rung(0), "p", 0, Outcome.EMPTY_PATCH))
    run.append("rollouts", make_attempt(tasks[1], "p", 1, Outcome.INFRASTRUCTURE))
    return tasks


def asked(job, tasks, tier=Tier.HARDENED):
    return regrade_run(job, tasks, tier=tier, concurrency=2)


async def test_every_reward_is_computed_again_and_changes_are_told(job, run, tasks):
    before = run.table("eval").read_bytes()
    found = await asked(job(), tasks)
    assert [(row.table, row.before, row.after) for row in found] == [
        ("rollouts", 0.0, 0.0),
        ("eval", 1.0, 1.0),
        ("eval", 0.0, 0.0),
        ("eval", 1.0, 0.0),
    ]
    assert [row.task_name for row in found if row.changed] == ["boltons-0006"]
    assert found[-1].outcome is Outcome.WRONG_PATCH
    assert run.table("eval").read_bytes() == before
    assert {row.key for row in run.rows(TABLE, Regraded)} == {row.key for row in found}


async def test_a_second_call_does_nothing_and_one_after_a_kill_the_rest(job, run, tasks):
    first = await asked(job(), tasks)
    again = job()
    assert await asked(again, tasks) == first
    assert again.workshop.grader.graded == []
    rows = run.table(TABLE).read_bytes().splitlines(keepends=True)
    run.table(TABLE).write_bytes(b"".join(rows[:2]) + rows[2][:40])
    rest = job()
    assert await asked(rest, tasks) == first
    assert len(rest.workshop.grader.graded) == 2
    other = job()
    await asked(other, tasks, Tier.CHALLENGED)
    assert len(other.workshop.grader.graded) == 4  # another tier is another question


async def test_several_are_graded_at_a_time_and_no_more_than_told(job, run, tasks):
    @dataclass
    class Slow:
        """Counts who waits for it."""

        most: int = 0
        waiting: int = 0
        met: asyncio.Event = field(default_factory=asyncio.Event)

        async def grade(self, task, delta):
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            if self.waiting > 1:
                self.met.set()
            with suppress(TimeoutError):  # for ever, were they graded one by one
                await asyncio.wait_for(self.met.wait(), 20)
            self.waiting -= 1
            return Grade(status=GradeStatus.GRADED, resolved=right(task, delta))

    alone = await asked(job(), tasks, Tier.CHALLENGED)
    slow = job()
    slow = replace(slow, workshop=replace(slow.workshop, grader=Slow()))
    found = await asked(slow, tasks)
    assert slow.workshop.grader.most == 2
    # In the order of the rows, whichever was graded first.
    assert [(r.table, r.row, r.after) for r in found] == [(r.table, r.row, r.after) for r in alone]


async def test_attempts_that_chose_a_checkpoint_are_graded_again_too(job, run, tasks):
    run.append("validation", make_attempt(tasks[0], "p", 2, Outcome.EMPTY_PATCH))
    found = await asked(job(), tasks)
    assert [row.table for row in found] == ["rollouts", "validation", "eval", "eval", "eval"]


async def test_what_could_not_be_graded_is_owed_and_has_not_changed(job, run, tasks):
    invalid = Grade(status=GradeStatus.INVALID, reason="no box")
    found = await asked(job(lambda task, delta: invalid), tasks)
    assert {row.after for row in found} == {None}
    assert not any(row.changed for row in found)
    assert run.rows(TABLE, Regraded) == []


async def test_a_patch_that_does_not_apply_is_said(job, run, tasks):
    run.save_patch(b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", "eval/good")
    [_, row, *_] = await asked(job(), tasks)
    assert (row.after, row.changed) == (None, False)
    assert "does not apply" in row.grade.reason


async def test_a_missing_task_is_one_clear_line(job, run, tasks):
    with pytest.raises(RunError, match="put it back"):
        await asked(job(), tasks[:1])


async def test_a_patch_that_is_gone_is_named_also_where_it_was_graded_before(job, run, tasks):
    before = await asked(job(), tasks)
    (run.path / "patches/eval/good.patch").unlink()
    after = await asked(job(), tasks)
    assert [row.after for row in after] == [0.0, None, 0.0, 0.0]
    assert "good.patch is missing" in after[1].grade.reason
    assert (after[0], *after[2:]) == (before[0], *before[2:])


def test_predictions_are_what_swe_bench_reads(run: RunDir, tasks, capsys):
    note_policy(run, PolicyRow(role=PolicyRole.AFTER, fingerprint="p"))
    rows = predictions(run, PolicyRole.AFTER)
    assert [set(row) for row in rows] == [{"model_name_or_path", "instance_id", "model_patch"}] * 2
    assert [row["instance_id"] for row in rows] == ["boltons-0001", "boltons-0006"]
    patch = git_patch({OLD.path: OLD}, [NEW])
    back = json.loads(json.dumps(rows[0]))["model_patch"]
    assert back.encode("utf-8", "surrogateescape") == patch  # to the last byte
    done = tadpole("eval", "export", run.path)
    assert (done.returncode, [json.loads(line) for line in done.stdout.splitlines()]) == (0, rows)
    done = called(capsys, "eval", "export", run.path, "--sample", "7")
    assert done.returncode == 2 and "name another --sample" in done.stderr
    assert called(capsys, "eval", "export", run.path, "--policy", "raw").returncode == 2


def test_regrade_of_no_run_is_exit_2(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    done = called(capsys, "eval", "regrade", "none")
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "none is no run directory" in done.stderr
