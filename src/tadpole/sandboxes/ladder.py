"""Which engine makes the boxes on this machine: the first of the ladder that holds.

``session``, then ``flat``, then ``container``; each is tried by breaking out of a box of it, not
by looking at versions. Where none holds nothing runs, and one line says which setting refuses
and what to do about it. Nothing ever runs without isolation. Boxes of Harbor's are no rung:
a person asks for them.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from tadpole.errors import SandboxError, SandboxUnavailable
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.sandboxes.container import ContainerEngine
from tadpole.sandboxes.harbor import HarborEngine
from tadpole.sandboxes.probe import Engine, check
from tadpole.sandboxes.refusal import QUOTED
from tadpole.settings import BoxKind, SandboxConfig

LADDER = (BoxKind.SESSION, BoxKind.FLAT, BoxKind.CONTAINER)
# AUTO is bubblewrap whose first box finds out whether it can be a session.
_RUNGS = (BoxKind.AUTO, BoxKind.FLAT, BoxKind.CONTAINER)


def make(kind: BoxKind, image: str = "", environment: str = "") -> Engine:
    """An engine of one kind, untried."""
    if kind is BoxKind.CONTAINER:
        return ContainerEngine(image)
    if kind is BoxKind.HARBOR:
        return HarborEngine(environment, image)
    return BubblewrapEngine(kind=kind)


async def choose(config: SandboxConfig) -> Engine:
    """The engine to use. Raises SandboxUnavailable, one line, where none holds."""
    asked = config.engine is not BoxKind.AUTO
    refusals: dict[str, str] = {}  # by cause, in order, each once
    for kind in (config.engine,) if asked else _RUNGS:
        engine = make(kind, config.image, config.environment)
        try:
            found = await check(engine)
            return engine if found is engine.kind else make(found)
        except SandboxError as error:
            refusals.setdefault(str(error).partition(QUOTED)[0], str(error))
    also = "; --sandbox.engine auto looks for another" if asked else ""
    raise SandboxUnavailable("; ".join(refusals.values()) + also)


@cache
def opened(config: SandboxConfig) -> Engine:
    """As :func:`choose`, from anywhere, and tried once per process."""
    # In a thread of its own, because the caller may be inside an event loop.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, choose(config)).result()
