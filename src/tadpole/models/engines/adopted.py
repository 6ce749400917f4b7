"""The adapters that a server holds of ours: one is sampled, the others are to be unloaded.

A server keeps adapters by name, also when this program starts again, and refuses a name that it
has. So every load gets a name that nobody had before: what a turn names is what was loaded for
it, or nothing.
"""

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

from tadpole.errors import ModelError
from tadpole.models.engines.engine import EngineDown


class Adopted:
    """The adapters of one server. ``load`` and ``unload`` ask it, and raise as an engine does."""

    def __init__(
        self,
        load: Callable[[Path, str], Awaitable[object]],
        unload: Callable[[str], Awaitable[object]],
    ):
        self._load, self._unload = load, unload
        self._held: list[str] = []
        self.name: str | None = None  # of those that turns are to name

    async def take(self, weights: Path, name: str) -> None:
        """Load ``weights`` under a new name that begins with ``name``; then unload all others.

        One that cannot be unloaded costs memory, but no turn names it: that is tried again with
        the next load.
        """
        fresh = f"{name}-{secrets.token_hex(4)}"
        # It may be held although its answer was lost on the way.
        others, self._held = self._held, [*self._held, fresh]
        await self._load(weights, fresh)
        self.name = fresh
        for other in others:
            try:
                await self._unload(other)
            except EngineDown:
                continue
            except ModelError:
                pass  # it has none of that name
            self._held.remove(other)
