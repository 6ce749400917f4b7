"""What the policy did not sample itself is found in the run, by the first violation."""

import asyncio
import json
import shutil

import pytest
from click.testing import CliRunner

from tadpole.cli.audit import command
from tadpole.config import Config
from tadpole.errors import RunError
from tadpole.evals.policies import PolicyRole, PolicyRow, note_policy
from tadpole.pilot.split import Part, Place, Split, save_split
from tadpole.rl.checkpoint import STATE, checkpoints
from tadpole.rl.metrics import ROLLOUTS, TABLE, UpdateRow
from tadpole.rl.provenance import digest, provenance, told
from tadpole.rundir import RunDir
from tadpole.trace import Attempt
from tests.rl.climbing import make_climb, tasks


@pytest.fixture(scope="module", params=[0, 1], ids=["lag0", "lag1"])
def whole(request, tmp_path_factory):
    """A run of four updates."""
    path = tmp_path_factory.mktemp("provenance") / "run"
    climb = make_climb(path, 4, {"max_lag": request.param, "max_mean_gap": 1.0})
    places = [
        Place(name=t.name, id=t.id, rung=0, part=Part.TRAIN, passes=1, valid=2) for t in tasks()
    ]
    save_split(climb.rundir, Split(places=tuple(places)))
    note_policy(climb.rundir, PolicyRow(role=PolicyRole.BEFORE, fingerprint="base"))
    asyncio.run(climb.run(tasks(), lambda row: None))
    climb.policy.close()
    return path, request.param


@pytest.fixture
def trained(whole, tmp_path):
    """A copy of it, to be tampered with."""
    path, lag = whole
    return RunDir.open(shutil.copytree(path, tmp_path / "run")), lag


def rewrite(rundir, table, model, change):
    """Pass every row of a table through ``change``; None drops it."""
    rows = [change(row) for row in rundir.rows(table, model)]
    rundir.table(table).write_text(
        "".join(row.model_dump_json() + "\n" for row in rows if row is not None)
    )


def of_update(rundir, number):
    return [row for row in rundir.rows(TABLE, UpdateRow) if row.update == number][-1]


def replace_trace(rundir, name, **changes):
    trace = rundir.load_trace(name).model_copy(update=changes)
    rundir.save_trace(trace, name.removeprefix("traces/").removesuffix(".json.gz"))


def test_a_climb_is_its_own(trained):
    rundir, lag = trained
    found = provenance(rundir, lag)
    assert found.violation == ""
    assert (found.updates, found.checkpoints, found.base) == (4, 2, "base")
    assert found.tokens == found.episodes > 0  # one token each
    assert told(found).startswith(f"yes: all {found.tokens} tokens of {found.episodes} episodes")


def test_it_is_a_verb(trained, tmp_path):
    rundir, lag = trained
    config = Config()
    rundir.save_config(
        config.model_copy(update={"train": config.train.model_copy(update={"max_lag": lag})})
    )
    done = CliRunner().invoke(command, ["provenance", str(rundir.path)], standalone_mode=False)
    assert (done.return_value, done.output[:4]) == (0, "yes:")
    name = of_update(rundir, 2).traces[0]
    replace_trace(rundir, name, policy="another-model")
    done = CliRunner().invoke(
        command, ["provenance", str(rundir.path), "--json"], standalone_mode=False
    )
    said = json.loads(done.output)
    assert done.return_value == 1 and said["own"] is False
    assert said["violation"].startswith(f"update 2, {name}")


def test_a_foreign_trajectory_put_in_anothers_place(trained):
    rundir, lag = trained
    first, second = of_update(rundir, 3).traces[:2]
    tokens = rundir.load_trace(first).tokens
    other = tokens.model_copy(update={"ids": (*tokens.ids[:-1], (tokens.ids[-1] + 2) % 256)})
    replace_trace(rundir, first, tokens=other)
    assert "update 3 was trained on other tokens" in provenance(rundir, lag).violation
    assert second != first


