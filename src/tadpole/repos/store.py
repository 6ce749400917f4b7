"""The content-addressed cache of sources, snapshots, runtimes and task trees."""

from pathlib import Path

from tadpole.protocols import SandboxEngine, SandboxSpec
from tadpole.repos.snapshot import Snapshot
from tadpole.task import Task


class Store:
    """Builds each thing once, beside its place, under a lock; another process may share it."""

    def __init__(self, cache: Path, engine: SandboxEngine) -> None:
        self.cache = cache
        self.engine = engine

    async def snapshot(self, source: str) -> Snapshot:
        """The snapshot of "pypi:NAME[==VERSION]", a directory, a git repository or its URL.

        Raises SourceError: nothing there, no tests, tests red, no network.
        """
        raise NotImplementedError

    async def tree(self, task: Task) -> Path:
        """Where the agent starts: pristine files with ``task.start``, in a one-commit repository.

        Raises SourceError or TaskError.
        """
        raise NotImplementedError

    async def spec(self, task: Task) -> SandboxSpec:
        """The box of an agent at this task. Raises SourceError or TaskError."""
        raise NotImplementedError

    def box(self, snapshot: Snapshot, tree: Path | None = None) -> SandboxSpec:
        """A box over the pristine tree (or another) in the runtime of a snapshot."""
        raise NotImplementedError

    def python(self, of: Task | Snapshot) -> str:
        """Path of the interpreter inside the box."""
        raise NotImplementedError
