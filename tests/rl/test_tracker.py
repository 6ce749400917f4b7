"""A tracker is told every figure of an update, and a missing one is one line."""

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from tadpole.errors import UsageError
from tadpole.outcome import StopReason
from tadpole.rl.metrics import UpdateRow
from tadpole.rl.tracker import PROJECT, numbers, run_name, tracking
from tadpole.settings import Tracker


def row(update, reward):
    return UpdateRow(
        update=update, episodes=4, mean_reward=reward, fingerprint="f", stops={StopReason.AGENT: 3}
    )


TELL_TWICE = """
import sys
from pathlib import Path
from tadpole.cli.main import explain
from tadpole.rl.tracker import tracking
from tadpole.settings import Tracker
from tests.rl.test_tracker import row

kind, run = Tracker(sys.argv[1]), Path(sys.argv[2])
try:
    for told in ([(1, 0.1), (2, 0.2)], [(2, 0.9), (3, 0.4)]):
        with tracking(kind, run, {"train.lr": 1e-6}, done=told[0][0] - 1) as tell:
            for update, reward in told:
                tell(row(update, reward))
except Exception as error:
    sys.exit(explain(error))
"""


def told_apart(tmp_path, kind, **variables):
    """A run, and the same taken up again after an update that does not hold any more."""
    (tmp_path / "run").mkdir()
    argv = [sys.executable, "-c", TELL_TWICE, kind, str(tmp_path / "run")]
    away = ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL")
    env = {name: value for name, value in os.environ.items() if name not in away}
    env |= {"PYTHONPATH": os.pathsep.join(path or "." for path in sys.path), **variables}
    return subprocess.run(
        argv, env=env, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )


def test_figures_are_numbers_by_name():
    found = numbers(row(1, None))
    assert found["episodes"] == 4.0 and found["stops/agent"] == 3.0
    assert not {"mean_reward", "fingerprint", "update", "format", "loss"} & set(found)


def test_tensorboard_reads_what_was_told_and_after_a_crash_what_holds(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def told():
        events = EventAccumulator(str(tmp_path / "tensorboard"))
        events.Reload()
        return [(event.step, round(event.value, 3)) for event in events.Scalars("mean_reward")]

    with tracking(Tracker.TENSORBOARD, tmp_path, {}, done=0) as tell:
        for update in (1, 2, 3):
            tell(row(update, update / 10))
    assert told() == [(1, 0.1), (2, 0.2), (3, 0.3)]
    with tracking(Tracker.TENSORBOARD, tmp_path, {}, done=2) as tell:  # 3 is made again
        tell(row(3, 0.9))
    assert told() == [(1, 0.1), (2, 0.2), (3, 0.9)]


def test_trackio_holds_what_was_told_and_prints_nothing_on_stdout(tmp_path):
    pytest.importorskip("trackio", reason="pip install trackio")
    # Where it keeps its data is settled when it is imported: so in a process of its own.
    done = told_apart(tmp_path, "trackio", TRACKIO_DIR=str(tmp_path / "kept"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    with closing(sqlite3.connect(tmp_path / "kept" / f"{PROJECT}.db")) as kept:
        rows = kept.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
        ((config,),) = kept.execute("SELECT config FROM configs").fetchall()
    assert {name for name, *_ in rows} == {run_name(tmp_path / "run")}
    told = [(step, json.loads(values)["mean_reward"]) for _, step, values in rows]
    assert told == [(1, 0.1), (2, 0.2), (2, 0.9), (3, 0.4)]  # 2 was made again
    assert json.loads(config)["train.lr"] == 1e-6


def test_wandb_offline_holds_what_was_told_and_prints_nothing_on_stdout(tmp_path):
    pytest.importorskip("wandb", reason="pip install wandb")
    done = told_apart(tmp_path, "wandb", WANDB_MODE="offline")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb"))
    assert {file.stem for file in files} == {f"run-{run_name(tmp_path / 'run')}"}
    kept = b"".join(file.read_bytes() for file in files)
    for value in (b"0.1", b"0.2", b"0.9", b"0.4"):
        assert kept.count(b"mean_reward") >= 4 and value in kept
    assert b"train.lr" in kept


LIKE_WANDB = """
import json

steps, told, drawn_by = [], [], {}


def init(**_):
    steps.append(steps[-1] + 1 if steps else 0)  # a resumed run goes on after its last step


def define_metric(name, step_metric=None):
    drawn_by[name] = step_metric


def log(figures, step=None):
    step = steps[-1] + 1 if step is None else step
    if step >= steps[-1]:  # else it warns, and throws them away
        steps.append(step)
        told.append(figures)


def finish():
    print("told " + json.dumps([told, drawn_by]))
"""


def test_wandb_throws_nothing_away_that_a_resumed_run_tells(tmp_path):
    (tmp_path / "double").mkdir()
    (tmp_path / "double" / "wandb.py").write_text(LIKE_WANDB)
    path = os.pathsep.join([str(tmp_path / "double"), *(path or "." for path in sys.path)])
    done = told_apart(tmp_path, "wandb", PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    last = [line for line in done.stderr.splitlines() if line.startswith("told ")][-1]
    told, drawn_by = json.loads(last.removeprefix("told "))
    assert [(figures["update"], figures["mean_reward"]) for figures in told] == [
        (1, 0.1), (2, 0.2), (2, 0.9), (3, 0.4),
    ]  # fmt: skip
    assert drawn_by["*"] == "update"


def test_wandb_without_a_login_is_one_line(tmp_path):
    pytest.importorskip("wandb", reason="pip install wandb")
    done = told_apart(tmp_path, "wandb", WANDB_MODE="online", HOME=str(tmp_path))
    assert done.returncode == 2
    assert "which does not begin (No API key" in done.stderr
    assert "wandb login, or set WANDB_MODE=offline" in done.stderr


@pytest.mark.parametrize("kind", [Tracker.WANDB, Tracker.TRACKIO, Tracker.TENSORBOARD])
def test_a_missing_tracker_is_one_line(tmp_path, kind):
    try:
        __import__(kind.value)
    except ImportError:
        pass
    else:
        pytest.skip(f"{kind.value} is installed here")
    with (
        pytest.raises(UsageError, match=f"pip install {kind.value}, or say --train.tracker none"),
        tracking(kind, tmp_path, {}, done=0),
    ):
        pass


def test_a_run_and_its_rounds_have_names_of_their_own(tmp_path):
    runs = [tmp_path / "a", tmp_path / "a" / "rounds" / "2", tmp_path / "b" / "rounds" / "2"]
    names = [run_name(run) for run in runs]
    assert len(set(names)) == 3 and names[1].startswith("a-2-") and names[0].startswith("a-")


def test_none_is_told_nothing(tmp_path):
    with tracking(Tracker.NONE, tmp_path, {}, done=0) as tell:
        tell(row(1, 0.5))
    assert not list(tmp_path.iterdir())
