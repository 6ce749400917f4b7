"""A tiny Qwen3.5, made on the spot: three Gated DeltaNet layers and one of attention."""

from typing import Any

import torch
from transformers.models.qwen3_5 import (
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
)

from tadpole.engines.shape import Shape

SHAPE = Shape(
    hidden=32, intermediate=64, layers=4, attention_layers=1, heads=4, kv_heads=2, head_dim=16,
    vocabulary=320, tied=False, key_heads=2, value_heads=4, key_dim=8, value_dim=8,
)  # fmt: skip


def tiny_config(vocabulary: int = SHAPE.vocabulary, **more: Any) -> Qwen3_5TextConfig:
    return Qwen3_5TextConfig(
        vocab_size=vocabulary,
        hidden_size=SHAPE.hidden,
        intermediate_size=SHAPE.intermediate,
        num_hidden_layers=SHAPE.layers,
        num_attention_heads=SHAPE.heads,
        num_key_value_heads=SHAPE.kv_heads,
        head_dim=SHAPE.head_dim,
        linear_num_key_heads=SHAPE.key_heads,
        linear_num_value_heads=SHAPE.value_heads,
        linear_key_head_dim=SHAPE.key_dim,
        linear_value_head_dim=SHAPE.value_dim,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        initializer_range=0.1,
        **more,
    )


def tiny_qwen(seed: int = 0, vocabulary: int = SHAPE.vocabulary) -> Qwen3_5ForCausalLM:
    """The text tower alone."""
    torch.manual_seed(seed)
    return Qwen3_5ForCausalLM(tiny_config(vocabulary)).eval()


def tiny_whole(seed: int = 0, vocabulary: int = SHAPE.vocabulary, **more: Any) -> Any:
    """The whole model, as it is published: text tower and a vision tower of no use here."""
    torch.manual_seed(seed)
    text = tiny_config(vocabulary, **more).to_dict()
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2,
              "out_hidden_size": SHAPE.hidden, "num_position_embeddings": 16}  # fmt: skip
    config = Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=False)
    return Qwen3_5ForConditionalGeneration(config).eval()
