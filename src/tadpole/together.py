"""Several pieces of work at a time, none of which outlives the others' failure."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run until all are done, or one fails; nothing of it runs on afterwards.

    Raises the first failure as it is.
    """
    await each(work)


async def each(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """As :func:`together`; what each of them gives, in their order."""
    running = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*running)
    finally:
        await end(running)


async def end(running: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they are gone."""
    tasks = list(running)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
