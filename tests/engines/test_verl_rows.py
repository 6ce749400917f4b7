"""What an update on a cluster leaves: rows, episodes as verl holds them. Needs no verl but where
it says so."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tadpole.config import load
from tadpole.outcome import GradeStatus, Outcome, StopReason
from tadpole.rl.provenance import digest
from tadpole.rundir import RunDir
from tadpole.trace import Attempt, Grade, Tokens, Trace, Turn

verl = pytest.importorskip(
    "verl", reason="verl is not installed: pip install 'tadpole[verl]', in its own environment"
)
pytestmark = pytest.mark.slow


def trace(versions=(2, 3), ids=(1, 2, 3, 4), mask=(0, 1, 0, 1)):
    count = iter(versions)
    return Trace(
        task="t", policy="b+2.0", seed=0, system="", statement="s",
        turns=(Turn(text="", generated_tokens=sum(mask)),), stop=StopReason.AGENT,
        tokens=Tokens(
            ids=ids, loss_mask=mask, logprobs=tuple(-0.5 * m for m in mask),
            versions=tuple(next(count) if m else -1 for m in mask),
        ),
    )  # fmt: skip


def attempt(path, reward=1.0):
    outcome = Outcome.RESOLVED if reward else Outcome.WRONG_PATCH
    return Attempt(
        task="t", task_name="t", policy="b+2.0", sample=0, stop=StopReason.AGENT, outcome=outcome,
        reward=reward, turns=1, generated_tokens=2, seconds=1.0, trace=path,
        grade=Grade(status=GradeStatus.GRADED, resolved=bool(reward)),
    )  # fmt: skip


def test_a_row_holds_staleness_dropped_share_and_gap(tmp_path):
    from tadpole.engines.verl import rows

    run = RunDir.create(tmp_path / "run", load())
    traces = [trace((2, 3)), trace((3, 4))]
    made = [attempt(run.save_trace(t, f"x/{k}"), 1.0 - k) for k, t in enumerate(traces)]
    with ThreadPoolExecutor(1) as pool:
        trained = rows.begun(pool, run, made, 5).result()
    # update 5 trains version 4: lags 2, 1, 1, 0
    assert (trained.tokens, trained.lag_mean, trained.lag_max) == (4, 1.0, 2)
    figures = {
        rows.GAPS: 0.02, rows.DROPPED: 0.5, rows.TOKENS: 2.0, "actor/grad_norm": 0.25,
        "actor/loss": -0.1, rows.FILTERED: 3, rows.STALE: 2, rows.FAILED: 1,
        rows.REWARDS: {0.0: 2, 1.0: 1},
    }  # fmt: skip
    row = rows.row_of(made, trained, figures, update=5, fingerprint="b+5.0", groups=1)
    assert (row.groups, row.dropped_groups, row.solved_groups) == (4, 3, 1)
    assert (row.stale_groups, row.broken_groups) == (2, 1)
    assert (row.mean_abs_pq, row.dropped_share, row.lag_mean) == (0.01, 0.25, 1.0)
    assert row.digest == digest(traces) and row.mean_reward == 0.5 and not row.skipped
    broken = rows.row_of(made, trained, figures | {"actor/grad_norm": float("nan")},
                         update=5, fingerprint="", groups=1)  # fmt: skip
    assert "not finite" in broken.skipped


def test_an_episode_keeps_its_tokens():
    from tadpole.engines.verl.leafloop import output_of

    out = output_of(attempt("x"), trace((2, 3)), filler=9)
    assert (out.prompt_ids, out.response_ids, out.response_mask) == ([1], [2, 3, 4], [1, 0, 1])
    assert out.response_logprobs == [-0.5, 0.0, -0.5]
    assert out.extra_fields["reward_extra_info"] == {"raw_reward": 1.0}
    assert (out.extra_fields["min_global_steps"], out.extra_fields["max_global_steps"]) == (2, 3)
    assert Attempt.model_validate_json(out.extra_fields["attempt"]) == attempt("x")


@pytest.mark.parametrize("ids", [(), (1, 2)])
def test_an_episode_without_a_sampled_token_carries_no_loss(ids):
    from tadpole.engines.verl.leafloop import output_of

    out = output_of(attempt("x", 0.0), trace((), ids, (0,) * len(ids)), filler=9)
    assert out.response_mask == [0] and out.response_ids == [9]
    assert out.prompt_ids == list(ids) or [9]


def test_a_compacted_episode_is_refused():
    from tadpole.engines.verl.leafloop import output_of

    compacted = trace().model_copy(update={"earlier": (Tokens(),)})
    with pytest.raises(ValueError, match="compacted"):
        output_of(attempt("x"), compacted, filler=9)
