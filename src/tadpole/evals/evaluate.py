"""Evaluates a policy on tasks: rows into the run directory, taken up again where it stopped."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from tadpole.evals.scoreboard import Scoreboard
from tadpole.progress import Progress
from tadpole.rundir import RunDir
from tadpole.task import Task
from tadpole.together import together
from tadpole.trace import Attempt
from tadpole.tries import RETRIES, tried

TABLE = "eval"

MakeAttempt = Callable[[Task, int], Awaitable[Attempt]]


async def evaluate(
    tasks: Sequence[Task],
    *,
    policy: str,
    attempt: MakeAttempt,
    samples: int,
    rundir: RunDir,
    progress: Progress,
    concurrency: int = 4,
    retries: int = RETRIES,
    table: str = TABLE,
    what: str = "evaluate",
) -> Scoreboard:
    """Make ``samples`` attempts at each task; those that the table already has are not made.

    ``policy`` is the fingerprint that ``attempt`` puts into its rows. An attempt that
    infrastructure broke is made again, up to ``retries`` times in this call; after that it is
    owed to the next call. An exception of ``attempt`` ends the evaluation and is raised as it
    is; the rows so far are kept.
    """
    done = rundir.done(table)
    every = [(task, sample) for sample in range(samples) for task in tasks]
    owed = [one for one in every if (one[0].id, policy, one[1]) not in done]
    queue = iter(owed)

    with progress.task(what, total=len(every), done=len(every) - len(owed)) as bar:

        async def work() -> None:
            for task, sample in queue:
                row = await tried(partial(attempt, task, sample), rundir, table, retries)
                bar.advance(note=f"{task.name}: {row.outcome.value}")

        await together([work() for _ in range(min(concurrency, len(owed)))])

    wanted = {(task.id, sample) for task, sample in every}
    rows = [row for row in rundir.rows(table, Attempt) if (row.task, row.sample) in wanted]
    return Scoreboard.of(rows, policy)
