"""What all verbs share: dotted settings on the command line, and the options about them."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tadpole.config import Config, fields, load, open_run, presets, values
from tadpole.progress import Progress
from tadpole.rundir import CONFIG, MARKER, RunDir, cache_dir
from tadpole.visible import visible

if TYPE_CHECKING:
    from tadpole.job import Job

_FLAGS = "tadpole.flags"


@dataclass(frozen=True)
class Request:
    """What a verb was asked to do."""

    config: Config
    as_json: bool
    progress: Progress
    flags: Mapping[str, Any] = field(default_factory=dict)  # settings typed with the verb

    @classmethod
    def plain(cls, as_json: bool) -> "Request":
        """For the verbs without settings."""
        return cls(Config(), as_json, Progress())

    @contextmanager
    def job(self, *, begins: bool = False) -> "Iterator[Job]":
        """The job of this request; its run is locked while the block runs.

        ``begins``: the verb may be the first of a run. Raises RunError where there is none and
        it may not: a mistyped --run makes no directory. Raises SandboxUnavailable before
        anything is made where this machine cannot isolate.
        """
        if not begins:
            RunDir.open(self.config.run.dir)
        from tadpole.job import Job
        from tadpole.workshop import Workshop

        workshop = Workshop.open(
            cache_dir(), self.config.sandbox, self.config.grading.tier, self.config.tasks.wheels
        )
        with open_run(self.config) as rundir:
            yield Job(self.config, rundir, workshop, self.progress)

    def result(self, body: Any, text: Callable[[], str]) -> None:
        """Print the result: as JSON where it was asked for, else for a person."""
        if self.as_json:
            click.echo(json.dumps(body, indent=2))
        else:
            tell(text())


def tell(text: str, *, err: bool = False) -> None:
    """Print lines for a person; nothing that others wrote in them is obeyed by a terminal."""
    click.echo(visible(text, lines=True), err=err)


class Verb(click.Command):
    """A command that takes every setting as ``--section.key VALUE``."""

    def __init__(
        self,
        *args: Any,
        sections: Sequence[str] = (),
        dry_run: Callable[[Config], int | None] | None = None,
        short: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        # What its --help lists: whole sections, or single settings.
        self.sections = sections
        self.dry_run = dry_run  # more to a dry run than the settings: its exit code, or None
        self.short = dict(short or {})  # option of its own -> the setting that it is short for

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the dotted settings out; click reads the rest."""
        ctx.meta[_FLAGS], rest = split(args)
        return super().parse_args(ctx, rest)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options, then the settings that matter to this verb."""
        super().format_options(ctx, formatter)
        defaults = values(load())
        for section in dict.fromkeys(name.partition(".")[0] for name in self.sections):
            with formatter.section(f"Settings: {section} (defaults of the embedded model)"):
                rows = []
                for name, info in fields():
                    head = name.partition(".")[0]
                    if head == section and {section, name} & set(self.sections):
                        value = _shown(defaults[name])
                        rows.append((f"--{name}", f"{info.description} [{value}]"))
                formatter.write_dl(rows, col_max=34)


def split(args: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Dotted settings and the rest. Raises click.UsageError where a value is missing."""
    switches = {name for name, info in fields() if info.annotation is bool}
    flags: dict[str, Any] = {}
    rest: list[str] = []
    queue = list(args)
    while queue:
        word = queue.pop(0)
        if word == "--":  # what follows is no option, whatever it looks like
            rest += [word, *queue]
            break
        name, equals, value = word.partition("=")
        if not name.startswith("--") or "." not in name:
            rest.append(word)
            continue
        name = name[2:].replace("-", "_")
        alone = not queue or queue[0].startswith("--")
        if equals:
            flags[name] = value
        elif name in switches and (alone or queue[0].lower() not in _TRUTH):
            flags[name] = True
        elif alone:
            raise click.UsageError(f"--{name} needs a value")
        else:
            flags[name] = queue.pop(0)
    return flags, rest


def settings(function: Callable[..., Any], *, of_run: bool = True) -> Callable[..., Any]:
    """Add the options about settings; the verb gets a :class:`Request` first.

    ``of_run`` False: the verb has no run directory, so none can be named or lends its settings.
    """

    @click.option("--run", metavar="DIR", help="The run directory (--run.dir).", hidden=not of_run)
    @click.option("--model", metavar="MODEL", help="A directory, a name, or openai:NAME.")
    @click.option("--preset", type=click.Choice(presets()), help="Shipped settings.")
    @click.option("--config", "file", type=click.Path(path_type=Path), help="A TOML file.")
    @click.option("--dry-run", is_flag=True, help="Print the resolved TOML and stop.")
    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @click.pass_context
    @functools.wraps(function)
    def wrapped(ctx: click.Context, /, **given: Any) -> Any:
        assert isinstance(ctx.command, Verb)
        flags = dict(ctx.meta[_FLAGS])
        short = {"run": "run.dir", "model": "policy.model"} | ctx.command.short
        for option, name in short.items():
            value = given.pop(option)
            if value is not None:
                flags[name] = value
        if not of_run and "run.dir" in flags:
            raise click.UsageError(f"{ctx.command.name} has no run directory: leave --run out")
        file, preset = given.pop("file"), given.pop("preset")
        config = resolve(flags, file, preset) if of_run else load(flags, file=file, preset=preset)
        as_json = given.pop("as_json")
        if given.pop("dry_run"):
            code = ctx.command.dry_run(config) if ctx.command.dry_run else None
            if code is not None:
                return code
            click.echo(config.toml(), nl=False)
            return 0
        return function(Request(config, as_json, Progress(), flags), **given)

    return wrapped


def resolve(flags: dict[str, Any], file: Path | None, preset: str | None) -> Config:
    """The configuration; a run that exists keeps its own, which flags may amend."""
    config = load(flags, file=file, preset=preset)
    here = Path(config.run.dir)
    if (here / MARKER).exists() and file is None and preset is None:
        return load(flags | {"run.dir": str(here)}, file=here / CONFIG)
    return config


_TRUTH = {"true", "false", "yes", "no", "on", "off", "1", "0"}


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    value = value.value if isinstance(value, Enum) else value
    return str(value).lower() if isinstance(value, bool) else str(value)
