"""Rounds go on from the best weights, on tasks apart, and come to the same after kill -9."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tadpole.config import load, values
from tadpole.errors import UsageError
from tadpole.evals.policies import PolicyRole, policies
from tadpole.models.location import weights_hash
from tadpole.pilot.split import Part, files_of, load_split
from tadpole.pilot.taskdir import load_set
from tadpole.rl.checkpoint import PRUNED, checkpoints, prune, pruned_states, read_state
from tadpole.rl.metrics import TABLE, UpdateRow
from tadpole.rl.provenance import provenance, told
from tadpole.rounds import TABLE as ROUNDS
from tadpole.rounds import RoundRow, configured, train
from tadpole.rundir import RunDir
from tadpole.stages import calibrate_tasks
from tadpole.trace import Attempt
from tadpole.validation import TABLE as VALIDATION
from tadpole.validation import best_checkpoint, pass_at_1
from tests.rl.rounding import lay_out, make_job

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def pond(tmp_path_factory):
    directory = tmp_path_factory.mktemp("rounds")
    lay_out(directory)
    return directory


async def trained(directory, name, rounds, flags=None):
    job = make_job(directory, name, rounds, flags)
    await calibrate_tasks(job)
    return job, await train(job)


def parts(directory, run):
    """Files by part."""
    split, tasks = load_split(run), load_set(directory / "tasks")
    return {part: files_of(split.tasks(part, tasks)) for part in Part}


async def test_two_rounds_that_prune(pond):
    job, out = await trained(pond, "two", 2, {"train.keep_checkpoints": "1"})
    first, second = job.rundir.rounds()
    rows = job.rundir.rows(ROUNDS, RoundRow)
    assert [row.round for row in rows] == [1, 2]
    assert out == job.rundir.path / rows[1].path and rows[1].path.startswith("rounds/2/")
    # Each goes on from the best of the one before, and the run ends with the best of the last.
    for run, row in zip((first, second), rows, strict=True):
        best = best_checkpoint(run)
        assert read_state(best).update == row.update
        evaluated = {a.policy for a in run.rows(VALIDATION, Attempt)}
        assert len(evaluated) == 4  # every checkpoint, pruned or not
        assert row.validated == max(pass_at_1(run, policy) for policy in evaluated)
        # Only the best and the last are left whole; the others say what they were.
        left = checkpoints(run.path / "checkpoints")
        assert {read_state(path).update for path in left} == {row.update, 4}
        gone = pruned_states(run.path / "checkpoints")
        assert len(left) + len(gone) == 4
        # The optimizer is one of this round alone.
        state = torch.load(left[-1] / "optimizer.pt", weights_only=True)["state"]
        steps = sum(row.loss is not None for row in run.rows(TABLE, UpdateRow))
        assert {int(one["step"]) for one in state.values()} == {steps}
    start = policies(second)[PolicyRole.BEFORE].fingerprint
    assert start == weights_hash(first.path / rows[0].path)
    assert policies(job.rundir)[PolicyRole.AFTER].fingerprint == weights_hash(out)
    # What is held out is never trained on, in no round; nor is what chooses.
    held_out = parts(pond, first)[Part.HELD_OUT]
    for run in (first, second):
        found = parts(pond, run)
        assert found[Part.TRAIN] and found[Part.VALIDATION]
        assert not found[Part.TRAIN] & (held_out | found[Part.VALIDATION])
        assert not held_out & found[Part.VALIDATION]
    found = provenance(job.rundir, 0)
    assert (found.violation, found.rounds, found.updates) == ("", 2, 8)
    assert " in 8 updates of 2 rounds were sampled" in told(found)
    # Once more: nothing is made.
    before = [len(run.rows(TABLE, UpdateRow)) for run in (first, second)]
    assert await train(job) == out
    assert [len(run.rows(TABLE, UpdateRow)) for run in (first, second)] == before
    assert job.rundir.rows(ROUNDS, RoundRow) == rows
    # A round that began with other weights than those of a checkpoint is found.
    table = second.table("policies")
    table.write_text(table.read_text().replace(start, "0123456789abcdef"))
    assert provenance(job.rundir, 0).violation.startswith("round 2: ")


async def test_one_round_is_what_it_always_was(pond):
    job, out = await trained(pond, "one", 1)
    assert not (job.rundir.path / "rounds").exists()
    assert not any(job.rundir.table(name).exists() for name in (ROUNDS, VALIDATION))
    assert load_split(job.rundir).count(Part.VALIDATION) == 0
    made = checkpoints(job.rundir.path / "checkpoints")
    states = [read_state(path) for path in made]
    assert [state.update for state in states] == [1, 2, 3, 4] and out == made[-1]
    assert {state.profile for state in states} == {job.config.leaf.profile}


def test_a_later_round_has_the_settings_of_the_run(tmp_path):
    flags = {
        "run.dir": "r", "run.seed": "3", "tasks.seed": "1", "tasks.earlier": "old",
        "train.rounds": "5", "train.length_from_round": "3", "train.lr": "2e-5",
        "policy.model": "some/model",
    }  # fmt: skip
    config, start = load(flags), Path("r/checkpoints/update-00004")
    second, third = (configured(config, n, Path(f"r/rounds/{n}"), start) for n in (2, 3))
    assert second.policy.model == "r/checkpoints/update-00004" and second.train.rounds == 1
    assert second.policy.engine_dir == "r/engine"  # servers go on reading where they did
    assert second.tasks.earlier == ("old", "r/tasks")
    assert (second.train.length_from_update, third.train.length_from_update) == (0, 1)
    assert len({c.run.seed for c in (config, second, third)}) == 3
    assert len({c.tasks.seed for c in (config, second, third)}) == 3
    changed = {name for name, value in values(config).items() if values(second)[name] != value}
    assert changed == {
        "run.dir", "run.seed", "tasks.seed", "tasks.earlier", "policy.model", "policy.engine_dir",
        "warmup.enabled", "train.rounds", "train.length_from_round",
    }  # fmt: skip
    (tmp_path / "x.toml").write_text(second.toml())
    assert load(file=tmp_path / "x.toml", preset="published") == second


@pytest.mark.slow
async def test_a_round_begins_with_the_adapters_of_the_one_before_merged_in(pond):
    pytest.importorskip("peft")
    job, out = await trained(pond, "adapted", 2, {"train.lora.rank": "4"})
    first, second = job.rundir.rounds()
    row = job.rundir.rows(ROUNDS, RoundRow)[0]
    start = first.path / row.path
    assert policies(second)[PolicyRole.BEFORE].fingerprint == weights_hash(start)
    assert (start / "adapter").is_dir() and (out / "adapter").is_dir()
    plain = load_file(start / "model.safetensors")
    assert set(plain) == set(load_file(pond / "model" / "model.safetensors"))
    assert provenance(job.rundir, 0).violation == ""


async def test_too_few_files_to_validate_is_one_line(tmp_path):
    lay_out(tmp_path, files=2)
    job = make_job(tmp_path, "run", 2)
    await calibrate_tasks(job)
    with pytest.raises(UsageError, match="too few to choose checkpoints"):
        await train(job)


class TestPruning:
    def make(self, root, updates):
        for update in updates:
            path = root / f"update-{update:05d}"
            path.mkdir(parents=True)
            (path / "model.safetensors").write_bytes(b"weights")
            (path / "adapter").mkdir()
            (path / "adapter" / "x").write_bytes(b"x")
            (path / "tadpole.json").write_text(
                f'{{"format": 1, "update": {update}, "fingerprint": "f{update}"}}'
            )

    @pytest.mark.parametrize(
        ("keep", "besides", "left"),
        [(0, [], [1, 2, 3, 4]), (1, [], [4]), (2, ["f1"], [1, 3, 4]), (9, [], [1, 2, 3, 4])],
    )
    def test_what_is_left(self, tmp_path, keep, besides, left):
        self.make(tmp_path, [1, 2, 3, 4])
        prune(tmp_path, keep, besides)
        assert [read_state(path).update for path in checkpoints(tmp_path)] == left
        gone = [update for update in (1, 2, 3, 4) if update not in left]
        assert [state.update for state in pruned_states(tmp_path)] == gone
        for update in gone:
            assert [p.name for p in (tmp_path / f"update-{update:05d}").iterdir()] == [PRUNED]

    def test_a_kill_half_way_is_made_good(self, tmp_path):
        self.make(tmp_path, [1, 2])
        path = tmp_path / "update-00001"
        os.replace(path / "tadpole.json", path / PRUNED)  # and then it was killed
        assert [read_state(path).update for path in checkpoints(tmp_path)] == [2]
        prune(tmp_path, 0)
        assert [p.name for p in path.iterdir()] == [PRUNED]


@pytest.mark.slow
def test_killed_at_random_points_of_three_rounds_it_comes_to_the_same(pond):
    """Weights, rows and choices of a run that nothing interrupted, bit for bit."""
    program = str(ROOT / "tests/rl/rounding.py")
    env = {**os.environ, "PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}

    for name, more in (("whole", ()), ("killed", ("killed",))):
        done = subprocess.run(
            [sys.executable, program, str(pond), name, "3", *more],
            env=env, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    kills = next(line.split()[1] for line in done.stdout.splitlines() if line.startswith("kills"))
    assert int(kills) >= 5
    found = []
    for name in ("whole", "killed"):
        run = RunDir.open(pond / name)
        weights = [weights_hash(p) for one in run.rounds() for p in one.path.rglob("update-*")]
        figures = [
            {row.update: (row.mean_reward, row.loss) for row in one.rows(TABLE, UpdateRow)}
            for one in run.rounds()
        ]
        found.append((run.rows(ROUNDS, RoundRow), sorted(weights), figures))
    assert found[0] == found[1]
