"""A tracker is told every figure of an update, and a missing one is one line."""

import pytest

from tadpole.errors import UsageError
from tadpole.outcome import StopReason
from tadpole.rl.metrics import UpdateRow
from tadpole.rl.tracker import numbers, tracking
from tadpole.settings import Tracker


def row(update, reward):
    return UpdateRow(
        update=update, episodes=4, mean_reward=reward, fingerprint="f", stops={StopReason.AGENT: 3}
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


def test_none_is_told_nothing(tmp_path):
    with tracking(Tracker.NONE, tmp_path, {}, done=0) as tell:
        tell(row(1, 0.5))
    assert not list(tmp_path.iterdir())
