"""Rounds of a climb whose tasks are to say an even token: everything is real but the episodes.

Run as a program it trains in a run directory, to be killed by a test:
``python rounding.py DIRECTORY NAME ROUNDS [killed]``; ``killed``: ten times, and then to its end.
"""

import asyncio
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tadpole.config import load, open_run
from tadpole.job import Job
from tadpole.pilot import taskdir
from tadpole.progress import Progress
from tadpole.rounds import train
from tadpole.scripted import ScriptedEngine, ScriptedGrader
from tadpole.stages import calibrate_tasks
from tadpole.task import FileChange, Provenance
from tadpole.workshop import Workshop
from tests.rl.climbing import EvenTokens, tasks
from tests.rl.forks import killed_often
from tests.tiny import byte_tokenizer, llama


@dataclass(frozen=True)
class EvenShop(Workshop):
    """Makes attempts that need no box."""

    def rollout(self, policy, dialogue, config, rundir):
        return EvenTokens(policy, rundir)


def lay_out(directory, files=7):
    """A model and tasks of which two each edit one file."""
    model = llama()
    model.save_pretrained(directory / "model")
    byte_tokenizer().save_pretrained(directory / "model")
    for n, task in enumerate(tasks(2 * files)):
        path = f"f{n // 2}.py"
        taskdir.save(
            replace(
                task,
                start=(FileChange(path, b"x = 1\n"),),
                gold=(FileChange(path, b"x = 2\n"),),
                hidden=(FileChange("tests/test_x.py", b"def test(): pass\n"),),
                fail_to_pass=("tests/test_x.py::test",),
                provenance=Provenance("test", edited_files=(path,)),
            ),
            directory / "tasks",
        )


def make_job(directory, name, rounds, flags=None):
    settings = {
        "run.dir": str(directory / name),
        "run.concurrency": "12",
        "policy.model": str(directory / "model"),
        "policy.threads": "1",
        "policy.dtype": "float32",
        "leaf.max_tokens_per_turn": "1",
        "leaf.max_context": "64",
        "leaf.profile": "compact",
        "tasks.dir": str(directory / "tasks"),
        "calibrate.samples": "4",
        "calibrate.low": "0.01",
        "calibrate.high": "0.99",
        "train.rounds": str(rounds),
        "train.updates": "4",
        "train.groups": "2",
        "train.group_size": "6",
        "train.lr": "3e-3",
        "train.checkpoint_every": "1",
        "train.micro_batch_tokens": "512",
        "eval.samples": "4",
        "eval.temperature": "1.0",
        "eval.top_p": "1.0",
        "eval.top_k": "0",
    }
    config = load(settings | (flags or {}))
    with open_run(config) as run:
        pass
    shop = EvenShop(directory, ScriptedEngine(), None, ScriptedGrader(lambda task, delta: True))
    return Job(config, run, shop, Progress.silent())


async def climb(directory: Path, name: str, rounds: int) -> None:
    job = make_job(directory, name, rounds)
    await calibrate_tasks(job)
    print(await train(job), flush=True)


def main(directory: Path, name: str, rounds: int, *more: str) -> None:
    def work():
        asyncio.run(climb(directory, name, rounds))

    def seen():
        return sum(path.stat().st_size for path in (directory / name).rglob("*.jsonl"))

    if "killed" in more:
        print("kills", killed_often(work, seen, 10, random.Random(3)), flush=True)
    work()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
