"""A climb through verl's own loop on a CPU: three updates, real boxes, real grades, our rows."""

import asyncio
import importlib.util
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tadpole import process, rounds
from tadpole.models.location import weights_hash
from tadpole.repos.store import Store
from tadpole.rl.checkpoint import read_state
from tadpole.rl.metrics import ROLLOUTS, TABLE, UpdateRow
from tadpole.rl.provenance import provenance
from tadpole.rundir import RunDir
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.trace import Attempt
from tests.engines.patience import PATIENT
from tests.engines.smoking import make_job
from tests.pilot import pond

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("verl") is None,
        reason="verl is not installed: pip install 'tadpole[verl]' in an environment of its own",
    ),
]
ROOT = Path(__file__).parents[2]
CPU = (
    "trainer.device=cpu",
    "actor_rollout_ref.rollout.name=tinycpu",
    "actor_rollout_ref.rollout.checkpoint_engine.backend=tinycpu",
    "actor_rollout_ref.rollout.enforce_eager=True",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.model.use_fused_kernels=False",
    "actor_rollout_ref.model.use_remove_padding=True",
    # One trajectory a row: without a GPU's kernels packed ones run into each other (see parity).
    "actor_rollout_ref.actor.use_dynamic_bsz=False",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype=fp32",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.buffer_dtype=fp32",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "ray_kwargs.ray_init.num_cpus=8",
    "+ray_kwargs.ray_init.num_gpus=2",
    "+ray_kwargs.ray_init.include_dashboard=False",
)
SETTINGS = {
    "leaf.profile": "compact",
    "leaf.max_turns": "3",
    "leaf.max_context": "2048",
    "leaf.max_tokens_per_turn": "3",
    "grading.tier": "1",
    "run.concurrency": "4",
    "train.updates": "3",
    "train.groups": "2",
    "train.group_size": "4",
    "train.max_lag": "1",
    "train.lr": "1e-3",
    "train.checkpoint_every": "3",
    "train.max_dropped_share": "1",
    "train.max_mean_gap": "0.5",
    "cluster.trainer": "verl",
    "cluster.train_gpus": "1",
    "cluster.rollout_gpus": "1",
    "cluster.context_parallel": "1",
    "cluster.workers": "1",
    "cluster.overrides": list(CPU),
}


@pytest.fixture
def job(tmp_path, monkeypatch):
    engine = BubblewrapEngine()
    store = Store(tmp_path / "cache", engine, pond.LocalPip())
    root = pond.build(tmp_path / "pond")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-C", str(root)]
        assert process.run([*git, *words], timeout=30).ok
    (tmp_path / "weights").mkdir()
    for name, value in {
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",
        "VERL_USE_EXTERNAL_MODULES": "tests.engines.oncpu",
        "SMOKE_WEIGHTS": str(tmp_path / "weights"),
        "TADPOLE_CACHE": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **PATIENT,
    }.items():
        monkeypatch.setenv(name, value)
    return make_job(tmp_path, str(root), store, SETTINGS)


def climbed(job) -> Path:
    from tadpole.engines.verl.stage import train

    try:
        return asyncio.run(train(job))
    except Exception:
        log = job.rundir.path / "verl" / "log.txt"
        print(log.read_text()[-20_000:] if log.exists() else "no log")
        raise


