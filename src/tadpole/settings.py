"""Every setting, with the published value as its default. :mod:`tadpole.config` loads them.

One class per section of the TOML file. Defaults are those of the published recipe for a 4B
model; where the recipe publishes none, the description says that the value is ours. The
embedded model gets other numbers from the files in ``presets/``.
"""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_serializer, model_validator

from tadpole.outcome import Tier
from tadpole.pilot.decision import Rule
from tadpole.protocols import Sampling
from tadpole.repos.address import shown
from tadpole.task import TaskKind

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]

EMBEDDED = "embedded"
OWN = "policy"  # the author is the model that is raised
SERVED = "openai:"  # before the name that a server has for its model


class Section(BaseModel):
    """Base of all sections: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DType(StrEnum):
    """Number format of the rollout's weights."""

    AUTO = "auto"  # bfloat16 where the hardware multiplies it natively, else float32
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class EngineKind(StrEnum):
    """Who samples the policy."""

    INPROCESS = "inprocess"
    SGLANG = "sglang"
    VLLM = "vllm"


class Switch(StrEnum):
    """A part that decides for itself unless told."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Tracker(StrEnum):
    """Who is told of an update besides the run's own rows."""

    NONE = "none"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    TRACKIO = "trackio"


class BoxKind(StrEnum):
    """How boxes are made; AUTO takes the first of the others that holds on this machine."""

    AUTO = "auto"
    SESSION = "session"  # bubblewrap, a process namespace for every command
    FLAT = "flat"  # bubblewrap where namespaces do not nest: one for all commands of a box
    CONTAINER = "container"  # podman or docker
    HARBOR = "harbor"  # an environment of Harbor's, on this machine or elsewhere


class ProposerName(StrEnum):
    """Where candidate tasks come from."""

    SINGLE_SITE = "single-site"  # a bug at one place
    COMPOSITION = "composition"  # two or three of them
    HISTORY = "history"  # what people changed, taken back; only from a local git clone
    REMOVAL = "removal"  # a body, or a group of helpers, that is to be written
    RENAME = "rename"  # a refactoring
    MIGRATION = "migration"  # code of an old Python


class Aim(StrEnum):
    """Which pass rates are kept: those of the settings, or one of the recipe's two."""

    OWN = "own"
    MIDDLE = "middle"  # 0.5 in rounds 1-4
    LOWER = "lower"  # 0 < p <= 0.5 in round 5


class ProfileName(StrEnum):
    """How much a policy is told."""

    FULL = "full"  # system prompt and schemas, through the model's own chat template
    COMPACT = "compact"  # one line and one shape: for models far below a billion weights
    FROGNANO = "frognano"  # the very text of the published harness, where it is installed


