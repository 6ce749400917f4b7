"""The composition proposer: two or three single bugs at once, near each other.

Its parts are what the single-site proposer hands over, by worth, in different functions; that
each of them is a bug of its own the ladder finds out (:mod:`tadpole.pilot.inverse`).
:func:`compose` joins bugs that are confirmed already.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from tadpole.pilot.candidate import Candidate
from tadpole.pilot.operators import OPERATORS
from tadpole.pilot.proposers.singlesite import SingleSite
from tadpole.pilot.sources import Sources, sources_of
from tadpole.repos.snapshot import Snapshot

NAME = "composition"
WORTH = {name: o for name, o in OPERATORS.items() if o.worth >= 0.7 and name != "remove_body"}


@dataclass(frozen=True)
class Composition:
    """Implements :class:`tadpole.protocols.Proposer`. Each bug is part of at most one."""

    pool: int = 400  # single bugs to choose from
    triples: float = 0.25  # share of compositions with three parts, where there are so many
    name: str = NAME

    def propose(self, snapshot: Snapshot, rng: random.Random) -> Iterator[Candidate]:
        """A first bug, and one or two more: of its file, or run by one of its tests."""
        sources = sources_of(snapshot)
        single = SingleSite(operators=WORTH, by_worth=True, per_function=1)
        waiting = list(islice(single.propose(snapshot, rng), self.pool))
        reached = {bug.key: _tests(snapshot, bug) for bug in waiting}
        while len(waiting) > 1:
            parts = [waiting.pop(0)]
            wanted = 3 if rng.random() < self.triples else 2
            for other in rng.sample(waiting, len(waiting)):
                if len(parts) < wanted and _fits(sources, parts, other, reached):
                    parts.append(other)
            made = compose(sources, parts, rng.getrandbits(32)) if len(parts) > 1 else None
            if made is not None:
                waiting = [bug for bug in waiting if bug not in parts]
                yield made


def _fits(
    sources: Sources,
    parts: Sequence[Candidate],
    other: Candidate,
    reached: Mapping[str, frozenset[str]],
) -> bool:
    tests, near = reached[other.key], [reached[part.key] for part in parts]
    places = {(part.files, part.functions) for part in parts}
    same_file = any(part.files == other.files for part in parts)
    return (
        (other.files, other.functions) not in places
        and (same_file or any(tests & theirs for theirs in near))
        and len(tests.union(*near)) <= 2 * sources.most_failing  # not all of them will fail
    )


def _tests(snapshot: Snapshot, candidate: Candidate) -> frozenset[str]:
    found = (snapshot.baseline.tests_of(site.path, site.lines) for site in candidate.sites)
    return frozenset().union(*found)


def compose(sources: Sources, parts: Sequence[Candidate], seed: int) -> Candidate | None:
    """One candidate of several single bugs; None where their edits overlap."""
    sites = tuple(site for part in parts for site in part.sites)
    changes = sources.changes(sites)
    if changes is None:
        return None
    return Candidate(
        proposer=NAME,
        operator="+".join(part.operator for part in parts),
        changes=changes,
        functions=tuple(dict.fromkeys(name for part in parts for name in part.functions)),
        sites=sites,
        seed=seed,
        parts=tuple(parts),
    )