def test_a_foreign_trajectory_that_was_trained_on(trained):
    """It got in before the update: row, trace and digest agree, but another model made it."""
    rundir, lag = trained
    name = of_update(rundir, 3).traces[0]
    replace_trace(rundir, name, policy="teacher-32b")

    def enter(row):
        same = row.trace == name
        return row.model_copy(update={"policy": "teacher-32b"}) if same else row

    rewrite(rundir, ROLLOUTS, Attempt, enter)
    said = provenance(rundir, lag).violation
    assert f"update 3, {name}: begun by teacher-32b, no policy of this climb" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"versions": -1}, "is of version -1"),
        ({"versions": 9}, "is of version 9"),
        ({"logprobs": 0.5}, "log-probability 0.5"),
        ({"loss_mask": 0}, "is not marked as generated"),
    ],
)
def test_tokens_that_nobody_sampled(trained, change, said):
    rundir, lag = trained
    name = of_update(rundir, 2).traces[0]
    tokens = rundir.load_trace(name).tokens
    changed = {key: (*getattr(tokens, key)[:-1], value) for key, value in change.items()}
    replace_trace(rundir, name, tokens=tokens.model_copy(update=changed))
    rewrite(
        rundir,
        TABLE,
        UpdateRow,
        lambda row: row.model_copy(update={"digest": digest(map(rundir.load_trace, row.traces))}),
    )
    assert said in provenance(rundir, lag).violation


def test_a_prompt_that_is_trained_on(trained):
    """Text that somebody else wrote, marked as if the policy had generated it."""
    rundir, lag = trained
    name = of_update(rundir, 2).traces[0]
    tokens = rundir.load_trace(name).tokens
    version = tokens.versions[-1]
    marked = {
        "loss_mask": (*tokens.loss_mask[:-2], 1, 1),
        "versions": (*tokens.versions[:-2], version, version),
    }
    replace_trace(rundir, name, tokens=tokens.model_copy(update=marked))
    assert "2 tokens are marked as generated, 1 were" in provenance(rundir, lag).violation


def test_a_task_that_is_held_out(trained):
    rundir, lag = trained
    places = [
        Place(name=t.name, id=t.id, rung=0, passes=1, valid=2, part=part)
        for t, part in zip(tasks(), (Part.TRAIN, Part.HELD_OUT, Part.TRAIN), strict=True)
    ]
    save_split(rundir, Split(places=tuple(places)))
    assert "not a task to train on" in provenance(rundir, lag).violation


def test_an_attempt_that_the_run_does_not_have(trained):
    rundir, lag = trained
    name = of_update(rundir, 1).traces[0]
    rewrite(rundir, ROLLOUTS, Attempt, lambda row: None if row.trace == name else row)
    assert f"update 1, {name}: no attempt of this run" in provenance(rundir, lag).violation


def test_weights_that_another_put_there(trained):
    rundir, lag = trained
    last = checkpoints(rundir.path / "checkpoints")[-1]
    weights = last / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert "are not those that were written" in provenance(rundir, lag).violation


def test_trained_weights_that_are_gone_are_no_yes(trained):
    rundir, lag = trained
    note_policy(rundir, PolicyRow(role=PolicyRole.AFTER, fingerprint="trained", update=4))
    assert provenance(rundir, lag).violation == ""
    shutil.rmtree(rundir.path / "checkpoints")
    with pytest.raises(RunError, match="weights of update 4 are gone"):
        provenance(rundir, lag)


def test_a_checkpoint_of_another_line(trained):
    rundir, lag = trained
    state = checkpoints(rundir.path / "checkpoints")[-1] / STATE
    state.write_text(json.dumps({**json.loads(state.read_text()), "parent": "elsewhere"}))
    assert "made from elsewhere, not from" in provenance(rundir, lag).violation


def test_a_climb_that_began_with_other_weights(trained):
    rundir, lag = trained
    note_policy(rundir, PolicyRow(role=PolicyRole.BEFORE, fingerprint="elsewhere"))
    assert "begun by base, no policy of this climb" in provenance(rundir, lag).violation


def test_a_run_that_was_not_trained(tmp_path):
    rundir = RunDir.create(tmp_path / "new", Config())
    with pytest.raises(RunError, match="was not trained yet"):
        provenance(rundir, 0)


def test_the_digest_is_of_the_tokens_alone(trained):
    rundir, _ = trained
    trace = rundir.load_trace(of_update(rundir, 1).traces[0])
    assert digest([trace]) == digest([trace.model_copy(update={"seconds": 9.0})])
    tokens = trace.tokens.model_copy(update={"logprobs": (*trace.tokens.logprobs[:-1], -0.123)})
    assert digest([trace]) != digest([trace.model_copy(update={"tokens": tokens})])
