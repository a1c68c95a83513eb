"""LoRA: the adapter that is trained in place of all weights, apart from the model.

In 16 bits a merged weight would round away what changes it by less than its last digit: there an adapter is multiplied
in the width of what comes in, as vLLM does, and added before the sum is rounded; its weights, gradients and the
optimiser's moments stay float32.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from toolorchestra.agents.engines.base import Adapter, EngineSettings
from toolorchestra.agents.engines.sharded import whole

NAME = "default"
"""PEFT's of the one adapter that there is."""
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_ATTENTION = ("flash_attention", "cudnn_attention", "efficient_attention", "flash_attention_for_cpu")
"""torch's ways to compute attention, on a GPU and on a CPU."""


def keep_few_activations(model: Any) -> None:
    """Let each block keep its input and what its attention gave, and run the rest again in the backward pass. Of long
    sequences attention takes the most operations, and its outcome is as wide as the input. Releases of transformers
    name it differently."""
    now = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    now(few_kept())


def few_kept() -> dict[str, Any]:
    """What torch's checkpoint() is told, so that it does so."""
    kept = [getattr(torch.ops.aten, f"_scaled_dot_product_{way}").default for way in _ATTENTION]
    return {"use_reentrant": False, "context_fn": partial(create_selective_checkpoint_contexts, kept)}


def with_lora(model: Any, settings: EngineSettings, seed: int) -> Any:
    """The model under a fresh adapter, which changes nothing until it is trained, and is never added into the weights:
    the last digit of 16 bits is more than most of a training's steps, and would swallow them."""
    from peft import LoraConfig, get_peft_model
    from peft.tuners.lora import Linear

    wanted = LoraConfig(
        r=settings.lora_rank, lora_alpha=settings.lora_alpha, target_modules=[*TARGETS], lora_dropout=0.0
    )
    with torch.random.fork_rng(devices=[]):  # peft draws on the CPU, before it moves what it drew
        torch.manual_seed(seed)
        made = get_peft_model(model, wanted)
    if settings.dtype != "float32":
        for module in made.modules():
            if isinstance(module, Linear):
                layer: Any = module
                layer.forward = NarrowLayer(layer)
    return made


def adapter_of(model: Any, base: int) -> Adapter:
    """The adapter of a model of PEFT; `base` numbers the weights below it."""
    layers = {place: layer for place, layer in model.get_base_model().named_modules() if hasattr(layer, "lora_A")}
    pairs = {
        place: (whole(layer.lora_A[NAME].weight.detach()), whole(layer.lora_B[NAME].weight.detach()))
        for place, layer in layers.items()
    }
    made = model.peft_config[NAME]
    below = next(iter(layers.values())).base_layer.weight.dtype
    return Adapter(base, made.r, made.lora_alpha, pairs, str(below).removeprefix("torch."))


def write_adapter(adapter: Adapter, folder: Path) -> None:
    """A new folder that PEFT and vLLM load the adapter from, in the width that it is multiplied in."""
    from safetensors.torch import save_file

    folder.mkdir()
    names = sorted({place.rpartition(".")[2] for place in adapter.pairs})
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": adapter.rank, "lora_alpha": adapter.alpha}
    (folder / "adapter_config.json").write_text(json.dumps({**config, "target_modules": names}), encoding="utf-8")
    weights = {
        f"base_model.model.{place}.lora_{letter}.weight": value.to(
            "cpu", getattr(torch, adapter.dtype), copy=True
        ).contiguous()
        for place, pair in adapter.pairs.items()
        for letter, value in zip("AB", pair, strict=True)
    }
    save_file(weights, folder / "adapter_model.safetensors")


class NarrowLayer:
    """What an adapted layer of 16 bits does: x W^T + scale (x A^T) B^T, all of it in the width of x. PEFT would make
    float32 of x first: a quarter of a step's time on a GPU, and a tenth of its memory."""

    def __init__(self, layer: Any) -> None:
        self._layer, self._scale = layer, float(layer.scaling[NAME])

    def __call__(self, x: Tensor) -> Tensor:
        made: Tensor = self._layer.base_layer(x)
        if self._layer.disable_adapters:
            return made
        a, b = (getattr(self._layer, name)[NAME].weight.to(x.dtype) for name in ("lora_A", "lora_B"))
        thin = F.linear(x, a).flatten(0, -2)
        return torch.addmm(made.flatten(0, -2), thin, b.T, alpha=self._scale).view_as(made)
