"""The stage in which a model writes tasks: its drafts, and the proposer that reads them."""

import asyncio
from collections.abc import Sequence

from tadpole.config import Config
from tadpole.job import Job
from tadpole.pilot.drafts import Drafts
from tadpole.pilot.proposers.author import Author, Desk
from tadpole.prepared import Prepared, prepare_policy
from tadpole.protocols import Proposer
from tadpole.reached import Served, reach_policy
from tadpole.repos.snapshot import Snapshot
from tadpole.settings import OWN, SERVED
from tadpole.timing import timed

PLACE = "drafts"  # in the run directory


async def with_author(job: Job, sources: Sequence[str], then: Proposer) -> Proposer:
    """``then``, after the drafts of the configured author about ``sources``; alone without one.

    Drafts that the run has are not written again. Raises ModelError where the author cannot be
    asked, SourceError, SandboxError.
    """
    asked = job.config.author
    if not asked.model:
        return then
    place = job.rundir.path / PLACE
    snapshots = [await job.workshop.store.snapshot(source) for source in dict.fromkeys(sources)]
    if any(len(Drafts(place, one.key).all(asked.drafts)) < asked.drafts for one in snapshots):
        with timed(job.rundir, "write tasks"):
            await _write(job, snapshots)
    return Author(place, asked.drafts, then)


async def _write(job: Job, snapshots: list[Snapshot]) -> None:
    asked = job.config.author
    prepared = await asyncio.to_thread(_author, job)
    try:
        desk = Desk(
            engine=job.workshop.engine,
            store=job.workshop.store,
            policy=prepared.policy,
            dialogue=prepared.dialogue,
            settings=job.config.leaf.model_copy(update={"max_turns": asked.max_turns}),
            sampling=job.config.sampling.at(job.config.leaf.max_tokens_per_turn),
            directory=job.rundir.path / PLACE,
            rundir=job.rundir,
            concurrency=job.config.run.concurrency,
        )
        with job.progress.task("write tasks", total=asked.drafts * len(snapshots)) as bar:
            for snapshot in snapshots:
                await desk.write_drafts(
                    snapshot, asked.kinds, asked.drafts, job.config.tasks.seed, bar
                )
    finally:
        prepared.close()


def _author(job: Job) -> Prepared | Served:
    config: Config = job.config
    if config.author.model != OWN:
        policy = config.policy.model_copy(update={"model": config.author.model})
        config = config.model_copy(update={"policy": policy})
    if config.policy.model.startswith(SERVED):
        return reach_policy(config)
    return prepare_policy(config, job.workshop.cache, progress=job.progress)
