"""The run directory: the one place where a run leaves what it knows, and the API to it.

::

    run/
      tadpole-run.json    marker: format version, tadpole version, when it was made
      config.toml         the resolved configuration, every setting
      eval.jsonl, ...     tables: one JSON row per line, appended, never rewritten
      traces/ patches/    one file per episode, named in its row
      checkpoints/ ...    whatever the verbs write there
      rounds/2/ ...       a run directory for each round after the first

What survives a crash: a row is on disk (``fdatasync``) before :meth:`RunDir.append` returns. A
line that a crash tore is dropped when read, and cut off by the next append: its work is owed
again. Files are replaced as a whole, never rewritten in place. Traces and patches are written
before the row that names them, but not waited for: a kill loses none of them, a power cut may
damage the last few, and a report then shows fewer episodes.

Several processes may append to one table (each append holds a lock on the file), but only one
verb at a time should own the run: :meth:`RunDir.lock`.
"""

import fcntl
import gzip
import json
import os
import platform
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import tomli_w
from pydantic import BaseModel

from tadpole.errors import RunError
from tadpole.outcome import OUTCOME_POLICY
from tadpole.table import Row, append, parsed, rows
from tadpole.trace import Attempt, Trace

FORMAT = 1
MARKER = "tadpole-run.json"
CONFIG = "config.toml"
LOCK = "lock"
ROUNDS = "rounds"  # directory of the rounds after the first

Key = tuple[str, str, int]


def cache_dir() -> Path:
    """Where snapshots, environments and prepared models are kept between runs.

    ``$TADPOLE_CACHE``, else ``~/.cache/tadpole``. Not created here.
    """
    given = os.environ.get("TADPOLE_CACHE")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "tadpole"


def attempt_key(attempt: Attempt) -> Key:
    """The identity of an attempt: (task id, policy fingerprint, sample index)."""
    return (attempt.task, attempt.policy, attempt.sample)


