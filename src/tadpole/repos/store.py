"""The content-addressed cache of sources, snapshots, runtimes and task trees."""

import asyncio
import hashlib
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from weakref import WeakKeyDictionary

from tadpole.errors import TaskError
from tadpole.protocols import SandboxEngine, SandboxSpec
from tadpole.repos import baseline, box, files, git, source
from tadpole.repos.committed import Committed
from tadpole.repos.files import Files
from tadpole.repos.pip import Pip
from tadpole.repos.recipe import recipe_for, release
from tadpole.repos.runtime import Project, Runtime, Runtimes
from tadpole.repos.shelf import Shelf, explained
from tadpole.repos.snapshot import Baseline, Snapshot
from tadpole.repos.source import Fetched, Wanted
from tadpole.task import FileChange, Recipe, Source, Task

SUITES_AT_ONCE = 2  # whole test suites, over all snapshots being built


class Store:
    """Builds each thing once, beside its place, under a lock; processes may share the cache.

    ``pip`` says how packages are fetched; the default follows the user's own settings.
    """

    def __init__(self, cache: Path, engine: SandboxEngine, pip: Pip = Pip()) -> None:  # noqa: B008
        self.cache = cache.expanduser().absolute()
        self.engine = engine
        self.pip = pip
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()  # a semaphore belongs to one event loop
        )
        self._committed = Committed()
        self._sources = Shelf(self.cache / "sources")
        self._snapshots = Shelf(self.cache / "snapshots")
        self._trees = Shelf(self.cache / "trees")
        self._runtimes = Runtimes(self.cache / "runtimes", pip)

    async def snapshot(self, source_text: str) -> Snapshot:
        """The snapshot of "pypi:NAME[==VERSION]", a directory, a git repository or its URL.

        Raises SourceError (nothing there, no tests, tests red, no network), TadpoleError (disk
        full), SandboxError.
        """
        with explained(self.cache):
            found, tree = await self.fetched(source_text)
            here, head = files.from_directory(tree), await self.head(found)
            recipe = recipe_for(found.kind, found.location, here, head)
            return await self.measured(*await self.built(found, recipe, tree))

    async def fetched(self, source_text: str) -> tuple[Source, Path]:
        """First step of a snapshot: the pristine tree of a source. Raises SourceError."""
        wanted = source.parse(source_text)
        if wanted.kind == "pypi" and not wanted.version:
            wanted = replace(wanted, version=release(wanted.location))
        return await self._source(await source.pin(wanted))

    async def head(self, found: Source) -> Files:
        """What the head of a source's local clone may say of it: its pyproject.toml, if any."""
        name, clone = "pyproject.toml", Path(found.location)
        if found.kind != "git" or not clone.is_dir():
            return {}
        content = await git.at_head(clone, name)
        return {} if content is None else {name: FileChange(name, content)}

    async def built(
        self, found: Source, recipe: Recipe, tree: Path
    ) -> tuple[Source, Runtime, Path]:
        """Second step: its environment, and the tree with what its build makes.

        Raises SourceError.
        """
        built = await self._runtimes.resolve(Project(found, recipe, tree))
        tree = await self._complete(tree, built)
        return replace(found, licence=built.licence), built, tree

    async def measured(self, found: Source, built: Runtime, tree: Path) -> Snapshot:
        """Last step: what its tests do. Raises SourceError, SandboxError."""
        key = _snapshot_key(found, built)

        async def measure(place: Path) -> None:
            name = f"{found.location} {found.version[:12]}"
            await asyncio.to_thread(box.modules)
            spec = self._spec(tree, built.venv, built.recipe)
            loop = asyncio.get_running_loop()
            slots = self._slots.setdefault(loop, asyncio.Semaphore(SUITES_AT_ONCE))
            data = await baseline.measure(self.engine, spec, built.recipe, name, slots)
            baseline.write(place, data)
            about = {"source": asdict(found), "recipe": asdict(built.recipe)}
            (place / "snapshot.json").write_text(json.dumps(about, indent=1))

        place = await self._snapshots.get(f"{key}-{baseline.FORMAT}", measure)
        return Snapshot(
            key=key,
            source=found,
            recipe=built.recipe,
            runtime=built.key,
            tree=tree,
            venv=built.venv,
            baseline=Baseline(place / "baseline.json", tree),
        )

    async def tree(self, task: Task) -> Path:
        """Where the agent starts: pristine files with ``task.start``, in a one-commit repository.

        Raises SourceError or TaskError.
        """
        place = self._trees.at(task.id) / "repo"
        if not place.is_dir():
            pristine, _ = await self._rebuilt(task)

            async def build(beside: Path) -> None:
                repo = beside / "repo"
                files.link(pristine, repo, skip=[change.path for change in task.start])
                files.write(repo, task.start)
                await git.one_commit(repo)

            with explained(self.cache):
                await self._trees.get(task.id, build)
        return place

    async def spec(self, task: Task) -> SandboxSpec:
        """The box of an agent at this task; builds what the cache lacks, from the task alone.

        Raises SourceError or TaskError, also where its tests in the cache are not what they were.
        """
        _, built = await self._rebuilt(task)
        await asyncio.to_thread(box.modules)
        tree = await self.tree(task)
        await self._committed.check(task, tree)
        return self._spec(tree, built.venv, task.recipe)

    async def pristine(self, task: Task) -> SandboxSpec:
        """The box over the tree that the start of this task differs from.

        Raises SourceError or TaskError.
        """
        tree, built = await self._rebuilt(task)
        await asyncio.to_thread(box.modules)
        return self._spec(tree, built.venv, task.recipe)

    def box(self, snapshot: Snapshot, tree: Path | None = None) -> SandboxSpec:
        """A box over the pristine tree (or another) in the runtime of a snapshot."""
        return self._spec(tree or snapshot.tree, snapshot.venv, snapshot.recipe)

    def python(self, of: Task | Snapshot) -> str:
        """Path of the interpreter inside the box."""
        return box.PYTHON

    def _spec(self, tree: Path, venv: Path, recipe: Recipe) -> SandboxSpec:
        return SandboxSpec(
            tree=tree,
            mounts=box.mounts(venv, self.cache / "hide", recipe),
            env=box.environment(recipe),
            workdir=box.WORKDIR,
        )

    async def _source(self, wanted: Wanted) -> tuple[Source, Path]:
        """The pristine tree of a source, fetched where the cache lacks it."""
        if not wanted.version:
            wanted = replace(wanted, version=await self._newest(wanted))

        async def build(beside: Path) -> None:
            _keep(beside, await self._fetch(wanted, beside / "scratch"))

        place = await self._sources.get(_source_key(wanted), build)
        return Source(**json.loads((place / "source.json").read_text())), place / "tree"

    async def _newest(self, wanted: Wanted) -> str:
        """The version that was the newest when it was first asked for."""

        async def build(beside: Path) -> None:
            got = await self._fetch(wanted, beside / "scratch")

            async def keep(place: Path) -> None:
                _keep(place, got)

            version = got.source.version
            await self._sources.get(_source_key(replace(wanted, version=version)), keep)
            (beside / "version").write_text(version)

        newest = Shelf(self.cache / "sources" / "newest")
        return (await newest.get(_source_key(wanted), build) / "version").read_text()

    async def _fetch(self, wanted: Wanted, scratch: Path) -> Fetched:
        scratch.mkdir()
        try:
            return await source.fetch(wanted, scratch, self.pip)
        finally:
            shutil.rmtree(scratch)

    async def _complete(self, tree: Path, built: Runtime) -> Path:
        """The source tree, with the files that only the project's build makes."""
        made = built.generated
        if made is None:
            return tree

        async def build(beside: Path) -> None:
            files.link(tree, beside / "tree")
            files.write(beside / "tree", files.from_directory(made).values())

        name = hashlib.sha256(f"{tree.parent.name} {built.key}".encode()).hexdigest()
        return await Shelf(self.cache / "sources" / "complete").get(name, build) / "tree"

    async def _rebuilt(self, task: Task) -> tuple[Path, Runtime]:
        """The pristine tree and the environment of a task. Raises SourceError, TaskError."""
        asked = task.source
        with explained(self.cache):
            found, tree = await self._source(Wanted(asked.kind, asked.location, asked.version))
            if found.sha256 != asked.sha256:
                raise TaskError(
                    f"{asked.location} {asked.version} is not what {task.name} was made from "
                    "(its hash differs): restore it, or make the task again"
                )
            project = Project(found, task.recipe, tree)
            if project.runtime_key != task.runtime:
                raise TaskError(
                    f"{task.name} was made in another environment (Python or locked packages): "
                    "use the Python it was made with, or make it again with tadpole tasks make"
                )
            built = await self._runtimes.get(project)
            if _snapshot_key(found, built) != task.snapshot:
                raise TaskError(f"{task.name} does not belong to its source: make it again")
            return await self._complete(tree, built), built


def _keep(place: Path, got: Fetched) -> None:
    tree = place / "tree"
    tree.mkdir()
    tree.chmod(0o755)
    files.write(tree, got.files.values())
    (place / "source.json").write_text(json.dumps(asdict(got.source)))


def _source_key(wanted: Wanted) -> str:
    name = json.dumps([wanted.kind, wanted.location, wanted.version])
    return hashlib.sha256(name.encode()).hexdigest()


def _snapshot_key(found: Source, built: Runtime) -> str:
    body = ["snapshot 1", found.sha256, built.key, asdict(built.recipe)]
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
