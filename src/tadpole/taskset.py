"""The set of tasks of a run: made from its repositories, and measured on its policy."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tadpole.authoring import with_author
from tadpole.job import Job
from tadpole.pilot.calibrate import Calibrated, Refine, calibrate, fill_quota
from tadpole.pilot.diversity import Caps, Quota, dealt
from tadpole.pilot.make import make_tasks
from tadpole.pilot.origin import Origin
from tadpole.pilot.proposers.mixed import chosen
from tadpole.pilot.proposers.pairs import with_pairs
from tadpole.pilot.refine import Refiner, origins_known, refined_names
from tadpole.pilot.trial import Rules
from tadpole.pilot.unread import readable
from tadpole.pilot.validate import Validator
from tadpole.pilot.walk import MakeAttempt, Refined, Walk
from tadpole.task import Task
from tadpole.timing import timed


async def make(
    job: Job, count: int | None = None, origins: dict[str, Origin] | None = None
) -> list[Task]:
    """Make the tasks (``count`` in all; None: as many as asked); those that are there are kept.

    ``origins`` is filled with what each was made of, by its name. A source that cannot be read
    is left out where others can (:mod:`tadpole.pilot.unread`).
    """
    asked = job.config.tasks
    store = job.workshop.store
    named = await readable(asked.sources, store, job.task_directory, job.progress.say)
    proposer = await with_author(job, named, chosen(asked.weights, asked.max_dictated_chars))
    with timed(job.rundir, "make tasks"):
        sources, proposer = await with_pairs(named, asked.pairs, store, proposer, job.progress)
        return await make_tasks(
            sources,
            count=asked.count if count is None else count,
            seed=asked.seed,
            store=store,
            engine=job.workshop.engine,
            grader=job.workshop.grader,
            out=job.task_directory,
            progress=job.progress,
            max_dictated_chars=asked.max_dictated_chars,
            proposer=proposer,
            rules=_rules(job),
            earlier=[Path(directory) for directory in asked.earlier],
            caps=_caps(job),
            closed=job.closed,
            origins=origins,
        )


async def measure(job: Job, attempt: MakeAttempt, policy: str, harness: str) -> list[Calibrated]:
    """The learnable tasks among those of the run, and those that are made on the way.

    ``policy`` and ``harness`` name who makes the attempts. More tasks are made where a quota asks
    for them, and others of those that no statement brings into the band.
    """
    asked = job.config.calibrate
    refine = _refining(job)

    async def measured(tasks: Sequence[Task]) -> list[Calibrated]:
        return await calibrate(
            tasks,
            attempt=attempt,
            samples=asked.samples,
            band=asked.band,
            probe=asked.probe,
            start_rung=asked.start_rung,
            max_moves=asked.max_moves,
            concurrency=job.config.run.concurrency,
            policy=policy,
            harness=harness,
            budget=asked.budget,
            quota=Quota(asked.quota, _caps(job)),
            refine=refine,
            rundir=job.rundir,
            progress=job.progress,
        )

    refined = refined_names(job.task_directory)
    tasks = [task for task in job.tasks() if task.name not in refined]
    if asked.quota and not asked.budget:
        return await fill_quota(asked.quota, tasks, measured, lambda count: make(job, count))
    return await measured(dealt(tasks) if asked.quota else tasks)


def _refining(job: Job) -> Refine | None:
    """Makes new tasks of measured ones; None where it is not known what these were made of."""
    if not origins_known(job.task_directory):
        return None
    workshop = job.workshop
    refiner = Refiner(
        directory=job.task_directory,
        origins={},
        validator=Validator(workshop.store, workshop.engine, workshop.grader, _rules(job)),
        max_moves=job.config.calibrate.max_moves,
    )

    async def refine(walks: Sequence[Walk], moved: Mapping[str, int]) -> Sequence[Refined]:
        known = origins_known(job.task_directory)
        if refiner.wanted(walks, moved) and len(refiner.origins) < known:
            await make(job, known, refiner.origins)  # all are there: only proposed again
        return await refiner.refine(walks, moved)

    return refine


def _rules(job: Job) -> Rules:
    asked = job.config.tasks
    return Rules(mutants=asked.mutants, min_kill_rate=asked.min_kill_rate)


def _caps(job: Job) -> Caps:
    asked = job.config.tasks
    return Caps(
        repository=asked.max_repository,
        operator=asked.max_operator,
        kind=asked.max_kind,
        function=asked.max_per_function,
    )
