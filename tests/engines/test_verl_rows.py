"""What an update on a cluster leaves: rows, episodes as verl holds them. Needs no verl but where
it says so."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tadpole.cli.main import run as tadpole
from tadpole.config import load
from tadpole.engines.verl import rows, stage
from tadpole.engines.verl.places import SESSIONS, Names, Places
from tadpole.engines.verl.rolled import Rolled
from tadpole.evals.policies import PolicyRole, PolicyRow, note_policy
from tadpole.job import Job
from tadpole.outcome import GradeStatus, Outcome, StopReason
from tadpole.pilot import taskdir
from tadpole.pilot.split import Part, Place, Split, save_split
from tadpole.progress import Progress
from tadpole.rl.metrics import ROLLOUTS, TABLE, UpdateRow
from tadpole.rl.provenance import digest
from tadpole.rundir import RunDir
from tadpole.trace import Attempt, Grade, Tokens, Trace, Turn
from tadpole.validation import note_trained
from tests.rl.climbing import tasks
from tests.tiny import llama

needs_verl = pytest.mark.skipif(
    importlib.util.find_spec("verl") is None,
    reason="verl is not installed: pip install 'tadpole[verl]' in an environment of its own",
)


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
    run = RunDir.create(tmp_path / "run", load())
    traces = [trace((2, 3)), trace((3, 4))]
    made = [attempt(run.save_trace(t, f"x/{k}"), 1.0 - k) for k, t in enumerate(traces)]
    with ThreadPoolExecutor(1) as pool:
        trained = rows.begun(pool, run, made, 5).result()
    # update 5 trains version 4: lags 2, 1, 1, 0
    assert (trained.tokens, trained.lag_mean, trained.lag_max) == (4, 1.0, 2)
    figures = {
        rows.GAPS: 0.02, rows.DROPPED: 0.5, rows.TOKENS: 2.0, "actor/grad_norm": 0.25,
        "actor/loss": -0.1, rows.STALE: 2, rows.FAILED: 1,
    }  # fmt: skip
    row = rows.row_of(made, trained, figures, update=5, fingerprint="b+5.0", groups=1)
    assert (row.groups, row.dropped_groups, row.solved_groups) == (1, 0, 0)
    assert (row.stale_groups, row.broken_groups) == (2, 1)
    assert (row.mean_abs_pq, row.dropped_share, row.lag_mean) == (0.01, 0.25, 1.0)
    assert row.digest == digest(traces) and row.mean_reward == 0.5 and not row.skipped
    broken = rows.row_of(made, trained, figures | {"actor/grad_norm": float("nan")},
                         update=5, fingerprint="", groups=1)  # fmt: skip
    assert "not finite" in broken.skipped


def of_drawing(drawing, session, reward=0.0, **more):
    made = {"sample": drawing * SESSIONS + session} | more
    return attempt("x", reward).model_copy(update=made)


def test_a_row_is_about_all_groups_that_were_rolled_out(tmp_path):
    """A policy that solves every other task has a mean of 0.5, whichever groups have signal."""
    run = RunDir.create(tmp_path / "run", load())
    run.append(ROLLOUTS, of_drawing(1, 0, 1.0))  # of a process before
    rolled = Rolled(run, 2)
    assert rolled.without_signal() == []
    broken = {"outcome": Outcome.INFRASTRUCTURE}
    played = [
        of_drawing(2, 0, 1.0), of_drawing(3, 0, 0.0), of_drawing(2, 1, 1.0, turns=5),
        of_drawing(4, 0, 1.0), of_drawing(3, 1, None, **broken), of_drawing(4, 1, 0.0),
        of_drawing(1, 1, 1.0), of_drawing(5, 0, 0.0),
    ]  # fmt: skip
    for one in played:
        run.append(ROLLOUTS, one)
    alike = rolled.without_signal()
    assert [[one.sample // SESSIONS for one in group] for group in alike] == [[2, 2]]
    trained = rows.Trained(tokens=4, digest="", lag_mean=0.0, lag_max=0)
    mixed = [played[3], played[5]]
    row = rows.row_of(mixed, trained, figures(4), update=1, fingerprint="", groups=1, alike=alike)
    assert (row.groups, row.dropped_groups, row.solved_groups, row.episodes) == (2, 1, 1, 4)
    assert (row.mean_reward, row.mean_turns) == (0.75, 2.0)
    assert row.stops == {StopReason.AGENT: 4} and len(row.traces) == 2
    run.append(ROLLOUTS, of_drawing(3, 1, 0.0))  # made again
    run.append(ROLLOUTS, of_drawing(5, 1, 0.0))
    with run.table(ROLLOUTS).open("ab") as table:
        table.write(b'{"half a row')
    assert [group[0].sample // SESSIONS for group in rolled.without_signal()] == [3, 5]
    assert rolled.without_signal() == []


def figures(tokens):
    return {rows.GAPS: 0.02, rows.DROPPED: 0.0, rows.TOKENS: float(tokens), "actor/loss": -0.1,
            "actor/grad_norm": 0.25}  # fmt: skip


@pytest.fixture
def climbed(tmp_path):
    """A run of three updates with lags 0, 1, 1, as verl leaves it, killed after the second.

    Update 2 is made twice: the first time its weights were lost.
    """
    path = tmp_path / "run"
    config = load({"run.dir": str(path), "policy.model": "x/y", "train.max_lag": "1"})
    run = RunDir.create(path, config)
    made = tasks(2)
    for task in made:
        taskdir.save(task, run.path / "tasks")
    split = [Place(name=t.name, id=t.id, rung=0, part=Part.TRAIN, passes=1, valid=2) for t in made]
    save_split(run, Split(places=tuple(split)))
    note_policy(run, PolicyRow(role=PolicyRole.BEFORE, fingerprint="b"))
    places = Places.of(run.path)
    for incarnation, update, begun in ((0, 1, 0), (0, 2, 0), (1, 2, 0), (1, 3, 1)):
        names = Names.of("b", run.rows(TABLE, UpdateRow), min(update - 1, 1), incarnation)
        group = []
        for sample, task in enumerate(made):
            one = trace((begun, update - 1)).model_copy(
                update={"task": task.id, "policy": names.of_version(begun)}
            )
            where = run.save_trace(one, f"train/{incarnation}-{update}-{sample}")
            row = attempt(where, 1.0 - sample).model_copy(
                update={"task": task.id, "task_name": task.name, "policy": one.policy}
            )
            run.append(ROLLOUTS, row)
            group.append(row)
        trained = rows.trained_on(run, group, update)
        made_by = names.of_version(update)
        run.append(TABLE, rows.row_of(group, trained, figures(4), update=update,
                                      fingerprint=made_by, groups=1))  # fmt: skip
    places.root.mkdir()
    places.names.write_text(names.model_dump_json())
    export = places.states / "global_step_3" / "actor" / "huggingface"
    llama(1).save_pretrained(export)
    (places.states / stage.LATEST).write_text("3")
    job = Job(config, run, workshop=None, progress=Progress.silent())  # nothing is played here
    note_trained(job, stage.adopt(places, run, "b"))
    return run


def test_the_audit_reads_such_a_run_as_any_other(climbed, capsys):
    assert tadpole(["audit", "provenance", str(climbed.path)]) == 0
    assert capsys.readouterr().out.startswith("yes: all 12 tokens of 6 episodes in 3 updates")
    assert [row.lag_max for row in climbed.rows(TABLE, UpdateRow)] == [0, 1, 1, 1]


@pytest.mark.slow
def test_the_report_reads_such_a_run_as_any_other(climbed, capsys):
    assert tadpole(["report", str(climbed.path)]) == 0
    page = Path(capsys.readouterr().out.split()[-1]).read_text()
    assert "0.0050" in page  # mean |p - q|


def test_a_foreign_episode_of_such_a_run_is_found(climbed, capsys):
    name = climbed.rows(TABLE, UpdateRow)[-1].traces[0]
    foreign = climbed.load_trace(name).model_copy(update={"policy": "b+2.0"})  # the lost weights
    climbed.save_trace(foreign, name.removeprefix("traces/").removesuffix(".json.gz"))
    assert tadpole(["audit", "provenance", str(climbed.path)]) == 1
    assert capsys.readouterr().out.startswith("no: update 3")


@pytest.mark.slow
@needs_verl
def test_an_episode_keeps_its_tokens():
    from tadpole.engines.verl.leafloop import output_of

    out = output_of(attempt("x"), trace((2, 3)), filler=9)
    assert (out.prompt_ids, out.response_ids, out.response_mask) == ([1], [2, 3, 4], [1, 0, 1])
    assert out.response_logprobs == [-0.5, 0.0, -0.5]
    assert out.extra_fields["reward_extra_info"] == {"raw_reward": 1.0}
    assert (out.extra_fields["min_global_steps"], out.extra_fields["max_global_steps"]) == (2, 3)
    assert Attempt.model_validate_json(out.extra_fields["attempt"]) == attempt("x")


@pytest.mark.slow
@needs_verl
@pytest.mark.parametrize("ids", [(), (1, 2)])
def test_an_episode_without_a_sampled_token_carries_no_loss(ids):
    from tadpole.engines.verl.leafloop import output_of

    out = output_of(attempt("x", 0.0), trace((), ids, (0,) * len(ids)), filler=9)
    assert out.response_mask == [0] and out.response_ids == [9]
    assert out.prompt_ids == list(ids) or [9]


@pytest.mark.slow
@needs_verl
def test_a_compacted_episode_is_refused():
    from tadpole.engines.verl.leafloop import output_of

    compacted = trace().model_copy(update={"earlier": (Tokens(),)})
    with pytest.raises(ValueError, match="compacted"):
        output_of(attempt("x"), compacted, filler=9)
