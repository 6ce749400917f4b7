"""The main job: a real repository in, a trained policy and a report out."""

from dataclasses import dataclass
from pathlib import Path

from tadpole import rounds, stages
from tadpole.config import Config
from tadpole.evals.policies import PolicyRole
from tadpole.evals.scoreboard import Scoreboard
from tadpole.job import Job
from tadpole.progress import Progress
from tadpole.report.html import write_report
from tadpole.rundir import RunDir, cache_dir
from tadpole.workshop import Workshop


@dataclass(frozen=True)
class Demo:
    """What came out: the report, and the scoreboards on held-out tasks by name."""

    report: Path
    boards: dict[str, Scoreboard]


async def demo(config: Config, rundir: RunDir, progress: Progress) -> Demo:
    """Make, calibrate, evaluate, train, evaluate, report; goes on where the run stopped.

    The report is written also where a later stage fails, from what is there.
    """
    workshop = Workshop.open(cache_dir(), config.sandbox, config.grading.tier)
    job = Job(config, rundir, workshop, progress)
    boards: dict[str, Scoreboard] = {}
    try:
        await stages.make(job)
        await stages.calibrate_tasks(job)
        if job.warms_up and config.eval.raw:
            boards["raw model"] = await stages.evaluate_policy(job, PolicyRole.RAW)
        start = "warmed up" if job.warms_up else "before"
        boards[start] = await stages.evaluate_policy(job, PolicyRole.BEFORE)
        await rounds.train(job)
        boards["trained"] = await stages.evaluate_policy(job, PolicyRole.AFTER)
    finally:
        report = write_report(rundir)
    return Demo(report, boards)
