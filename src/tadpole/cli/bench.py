"""What solve, review and apply share: the repository that they stand in, and its work."""

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tadpole.cli.verb import Request
from tadpole.config import PUBLISHED, Config, load, saved
from tadpole.progress import Progress
from tadpole.rundir import CONFIG, RunDir, cache_dir
from tadpole.settings import EMBEDDED, SERVED, BoxKind, ProfileName, SandboxConfig

if TYPE_CHECKING:
    from tadpole.prepared import Prepared
    from tadpole.reached import Served
    from tadpole.task import FileChange
    from tadpole.workbench.environment import Environment
    from tadpole.workbench.job import AttemptRow, Job
    from tadpole.workbench.key import SigningKey
    from tadpole.workbench.solve import Bench
    from tadpole.workbench.solver import Event, Solver
    from tadpole.workbench.usergit import UserGit

_SHOWN = 2000  # characters of a tool's answer on stderr


@dataclass(frozen=True)
class Here:
    """A repository and where its work is kept."""

    git: "UserGit"
    work: Path
    environment: "Environment"
    key: "SigningKey"
    sandbox: SandboxConfig
    progress: Progress
    earlier: "tuple[RunDir, Job] | None" = None  # the job that lends its settings

    def bench(self, tell: "Callable[[Event], None]" = lambda event: None) -> "Bench":
        """What attempts and gates work with. Raises SandboxUnavailable where nothing isolates."""
        from tadpole.sandboxes import ladder
        from tadpole.workbench.solve import Bench

        return Bench(
            engine=ladder.opened(self.sandbox),
            environment=self.environment,
            key=self.key,
            scratch=cache_dir() / "scratch",
            tell=tell,
            say=self.progress.say,
        )

    def begun(
        self,
        asked: tuple[str, str],
        *,
        attempts: int,
        command: str,
        dirty: bool,
        config: Config,
        network: tuple[str, ...],
    ) -> "tuple[RunDir, Job]":
        """A new job about (issue, proposal that it follows)."""
        from tadpole.errors import UsageError
        from tadpole.sandboxes import ladder
        from tadpole.workbench.allowlist import Allowed
        from tadpole.workbench.base import read_base
        from tadpole.workbench.job import Job, create
        from tadpole.workbench.policy import FILE
        from tadpole.workbench.solve import at, rules_of

        if config.policy.model.startswith(SERVED):
            _policy(config, self.progress)  # where there is no address nothing is begun
        base = read_base(self.git, dirty=dirty)
        rules_of(base, command)  # a policy that cannot be read is told before any work
        if not dirty and _lies_there(self.git.root, FILE) != base.files.get(FILE):
            told = f"{FILE} is not committed as it lies there: what HEAD has of it counts"
            self.progress.say(f"{told} (commit it, or --dirty)")
        model = _look(config.policy.model)
        hosts = tuple(str(Allowed.parse(host)) for host in network)
        if hosts and self.sandbox.engine is BoxKind.HARBOR:
            raise UsageError("--allow needs boxes of this machine: --sandbox.engine auto")
        ladder.opened(self.sandbox)  # where nothing isolates nothing is begun
        self.progress.say(f"working on {at(base, self.environment)}")
        for note in base.notes:
            self.progress.say(note)
        job = Job(
            issue=asked[0],
            repository=str(self.git.root),
            commit=base.commit,
            dirty=dirty,
            base=base.digest,
            attempts=attempts,
            seed=config.run.seed or random.SystemRandom().randrange(1 << 31),
            model=model,
            settings=_shaping(config),
            venv=str(self.environment.venv or ""),
            test_command=command,
            network=hosts,
            follows=asked[1],
        )
        return create(self.work, job), job

    def again(self, given: str) -> tuple[str, str]:
        """The issue of a proposal with the reviewer's comment, and its id."""
        from tadpole.errors import UsageError
        from tadpole.workbench.passport import Ruling
        from tadpole.workbench.proposal import find, load

        old = load(find(self.work, given, ruling=Ruling.ASK_AGAIN), self.key)
        decision = old.passport.decision
        if decision is None or not decision.reason:
            raise UsageError(f"{old.id} has no comment yet: tadpole review {old.id}")
        told = f"A reviewer said of an earlier attempt: {decision.reason}"
        return f"{old.passport.statement}\n\n{told}", old.id

    async def solve(
        self, run: RunDir, job: "Job", request: Request, tell: "Callable[[Event], None]"
    ) -> "list[AttemptRow]":
        """Make what the job owes, with the settings it began with but for those typed now."""
        from tadpole.workbench.base import read_base
        from tadpole.workbench.solve import solve

        base = read_base(self.git, dirty=job.dirty, commit=job.commit)
        bench = self.bench(tell)
        config = as_begun(job, {**request.flags, "policy.model": job.model})
        with _solver(config, bench, self.progress) as solver:
            notes = config.leaf.profile is ProfileName.FULL
            at_once = config.run.concurrency
            return await solve(bench, run, job, base, solver, notes=notes, at_once=at_once)