class TasksConfig(Section):
    """Which repositories become tasks, and how many."""

    sources: tuple[str, ...] = Field(default=("pypi:boltons", "pypi:toolz"), min_length=1)
    """Repositories: pypi:NAME, pypi:NAME==VERSION, a path, or a git URL; commas between. A git
    repository may be followed by @ and a commit, tag or branch. Secrets in a URL are not kept."""
    wheels: str = ""
    """Directory of wheels and source distributions: environments are built from it alone, without
    the network. Empty for pip's own settings. Ours."""
    count: Count = 300
    """Validated tasks to make. The recipe makes about 300 a round."""
    held_out_share: Share = 0.3
    """Share of the tasks that is never trained on, split by file. Ours."""
    validation_share: Share = 0.15
    """Share of the tasks that choose the checkpoint of a round, where train.rounds is above 1.

    Split by file, never trained on, and apart from those that are held out. Ours.
    """
    dir: str = ""
    """Task directories to use or to make them in; empty for tasks/ in the run directory."""
    proposers: tuple[str, ...] = Field(
        default=(
            "single-site=4",
            "composition=1",
            "history=2",
            "removal=2",
            "rename=1",
            "migration=1",
        ),
        min_length=1,
    )
    """Where candidates come from, each NAME or NAME=WEIGHT: single-site, composition, history (of
    a local git clone), removal, rename, migration. Ours."""
    pairs: Natural = 0
    """Commits of each local git clone whose tests are set over their parent's code. Each needs a
    snapshot of its own. Ours."""
    max_dictated_chars: Natural = 0
    """Longest old or new text of a bug, in characters; 0 for no limit. Ours, for tiny models."""
    mutants: Natural = 5
    """Wrong repairs, besides none, that a task's tests are tried on; 0: not measured. Ours."""
    min_kill_rate: Share = 0.7
    """Least share of the wrong repairs that a task's tests must notice. Ours."""
    seed: Natural = 0
    """Seed of the proposals and of the split. The same seed gives the same tasks."""
    earlier: tuple[str, ...] = ()
    """Task directories of earlier rounds: nothing like their tasks is made again; commas
    between. Ours."""
    max_repository: Share = 1.0
    """Largest share of the tasks that one repository may give. Ours."""
    max_operator: Share = 1.0
    """Largest share of the tasks that one operator may give. Ours."""
    max_kind: Share = 1.0
    """Largest share of the tasks that may be of one kind. Ours."""
    max_per_function: Natural = 0
    """Most tasks that edit the same function; 0 for no limit. Ours."""

    @property
    def weights(self) -> dict[ProposerName, float]:
        """The proposers with their weights."""
        return dict(_weight(text) for text in self.proposers)

    @field_serializer("sources")
    def _kept(self, sources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(shown, sources))

    @model_validator(mode="after")
    def _proposers(self) -> Self:
        names = list(self.weights)
        if len(names) < len(self.proposers):
            raise ValueError("proposers names one of them twice: name each once")
        if not any(self.weights.values()):
            raise ValueError("proposers gives every weight as 0: give one of them more")
        if self.max_dictated_chars and names != [ProposerName.SINGLE_SITE]:
            raise ValueError(
                "only single-site bugs can be dictated: say tasks.proposers single-site, or "
                "tasks.max_dictated_chars 0 for bugs of all kinds"
            )
        return self


def _weight(text: str) -> tuple[ProposerName, float]:
    name, _, weight = (part.strip() for part in text.partition("="))
    known = ", ".join(ProposerName)
    if name not in list(ProposerName):
        raise ValueError(f"there is no proposer {name!r}: choose among {known}")
    try:
        number = float(weight or 1)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError(f"the weight of {name} is no number of 0 or more: write {name}=2")
    return ProposerName(name), number


class AuthorConfig(Section):
    """A model that writes tasks, besides those that are made of the code itself."""

    model: str = ""
    """Empty for nobody, policy for the run's own model, or a model as policy.model takes it."""
    drafts: Count = 8
    """Tasks that it tries to write for each repository. Few of them pass the gates. Ours."""
    kinds: tuple[TaskKind, ...] = Field(default=tuple(TaskKind), min_length=1)
    """What it is asked for, in turn: bug_fix, feature, refactor, migration, performance; commas
    between. Ours."""
    max_turns: Count = 75
    """Assistant turns of one draft. Ours."""


