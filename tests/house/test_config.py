"""Configuration: precedence, near names, one clear line, a dry run that loads to itself."""

from pathlib import Path

import pytest
from synthetic import make_attempt, make_task

from tadpole.config import fields, load, open_run, presets, saved, values
from tadpole.errors import ConfigError, RunError
from tadpole.outcome import Outcome, Tier
from tadpole.pilot.journal import SETTINGS, Making
from tadpole.rundir import RunDir


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def opened(flags: dict[str, str]) -> RunDir:
    with open_run(load(flags)) as run:
        return run


def test_flags_beat_the_file_beats_the_preset_beats_the_defaults(tmp_path: Path):
    file = write(tmp_path / "my.toml", "[train]\nlr = 3e-5\nupdates = 7\n")
    config = load({"train.updates": "9"}, file=file, preset="quick")
    assert (config.train.updates, config.train.lr) == (9, 3e-5)
    assert config.train.groups == load(preset="quick").train.groups
    assert config.train.betas == (0.9, 0.98)


def test_published_values_are_the_defaults_for_another_model():
    config = load({"policy.model": "Qwen/Qwen3.5-4B"})
    train = config.train
    assert (train.groups, train.group_size, train.lr, train.updates) == (32, 8, 1e-6, 200)
    assert (config.leaf.max_context, config.leaf.max_turns) == (65_536, 75)
    assert (config.eval.temperature, config.eval.top_p, config.eval.top_k) == (0.6, 0.95, 20)
    sampling = config.sampling.at(5)
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1.0, 1.0, 0)
    assert load().leaf.profile == "compact"
    assert len(config.tasks.weights) == 6 and config.tasks.weights["single-site"] == 4


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (
            {"train.lrr": "1"},
            "unknown setting train.lrr in the command line; did you mean train.lr?",
        ),
        ({"trian.lr": "1"}, "did you mean train.lr?"),
        ({"train.temperature": "1"}, "did you mean sampling.temperature?"),
        ({"group_size": "1"}, "did you mean train.group_size?"),
        ({"zzz.qqq": "1"}, "see `tadpole train --help`"),
        ({"train.lr": "fast"}, "train.lr (from the command line): input should be a valid number"),
        ({"train.group_size": "1"}, "train.group_size"),
        ({"policy.dtype": "fp8"}, "'auto', 'float32' or 'bfloat16'"),
        ({"calibrate.low": "0.9", "calibrate.high": "0.1"}, "low 0.9 is above high 0.1"),
        (
            {"calibrate.samples": "3", "calibrate.low": "0.4", "calibrate.high": "0.6"},
            "no number of successes in 3 attempts lies between 0.4 and 0.6: raise samples",
        ),
        ({"calibrate.samples": "1"}, "no number of successes in 1 attempts"),
        ({"calibrate.aim": "middle", "calibrate.samples": "3"}, "between 0.375 and 0.625"),
        ({"train.length_from_update": "3", "train.length_floor": "0.2"}, "length_floor"),
        ({"train.betas": "0.9"}, "train.betas"),
        ({"train.lr": "nan"}, "train.lr"),
        ({"tasks.proposers": "histroy=2"}, "there is no proposer 'histroy': choose among single-"),
        ({"tasks.proposers": "rename=-1"}, "the weight of rename is no number of 0 or more"),
        ({"tasks.proposers": "rename,rename=2"}, "proposers names one of them twice"),
        ({"tasks.proposers": "rename=0"}, "gives every weight as 0"),
        ({"tasks.proposers": "rename"}, "only single-site bugs can be dictated"),  # embedded
    ],
)
def test_a_bad_setting_is_one_line_that_helps(flags: dict[str, str], line: str):
    with pytest.raises(ConfigError) as caught:
        load(flags)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[train]\nlrr = 1\n", "unknown setting train.lrr in"),
        ("lr = 1\n", "unknown setting lr in"),
        ("[train\n", "is not valid TOML"),
        pytest.param(f"x = {'[' * 9000}", "is not valid TOML: nested too deeply", id="deep"),
        pytest.param(f"x = {'9' * 5000}", "is not valid TOML: a number with too many", id="giant"),
        ("train = 3\n", "unknown setting train in"),
        ("[train.deep]\nlr = 1\n", "unknown setting train.deep"),
        ("[train]\nlr = [1]\n", "train.lr (from "),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, line: str):
    file = write(tmp_path / "my.toml", text)
    with pytest.raises(ConfigError) as caught:
        load(file=file)
    assert line in str(caught.value)
    assert "my.toml" in str(caught.value)


