"""What a decoder of attention layers, or of Gated DeltaNet and these (Qwen3.5), weighs.

Pure arithmetic. Sizes are bytes. The text tower only: it is what is trained.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tadpole.errors import ConfigError


@dataclass(frozen=True)
class Shape:
    """The figures of a text tower, as in its ``config.json``."""

    hidden: int
    intermediate: int
    layers: int
    attention_layers: int  # those of a sliding window too; the others are Gated DeltaNet
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool  # one matrix embeds and predicts
    gated: bool = True  # attention's output is gated: its query projection is twice as wide
    key_heads: int = 16  # of Gated DeltaNet, as all that follow
    value_heads: int = 32
    key_dim: int = 128
    value_dim: int = 128
    conv: int = 4

    @property
    def parameters(self) -> int:
        """Weights of the tower, embedding and head included."""
        h = self.hidden
        mlp = 3 * h * self.intermediate + 2 * h  # with the layer's two norms
        query = self.heads * self.head_dim * (2 if self.gated else 1)
        key_value = 2 * self.kv_heads * self.head_dim
        attention = h * (query + key_value) + self.heads * self.head_dim * h + 2 * self.head_dim
        mixed, value = self._mixed, self.value_heads * self.value_dim
        delta = h * (mixed + value + 2 * self.value_heads) + mixed * self.conv + value * h
        delta += 2 * self.value_heads + self.value_dim
        embedding = self.vocabulary * h * (1 if self.tied else 2)
        return (
            self.layers * mlp
            + self.attention_layers * attention
            + (self.layers - self.attention_layers) * delta
            + embedding
            + h
        )

    @property
    def _mixed(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one token in bfloat16."""
        return self.attention_layers * 2 * self.kv_heads * self.head_dim * 2

    @property
    def state_bytes(self) -> int:
        """State of one episode in the Gated DeltaNet layers: float32, and the convolution's."""
        layers = self.layers - self.attention_layers
        matrix = self.value_heads * self.key_dim * self.value_dim * 4
        return layers * (matrix + self._mixed * (self.conv - 1) * 2)

    @property
    def layer_bytes(self) -> int:
        """bfloat16 activations of one token inside one layer, while it is computed again."""
        inside = 4 * self.intermediate + 6 * self.hidden + 2 * self._mixed
        return 2 * (inside + 4 * self.value_heads * self.value_dim)

    def adapter(self, rank: int) -> int:
        """Weights of LoRA adapters of ``rank`` on every projection of every layer."""
        h, i, value = self.hidden, self.intermediate, self.value_heads * self.value_dim
        query = self.heads * self.head_dim * (2 if self.gated else 1)
        kv = self.kv_heads * self.head_dim
        mlp = 3 * (h + i)
        attention = (h + query) + 2 * (h + kv) + (self.heads * self.head_dim + h)
        delta = (h + self._mixed) + (h + value) + 2 * (h + self.value_heads) + (value + h)
        rest = self.layers - self.attention_layers
        return rank * (self.layers * mlp + self.attention_layers * attention + rest * delta)


QWEN35_4B = Shape(
    hidden=2560,
    intermediate=9216,
    layers=32,
    attention_layers=8,
    heads=16,
    kv_heads=4,
    head_dim=256,
    vocabulary=248_320,
    tied=True,
)
KNOWN = {"Qwen/Qwen3.5-4B": QWEN35_4B}
# A window bounds keys and values, so that counting all of them is never too little.
_ATTENTION, _DELTA = {"full_attention", "sliding_attention"}, "linear_attention"
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_INSTEAD = "--cluster.gpu_gib 0 goes on without a plan"


def shape_of(model: str) -> Shape:
    """The shape of a model directory or of a name that is known here.

    Raises ConfigError where it is neither, or no decoder that the arithmetic is right for.
    """
    if model in KNOWN:
        return KNOWN[model]
    file = Path(model) / "config.json"
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = ", ".join(KNOWN)
        raise ConfigError(
            f"no plan for the model {model}: give --model a directory with a config.json or "
            f"{known}; {_INSTEAD}"
        ) from None
    try:
        return _read(body.get("text_config", body))
    except KeyError as error:
        wrong = f"its config.json does not say {error}"
    except (AttributeError, TypeError):
        wrong = "its config.json is none of a decoder"
    except ValueError as error:
        wrong = str(error)
    raise ConfigError(f"no plan for {model}: {wrong}; {_INSTEAD}")


def _read(text: dict[str, Any]) -> Shape:
    layers = text["num_hidden_layers"]
    kinds = text.get("layer_types") or ["full_attention"] * layers
    hybrid = _DELTA in kinds
    if strange := sorted(set(kinds) - _ATTENTION - {_DELTA}):
        raise ValueError(f"it has layers of another kind ({', '.join(strange)})")
    if any((text.get(name) or 0) > 1 for name in _EXPERTS):
        raise ValueError("it is a mixture of experts")
    if not hybrid and "linear_num_key_heads" in text:
        raise KeyError("layer_types")
    shape = Shape(
        hidden=text["hidden_size"],
        intermediate=text["intermediate_size"],
        layers=layers,
        attention_layers=sum(kind in _ATTENTION for kind in kinds),
        heads=text["num_attention_heads"],
        kv_heads=text["num_key_value_heads"],
        head_dim=text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"],
        vocabulary=text["vocab_size"],
        tied=bool(text.get("tie_word_embeddings", False)),
        gated=hybrid,
        key_heads=text["linear_num_key_heads"] if hybrid else 0,
        value_heads=text["linear_num_value_heads"] if hybrid else 0,
        key_dim=text["linear_key_head_dim"] if hybrid else 0,
        value_dim=text["linear_value_head_dim"] if hybrid else 0,
    )
    if not all(isinstance(figure, int) for figure in vars(shape).values()):
        raise TypeError
    return shape
