"""What a climb will need: memory of every GPU, tokens and hours. Arithmetic, not measurement.

Each figure follows from the settings and from the assumptions that are printed with it. A plan
that does not fit is refused before anything is started.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tadpole.config import Config
from tadpole.engines.cluster import USED, Trainer
from tadpole.engines.shape import Shape
from tadpole.errors import ConfigError
from tadpole.settings import EngineKind

GIB = 1 << 30
RESERVE = 1.5  # GiB of a GPU that contexts, communication and fragmentation take. Assumed.
MASTER = 16  # bytes a trained weight: float32 weight, gradient and two moments
CHUNK = 256  # tokens whose logits exist at one time, as in tadpole.rl.logprob
READ = 2048  # tokens that a rollout server reads at one time (--max-num-batched-tokens)


@dataclass(frozen=True)
class Need:
    """One thing that takes memory of a GPU."""

    what: str
    gib: float


@dataclass(frozen=True)
class Gpu:
    """What ``count`` GPUs of one kind have to hold. ``gib`` 0: their size is not known."""

    role: str
    count: int
    gib: float
    needs: tuple[Need, ...]
    instead: str  # what to type where it does not fit

    @property
    def total(self) -> float:
        """GiB that are needed."""
        return sum(need.gib for need in self.needs)

    @property
    def fits(self) -> bool:
        """Whether it fits, as far as can be told."""
        return not self.gib or self.total <= self.gib


@dataclass(frozen=True)
class Work:
    """How much there is to do. Seconds are those of one update."""

    updates: int
    episodes: int  # played for one update, those without signal included
    tokens: float  # trained and read in one update
    generated: float  # sampled for one update
    seconds_train: float
    seconds_sample: float
    overlaps: bool

    @property
    def hours(self) -> float:
        """Of the whole climb: the slower of both where they overlap, else their sum."""
        both = (self.seconds_train, self.seconds_sample)
        return self.updates * (max(both) if self.overlaps else sum(both)) / 3600


@dataclass(frozen=True)
class Plan:
    """Memory and work of a climb, and what is assumed."""

    gpus: tuple[Gpu, ...]
    work: Work
    assumed: tuple[str, ...]

    def refusal(self) -> str:
        """Why it cannot be run, in one line; empty where it can."""
        for gpu in self.gpus:
            if not gpu.fits:
                most = max(gpu.needs, key=lambda need: need.gib)
                return (
                    f"{gpu.role} GPU needs {gpu.total:.1f} GiB and has {gpu.gib:g} (most of it: "
                    f"{most.what}, {most.gib:.1f}): {gpu.instead}"
                )
        return ""


def plan(config: Config, shape: Shape, *, rank: int = 0) -> Plan:
    """The plan of a configuration. ``rank``: of the LoRA adapters; 0 trains all weights.

    Raises ConfigError where the local trainer is planned without the size of its GPU.
    """
    asked = config.cluster
    gpus: tuple[Gpu, ...]
    if asked.trainer is Trainer.VERL:
        gpus = (trainer_gpu(config, shape), rollout_gpu(config, shape))
        training, sampling = asked.training, asked.sampling
    else:
        if not asked.gpu_gib:
            raise ConfigError("the size of the GPU is not known: say --cluster.gpu_gib 24")
        gpus = (single_gpu(config, shape, rank),)
        training = sampling = 1
    work = workload(config, shape, training=training, sampling=sampling)
    assumed = (
        f"mean episode of {mean_context(config):,} tokens, {asked.generated_share:.0%} generated",
        f"{asked.useful_share:.0%} of the groups have signal",
        f"training reaches {asked.train_efficiency:.0%} of {asked.gpu_tflops:g} teraflops",
        f"a rollout GPU generates {asked.decode_rate:g} tokens a second; reading is not counted",
        f"{RESERVE:g} GiB of each GPU are taken by contexts and fragmentation",
        f"the longest sequence is leaf.max_context, {config.leaf.max_context:,} tokens",
    )
    return Plan(gpus, work, assumed)


def trainer_gpu(config: Config, shape: Shape) -> Gpu:
    """One of the GPUs that train all weights, sharded over all of them (FSDP2)."""
    asked = config.cluster
    tokens = -(-config.leaf.max_context // asked.context_parallel)
    needs = (
        Need("weights, gradients, moments", MASTER * shape.parameters / asked.training / GIB),
        # The embedding is gathered whole in bfloat16, and its gradient with it.
        Need("gathered embedding", 2 * 2 * shape.vocabulary * shape.hidden / GIB),
        *_activations(shape, tokens),
        Need("reserve", RESERVE),
    )
    instead = (
        "raise --cluster.train_gpus or --cluster.context_parallel, or lower --leaf.max_context"
    )
    return Gpu("training", asked.training, asked.gpu_gib, needs, instead)


def rollout_gpu(config: Config, shape: Shape) -> Gpu:
    """One of the GPUs that sample: weights and one whole episode at least."""
    asked = config.cluster
    needs = _served(config, shape, asked.tensor_parallel)
    # What it does not fill is not its own: the limit is the share that it may use.
    needs.append(Need("reserve", RESERVE))
    instead = "raise --cluster.tensor_parallel, or lower --leaf.max_context"
    return Gpu("rollout", asked.sampling, asked.gpu_gib * USED, tuple(needs), instead)


def single_gpu(config: Config, shape: Shape, rank: int) -> Gpu:
    """The GPU of the local learner, with a rollout server beside it where that shares it.

    What is trained is float32, with gradients and moments; what is not is bfloat16.
    """
    asked = config.cluster
    tokens = max(config.train.micro_batch_tokens, config.leaf.max_context)
    trained = shape.adapter(rank) if rank else shape.parameters
    needs = [Need("weights of the learner", 2 * shape.parameters / GIB)] if rank else []
    needs += [
        Need("trained weights, gradients, moments", MASTER * trained / GIB),
        *_activations(shape, tokens, kept=not config.train.gradient_checkpointing),
        Need("reserve", RESERVE),
    ]
    if config.policy.engine is not EngineKind.INPROCESS and asked.server_share:
        share = asked.server_share * asked.gpu_gib
        least = sum(
            need.gib for need in (*_served(config, shape, 1), _serving(config, shape, rank))
        )
        if least > share:
            raise ConfigError(
                f"the server's share of {share:.1f} GiB cannot hold weights and one episode "
                f"({least:.1f} GiB with what it works with): raise --cluster.server_share or "
                "lower --leaf.max_context"
            )
        needs.append(Need("rollout server", share))
    elif config.policy.engine is EngineKind.INPROCESS:
        apart = config.train.max_lag > 0
        needs += _served(config, shape, 1, episodes=config.run.concurrency, shared=not apart)
    adapters = "a lower --train.lora.rank" if rank else "adapters (--train.lora.rank 16)"
    instead = (
        "lower --leaf.max_context and --train.micro_batch_tokens, say "
        f"--train.gradient_checkpointing true, or train {adapters}"
    )
    return Gpu("the single", 1, asked.gpu_gib, tuple(needs), instead)


def workload(config: Config, shape: Shape, *, training: int, sampling: int) -> Work:
    """Tokens and seconds of one update on so many GPUs."""
    asked, train = config.cluster, config.train
    used = train.groups * train.group_size
    played = round(used / asked.useful_share)
    tokens = used * mean_context(config)
    generated = played * mean_context(config) * asked.generated_share
    # Forward, recomputed forward and backward: 8 operations a weight and token; attention comes
    # on top: 2 x 4 operations a pair of positions, head channel and layer, half of them masked.
    width = shape.heads * shape.head_dim
    attention = 4 * 2 * shape.attention_layers * width * mean_context(config)
    flops = tokens * (8 * shape.parameters + attention)
    rate = training * asked.gpu_tflops * 1e12 * asked.train_efficiency
    return Work(
        updates=train.updates,
        episodes=played,
        tokens=tokens,
        generated=generated,
        seconds_train=flops / rate,
        seconds_sample=generated / (sampling * asked.decode_rate),
        overlaps=train.max_lag > 0,
    )


def mean_context(config: Config) -> int:
    """Tokens of a mean episode, tool results included."""
    return config.cluster.mean_context or config.leaf.max_context // 2


def _activations(shape: Shape, tokens: int, *, kept: bool = False) -> Sequence[Need]:
    """Of one sequence: what each layer keeps, one layer at work, the logits of one chunk.

    ``kept``: all of every layer is kept (no gradient checkpointing).
    """
    inside = shape.layer_bytes * tokens
    between = 2 * shape.hidden * shape.layers * tokens
    logits = 3 * 4 * shape.vocabulary * min(CHUNK, tokens)
    return (
        Need("activations kept", (inside * shape.layers if kept else between) / GIB),
        Need("one layer at work", 2 * inside / GIB),
        Need("logits of one chunk", logits / GIB),
    )


def _served(
    config: Config, shape: Shape, parallel: int, *, episodes: int = 1, shared: bool = False
) -> list[Need]:
    context = config.leaf.max_context * shape.kv_bytes + shape.state_bytes
    what = "one whole episode" if episodes == 1 else f"{episodes} whole episodes"
    needs = [Need(f"keys and values of {what}", episodes * context / parallel / GIB)]
    if not shared:
        needs.insert(0, Need("weights of the rollout", 2 * shape.parameters / parallel / GIB))
    return needs


def _serving(config: Config, shape: Shape, rank: int) -> Need:
    """What a server works with: tokens in one layer, logits of all turns, adapters in bfloat16."""
    logits = 3 * 4 * shape.vocabulary * config.run.concurrency
    adapters = 2 * shape.adapter(rank) if rank else 0
    return Need("server at work", (shape.layer_bytes * READ + logits + adapters) / GIB)


def told(found: Plan) -> str:
    """The plan for a person."""
    lines = []
    for gpu in found.gpus:
        size = f" of {gpu.gib:.1f} GiB" if gpu.gib else ", their size is not given"
        lines.append(f"{gpu.role} GPU ({gpu.count}): {gpu.total:.1f}{size}")
        lines += [f"  {need.gib:8.2f} GiB  {need.what}" for need in gpu.needs]
    work = found.work
    how = "overlapping" if work.overlaps else "in turn"
    lines += [
        "",
        f"one update: {work.episodes} episodes, {work.generated / 1e6:.1f} M tokens generated, "
        f"{work.tokens / 1e6:.1f} M trained on",
        f"  {work.seconds_sample:8.0f} s sampling, {work.seconds_train:.0f} s training, {how}",
        f"all {work.updates} updates: {work.hours:.1f} hours",
        "",
        "assumed, not measured:",
        *(f"  {line}" for line in found.assumed),
    ]
    return "\n".join(lines)
