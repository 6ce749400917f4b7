"""Historical pairs: the tests of a commit over the code of its parent, in that commit's tree.

Each pair needs a snapshot of its own commit, so it costs as much as a repository; it gives one
candidate. Commits whose suite does not run today are left out.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tadpole.errors import SourceError
from tadpole.pilot.candidate import Candidate
from tadpole.pilot.commits import Clone
from tadpole.pilot.proposers.history import History
from tadpole.pilot.sources import is_library
from tadpole.protocols import Proposer
from tadpole.repos.snapshot import Snapshot
from tadpole.repos.store import Store


@dataclass(frozen=True)
class Pairs:
    """Implements :class:`tadpole.protocols.Proposer`: one candidate at each commit of a pair.

    At every other snapshot it is ``then``.
    """

    commits: frozenset[str]
    then: Proposer

    @property
    def name(self) -> str:
        """That of the other one, and how many pairs."""
        return f"{self.then.name},pairs={len(self.commits)}"

    def propose(self, snapshot: Snapshot, rng: random.Random) -> Iterator[Candidate]:
        """The commit's own change taken back, and nothing else."""
        if snapshot.source.version not in self.commits:
            yield from self.then.propose(snapshot, rng)
            return
        for candidate in History(most_commits=1).propose(snapshot, rng):
            if candidate.origin == snapshot.source.version:
                yield candidate


async def with_pairs(
    sources: Sequence[str], most: int, store: Store, then: Proposer
) -> tuple[list[str], Proposer]:
    """The sources with up to ``most`` commits of each clone behind them, and who proposes there.

    Raises SourceError where a source is none, SandboxError.
    """
    found: list[str] = []
    commits: set[str] = set()
    for source in sources if most else ():
        snapshot = await store.snapshot(source)
        place = Path(snapshot.source.location)
        if snapshot.source.kind != "git" or not place.is_dir():
            continue
        taken = 0
        for commit in pairs(snapshot):
            if taken == most:
                break
            try:
                await store.snapshot(f"{place}@{commit}")
            except SourceError:  # what its suite needs is not there any more
                continue
            taken += 1
            found.append(f"{place}@{commit}")
            commits.add(commit)
    if not commits:
        return list(sources), then
    return [*sources, *found], Pairs(frozenset(commits), then)


def pairs(snapshot: Snapshot) -> Iterator[str]:
    """Commits that changed both the library and its tests, newest first.

    Raises SourceError where git cannot read the clone.
    """
    clone, recipe = Clone(Path(snapshot.source.location)), snapshot.recipe
    for commit in clone.commits(snapshot.source.version, History.most_commits):
        paths = [edit.path for edit in commit.edits]
        changed = any(is_library(path, recipe) for path in paths)
        if changed and not all(is_library(path, recipe) for path in [*paths, *commit.others]):
            yield commit.id
