"""Training on verl as a stage: writes what it needs, runs it, takes over what it made.

The run directory keeps the form that a local climb gives it, so that audit, evaluation and report
know no difference. Each start is a fresh process, and each round a fresh run directory: weights
come from a Hugging Face directory, optimizer state only from the same climb.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from tadpole.config import values
from tadpole.engines.verl.overrides import overrides
from tadpole.engines.verl.places import LATEST, LOOP, NOT_STARTED, Names, Places
from tadpole.errors import RunError, TrainerError, UsageError
from tadpole.evals.policies import PolicyRole, policies
from tadpole.job import Job
from tadpole.models.location import weights_hash
from tadpole.pilot.split import Part
from tadpole.process import Finished, arun
from tadpole.rl.checkpoint import STATE, CheckpointState, checkpoints, read_state
from tadpole.rl.metrics import ROLLOUTS, TABLE, UpdateRow
from tadpole.rl.tracker import Tell, tracking
from tadpole.rundir import RunDir, write_atomic
from tadpole.settings import EMBEDDED, SERVED, ProfileName
from tadpole.task import Task
from tadpole.timing import timed
from tadpole.trace import Attempt
from tadpole.validation import note_trained

LOOP_CLASS = "tadpole.engines.verl.leafloop.LeafAgentLoop"
LOOK_SECONDS = 2.0
STARTS = 3  # tries to start Ray, which gives itself 30 seconds: too few on a busy machine


async def train(job: Job) -> Path:
    """Climb on the training tasks to the last update; the directory of the last checkpoint.

    Raises UsageError where the policy cannot be trained so, or the tracker will not begin, RunError
    before calibration, TrainerError with the last line of the log where verl ended otherwise.
    """
    model = job.config.policy.model
    if model == EMBEDDED or model.startswith(SERVED):
        raise UsageError("--engine verl trains a Hugging Face directory or name: give --model")
    tasks = job.part(Part.TRAIN)
    before = policies(job.rundir).get(PolicyRole.BEFORE)
    if before is None:
        raise RunError(f"{job.rundir.path} is not calibrated: run tadpole tasks calibrate")
    places = Places.of(job.rundir.path)
    done, tracker = standing(places), job.config.train.tracker
    if done < job.config.train.updates:  # else its engines would start for nothing
        start = checkpoints(job.rundir.path / before.path)[-1] if before.path else model
        with (
            timed(job.rundir, "train"),
            tracking(tracker, job.rundir.path, values(job.config), done) as tell,
        ):
            prepare(places, job.rundir, tasks, before.fingerprint)
            asked = places.root / "overrides.txt"
            write_atomic(asked, "\n".join(overrides(job.config, str(start))).encode() + b"\n")
            given = (asked, places.log, str(os.getpid()))
            driver: list[str | Path] = [sys.executable, "-m", "tadpole.engines.verl.main", *given]
            await watched(job, places, driver, tell)
    made = adopt(places, job.rundir, before.fingerprint, job.config.leaf.profile)
    note_trained(job, made)
    return made


def prepare(places: Places, rundir: RunDir, tasks: Sequence[Task], base: str) -> None:
    """Write what the processes of the cluster read: tasks, agent loop, names of versions."""
    import pyarrow
    from pyarrow import parquet

    places.root.mkdir(parents=True, exist_ok=True)
    table = [
        {
            "prompt": [{"role": "user", "content": task.statement}],
            "data_source": "tadpole",
            "reward_model": {"style": "rule", "ground_truth": ""},  # the grader's, not verl's
            "extra_info": {"task": task.id, "index": index},
        }
        for index, task in enumerate(tasks)
    ]
    beside = places.tasks.with_suffix(".part")
    parquet.write_table(pyarrow.Table.from_pylist(table), beside)
    os.replace(beside, places.tasks)
    write_atomic(places.loop, f"- name: {LOOP}\n  _target_: {LOOP_CLASS}\n".encode())
    # Weights that are made again after a stop get other names.
    starts = len({row.policy for row in rundir.rows(ROLLOUTS, Attempt)})
    names = Names.of(base, rundir.rows(TABLE, UpdateRow), standing(places), starts)
    write_atomic(places.names, names.model_dump_json().encode())


def standing(places: Places) -> int:
    """Updates that verl will go on from.

    Raises RunError where a kill cut that number off: verl writes it in place.
    """
    file = places.states / LATEST
    try:
        return int(file.read_text())
    except FileNotFoundError:
        return 0
    except ValueError:
        raise RunError(
            f"{file} holds no number: write that of the last whole global_step_* beside it into "
            "it, or remove it to begin again"
        ) from None


async def watched(job: Job, places: Places, driver: Sequence[str | Path], tell: Tell) -> None:
    """Run the driver to its end, showing and telling each update as its row appears.

    Raises TrainerError where it ends otherwise than well.
    """
    updates = job.config.train.updates
    told = len(job.rundir.rows(TABLE, UpdateRow))
    with job.progress.task("train on verl", total=updates, done=standing(places)) as bar:
        running = asyncio.create_task(driven(driver))
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=LOOK_SECONDS)
                found = job.rundir.rows(TABLE, UpdateRow)
                for row in found[told:]:
                    tell(row)
                told = len(found)
                if found:
                    reward, gap = found[-1].mean_reward, found[-1].mean_abs_pq
                    bar.update(
                        done=found[-1].update,
                        note=f"mean reward {reward or 0:.3f}, mean |p - q| {gap or 0:.1e}",
                    )
        finally:
            running.cancel()
            await asyncio.wait({running})
    done = running.result()
    if not done.ok:
        raise TrainerError(f"verl ended with code {done.code}: {last_error(places.log)}")


async def driven(argv: Sequence[str | Path]) -> Finished:
    """Run the driver to its end; again where Ray did not start."""
    for _ in range(STARTS):
        done = await arun(argv)
        if done.code != NOT_STARTED:
            break
    return done


def last_error(log: Path) -> str:
    """The last line of a log that names an error, else its last one; and where it is."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-2000:]
    except OSError:
        lines = []
    lines = [line.strip() for line in lines if line.strip()]
    named = [line for line in lines if "Error" in line.partition(":")[0]]
    last = (named or lines or ["it printed nothing"])[-1]
    return f"{last[:300]} ({log})"


