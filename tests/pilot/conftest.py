import asyncio
from pathlib import Path

import brook as brook_library
import pond
import pytest

from tadpole import process
from tadpole.leaf.calls import CallFormat
from tadpole.leaf.conversations.chat import ChatDialogue
from tadpole.leaf.profile import make_profile
from tadpole.models.openai_chat import OpenAIChat
from tadpole.pilot.proposers.author import Desk
from tadpole.protocols import Sampling
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store
from tadpole.rundir import RunDir
from tadpole.sandboxes.bubblewrap import BubblewrapEngine
from tadpole.settings import LeafConfig, ProfileName, RunConfig
from tests.built_once import built_once, for_all_workers

GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@localhost")


@pytest.fixture(scope="session")
def clones(tmp_path_factory) -> Path:
    """Git repositories of the tiny libraries."""

    def build(beside: Path) -> None:
        root = pond.build(beside / "pond")
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
            done = process.run([*GIT, "-C", str(root), *words], timeout=30)
            assert done.ok, done
        brook_library.build(beside / "brook")

    return built_once(for_all_workers(tmp_path_factory, "pilot-git"), "all", build)


@pytest.fixture(scope="session")
def repository(clones) -> str:
    """A real git repository with the tiny library."""
    return str(clones / "pond")


@pytest.fixture(scope="session")
def engine() -> BubblewrapEngine:
    return BubblewrapEngine()


@pytest.fixture(scope="session")
def store(tmp_path_factory, engine) -> Store:
    return Store(for_all_workers(tmp_path_factory, "pilot-cache"), engine, pond.LocalPip())


@pytest.fixture(scope="session")
def snapshot(store, repository) -> Snapshot:
    return asyncio.run(store.snapshot(repository))


@pytest.fixture(scope="session")
def brook_clone(clones) -> str:
    """A git clone with a history."""
    return str(clones / "brook")


@pytest.fixture(scope="session")
def brook(store, brook_clone) -> Snapshot:
    return asyncio.run(store.snapshot(brook_clone))


@pytest.fixture
def desk(tmp_path, store, engine):
    """Where the author behind a server's address works."""

    def made(url):
        return Desk(
            engine=engine,
            store=store,
            policy=OpenAIChat("writer", base_url=url, tries=1),
            dialogue=ChatDialogue(make_profile(ProfileName.FULL, CallFormat.HERMES)),
            settings=LeafConfig(max_turns=5),
            sampling=Sampling(),
            directory=tmp_path / "drafts",
            rundir=RunDir.create(tmp_path / "run", RunConfig()),
        )

    return made