class PolicyConfig(Section):
    """The model that is raised."""

    model: str = EMBEDDED
    """"embedded" (SmolLM2-135M-Instruct), a Hugging Face directory or name, or openai:NAME: a
    model behind the server at OPENAI_BASE_URL, which can be evaluated but not trained."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    dtype: DType = DType.AUTO
    """Number format of the rollout: auto, float32 or bfloat16."""
    threads: Natural = 0
    """CPU threads for the model; 0 for all cores that this process may use."""
    repeatable: bool = False
    """Whether episodes are decoded one by one, so that a run that was killed comes to the same bits
    (with threads 1, max_lag 0, and tools whose results repeat). Slower by what batches save. Ours.
    """
    engine: EngineKind = EngineKind.INPROCESS
    """Who samples: inprocess, sglang or vllm (servers that you have started; docs/engines.md)."""
    urls: tuple[str, ...] = ()
    """URLs of the rollout servers; commas between."""
    engine_dir: str = ""
    """Directory where servers read new weights; empty for engine/ in the run directory."""

    @model_validator(mode="after")
    def _served(self) -> Self:
        if (self.engine is EngineKind.INPROCESS) == bool(self.urls):
            wanted = "names no server" if not self.urls else "would not be asked"
            raise ValueError(f"urls {wanted}: engine is {self.engine.value}")
        return self


class GradingConfig(Section):
    """How a change is graded."""

    tier: Tier = Tier.CHALLENGED
    """1: the hidden tests, hardened. 3: and rewritten tests, for changes that passed. Ours."""


class LeafConfig(Section):
    """Limits of one episode."""

    profile: ProfileName = ProfileName.FULL
    """full, compact for very small models, or frognano (the installed package's own text)."""
    max_turns: Count = 75
    """Assistant turns. Recipe: 75 in rounds 1-4, 150 in round 5."""
    max_context: Count = 65_536
    """Tokens of context, prompt and tool results included. Recipe: 65,536, then 131,072."""
    max_tokens_per_turn: Count = 8192
    """Generated tokens of one turn."""
    max_seconds: Positive = 10_800.0
    """Seconds of one episode."""
    compaction_window: Natural = 0
    """W: window in tokens that the policy keeps by summarizing; 0 for off, as in training."""
    compaction_at: float = Field(default=0.8, gt=0, le=1)
    """rho: the share of the window that calls for a summary. Not published; ours."""

    @model_validator(mode="after")
    def _can_trigger(self) -> Self:
        if 0 < self.compaction_window < 5:
            raise ValueError(
                f"compaction_window {self.compaction_window} leaves no token for a summary, which "
                "gets a fifth of it; 0 switches compaction off"
            )
        at = self.compaction_at * self.compaction_window
        if self.compaction_window and at >= self.max_context:
            raise ValueError(
                f"compaction can never happen: {self.compaction_at:g} of compaction_window "
                f"{self.compaction_window} is {at:g} tokens, and an episode ends at max_context "
                f"{self.max_context}; lower compaction_window or compaction_at"
            )
        return self

    @property
    def observation_chars(self) -> int:
        """Characters of one tool result, lest it fill a small window; 0: the tools' own limits.

        A compact policy sees as many as its window has tokens: about a third of the window.
        """
        return self.max_context if self.profile is ProfileName.COMPACT else 0


class SamplingConfig(Section):
    """How the policy is sampled in training. The update assumes the defaults."""

    temperature: float = Field(default=1.0, gt=0)
    """Softmax temperature."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Nucleus; 1 for off."""
    top_k: Natural = 0
    """Number of likeliest tokens; 0 for off."""

    def at(self, max_tokens: int) -> Sampling:
        """The contract's value, with the limit of one turn in tokens."""
        return Sampling(self.temperature, self.top_p, self.top_k, max_tokens)


class EvalConfig(SamplingConfig):
    """How the policy is evaluated."""

    temperature: float = Field(default=0.6, gt=0)
    """Softmax temperature."""
    top_p: float = Field(default=0.95, gt=0, le=1)
    """Nucleus; 1 for off."""
    top_k: Natural = 20
    """Number of likeliest tokens; 0 for off."""
    samples: Count = 8
    """Attempts at each task. Ours; the recipe's benchmarks use three seeds."""
    retries: Natural = 2
    """How often an attempt that infrastructure broke is made again. Ours."""
    raw: bool = False
    """Whether a model that is warmed up is also evaluated as it came. Ours."""
    seed: Natural = 0
    """Added to run.seed."""


class CalibrateConfig(Section):
    """How learnable tasks are found: rollouts of the current policy."""

    samples: Count = 8
    """N: most attempts at each task and rung; fewer where the verdict is fixed before. The recipe
    does not publish its N."""
    probe: Natural = 4
    """Attempts after which a task that was never, or always solved is given up at that rung; 0:
    only once its verdict is fixed. Ours (bench/calibration.py)."""
    aim: Aim = Aim.OWN
    """Pass rates that are kept: own (low to high), middle (0.375 to 0.625; the recipe's 0.5 of
    rounds 1-4) or lower (above 0 to 0.5; its round 5)."""
    low: Share = 0.125
    """Lowest pass rate that is kept where aim is own. Ours."""
    high: Share = 0.875
    """Highest pass rate that is kept where aim is own. Ours."""
    start_rung: Natural = 0
    """Rung of the hint ladder where the walk starts; 0 tells the symptom only. Ours."""
    max_moves: Natural = 3
    """K: how often a task may be refined (told more or less, composed or split) before it is
    dropped. Ours."""
    budget: Natural = 0
    """Most attempts that count, for all tasks together; 0 for no bound. Ours."""
    quota: Natural = 0
    """Learnable tasks that a round wants: it ends as soon as there are so many, and more are made
    while there are fewer (not with a budget); 0: all that tasks.count gives. Ours."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low {self.low:g} is above high {self.high:g}")
        low, high = self.band
        if not Rule(self.samples, low, high).possible:
            raise ValueError(
                f"no number of successes in {self.samples} attempts lies between {low:g} and "
                f"{high:g}: raise samples, or widen low and high"
            )
        return self

    @property
    def band(self) -> tuple[float, float]:
        """(lowest, highest) pass rate that is kept."""
        if self.aim is Aim.MIDDLE:
            return (0.375, 0.625)
        return (0.0, 0.5) if self.aim is Aim.LOWER else (self.low, self.high)


class WarmupConfig(Section):
    """Teaches a tiny model the call format on self-made transcripts; nothing about any task."""

    enabled: Switch = Switch.AUTO
    """auto (only for the embedded model), on, or off. The recipe has no warm-up."""
    steps: Count = 150
    """Optimizer steps."""
    batch: Count = 8
    """Transcripts per step."""
    lr: Positive = 1e-4
    """Learning rate."""
    seed: Natural = 0
    """Added to run.seed."""


class LoraConfig(Section):
    """Low-rank adapters instead of full fine-tuning (arXiv 2106.09685). Not in the recipe."""

    rank: Natural = 0
    """Rank of the adapters on all linear layers; 0 for full fine-tuning. Ours."""
    alpha: Positive = 32.0
    """The adapters' product is scaled by alpha / rank. Ours."""


class TrainConfig(Section):
    """Climbs: rollouts, rewards, updates."""

    rounds: Count = 1
    """Rounds: tasks are made and calibrated on the policy as it is, then it climbs on them.

    Recipe: 5. Each round goes on from the checkpoint of the round before that did best on
    validation tasks, with a fresh optimizer.
    """
    updates: Count = 200
    """Optimizer updates of a round."""
    groups: Count = 32
    """Tasks per update."""
    group_size: int = Field(default=8, ge=2)
    """Episodes per task: the group whose mean reward is the baseline."""
    lr: Positive = 1e-6
    """Learning rate of Adam, constant."""
    betas: tuple[Share, Share] = (0.9, 0.98)
    """Adam's decay of the first and second moment."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Decoupled weight decay."""
    grad_clip: Positive = 1.0
    """Longest norm of the gradient."""
    dppo_delta: Positive = 0.2
    """A token is dropped when its probability moved further than this in the good direction."""
    advantage_eps: Positive = 1e-6
    """Added to the standard deviation of a group's rewards."""
    truncated_reward: Share = 0.5
    """Reward of an episode that solved its task but was cut by a limit."""
    length_from_update: Natural = 0
    """Update from which successes are length-shaped; 0 for never."""
    length_from_round: Natural = 0
    """Round, 2 or later, from which successes are length-shaped; 0 for never. Recipe: 3."""
    length_free_tokens: Count = 8192
    """N of 1 - alpha * ln(n / N): generated tokens that cost nothing. Not published."""
    length_alpha: float = Field(default=0.1, ge=0)
    """alpha of the same. Not published."""
    length_floor: Share = 0.5
    """Lowest reward of a success. Ours: a success is never below a truncated one."""
    max_lag: Natural = 0
    """Updates that a token may lag behind the weights it trains; 0: rollout and update alternate.

    Recipe: 1 or 3. From 1 on they overlap, and the policy in this process needs its weights twice.
    """
    batch_seconds: Positive = 14_400.0
    """Seconds that an update waits for its last episodes before it goes without them. Ours."""
    max_mean_gap: Positive = 0.05
    """Mean |p - q| between training and rollout at which the run stops. Ours."""
    max_dropped_share: Share = 0.3
    """Share of the tokens dropped by the trust region at which the run stops. Ours."""
    spike_norm: float = Field(default=0.0, ge=0)
    """Norm of the gradient above which an update is skipped; 0 for never. Ours."""
    gradient_checkpointing: bool = False
    """Whether an update computes activations twice instead of keeping them: memory, not results."""
    checkpoint_every: Count = 10
    """Updates between checkpoints."""
    keep_checkpoints: Natural = 0
    """The newest checkpoints that are kept, and besides them the best where it is known and the
    one that the next round starts from; 0 for all. Ours."""
    lora: LoraConfig = Field(default_factory=LoraConfig)
    """Low-rank adapters."""
    tracker: Tracker = Tracker.NONE
    """Who is told of each update besides updates.jsonl: none, tensorboard, wandb or trackio."""
    micro_batch_tokens: Count = 65_536
    """Tokens per forward pass of the update: memory, not results."""
    shuffle_rewards: bool = False
    """A control: rewards are shuffled within each group, so nothing can be learned."""
    seed: Natural = 0
    """Added to run.seed."""

    @model_validator(mode="after")
    def _floor(self) -> Self:
        shapes = self.length_from_update or self.length_from_round
        if shapes and self.length_floor < self.truncated_reward:
            raise ValueError(
                f"length_floor {self.length_floor:g} is below truncated_reward "
                f"{self.truncated_reward:g}: a success would score less than a cut one"
            )
        return self


class SandboxConfig(Section):
    """What isolates episodes and gradings. There is no setting that switches it off."""

    engine: BoxKind = BoxKind.AUTO
    """auto (the first of these that holds here), session, flat (both bubblewrap) or container; or
    harbor, which auto never is: boxes of sandbox.environment. Ours."""
    image: str = ""
    """Image of the container engine, with a Python 3.6 or newer; empty for an empty one that is
    shown this system's /usr. Harbor's environments are built on it. Ours."""
    environment: str = ""
    """Harbor's environment: one of its types (docker, e2b, modal, ...) or MODULE:CLASS. Ours."""

    @model_validator(mode="after")
    def _harbor(self) -> Self:
        asked = self.engine is BoxKind.HARBOR
        if asked and not (self.environment and self.image):
            raise ValueError(
                "engine harbor needs sandbox.environment (docker, e2b, ..., or MODULE:CLASS) and "
                "sandbox.image (with a Python like this machine's)"
            )
        if self.environment and not asked:
            raise ValueError("environment is for sandbox.engine harbor")
        return self


class RunConfig(Section):
    """Where the run is kept, and what it may use."""

    dir: str = "runs/main"
    """The run directory."""
    concurrency: Count = 4
    """Episodes at a time. Recipe: up to 256."""
    seed: Natural = 0
    """Seed of everything but the tasks."""
