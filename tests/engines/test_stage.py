"""What a climb on verl is given and what is taken over from it; verl itself is not needed."""

import importlib.util
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest
import yaml

from tadpole.cli.main import run as tadpole
from tadpole.config import load
from tadpole.engines.verl import stage
from tadpole.engines.verl.places import Names, Places
from tadpole.engines.verl.playing import playground
from tadpole.errors import RunError, TrainerError, UsageError
from tadpole.evals.policies import PolicyRole, PolicyRow, note_policy
from tadpole.job import Job
from tadpole.models.location import weights_hash
from tadpole.pilot import taskdir
from tadpole.pilot.split import Part, Place, Split, save_split
from tadpole.progress import Progress
from tadpole.rl.checkpoint import checkpoints, read_state
from tadpole.rl.metrics import TABLE, UpdateRow
from tadpole.rundir import RunDir
from tadpole.settings import ProfileName, Tracker
from tadpole.workshop import Workshop
from tests.rl.climbing import tasks
from tests.tiny import byte_tokenizer, llama


@pytest.fixture
def run(tmp_path):
    return RunDir.create(tmp_path / "run", load())


@pytest.fixture
def places(run):
    return Places.of(run.path)


def export(places, update, seed):
    target = places.states / f"global_step_{update}" / "actor" / "huggingface"
    llama(seed).save_pretrained(target)
    byte_tokenizer().save_pretrained(target)
    (places.states / stage.LATEST).write_text(str(update))


def named(places, **kwargs):
    places.root.mkdir(parents=True, exist_ok=True)
    names = Names(base="base", incarnation=0, **kwargs)
    places.names.write_text(names.model_dump_json())


def test_exports_become_a_chain_of_checkpoints(run, places):
    named(places)
    export(places, 10, 1)
    export(places, 20, 2)
    made = stage.adopt(places, run, "base", ProfileName.COMPACT)
    states = [read_state(path) for path in checkpoints(run.path / "checkpoints")]
    assert made.name == "update-00020" and [state.update for state in states] == [10, 20]
    assert [state.fingerprint for state in states] == ["base+10.0", "base+20.0"]
    assert {state.profile for state in states} == {ProfileName.COMPACT}
    assert [state.parent for state in states] == ["base", states[0].weights]
    assert states[1].weights == weights_hash(made)
    assert (made / "tokenizer.json").exists()


def test_taking_over_again_changes_nothing_and_adds_what_is_new(run, places):
    named(places)
    export(places, 10, 1)
    first = stage.adopt(places, run, "base")
    before = (first / "tadpole.json").stat().st_mtime_ns
    assert stage.adopt(places, run, "base") == first
    assert (first / "tadpole.json").stat().st_mtime_ns == before
    export(places, 20, 2)
    assert stage.adopt(places, run, "base").name == "update-00020"


def test_an_export_that_verl_does_not_count_is_not_taken_over(run, places):
    """A kill came before verl had noted it; then that update is made again, by other weights."""
    named(places)
    export(places, 20, 2)
    export(places, 10, 1)  # where it stands
    made = stage.adopt(places, run, "base")
    states = [read_state(path) for path in checkpoints(run.path / "checkpoints")]
    assert made.name == "update-00010" and [state.update for state in states] == [10]
    export(places, 20, 3)
    assert stage.adopt(places, run, "base").name == "update-00020"
    assert read_state(run.path / "checkpoints" / "update-00020").parent == states[0].weights


def test_an_update_that_was_made_again_takes_the_place_of_the_first(run, places):
    """Who removed verl's number, as its error advises, begins again."""
    named(places)
    export(places, 10, 1)
    export(places, 20, 2)
    stage.adopt(places, run, "base")
    (places.states / stage.LATEST).unlink()
    with pytest.raises(TrainerError, match="left no weights"):
        stage.adopt(places, run, "base")
    places.names.write_text(Names(base="base", incarnation=1).model_dump_json())
    export(places, 10, 3)
    made = stage.adopt(places, run, "base")
    state = read_state(made)
    assert (state.update, state.fingerprint, state.parent) == (10, "base+10.1", "base")
    assert state.weights == weights_hash(made)


def test_a_checkpoint_without_an_export_is_none(run, places):
    named(places)
    (places.states / "global_step_10" / "actor").mkdir(parents=True)
    with pytest.raises(TrainerError, match="left no weights"):
        stage.adopt(places, run, "base")


@pytest.mark.parametrize("cut", ["", "1x"])
def test_a_number_that_a_kill_cut_off_is_told(places, cut):
    places.states.mkdir(parents=True)
    (places.states / stage.LATEST).write_text(cut)
    with pytest.raises(RunError, match=r"holds no number: write that of the last whole"):
        stage.standing(places)


@pytest.fixture
def job(run):
    """A calibrated run of three tasks that climbs two updates on verl."""
    made = tasks(3)
    for task in made:
        taskdir.save(task, run.path / "tasks")
    split = [Place(name=t.name, id=t.id, rung=0, part=Part.TRAIN, passes=1, valid=2) for t in made]
    save_split(run, Split(places=tuple(split)))
    note_policy(run, PolicyRow(role=PolicyRole.BEFORE, fingerprint="base"))
    config = load(
        {"run.dir": str(run.path), "policy.model": "x/y", "cluster.trainer": "verl",
         "train.updates": "2"}
    )  # fmt: skip
    run.save_config(config)
    workshop = Workshop.open(run.path / "cache", config.sandbox, config.grading.tier)
    return Job(config, run, workshop, Progress.silent())


