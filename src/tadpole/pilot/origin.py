"""What a task was made of. It is not kept: the same proposals give it again."""

from dataclasses import dataclass

from tadpole.pilot.candidate import Candidate
from tadpole.repos.snapshot import Snapshot


@dataclass(frozen=True)
class Origin:
    """A change of a repository state."""

    snapshot: Snapshot
    candidate: Candidate
