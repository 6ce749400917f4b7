"""Makes tasks of the pond under three names with a quick validator, in a process of its own.

    python roundmaking.py REPOSITORY CACHE OUT PACE [SECONDS]

PACE changes how long each candidate takes; after SECONDS of making it is killed with signal 9.
"""

import asyncio
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pond

from tadpole.pilot.diversity import Caps
from tadpole.pilot.make import make_tasks
from tadpole.pilot.trial import Rules, pristine_file
from tadpole.pilot.verdict import Dropped, DropReason
from tadpole.progress import Progress
from tadpole.repos.store import Store
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.scripted import ScriptedGrader
from tadpole.task import Hint, Provenance, Task, TaskKind


class Quick:
    """Judges by the candidate's name instead of by tests, and takes its time."""

    def __init__(self, pace=0):
        self.rules = Rules()
        self.pace = pace
        self.judged = 0

    def expect(self, snapshot, candidates):
        """Nothing is run together here."""

    def drops(self, number):
        return number % 3 == 0

    async def validate(self, snapshot, candidate, name):
        self.judged += 1
        number = int(candidate.key, 16)
        await asyncio.sleep((number * (self.pace + 1)) % 13 / 13 * 0.02 * self.pace)
        if self.drops(number):
            raise Dropped(DropReason.SURVIVED)
        return Task(
            name=name,
            kind=TaskKind.BUG_FIX,
            source=snapshot.source,
            snapshot=snapshot.key,
            runtime=snapshot.runtime,
            recipe=snapshot.recipe,
            start=candidate.changes,
            gold=tuple(pristine_file(snapshot, path) for path in candidate.files),
            hidden=(),
            fail_to_pass=(f"t.py::test_{number % 40}",),
            pass_to_pass=("t.py::test_ok",),
            hints=(Hint(0, "It is broken."),),
            rung=0,
            provenance=Provenance(
                candidate.proposer,
                candidate.operator,
                candidate.seed,
                candidate.files,
                candidate.functions,
            ),
        )


NAMES = ("pond", "lake", "mere")


class Thrice:
    """The snapshot of one repository under several names, which draws hang on, not on its path."""

    def __init__(self, store, repository):
        self.store, self.repository = store, repository

    async def snapshot(self, name):
        found = await self.store.snapshot(self.repository)
        key = name + found.key[len(name) :]
        return replace(found, key=key, source=replace(found.source, location=name))


async def make(repository, store, out, pace=0, count=14, **more):
    engine = BubblewrapEngine()
    quick = Quick(pace)
    tasks = await make_tasks(
        NAMES,
        count=count,
        seed=3,
        store=Thrice(store, repository),
        engine=engine,
        grader=ScriptedGrader(lambda task, delta: bool(delta)),
        out=out,
        progress=Progress.silent(),
        validator=quick,
        caps=Caps(operator=0.2, repository=0.5, function=2),
        **more,
    )
    return tasks, quick


def contents(directory):
    """Every file that says what was made; not what it cost."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in ("costs.jsonl", "lock")
    }


def main(repository, cache, out, pace, seconds=None):
    if seconds is not None:
        kill = threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGKILL))
        kill.daemon = True
        kill.start()
    store = Store(Path(cache), BubblewrapEngine(), pond.LocalPip())
    asyncio.run(make(repository, store, Path(out), int(pace)))


if __name__ == "__main__":
    main(*sys.argv[1:])
