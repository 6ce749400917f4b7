"""Playing the episodes of a climb in a process of a cluster: our sandbox, grader and rows.

The run directory, the cache and the environments in it must be seen under the same paths by every
node. Boxes are made on the node where the process runs.
"""

import asyncio
import threading
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tadpole.config import Config, saved
from tadpole.engines.verl.client import ClientPolicy
from tadpole.engines.verl.places import Names, Places
from tadpole.errors import RunError
from tadpole.leaf.calls import format_of
from tadpole.leaf.dialogue import Dialogue
from tadpole.leaf.profile import make_profile
from tadpole.outcome import OUTCOME_POLICY
from tadpole.pilot import taskdir
from tadpole.pilot.split import Part, load_split
from tadpole.rl.metrics import ROLLOUTS
from tadpole.rollout import Rollout
from tadpole.rundir import CONFIG, RunDir, cache_dir
from tadpole.task import Task
from tadpole.trace import Attempt, Trace
from tadpole.workshop import Workshop

RETRIES = 2  # of an episode that infrastructure broke
_ONE = threading.Lock()


@dataclass
class Playground:
    """What all episodes of one process share. Make one with :func:`playground`."""

    config: Config
    rundir: RunDir
    workshop: Workshop
    tasks: dict[str, Task]  # by id
    names: Names
    places: asyncio.Semaphore  # episodes at a time, in this process

    async def play(
        self, client: Any, tokenizer: Any, task: str, sample: int, drawn: int
    ) -> tuple[Attempt, Trace]:
        """One attempt, made again where infrastructure broke it; all rows are in the run.

        ``drawn`` is the update for which verl drew the task. Raises RunError where every try was
        broken: verl then throws the whole group away and draws another.
        """
        if task not in self.tasks:
            raise RunError(f"task {task} is not one of {self.rundir.path}'s training tasks")
        dialogue = self._dialogue(tokenizer)
        rollout = Rollout(
            engine=self.workshop.engine,
            store=self.workshop.store,
            grader=self.workshop.grader,
            policy=ClientPolicy(client, self.names, drawn - 1, dialogue.end_ids),
            dialogue=dialogue,
            settings=self.config.leaf,
            rundir=self.rundir,
            concurrency=1,
            truncated_reward=self.config.train.truncated_reward,
        )
        train = self.config.train
        error = ""
        for _ in range(RETRIES + 1):
            async with self.places:
                attempt, trace = await rollout.attempt(
                    self.tasks[task],
                    sample,
                    sampling=self.config.sampling.at(self.config.leaf.max_tokens_per_turn),
                    stage=f"train-{drawn:04d}",
                    seed=self.config.run.seed * 1000 + train.seed,
                )
            await asyncio.to_thread(self.rundir.append, ROLLOUTS, attempt)
            if OUTCOME_POLICY[attempt.outcome].trust:
                return attempt, trace
            error = trace.error or (attempt.grade.reason if attempt.grade else "")
        raise RunError(f"task {task}, sample {sample}: {RETRIES + 1} attempts broke, last: {error}")

    def _dialogue(self, tokenizer: Any) -> Dialogue:
        call_format = format_of(tokenizer.chat_template or "")
        profile = make_profile(self.config.leaf.profile, call_format)
        return Dialogue(tokenizer, call_format, profile)


def playground(run: str) -> Playground:
    """The one of this process for a run directory. Tries to break out of a box first.

    Threads that ask at once get the same: it holds the bound of episodes at a time. Raises
    SandboxUnavailable, RunError.
    """
    with _ONE:  # a cache alone lets all in that find it empty
        return _opened(run)


@cache
def _opened(run: str) -> Playground:
    rundir = RunDir.open(run)
    config = saved(rundir.path / CONFIG)
    split = load_split(rundir)
    if split is None:
        raise RunError(f"{run} is not calibrated")
    where = Path(config.tasks.dir) if config.tasks.dir else rundir.path / "tasks"
    tasks = split.tasks(Part.TRAIN, taskdir.load_set(where))
    return Playground(
        config=config,
        rundir=rundir,
        workshop=Workshop.open(cache_dir(), config.sandbox, config.grading.tier),
        tasks={task.id: task for task in tasks},
        names=Names.model_validate_json(Places.of(run).names.read_bytes()),
        places=asyncio.Semaphore(max(1, config.run.concurrency // config.cluster.workers)),
    )
