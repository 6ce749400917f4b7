"""What every stage works with: the sandboxes, the snapshot store and the grader, made once."""

from dataclasses import dataclass
from pathlib import Path

from tadpole.config import Config
from tadpole.grading.grader import PytestGrader
from tadpole.leaf.conversations.chat import ChatDialogue
from tadpole.leaf.dialogue import Dialogue
from tadpole.outcome import Tier
from tadpole.protocols import ChatModel, Grader, SandboxEngine, TokenPolicy
from tadpole.repos.store import Store
from tadpole.rollout import Rollout
from tadpole.rundir import RunDir
from tadpole.sandboxes import ladder
from tadpole.settings import SandboxConfig


@dataclass(frozen=True)
class Workshop:
    """The parts that make and grade tasks on this machine."""

    cache: Path
    engine: SandboxEngine
    store: Store
    grader: Grader

    @classmethod
    def open(
        cls, cache: Path, sandbox: SandboxConfig | None = None, tier: Tier = Tier.HARDENED
    ) -> "Workshop":
        """Sandboxes of the first engine that holds here, graded by pytest at ``tier``.

        Tries to break out of one first (some tenths of a second, once per process), so that a
        machine which cannot isolate is told before any work. Raises SandboxUnavailable.
        """
        engine = ladder.opened(sandbox or SandboxConfig())
        store = Store(cache, engine)
        return cls(cache, engine, store, PytestGrader(engine, store, tier=tier))

    def rollout(
        self,
        policy: TokenPolicy | ChatModel,
        dialogue: Dialogue | ChatDialogue,
        config: Config,
        rundir: RunDir,
    ) -> Rollout:
        """Who makes the attempts of ``policy`` for a run."""
        return Rollout(
            engine=self.engine,
            store=self.store,
            grader=self.grader,
            policy=policy,
            dialogue=dialogue,
            settings=config.leaf,
            rundir=rundir,
            concurrency=config.run.concurrency,
            truncated_reward=config.train.truncated_reward,
        )