def here(
    repo: Path,
    venv: Path | None,
    request: Request,
    *,
    earlier: "Callable[[Path], Path] | None" = None,
) -> Here:
    """The repository around ``repo``. Raises SourceError, UsageError.

    ``earlier``: finds, in the directory of its work, the job that lends its settings.
    """
    from tadpole.workbench.environment import find
    from tadpole.workbench.key import SigningKey
    from tadpole.workbench.places import config_dir, work_dir
    from tadpole.workbench.usergit import UserGit

    git = UserGit(repo)
    work = work_dir(git.root)
    sandbox = request.config.sandbox
    begun = None
    if earlier is not None:
        from tadpole.workbench.job import read

        begun = read(earlier(work))
        job = begun[1]
        venv = venv or (Path(job.venv) if job.venv else None)
        sandbox = as_begun(job, request.flags).sandbox
    key = SigningKey.open(config_dir())
    environment = find(git.root, venv)
    return Here(git, work, environment, key, sandbox, request.progress, begun)


def as_begun(job: "Job", flags: "Mapping[str, Any]") -> Config:
    """The settings that a job began with, but for those that were typed now."""
    return load({**job.settings, "policy.model": job.model, **flags}, preset=PUBLISHED)


def as_trained(request: Request) -> Config:
    """The settings, with the profile that the policy was trained in, where one is known.

    A policy that was trained in another harness loses much of its skill.
    """
    config = request.config
    if "leaf.profile" in request.flags or config.leaf.profile is not ProfileName.FULL:
        return config
    profile = _profile_of(Path(config.policy.model))
    if profile is None or profile is ProfileName.FULL:
        return config
    request.progress.say(f"the policy was trained with leaf.profile {profile.value}: so it is used")
    leaf = config.leaf.model_copy(update={"profile": profile})
    return config.model_copy(update={"leaf": leaf})


def _profile_of(model: Path) -> ProfileName | None:
    """The profile that a checkpoint of Tadpole's was trained in; None where nobody says."""
    from tadpole.rl.checkpoint import STATE, read_state

    if not (model / STATE).is_file():
        return None
    with contextlib.suppress(OSError, ValueError):
        if told := read_state(model).profile:
            return told
    run = model.absolute().parent.parent / CONFIG
    return saved(run).leaf.profile if run.is_file() else None


def _lies_there(root: Path, path: str) -> "FileChange | str | None":
    """A file of the work tree, what a link says, or None."""
    from tadpole.workbench.base import read_path

    try:
        return read_path(root, path)
    except OSError:
        return None


class _solver:
    """The configuration's model as a solver, for the length of a ``with``."""

    def __init__(self, config: Config, bench: "Bench", progress: Progress) -> None:
        self._config, self._bench, self._progress = config, bench, progress

    def __enter__(self) -> "Solver":
        from tadpole.workbench.leafsolver import LeafSolver

        config = self._config
        self._prepared = _policy(config, self._progress)
        return LeafSolver(
            self._bench.engine,
            self._prepared.policy,
            self._prepared.dialogue,
            config.leaf,
            config.eval.at(config.leaf.max_tokens_per_turn),
        )

    def __exit__(self, *error: object) -> None:
        self._prepared.close()


def _look(model: str) -> str:
    """The model as a job keeps it: a directory from wherever the job is resumed.

    A mistyped one is told before a job begins that could never go on. Raises UsageError.
    """
    from tadpole.errors import UsageError
    from tadpole.models.location import is_directory, problem

    if model == EMBEDDED or model.startswith(SERVED):
        return model
    if why := problem(model):
        raise UsageError(why)
    return str(Path(model).resolve()) if is_directory(model) else model


def _shaping(config: Config) -> dict[str, Any]:
    """The settings that shape an attempt, by dotted name."""
    whole = config.model_dump(mode="json", include={"run", "policy", "leaf", "eval", "sandbox"})
    return {f"{section}.{key}": value for section, of in whole.items() for key, value in of.items()}


def _policy(config: Config, progress: Progress) -> "Prepared | Served":
    """In memory, or behind a server: then neither torch nor weights are loaded."""
    if config.policy.model.startswith(SERVED):
        from tadpole.reached import reach_policy

        return reach_policy(config)
    from tadpole.prepared import prepare_policy

    return prepare_policy(config, cache_dir(), progress=progress)


def say_event(progress: Progress, event: "Event") -> None:
    """One event on stderr, readably and with odd characters made visible."""
    from tadpole.visible import visible
    from tadpole.workbench.solver import EventKind

    head = f"[{event.attempt}]"
    if event.kind is EventKind.CALL:
        shown = " ".join(f"{name}={v}" for name, v in event.arguments.items())
        line = _cut(visible(f"{event.name} {shown}".strip()))
        progress.say(f"{head} ! {line}: {visible(event.text)}" if event.error else f"{head} {line}")
    elif event.kind in (EventKind.RESULT, EventKind.SAY):
        mark = "! " if event.error else "  " if event.kind is EventKind.RESULT else ""
        text = _cut(visible(event.text, lines=True))
        progress.say("\n".join(f"{head} {mark}{line}" for line in text.split("\n")))
    elif event.kind is EventKind.NETWORK:
        mark = "!" if event.error else " "
        progress.say(f"{head} {mark} network {visible(event.name)}: {event.text}")
    else:
        progress.say(_cut(f"{head} ended: {event.name} {visible(event.text)}"))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} [...]"
