"""What a model needs in memory: its weights, and the cache of a context, by precision."""

from collections.abc import Sequence
from dataclasses import dataclass

from tadpole import process

# Parameters up to -> layers, and width of the keys of one layer (heads that are kept times their
# size): the most that common dense models of that size have (Qwen2.5, Qwen3, Llama 3, Mistral).
_SHAPES = (
    (0.2e9, 30, 192),
    (0.8e9, 28, 1024),
    (2.5e9, 28, 1024),
    (5e9, 36, 1024),
    (9e9, 36, 1024),
    (16e9, 40, 1024),
    (35e9, 64, 1024),
    (80e9, 80, 1024),
)
# Bytes of one number, with the scales of its block.
WEIGHTS = {"bf16": 2.0, "q8_0": 1.0625, "q4_K_M": 0.6}
CACHE = {"f16": 2.0, "q8_0": 1.0625}


@dataclass(frozen=True)
class Footprint:
    """Bytes by precision, for one conversation."""

    parameters: int
    context: int
    weights: dict[str, int]
    cache: dict[str, int]

    def least(self) -> int:
        """The smallest of them that works."""
        return min(self.weights.values()) + min(self.cache.values())

    def told(self) -> str:
        """The table in one line, in GiB."""
        weights, cache = (
            ", ".join(f"{name} {size / 2**30:.1f}" for name, size in part.items())
            for part in (self.weights, self.cache)
        )
        return f"weights {weights} GiB, and cache {cache} GiB"


def footprint(parameters: int, context: int) -> Footprint:
    """For a dense model with the cache shape that its size usually has; rather too much."""
    shape = next((row for row in _SHAPES if parameters <= row[0]), _SHAPES[-1])
    numbers = 2 * shape[1] * shape[2] * context  # keys and values
    return Footprint(
        parameters=parameters,
        context=context,
        weights={name: int(parameters * size) for name, size in WEIGHTS.items()},
        cache={name: int(numbers * size) for name, size in CACHE.items()},
    )


def gpu_memory(argv: Sequence[str] = ("nvidia-smi",)) -> int:
    """Bytes of all NVIDIA GPUs here; 0 where there is none or it cannot be told."""
    asked = [*argv, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = process.run(asked, timeout=10)
    except OSError:
        return 0
    rows = done.stdout.decode(errors="replace").split() if done.ok else []
    return sum(int(row) for row in rows if row.isdigit()) << 20
