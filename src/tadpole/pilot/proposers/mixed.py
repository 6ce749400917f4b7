"""Several proposers by weight, and which of them a setting names."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tadpole.pilot.candidate import Candidate
from tadpole.pilot.operators import OPERATORS
from tadpole.pilot.proposers.composition import Composition
from tadpole.pilot.proposers.history import History
from tadpole.pilot.proposers.migration import Migration
from tadpole.pilot.proposers.removal import BODY, Removal
from tadpole.pilot.proposers.rename import Rename
from tadpole.pilot.proposers.singlesite import SingleSite, Style
from tadpole.protocols import Proposer
from tadpole.repos.snapshot import Snapshot
from tadpole.settings import ProposerName

_BUGS = {name: operator for name, operator in OPERATORS.items() if name != BODY}  # a feature
_ALL: Mapping[ProposerName, Proposer] = {
    ProposerName.SINGLE_SITE: SingleSite(operators=_BUGS, by_worth=True),
    ProposerName.REMOVAL: Removal(),
    ProposerName.COMPOSITION: Composition(),
    ProposerName.HISTORY: History(),
    ProposerName.RENAME: Rename(),
    ProposerName.MIGRATION: Migration(),
}


@dataclass(frozen=True)
class Mixed:
    """Implements :class:`tadpole.protocols.Proposer`: each part is asked in proportion.

    Where a part has no more, the others go on. No change is proposed twice.
    """

    parts: tuple[tuple[Proposer, float], ...]

    @property
    def name(self) -> str:
        """Names and weights, so that another mixture has another name."""
        return ",".join(f"{proposer.name}={weight:g}" for proposer, weight in self.parts)

    def propose(self, snapshot: Snapshot, rng: random.Random) -> Iterator[Candidate]:
        """The part whose share is owed most comes next; each has a generator of its own."""
        seed = rng.getrandbits(64)
        streams = {
            number: proposer.propose(snapshot, random.Random(f"{seed} {proposer.name}"))
            for number, (proposer, _) in enumerate(self.parts)
        }
        taken = dict.fromkeys(streams, 0)
        seen = set()
        while streams:
            number = min(streams, key=lambda at: ((taken[at] + 1) / self.parts[at][1], at))
            candidate = next(streams[number], None)
            if candidate is None:
                del streams[number]
                continue
            taken[number] += 1
            if candidate.changes not in seen:
                seen.add(candidate.changes)
                yield candidate


def chosen(weights: Mapping[ProposerName, float], max_dictated: int = 0) -> Proposer:
    """The proposer for these weights.

    ``max_dictated`` asks for bugs that can be dictated in so many characters, evenly over all
    operators: only single-site ones can, so it goes with no other proposer.
    """
    if max_dictated:
        return SingleSite(style=Style.LINE, max_dictated=max_dictated)
    found = [(_ALL[name], weight) for name, weight in weights.items() if weight > 0]
    return found[0][0] if len(found) == 1 else Mixed(tuple(found))