async def test_a_climb_that_is_done_starts_nothing(job, run, places):
    """Ray and all rollout engines would start, play the episodes of a warm-up, and end."""
    named(places)
    export(places, 2, 1)
    made = await stage.train(job)
    assert read_state(made).fingerprint == "base+2.0"
    assert not places.log.exists() and not places.tasks.exists()
    again = await stage.train(job)
    assert again == made


def test_all_episodes_of_a_process_share_one_playground(job):
    """It bounds the episodes at a time; threads ask for it before the first has made it."""
    places = Places.of(job.rundir.path)
    named(places)
    gate = Barrier(8)

    def ask(_):
        gate.wait()
        return playground(str(job.rundir.path))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(8)))
    assert all(one is found[0] for one in found)
    assert {task.name for task in found[0].tasks.values()} == {"t0", "t1", "t2"}


def test_it_goes_on_where_verl_stands(run, places):
    pytest.importorskip("pyarrow")
    assert stage.standing(places) == 0
    for update in (1, 2, 3):
        row = UpdateRow(update=update, episodes=1, mean_reward=0.0, fingerprint=f"base+{update}.0")
        run.append(TABLE, row)
    export(places, 2, 1)
    stage.prepare(places, run, tasks(2), "base")
    names = Names.model_validate_json(places.names.read_bytes())
    assert names.made == ("base+1.0", "base+2.0")


def test_what_the_cluster_reads(run, places):
    parquet = pytest.importorskip("pyarrow.parquet")
    made = tasks(3)
    stage.prepare(places, run, made, "base")
    rows = parquet.read_table(places.tasks).to_pylist()
    assert [row["extra_info"]["task"] for row in rows] == [task.id for task in made]
    text = json.dumps(rows)
    for task in made:
        assert task.statement in text
        assert not any(test in text for test in task.fail_to_pass)  # the grader alone knows
    (loop,) = yaml.safe_load(places.loop.read_text())
    assert loop == {"name": "leaf", "_target_": "tadpole.engines.verl.leafloop.LeafAgentLoop"}


def test_the_log_is_quoted_where_it_names_an_error(places):
    places.root.mkdir(parents=True)
    assert "it printed nothing" in stage.last_error(places.log)
    places.log.write_text("starting\nValueError: no such thing\nshutting down\n")
    assert stage.last_error(places.log).startswith("ValueError: no such thing (")
    places.log.write_text("starting\n\n")
    assert stage.last_error(places.log).startswith("starting (")


@pytest.mark.parametrize(
    ("codes", "starts", "code"), [([75, 75, 0], 3, 0), ([1, 0], 1, 1), ([75] * 5, 3, 75)]
)
async def test_a_ray_that_did_not_start_is_started_again(tmp_path, codes, starts, code):
    """Whatever else ends the driver is an end."""
    log = tmp_path / "starts"
    driver = f"n = open({str(log)!r}, 'a+'); n.write('x'); raise SystemExit({codes}[n.tell() - 1])"
    assert (await stage.driven([sys.executable, "-I", "-S", "-c", driver])).code == code
    assert len(log.read_text()) == starts


WRITES_ROWS = """
import sys
from tadpole.rl.metrics import TABLE, UpdateRow
from tadpole.rundir import RunDir

for update in (2, 3):
    RunDir.open(sys.argv[1]).append(TABLE, UpdateRow(update=update, episodes=1, mean_reward=0.5))
"""


async def test_a_tracker_is_told_of_each_update_once(job, run, places):
    places.states.mkdir(parents=True)
    run.append(TABLE, UpdateRow(update=1, episodes=1, mean_reward=0.1))  # of a process before
    told = []
    driver = [sys.executable, "-c", WRITES_ROWS, str(run.path)]
    await stage.watched(job, places, driver, told.append)
    assert [row.update for row in told] == [2, 3]


async def test_a_tracker_that_is_not_installed_is_told_before_anything(job, run, places):
    if importlib.util.find_spec("trackio") is not None:
        pytest.skip("trackio is installed here")
    train = job.config.train.model_copy(update={"tracker": Tracker.TRACKIO})
    asked = replace(job, config=job.config.model_copy(update={"train": train}))
    with pytest.raises(UsageError, match=r"pip install trackio, or say --train\.tracker none"):
        await stage.train(asked)
    assert not places.root.exists()


@pytest.mark.parametrize(
    ("model", "line"), [("embedded", "trains a Hugging Face"), ("openai:x", "not trained")]
)
def test_what_it_cannot_train_is_told_before_anything(model, line, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    RunDir.create(tmp_path / "run", load({"run.dir": str(tmp_path / "run")}))
    words = ["--run", str(tmp_path / "run"), "--engine", "verl", "--model", model]
    assert tadpole(["train", *words]) == 2
    assert "trains a Hugging Face directory or name" in capsys.readouterr().err
