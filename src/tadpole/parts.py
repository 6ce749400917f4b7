"""Where a run's tasks go: what is trained on, what chooses a checkpoint, what is held out.

All by the source files that tasks edit. Validation tasks are cut from the training part of a
round before it climbs, so that they are apart from what is trained on and from what is held out.
"""

from collections.abc import Sequence

from tadpole.errors import UsageError
from tadpole.job import Job
from tadpole.pilot.calibrate import Calibrated
from tadpole.pilot.split import Part, Place, Split, files_of, load_split, save_split, split
from tadpole.rl.metrics import ROLLOUTS


def assign(job: Job, kept: Sequence[Calibrated]) -> Split:
    """Split calibrated tasks by file and keep that; what is held out is settled in round 1.

    Raises UsageError where they are too few.
    """
    by_name = {one.task.name: one for one in kept}
    asked = job.config.tasks
    tasks = [one.task for one in kept]
    if job.round > 1:  # what is held out is settled
        held_out = [task for task in tasks if job.closed & files_of([task])]
        training = [task for task in tasks if task not in held_out]
    else:
        training, held_out = split(tasks, asked.held_out_share, asked.seed)
    if not training or not (held_out or job.round > 1):
        raise UsageError(
            f"{len(kept)} of {len(job.tasks())} tasks are learnable, too few to train on some and "
            "hold others out: make more (--tasks.count), or widen calibrate.low and calibrate.high"
        )
    places = [
        Place(
            name=task.name,
            id=task.id,
            rung=task.rung,
            part=part,
            passes=by_name[task.name].passes,
            valid=by_name[task.name].valid,
        )
        for part, some in ((Part.TRAIN, training), (Part.HELD_OUT, held_out))
        for task in some
    ]
    found = Split(places=tuple(places))
    save_split(job.rundir, found)
    return found


def set_aside(job: Job) -> None:
    """Cut the validation tasks from the training part, unless it was trained on already.

    Raises RunError before calibration, and UsageError where too few files were edited to validate
    on some and train on others.
    """
    share, training = job.config.tasks.validation_share, job.part(Part.TRAIN)
    found = load_split(job.rundir)
    begun = job.rundir.table(ROLLOUTS).exists()
    if found is None or not share or begun or found.count(Part.VALIDATION):
        return
    of_these = min(1.0, share * len(found.places) / max(1, len(training)))
    rest, chosen = split(training, of_these, job.config.tasks.seed)
    if not rest or not chosen:
        raise UsageError(
            f"{len(training)} training tasks are too few to choose checkpoints by some of them: "
            "make more in a new run (--tasks.count), or say --tasks.validation_share 0, and each "
            "round goes on from the last checkpoint"
        )
    names = {task.name for task in chosen}
    places = [
        place.model_copy(update={"part": Part.VALIDATION}) if place.name in names else place
        for place in found.places
    ]
    save_split(job.rundir, Split(places=tuple(places)))