def drivers(run: Path) -> list[str]:
    """Processes of the climb of ``run``."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"tadpole.engines.verl.main" in words and str(run).encode() in b" ".join(words):
            found.append(place.name)
    return found


def test_three_updates(job):
    checkpoint = climbed(job)
    rows = job.rundir.rows(TABLE, UpdateRow)
    assert [row.update for row in rows] == [1, 2, 3]
    for row in rows:
        print(row.model_dump_json(exclude={"traces"}))
        assert row.lag_max <= 1 and row.tokens > 0 and row.grad_norm > 0
        assert row.seconds_rollout > 0 and row.seconds_update > 0
    # Nothing lags yet: the engine's probabilities are the learner's.
    assert rows[0].lag_max == 0 and rows[0].mean_abs_pq < 1e-3
    assert max(row.lag_max for row in rows) == 1  # they did overlap
    attempts = job.rundir.rows(ROLLOUTS, Attempt)
    rewards = {attempt.reward for attempt in attempts}
    assert 0.0 in rewards and rewards & {0.5, 1.0}  # 0.5: solved, and then cut
    found = provenance(job.rundir, 1)
    assert not found.violation and found.updates == 3 and found.checkpoints == 1
    assert checkpoint.name == "update-00003"


def test_killed_outright_it_goes_on_from_the_last_checkpoint(job):
    """One train process, killed after two checkpoints; the same command again."""
    from tadpole.engines.verl.places import Places
    from tadpole.engines.verl.stage import standing

    run, places = job.rundir.path, Places.of(job.rundir.path)
    words = ["train", "--run", str(run), "--train.updates", "4", "--train.checkpoint_every", "1"]
    command = [sys.executable, "-c", "from tadpole.cli.main import main; main()", *words]
    with (run.parent / "said.txt").open("wb") as said:
        first = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        deadline = time.monotonic() + 600
        while standing(places) < 2 and first.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        first.kill()
        assert first.wait() == -9, (run.parent / "said.txt").read_text()[-2000:]
    while drivers(run) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not drivers(run)
    stood, before = standing(places), job.rundir.rows(TABLE, UpdateRow)
    assert 2 <= stood < 4
    again = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert again.returncode == 0, again.stderr.decode()[-2000:]
    rows = job.rundir.rows(TABLE, UpdateRow)
    assert rows[: len(before)] == before  # nothing that was written is lost
    assert [row.update for row in rows[len(before) :]] == list(range(stood + 1, 5))
    last = {row.update: row for row in rows}
    for row in last.values():
        print(row.model_dump_json(exclude={"traces"}))
    assert sorted(last) == [1, 2, 3, 4] and max(row.lag_max for row in last.values()) <= 1
    # What was made again has another name than what was lost, and the chain has no gap.
    lost = {row.fingerprint for row in before[stood:]}
    assert not lost & {row.fingerprint for row in last.values()}
    found = provenance(job.rundir, 1)
    assert not found.violation and found.updates == 4
    assert (run / "checkpoints" / "update-00004").is_dir()


def test_a_second_round_begins_with_what_the_first_exported(job):
    """Calibrated on the export by the engine in this process, then climbed on verl anew."""
    asked = {
        "train": {"rounds": 2, "updates": 1, "checkpoint_every": 1},
        "calibrate": {"samples": 4, "probe": 0, "low": 0.0, "high": 1.0},
        "policy": {"threads": 1},
    }
    sections = {
        name: getattr(job.config, name).model_copy(update=values) for name, values in asked.items()
    }
    job = replace(job, config=job.config.model_copy(update=sections))
    job.rundir.save_config(job.config)
    last = asyncio.run(rounds.train(job))
    first, second = job.rundir, RunDir.open(job.rundir.round(2))
    done = first.rows(rounds.TABLE, rounds.RoundRow)
    assert [row.round for row in done] == [1, 2]
    export = first.path / done[0].path
    assert last == first.path / done[1].path and last.is_relative_to(second.path)
    # The second climb's first weights are the export's; what it makes is its child, and other.
    assert read_state(last).parent == weights_hash(export) != weights_hash(last)
    for run in (first, second):
        [row] = run.rows(TABLE, UpdateRow)
        print(row.model_dump_json(exclude={"traces"}))
        assert row.update == 1 and row.lag_max == 0 and row.mean_abs_pq < 1e-3
    assert second.rows("calibration", Attempt)
    found = provenance(first, 1)
    assert not found.violation and (found.rounds, found.updates) == (2, 2)
