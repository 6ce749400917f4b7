"""Where a climb on verl leaves what, below the run directory, and the names it goes by."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tadpole.rl.metrics import UpdateRow
from tadpole.trace import Record

LOSS = "tadpole_dppo"  # our policy loss in verl's registry
MODE = "tadpole"  # our trainer in verl's registry
LOOP = "leaf"  # our agent loop
RAW = "raw_reward"  # the reward that groups are filtered on
SESSIONS = 256  # samples of one task between two of its drawings: more than a group has
GPUS = "cuda"
LATEST = "latest_checkpointed_iteration.txt"  # verl's name for where it stands
# Sums of one micro-batch, of |p - q|, of tokens dropped, of tokens. verl averages them over
# micro-batches and ranks alike, so that their quotients are those of all tokens.
GAPS, DROPPED, TOKENS = "actor/tadpole_gaps", "actor/tadpole_dropped", "actor/tadpole_tokens"
NOT_STARTED = 75  # exit status of the driver: Ray did not start, so nothing was done


class Names(Record):
    """How the versions of the policy are called in rows and traces."""

    format: Literal[1] = 1
    base: str  # the weights that the climb starts from
    incarnation: int  # how often it was started: weights that are made again get other names
    made: tuple[str, ...] = ()  # of the updates 1, 2, ... that this process goes on from

    @classmethod
    def of(cls, base: str, rows: list[UpdateRow], done: int, incarnation: int) -> "Names":
        """Names for a process that goes on from ``done`` updates; ``rows`` are all there are."""
        known = {row.update: row.fingerprint for row in rows}
        made = tuple(known[update] for update in range(1, done + 1))
        return cls(base=base, incarnation=incarnation, made=made)

    def of_version(self, version: int) -> str:
        """The fingerprint of the weights that have seen ``version`` updates."""
        if version == 0:
            return self.base
        if version <= len(self.made):
            return self.made[version - 1]
        return f"{self.base}+{version}.{self.incarnation}"


@dataclass(frozen=True)
class Places:
    """The files of a climb on verl; every node must see them under these paths."""

    run: Path  # the run directory, absolute

    @classmethod
    def of(cls, run: str | Path) -> "Places":
        """Those of a run directory."""
        return cls(Path(run).absolute())

    @property
    def root(self) -> Path:
        """All but the rows, traces, patches and checkpoints that every climb has."""
        return self.run / "verl"

    @property
    def tasks(self) -> Path:
        """The training tasks, as verl's data loader reads them."""
        return self.root / "tasks.parquet"

    @property
    def loop(self) -> Path:
        """Which class plays an episode, and of which run."""
        return self.root / "leaf.yaml"

    @property
    def names(self) -> Path:
        """The names of the policy's versions (:class:`Names`)."""
        return self.root / "names.json"

    @property
    def states(self) -> Path:
        """verl's own checkpoints: weights, optimizer, queue."""
        return self.root / "states"

    @property
    def log(self) -> Path:
        """What verl and Ray print."""
        return self.root / "log.txt"