def adopt(places: Places, rundir: RunDir, base: str, profile: ProfileName | None = None) -> Path:
    """Take verl's exports over as checkpoints of the run; the directory of the last one.

    An export beyond where verl stands is what a kill left of a checkpoint: that update is made
    again, by other weights. Files are linked where the file system can, not copied. Raises
    TrainerError where there are none.
    """
    names = Names.model_validate_json(places.names.read_bytes())
    root, done = rundir.directory("checkpoints"), standing(places)
    for update, export in sorted(_exports(places).items()):
        made = [state for path in checkpoints(root) if (state := read_state(path)).update <= update]
        name = names.of_version(update)
        if update > done or name in {state.fingerprint for state in made}:
            continue
        before = [state.weights for state in made if state.update < update]
        state = CheckpointState(
            update=update,
            fingerprint=name,
            weights=weights_hash(export),
            parent=before[-1] if before else base,
            profile=profile,
        )
        _take(export, root / f"update-{update:05d}", state)
    found = [path for path in checkpoints(root) if read_state(path).update <= done]
    if not found:
        raise TrainerError(f"verl left no weights in {places.states}: see {places.log}")
    return found[-1]


def _exports(places: Places) -> dict[int, Path]:
    """The Hugging Face directories that verl has written, by update."""
    return {
        int(path.parent.parent.name.removeprefix("global_step_")): path
        for path in places.states.glob("global_step_*/actor/huggingface")
        if any(path.glob("*.safetensors"))
    }


def _take(export: Path, target: Path, state: CheckpointState) -> None:
    beside = target.with_name(f".{target.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(export, beside, copy_function=_linked)
    (beside / STATE).write_text(state.model_dump_json())
    shutil.rmtree(target, ignore_errors=True)
    os.replace(beside, target)


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