def test_missing_files_and_presets_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="no such configuration file"):
        load(file=tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(file=tmp_path)
    with pytest.raises(ConfigError, match="there are embedded, gpu-24, gpu-80, learn, published"):
        load(preset="fast")


@pytest.mark.parametrize("preset", presets())
def test_the_resolved_toml_loads_to_itself(tmp_path: Path, preset: str):
    config = load({"tasks.sources": "pypi:a, ./b", "train.shuffle_rewards": "true"}, preset=preset)
    assert saved(write(tmp_path / "x.toml", config.toml())) == config
    assert config.tasks.sources == ("pypi:a", "./b")


def test_a_secret_in_an_address_is_used_and_not_kept(tmp_path: Path):
    secret = "https://me:s3cret@example.org/a.git@main"
    at = {"run.dir": str(tmp_path / "run"), "tasks.sources": f"{secret},pypi:x"}
    config = load(at)
    assert config.tasks.sources == (secret, "pypi:x")
    run = opened(at)
    kept = saved(run.path / "config.toml").tasks.sources
    assert kept == ("https://example.org/a.git@main", "pypi:x")
    assert not any("s3cret" in str(part) for part in (config.toml(), values(config)))
    run.directory("tasks/a-0000")
    making = Making(source=kept[0], snapshot="s", seed=0, proposer="p", max_dictated=0)
    RunDir(run.path / "tasks").append(SETTINGS, making)
    opened(at)
    opened(at | {"tasks.sources": secret})


def test_every_setting_says_what_it_is():
    assert all(field.description for _, field in fields())


def test_a_run_may_change_a_setting_until_something_was_made_with_it(tmp_path: Path):
    at = {"run.dir": str(tmp_path / "run"), "eval.temperature": "0.6"}
    run = opened(at)
    opened(at | {"train.lr": "2e-5", "eval.samples": "3"})
    assert saved(run.path / "config.toml").train.lr == 2e-5
    run.append("eval", make_attempt(make_task(1), "p", 0, Outcome.RESOLVED))
    with pytest.raises(RunError, match=r"eval\.jsonl made with eval\.temperature = 0\.6, now 0\.9"):
        opened(at | {"train.lr": "2e-5", "eval.temperature": "0.9"})
    opened(at | {"train.lr": "3e-5", "eval.samples": "9", "run.concurrency": "1"})
    assert saved(run.path / "config.toml").eval.samples == 9


@pytest.mark.parametrize(
    "name, old, new, table",
    [
        ("run.seed", "1", "2", "calibration"),
        ("run.seed", "1", "2", "rollouts"),
        ("warmup.enabled", "off", "on", "calibration"),
        ("sandbox.image", "python:3.12", "python:3.13", "eval"),
        ("eval.temperature", "0.6", "0.7", "validation"),
    ],
)
def test_what_a_run_is_may_not_change_in_the_middle(tmp_path: Path, name, old, new, table):
    at = {"run.dir": str(tmp_path / "run")}
    opened(at | {name: new})
    run = opened(at | {name: old})  # nothing was made with it
    run.append(table, make_attempt(make_task(1), "p", 0, Outcome.RESOLVED))
    with pytest.raises(RunError, match=rf"{table}\.jsonl made with {name} = {old}, now {new}"):
        opened(at | {name: new})
    opened(at | {name: old})


def test_a_run_in_use_keeps_the_settings_of_who_uses_it(tmp_path: Path):
    at = {"run.dir": str(tmp_path / "run"), "train.lr": "1e-5"}
    with open_run(load(at)) as run:
        before = (run.path / "config.toml").read_bytes()
        with pytest.raises(RunError, match="in use by process"):
            opened(at | {"train.lr": "2e-5"})
        assert (run.path / "config.toml").read_bytes() == before
    opened(at | {"train.lr": "2e-5"})
    assert saved(run.path / "config.toml").train.lr == 2e-5


def test_two_that_begin_a_run_do_not_mix(tmp_path: Path):
    """The second finds the lock of the first before anything else is there."""
    path = tmp_path / "run"
    path.mkdir()
    with RunDir(path).lock():
        with pytest.raises(RunError, match="in use by process"):
            opened({"run.dir": str(path)})
        assert [entry.name for entry in path.iterdir()] == ["lock"]
    opened({"run.dir": str(path)})


def test_a_source_that_gave_nothing_may_be_corrected(tmp_path: Path):
    at = {"run.dir": str(tmp_path / "run"), "tasks.count": "4"}
    run = opened(at | {"tasks.sources": "mistyped"})
    (run.directory("tasks") / "lock").touch()
    at["tasks.sources"] = "right"
    opened(at)
    run.directory("tasks/lib-0000")
    with pytest.raises(RunError, match=r"holds tasks made with tasks\.sources = \['right'\]"):
        opened(at | {"tasks.sources": "other"})


def test_sources_may_come_and_go_but_for_those_that_tasks_were_made_of(tmp_path: Path):
    at = {"run.dir": str(tmp_path / "run"), "tasks.sources": "pypi:boltons,mistyped"}
    run = opened(at)
    run.directory("tasks/boltons-0000")
    making = Making(source="pypi:boltons", snapshot="s", seed=0, proposer="p", max_dictated=0)
    RunDir(run.path / "tasks").append(SETTINGS, making)
    at["tasks.sources"] = "right,pypi:boltons"
    opened(at)
    for refused in ("right", "pypi:toolz"):
        with pytest.raises(RunError, match=r"holds tasks made with tasks\.sources"):
            opened(at | {"tasks.sources": refused})
    run.write("split.json", b"{}")
    with pytest.raises(RunError, match=r"holds split\.json made with tasks\.sources"):
        opened(at | {"tasks.sources": "pypi:boltons"})


def test_more_tasks_and_another_band_are_possible_until_the_split(tmp_path: Path):
    at = {"run.dir": str(tmp_path / "run")}
    more = {"tasks.count": "9", "calibrate.low": "0.2", "tasks.held_out_share": "0.4"}
    run = opened(at)
    run.directory("tasks/lib-0000")
    run.append("calibration", make_attempt(make_task(1), "p", 0, Outcome.RESOLVED))
    opened(at | more)
    run.write("split.json", b"{}")
    for name in more:
        with pytest.raises(RunError, match=rf"holds split\.json made with {name}"):
            opened(at | more | {name: "1" if name == "tasks.count" else "0.3"})


def test_the_tier_is_a_number_on_the_command_line_in_a_file_and_in_what_is_kept(tmp_path):
    assert load().grading.tier is Tier.HARDENED  # the embedded model
    assert load(preset="published").grading.tier is Tier.CHALLENGED
    (tmp_path / "my.toml").write_text("[grading]\ntier = 3\n")
    for config in (load({"grading.tier": "3"}), load(file=tmp_path / "my.toml")):
        assert config.grading.tier is Tier.CHALLENGED
        (tmp_path / "kept.toml").write_text(config.toml())
        assert load(file=tmp_path / "kept.toml", preset="published") == config
    with pytest.raises(ConfigError, match=r"grading\.tier"):
        load({"grading.tier": "2"})


@pytest.mark.parametrize(
    "flags, band",
    [
        ({}, (0.05, 0.95)),
        ({"calibrate.aim": "middle", "calibrate.samples": "8"}, (0.375, 0.625)),
        ({"calibrate.aim": "lower"}, (0.0, 0.5)),
        ({"policy.model": "some/model"}, (0.125, 0.875)),
    ],
)
def test_the_band_is_the_settings_own_or_one_of_the_recipe(flags, band):
    assert load(flags).calibrate.band == band
