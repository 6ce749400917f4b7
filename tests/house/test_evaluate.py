"""Evaluations resume, retry what infrastructure broke, and never count it as a zero."""

import asyncio

import pytest
from synthetic import make_attempt, make_task

from tadpole.errors import SandboxUnavailable
from tadpole.evals.evaluate import evaluate
from tadpole.evals.scoreboard import Scoreboard, compare, settled
from tadpole.outcome import Outcome
from tadpole.progress import Progress
from tadpole.rundir import RunDir
from tadpole.task import Task
from tadpole.trace import Attempt


class Scripted:
    """Attempts whose outcomes are given; counts the calls."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.calls: list[tuple[str, int]] = []
        self.running = self.most = 0

    async def __call__(self, task: Task, sample: int) -> Attempt:
        self.calls.append((task.name, sample))
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.001)
        self.running -= 1
        outcome = self.outcomes.pop(0) if self.outcomes else Outcome.RESOLVED
        return make_attempt(task, "p", sample, outcome)


async def board(run: RunDir, attempt: Scripted, tasks: list[Task], samples: int = 2) -> Scoreboard:
    return await evaluate(
        tasks,
        policy="p",
        attempt=attempt,
        samples=samples,
        rundir=run,
        progress=Progress.silent(),
        concurrency=2,
        retries=2,
    )


async def test_what_is_done_is_not_made_again(run: RunDir):
    tasks = [make_task(n) for n in range(3)]
    first = Scripted()
    await board(run, first, tasks)
    assert len(first.calls) == 6
    assert first.most == 2
    again = Scripted()
    found = await board(run, again, tasks, samples=3)
    assert sorted(again.calls) == [(task.name, 2) for task in tasks]
    assert found.attempts == 9


async def test_another_policy_or_a_changed_task_is_not_done(run: RunDir):
    task = make_task(1)
    run.append("eval", make_attempt(task, "other", 0, Outcome.RESOLVED))
    run.append("eval", make_attempt(task.at_rung(0), "p", 0, Outcome.RESOLVED))
    attempt = Scripted(Outcome.WRONG_PATCH)
    found = await board(run, attempt, [task], samples=1)
    assert len(attempt.calls) == 1
    assert found.pass_at_1 and found.pass_at_1.value == 0


async def test_a_broken_attempt_is_retried_and_counts_once_as_what_it_came_to(run: RunDir):
    attempt = Scripted(Outcome.INFRASTRUCTURE, Outcome.RESOLVED)
    found = await board(run, attempt, [make_task(1)], samples=1)
    assert (found.attempts, found.untrusted, found.broken_tries) == (1, 0, 1)
    assert found.pass_at_1 and found.pass_at_1.value == 1


async def test_broken_attempts_are_counted_apart_and_owed_to_the_next_call(run: RunDir):
    attempt = Scripted(*[Outcome.INFRASTRUCTURE] * 3)
    found = await board(run, attempt, [make_task(1)], samples=1)
    assert len(attempt.calls) == 3
    assert (found.attempts, found.untrusted, found.pass_at_1) == (0, 1, None)
    found = await board(run, Scripted(), [make_task(1)], samples=1)
    assert (found.attempts, found.untrusted) == (1, 0)


async def test_what_must_stop_the_run_stops_it_as_itself_and_keeps_the_rows(run: RunDir):
    class Failing(Scripted):
        async def __call__(self, task: Task, sample: int) -> Attempt:
            if len(self.calls) == 3:
                raise SandboxUnavailable("user namespaces are off")
            return await super().__call__(task, sample)

    with pytest.raises(SandboxUnavailable):
        await board(run, Failing(), [make_task(n) for n in range(9)])
    assert len(run.rows("eval", Attempt)) >= 2


def test_the_scoreboard_splits_by_outcome():
    tasks = [make_task(n) for n in range(2)]
    rows = [
        make_attempt(tasks[0], "p", 0, Outcome.RESOLVED),
        make_attempt(tasks[0], "p", 1, Outcome.TAMPERED),
        make_attempt(tasks[1], "p", 0, Outcome.INFRASTRUCTURE),
        make_attempt(tasks[1], "p", 1, Outcome.EMPTY_PATCH),
        make_attempt(tasks[1], "q", 1, Outcome.RESOLVED),
    ]
    found = Scoreboard.of(rows, "p")
    assert found.outcomes[Outcome.TAMPERED] == found.outcomes[Outcome.INFRASTRUCTURE] == 1
    assert found.pass_at_1 and found.pass_at_1.value == 0.25
    body = found.as_dict()
    assert body["untrusted"] == 1 and body["attempts"] == 3 and body["outcomes"]["resolved"] == 1


def test_the_first_trusted_row_of_an_attempt_holds():
    task = make_task(1)
    outcomes = [Outcome.INFRASTRUCTURE, Outcome.WRONG_PATCH, Outcome.RESOLVED]
    rows = [make_attempt(task, "p", 0, outcome) for outcome in outcomes]
    assert [row.outcome for row in settled(rows)] == [Outcome.WRONG_PATCH]


def test_policies_are_compared_on_the_tasks_that_both_tried():
    tasks = [make_task(n) for n in range(3)]
    one = Scoreboard.of([make_attempt(task, "p", 0, Outcome.WRONG_PATCH) for task in tasks])
    other = Scoreboard.of([make_attempt(task, "q", 0, Outcome.RESOLVED) for task in tasks[1:]])
    found = compare(one, other)
    assert found and found.value == 1.0
    assert compare(one, Scoreboard.of([])) is None
