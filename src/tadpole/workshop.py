"""What every stage works with: the sandboxes, the snapshot store and the grader, made once."""

from dataclasses import dataclass
from pathlib import Path

from tadpole.grading.grader import PytestGrader
from tadpole.outcome import Tier
from tadpole.protocols import Grader, SandboxEngine
from tadpole.repos.store import Store
from tadpole.sandboxes.bubblewrap import BubblewrapEngine


@dataclass(frozen=True)
class Workshop:
    """The parts that make and grade tasks on this machine."""

    cache: Path
    engine: SandboxEngine
    store: Store
    grader: Grader

    @classmethod
    def open(cls, cache: Path, tier: Tier = Tier.HARDENED) -> "Workshop":
        """The embedded parts: bubblewrap sandboxes, graded by pytest at ``tier``."""
        engine = BubblewrapEngine()
        store = Store(cache, engine)
        return cls(cache, engine, store, PytestGrader(engine, store, tier=tier))
