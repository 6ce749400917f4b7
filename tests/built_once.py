"""What several workers of one test run need alike: the first of them builds it, for all."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tadpole.repos.shelf import Shelf


def for_all_workers(factory: pytest.TempPathFactory, name: str) -> Path:
    """A directory of this test run, the same one in each of its workers."""
    base = factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    place.mkdir(exist_ok=True)
    return place


def built_once(place: Path, name: str, build: Callable[[Path], object]) -> Path:
    """``place/name``, which ``build`` fills where no worker has yet."""

    async def fill(beside: Path) -> None:
        build(beside)

    return asyncio.run(Shelf(place).get(name, fill))
