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
from tadpole.progress import Progress
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
    sources: Sequence[str], most: int, store: Store, then: Proposer, progress: Progress
) -> tuple[list[str], Proposer]:
    """The sources with up to ``most`` commits of each clone behind them, and who proposes there.

    Raises SourceError where a source is none, SandboxError.
    """
    found: dict[str, str] = {}  # commit, by the source that it is
    for source in sources if most else ():
        snapshot = await store.snapshot(source)
        place = Path(snapshot.source.location)
        if snapshot.source.kind == "git" and place.is_dir():
            found |= await _readable(snapshot, most, store, progress)
    if not found:
        return list(sources), then
    return [*sources, *found], Pairs(frozenset(found.values()), then)


async def _readable(
    snapshot: Snapshot, most: int, store: Store, progress: Progress
) -> dict[str, str]:
    """The newest commits of a clone whose suites run today."""
    commits = list(pairs(snapshot))
    found: dict[str, str] = {}
    unread = 0
    with progress.task(f"read pairs of {snapshot.name}", min(most, len(commits))) as bar:
        for commit in commits:
            if len(found) == most:
                break
            source = f"{snapshot.source.location}@{commit}"
            try:
                await store.snapshot(source)
            except SourceError:  # what its suite needs is not there any more
                unread += 1
                bar.update(note=f"{unread} commits left out")
                continue
            found[source] = commit
            bar.advance()
    if unread:
        progress.say(f"{snapshot.name}: {unread} commits left out, their suites do not run today")
    return found


def pairs(snapshot: Snapshot) -> Iterator[str]:
    """Commits that changed both the library and its tests, newest first; not that of the snapshot,
    whose change its own history takes back.

    Raises SourceError where git cannot read the clone.
    """
    clone, recipe = Clone(Path(snapshot.source.location)), snapshot.recipe
    for commit in clone.commits(snapshot.source.version, History.most_commits):
        paths = [edit.path for edit in commit.edits]
        changed = any(is_library(path, recipe) for path in paths)
        here = commit.id == snapshot.source.version
        if (
            changed
            and not here
            and not all(is_library(path, recipe) for path in [*paths, *commit.others])
        ):
            yield commit.id
