"""What the budget says that a block keeps for its backward pass is what it keeps: every saved tensor is counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from toolorchestra.agents.engines import merged_lora
from toolorchestra.agents.engines.adapter import with_lora
from toolorchestra.agents.engines.memory import Shape
from toolorchestra.agents.engines.random_models import random_model
from toolorchestra.agents.engines.settings import EngineSettings

TOKENS, RANK = 64, 8
PLAIN = {
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 128,
    "tie_word_embeddings": True,
}


def kept_bytes(shape: dict[str, Any], layers: int, dtype: str, rank: int) -> int:
    """Of all tensors that a forward pass saves, but for the weights."""
    model = random_model({**shape, "num_hidden_layers": layers}, dtype)
    if rank:
        model = with_lora(model, EngineSettings(dtype=dtype, lora_rank=rank), 0).get_base_model()
    model.train()
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        seen[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no other gets its place
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = model.model(input_ids=torch.randint(0, 128, (1, TOKENS)), use_cache=False).last_hidden_state
    assert out.requires_grad
    return sum(t.untyped_storage().nbytes() for place, t in seen.items() if place not in weights)


@pytest.mark.parametrize("change", [{}, {"hidden_size": 128}, {"intermediate_size": 320}, {"num_attention_heads": 8}])
@pytest.mark.parametrize(("dtype", "rank"), [("float32", 0), ("bfloat16", 0), ("float32", RANK), ("bfloat16", RANK)])
def test_a_block_keeps_what_the_budget_says(
    dtype: str, rank: int, change: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_lora, "use_merged", lambda model: None)  # a GPU's way
    shape = {**PLAIN, **change}
    found = (kept_bytes(shape, 3, dtype, rank) - kept_bytes(shape, 2, dtype, rank)) / TOKENS
    told = Shape.read({**shape, "num_hidden_layers": 1}).block_bytes_per_token(
        4 if dtype == "float32" else 2, rank=rank
    )
    # Besides, each norm keeps a number for a row, and attention one for a head.
    assert told <= found <= 1.03 * told + 4 * (2 + 2 * shape["num_attention_heads"] + shape["num_key_value_heads"])
