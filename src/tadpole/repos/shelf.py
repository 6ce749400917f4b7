"""Directories that are built once: beside their place, under a lock, then moved there.

Two processes that want the same thing build it once. What a killed build leaves behind is
removed by the next one. The key names the content, so nothing here is ever changed.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

from tadpole.errors import TadpoleError

_POLL_SECONDS = 0.05


class Shelf:
    """One kind of directory in the cache: ``root/KEY``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def at(self, key: str) -> Path:
        """Where it is, or will be."""
        return self.root / key

    async def get(self, key: str, build: Callable[[Path], Awaitable[None]]) -> Path:
        """The finished directory; ``build`` fills an empty one where there is none.

        Raises TadpoleError where the disk is full or refuses.
        """
        place = self.at(key)
        if place.is_dir():
            return place
        with explained(self.root):
            async with self._lock(key):
                if place.is_dir():
                    return place
                for leftover in self.root.glob(f".{key}.*"):
                    shutil.rmtree(leftover, ignore_errors=True)
                beside = self.root / f".{key}.{os.getpid()}"
                beside.mkdir()
                beside.chmod(0o755)
                try:
                    await build(beside)
                    beside.replace(place)
                finally:
                    shutil.rmtree(beside, ignore_errors=True)
        return place

    @contextlib.asynccontextmanager
    async def _lock(self, key: str) -> AsyncIterator[None]:
        locks = self.root / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / key).open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await asyncio.sleep(_POLL_SECONDS)
            yield


@contextlib.contextmanager
def explained(where: Path) -> Iterator[None]:
    """Turn a disk that is full or refuses into one clear line: raises TadpoleError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            text = f"no space left below {where}: free some, or"
        elif error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR):
            text = f"cannot write below {where} ({error.strerror}):"
        else:
            raise
        raise TadpoleError(f"{text} set TADPOLE_CACHE to another directory") from error