def write_atomic(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write a file so that a reader sees the old content or the new, never a part of it.

    ``sync``: also after a power cut, for which it waits for the disk.
    Raises OSError (no space, no permission); the old content is then untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("xb") as stream:
            stream.write(data)
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(beside, path)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        raise _named(error, path) from None
    if sync:
        _sync_directory(path.parent)


class RunDir:
    """One run directory. Make one with :meth:`create` or :meth:`open`, not directly."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path | str, config: BaseModel) -> Self:
        """Start a new run.

        Raises RunError where the directory already holds something: nothing is ever mixed.
        """
        path = Path(path)
        if path.exists() and (not path.is_dir() or not _fresh(path)):
            raise RunError(f"{path} is not empty: choose another --run.dir, or remove it first")
        path.mkdir(parents=True, exist_ok=True)
        run = cls(path)
        with run.lock():
            if not _fresh(path):  # another process was quicker
                raise RunError(f"{path} was begun by another process: choose another --run.dir")
            run.save_config(config)
            # The marker comes last: a directory without one is no run.
            now = datetime.now(UTC).isoformat(timespec="seconds")
            marker = {"format": FORMAT, "tadpole": version("tadpole"), "created": now} | _machine()
            run.write(MARKER, json.dumps(marker, indent=2).encode() + b"\n")
        return run

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open an existing run. Raises RunError where it is none, or of an unknown version."""
        path = Path(path)
        try:
            marker = json.loads((path / MARKER).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(f"{path} is no run directory (no {MARKER} in it)") from None
        except ValueError as error:
            raise RunError(
                f"{path / MARKER} is damaged ({error}): restore it, or begin a new run in "
                "another directory"
            ) from None
        found = marker.get("format") if isinstance(marker, dict) else None
        if found != FORMAT:
            raise RunError(
                f"{path} has run format {found!r}, this tadpole knows {FORMAT}: "
                "read it with the version that made it"
            )
        return cls(path)

    @property
    def facts(self) -> dict[str, Any]:
        """The marker: format, version of tadpole, when it was made, and on what machine."""
        facts: dict[str, Any] = json.loads((self.path / MARKER).read_bytes())
        return facts

    def round(self, number: int) -> Path:
        """Where the run directory of a round is; that of the first is this one."""
        return self.path if number == 1 else self.path / ROUNDS / str(number)

    def rounds(self) -> list[Self]:
        """The rounds that have begun, in order, this one first."""
        found = [self]
        while (self.round(len(found) + 1) / MARKER).exists():
            found.append(self.open(self.round(len(found) + 1)))
        return found

    # --- files ---------------------------------------------------------------------------

    def write(self, name: str, data: bytes, *, sync: bool = True) -> Path:
        """Write a file of the run as a whole; ``name`` is relative to the run directory."""
        path = self._inside(name)
        write_atomic(path, data, sync=sync)
        return path

    def save_config(self, config: BaseModel) -> None:
        """Save the resolved configuration, every setting, as ``config.toml``."""
        body = config.model_dump(mode="json", exclude_none=True)
        self.write(CONFIG, tomli_w.dumps(body).encode())

    def directory(self, name: str) -> Path:
        """A directory of the run (``checkpoints``, ``tasks``...), made if missing."""
        path = self._inside(name)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def save_trace(self, trace: Trace, name: str) -> str:
        """Save a trace; returns its path in the run directory, for the row that names it."""
        relative = f"traces/{name}.json.gz"
        # mtime 0: the same trace is the same bytes
        body = gzip.compress(trace.model_dump_json().encode(), 6, mtime=0)
        self.write(relative, body, sync=False)
        return relative

    def load_trace(self, relative: str) -> Trace:
        """Read a trace by the path that its row names. Raises RunError where it cannot be."""
        path = self._inside(relative)
        try:
            body = json.loads(gzip.decompress(path.read_bytes()))
        except FileNotFoundError:
            raise RunError(f"{path} is missing, although a row names it") from None
        except (OSError, EOFError, ValueError) as error:
            raise RunError(
                f"{path} is damaged ({error}): restore it, or remove its row from the table"
            ) from None
        return parsed(Trace, body, str(path))

    def save_patch(self, patch: bytes, name: str) -> str:
        """Save a patch byte for byte; returns its path in the run directory."""
        relative = f"patches/{name}.patch"
        self.write(relative, patch, sync=False)
        return relative

    def has(self, relative: str) -> bool:
        """Whether a file that a row names is there."""
        return self._inside(relative).is_file()

    def load_patch(self, relative: str) -> bytes:
        """Read a patch by the path that its row names. Raises RunError where it is gone."""
        path = self._inside(relative)
        try:
            return path.read_bytes()
        except OSError:
            raise RunError(f"{path} is missing, although a row names it") from None

    # --- tables --------------------------------------------------------------------------

    def table(self, table: str) -> Path:
        """The file of a table."""
        return self._inside(f"{table}.jsonl")

    def append(self, table: str, row: BaseModel) -> None:
        """Add a row, durably. A torn last line is cut off first.

        Raises OSError (no space...); the table is then as it was before.
        """
        path = self.table(table)
        try:
            append(path, row)
        except OSError as error:
            raise _named(error, path) from None

    def rows(self, table: str, model: type[Row]) -> list[Row]:
        """All whole rows in the order of appending; none where the table does not exist.

        Raises RunError on a row of an unknown format version or one that does not fit.
        """
        return rows(self.table(table), model)

    def done(self, table: str = "eval") -> set[Key]:
        """Keys of the attempts that need not be made again (see :func:`attempt_key`).

        Attempts that infrastructure broke are not among them.
        """
        rows = self.rows(table, Attempt)
        return {attempt_key(row) for row in rows if not OUTCOME_POLICY[row.outcome].retry}

    # --- ownership -----------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Own the run: one verb at a time. Raises RunError where another process does.

        The kernel lets go when the process ends, however it ends.
        """
        path = self.path / LOCK
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "another"
                raise RunError(
                    f"{self.path} is in use by process {owner}: wait for it, "
                    "or choose another --run.dir"
                ) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)

    def _inside(self, name: str) -> Path:
        path = self.path / name
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise RunError(f"{name!r} leads out of the run directory {self.path}")
        return path


def _fresh(path: Path) -> bool:
    """Nothing is there but what a creation that was cut short may have left."""
    left = (CONFIG, LOCK)
    return all(entry.name in left or entry.name.startswith(".") for entry in path.iterdir())


def _machine() -> dict[str, Any]:
    """What figures depend on; nothing that names the machine or its owner."""
    packages = ("torch", "transformers", "numpy")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0)),
        "packages": {name: version(name) for name in packages},
    }


def _named(error: BaseException, path: Path) -> BaseException:
    """A failed write (a full disk) knows its file descriptor, but not what a person needs."""
    if isinstance(error, OSError) and error.errno is not None:
        return OSError(error.errno, error.strerror, str(path))  # not the file beside it
    return error


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
