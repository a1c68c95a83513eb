"""Models of a real one's shape with random weights: made where they are needed, in seconds, without a download."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def random_model(shape: Mapping[str, Any], dtype: str, device: str = "cpu", seed: int = 0) -> Any:
    """A Qwen3 of this shape (the keys of its config.json), made on the device in that dtype."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    kept = {name: value for name, value in shape.items() if name != "model_type"}
    config: Any = Qwen3Config(**{"max_position_embeddings": 40_960, "use_cache": False, **kept})
    usual = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.random.fork_rng(devices=[]), torch.device(device):
            torch.manual_seed(seed)
            return Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(usual)
