"""Loads the configuration: defaults < preset < TOML file < dotted flags.

The settings themselves are in :mod:`tadpole.settings`. A key that does not exist is an error
that names the nearest one; a resolved configuration, saved as TOML, loads to itself.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Self, get_origin

import tomli_w
from pydantic import Field, ValidationError, model_validator
from pydantic.fields import FieldInfo

from tadpole.engines.cluster import ClusterConfig
from tadpole.errors import ConfigError, RunError
from tadpole.repos.address import shown
from tadpole.rundir import CONFIG, MARKER, RunDir
from tadpole.settings import (
    EMBEDDED,
    AuthorConfig,
    CalibrateConfig,
    EngineKind,
    EvalConfig,
    GradingConfig,
    LeafConfig,
    PolicyConfig,
    RunConfig,
    SamplingConfig,
    SandboxConfig,
    Section,
    Switch,
    TasksConfig,
    TrainConfig,
    WarmupConfig,
)
from tadpole.tomlfile import parse_toml

PUBLISHED = "published"  # the preset that changes nothing

# What each section shapes, by name in the run directory ...
_EPISODES = ("calibration.jsonl", "warmup", "rollouts.jsonl", "eval.jsonl")
_SHAPES = {
    "policy": _EPISODES,
    "leaf": _EPISODES,
    "tasks": ("tasks", *_EPISODES),
    "author": ("drafts", "tasks"),
    "grading": ("calibration.jsonl", "rollouts.jsonl", "eval.jsonl"),
    "calibrate": ("split.json",),
    "warmup": ("warmup", "rollouts.jsonl"),
    "sampling": ("calibration.jsonl", "rollouts.jsonl"),
    "train": ("rollouts.jsonl",),
    "eval": ("validation.jsonl", "eval.jsonl"),
}
# ... by setting where that is another thing: more tasks join those that are there ...
_SHAPE = {
    "tasks.count": ("split.json",),
    "tasks.held_out_share": ("split.json",),
    "tasks.validation_share": ("split.json",),
    "cluster.trainer": ("rollouts.jsonl",),
    "run.seed": _EPISODES,  # whatever is drawn is drawn from it
    "sandbox.image": ("tasks", *_EPISODES),  # what the tests run in
    "warmup.enabled": _EPISODES,
}
# ... and the settings that change how fast or how far, but not what comes out.
_FREE = {
    "policy.device",
    "policy.threads",
    "policy.urls",
    "policy.engine_dir",
    "train.batch_seconds",
    "train.gradient_checkpointing",
    "train.keep_checkpoints",
    "train.max_mean_gap",
    "train.max_dropped_share",
    "train.rounds",
    "train.tracker",
    "train.updates",
    "train.checkpoint_every",
    "train.micro_batch_tokens",
    "eval.samples",
    "eval.retries",
    "eval.raw",
}


class Config(Section):
    """Every setting of a run, by section."""

    run: RunConfig = Field(default_factory=RunConfig)
    """Where the run is kept, and what it may use."""
    policy: PolicyConfig = Field(default_factory=PolicyConfig)
    """The model that is raised."""
    leaf: LeafConfig = Field(default_factory=LeafConfig)
    """Limits of one episode."""
    tasks: TasksConfig = Field(default_factory=TasksConfig)
    """Which repositories become tasks, and how many."""
    author: AuthorConfig = Field(default_factory=AuthorConfig)
    """A model that writes tasks."""
    grading: GradingConfig = Field(default_factory=GradingConfig)
    """How a change is graded."""
    calibrate: CalibrateConfig = Field(default_factory=CalibrateConfig)
    """How learnable tasks are found."""
    warmup: WarmupConfig = Field(default_factory=WarmupConfig)
    """The call format for a tiny model, before anything else."""
    sampling: SamplingConfig = Field(default_factory=SamplingConfig)
    """How the policy is sampled in training."""
    train: TrainConfig = Field(default_factory=TrainConfig)
    """One climb."""
    eval: EvalConfig = Field(default_factory=EvalConfig)
    """How the policy is evaluated."""
    sandbox: SandboxConfig = Field(default_factory=SandboxConfig)
    """What isolates episodes and gradings."""
    cluster: ClusterConfig = Field(default_factory=ClusterConfig)
    """The machines of a climb."""

    @model_validator(mode="after")
    def _adapters_fit(self) -> Self:
        if not self.train.lora.rank or self.policy.engine is EngineKind.INPROCESS:
            return self
        if self.warms_up:
            how = self.warmup.enabled.value
            moved, instead = f"a warm-up (warmup.enabled is {how})", "warmup.enabled off"
        elif self.train.rounds > 1:
            moved, instead = "another round to come", "train.rounds 1"
        else:
            return self
        raise ValueError(
            f"train.lora.rank needs policy.engine inprocess where there is {moved}: the servers "
            "do not have the weights that the adapters belong to; say policy.engine inprocess, "
            f"{instead} or train.lora.rank 0"
        )

    @property
    def warms_up(self) -> bool:
        """Whether the policy is warmed up before anything else."""
        switch = self.warmup.enabled
        return switch is Switch.ON or (switch is Switch.AUTO and self.policy.model == EMBEDDED)

    def toml(self) -> str:
        """The resolved configuration as TOML; loading it gives an equal value."""
        return tomli_w.dumps(self.model_dump(mode="json"))


def load(
    flags: Mapping[str, Any] | None = None,
    *,
    file: Path | None = None,
    preset: str | None = None,
) -> Config:
    """Resolve a configuration.

    ``flags`` maps dotted names to values, strings as typed on a command line included.
    ``preset`` None means: ``embedded`` where the model is the embedded one, else nothing.
    Raises ConfigError, one line, naming the setting and where it came from.
    """
    asked: list[tuple[str, dict[str, Any]]] = []
    if file is not None:
        asked.append((str(file), _flat(_read(file))))
    given = dict(flags or {})
    asked.append(("the command line", {k: _typed(k, v) for k, v in given.items()}))
    if preset is None:
        models = [layer["policy.model"] for _, layer in asked if "policy.model" in layer]
        preset = EMBEDDED if not models or models[-1] == EMBEDDED else PUBLISHED
    return _build([(f"preset {preset}", _preset(preset)), *asked])


def saved(path: Path) -> Config:
    """The configuration that a run directory keeps (``config.toml``), as it was resolved."""
    return load(file=path, preset=PUBLISHED)


@contextmanager
def open_run(config: Config) -> Iterator[RunDir]:
    """Own the run directory ``config.run.dir``: made where it is missing, else taken up again.

    A setting may change until what it shaped exists. Raises RunError, and changes nothing, where
    one would make a mixture of an existing run, and where another process owns it.
    """
    path = Path(config.run.dir)
    run = RunDir.open(path) if (path / MARKER).exists() else RunDir.create(path, config)
    with run.lock():
        _amend(run, config)
        yield run


def _amend(run: RunDir, config: Config) -> None:
    """Keep the settings from here on. Raises RunError where they make a mixture of the run."""
    path = run.path
    before = saved(path / CONFIG)
    now = values(config)
    changed = {name: old for name, old in values(before).items() if now[name] != old}
    for name, old in changed.items():
        shapes = _SHAPE.get(name, _SHAPES.get(name.partition(".")[0], ()))
        if name == "tasks.sources" and _keep_what_gave(config, path, before.tasks.sources):
            shapes = _SHAPE["tasks.count"]
        made = [part for part in shapes if _made(path / part)]
        if made and name not in _FREE:
            raise RunError(
                f"{path} holds {made[0]} made with {name} = {old}, now {now[name]}: "
                "choose another --run.dir, or the old value"
            )
    if changed:
        run.save_config(config)


def _keep_what_gave(config: Config, path: Path, before: Sequence[str]) -> bool:
    """Whether every source that tasks were made of is still named: others may come and go."""
    from tadpole.pilot.journal import SETTINGS, Making

    rows = RunDir(Path(config.tasks.dir or path / "tasks")).rows(SETTINGS, Making)
    gone = set(before) - set(map(shown, config.tasks.sources))
    return bool(rows) and gone.isdisjoint(row.source for row in rows)


def _made(part: Path) -> bool:
    """Whether a part of a run is there: a directory counts once it holds one thing or more.

    Locks and journals alone are what a stage leaves that failed before its first result.
    """
    if not part.is_dir():
        return part.exists()
    return any(entry.is_dir() and not entry.name.startswith(".") for entry in part.iterdir())


def presets() -> list[str]:
    """Names of the shipped presets."""
    folder = resources.files("tadpole") / "presets"
    names = [entry.name for entry in folder.iterdir() if entry.name.endswith(".toml")]
    return sorted([PUBLISHED, *(name.removesuffix(".toml") for name in names)])


def fields() -> Iterator[tuple[str, FieldInfo]]:
    """All settings: dotted name and field, in the order of the sections."""
    yield from _fields(Config)


def _fields(kind: type[Section], above: str = "") -> Iterator[tuple[str, FieldInfo]]:
    for key, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from _fields(inner, f"{above}{key}.")
        else:
            yield f"{above}{key}", field


def values(config: Config) -> dict[str, Any]:
    """All settings: dotted name and value, as TOML holds it."""
    return _flat(config.model_dump(mode="json"))


def near(name: str) -> str:
    """A hint for an unknown setting: ``; did you mean train.lr?``, or nothing."""
    names = [known for known, _ in fields()]
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if not found:  # the right key in the wrong section, or without one
        leaves = {known.rpartition(".")[2]: known for known in reversed(names)}
        leaf = difflib.get_close_matches(name.rpartition(".")[2], list(leaves), n=1, cutoff=0.8)
        found = [leaves[leaf[0]]] if leaf else []
    return f"; did you mean {found[0]}?" if found else "; see `tadpole train --help`"


def _build(layers: Sequence[tuple[str, Mapping[str, Any]]]) -> Config:
    merged: dict[str, Any] = {}
    origin: dict[str, str] = {}
    known = {name for name, _ in fields()}
    for label, layer in layers:
        for name, value in layer.items():
            if name not in known:
                raise ConfigError(f"unknown setting {name} in {label}{near(name)}")
            *sections, key = name.split(".")
            place = merged
            for section in sections:
                place = place.setdefault(section, {})
            place[key] = value
            origin[name] = label
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(_one_line(error, origin)) from None


def _one_line(error: ValidationError, origin: Mapping[str, str]) -> str:
    first, more = error.errors()[0], error.error_count() - 1
    name = ".".join(part for part in first["loc"] if isinstance(part, str))
    message = first["msg"].removeprefix("Value error, ")
    label = f" (from {origin[name]})" if name in origin else ""
    value = "" if isinstance(first["input"], dict) else f", got {first['input']!r}"
    also = f"; and {more} more" if more else ""
    where = f"{name}{label}: " if name else ""
    return f"{where}{message[:1].lower()}{message[1:]}{value}{also}"


def _read(file: Path) -> dict[str, Any]:
    try:
        return parse_toml(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such configuration file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is no text in UTF-8: give a TOML file") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read ({error.strerror}): give a TOML file") from None
    except ValueError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from None


def _preset(name: str) -> dict[str, Any]:
    if name == PUBLISHED:
        return {}
    if name not in presets():
        known = ", ".join(presets())
        raise ConfigError(f"unknown preset {name!r}; there are {known}")
    text = (resources.files("tadpole") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    body = tomllib.loads(text)
    base = body.pop("extends", PUBLISHED)
    return _preset(base) | _flat(body)


def _flat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Sections to dotted names; a key outside a section keeps its name and is refused later."""
    flat: dict[str, Any] = {}
    for section, content in body.items():
        if isinstance(content, dict):
            flat |= {f"{section}.{key}": value for key, value in _flat(content).items()}
        else:
            flat[section] = content
    return flat


def _typed(name: str, value: Any) -> Any:
    """A list may be typed as ``a,b``; all else pydantic reads from its text."""
    field = dict(fields()).get(name)
    if field is None or not isinstance(value, str) or get_origin(field.annotation) is not tuple:
        return value
    return [part.strip() for part in value.strip("[]() ").split(",") if part.strip()]
