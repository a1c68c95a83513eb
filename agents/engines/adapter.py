"""What is done to a model before it is trained: the LoRA adapter in place of all weights, and checkpointing."""

from __future__ import annotations

from typing import Any

from toolorchestra.agents.engines.settings import EngineSettings

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def keep_few_activations(model: Any) -> None:
    """Let each block keep its input alone, and run again in the backward pass. Releases of transformers name it
    differently."""
    now = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    now({"use_reentrant": False})


def with_lora(model: Any, settings: EngineSettings, seed: int) -> Any:
    """The model under a fresh adapter, which changes nothing until it is trained. In 16 bits it is never added into the
    weights: their last digit is more than most of a training's steps, and would swallow them."""
    import torch
    from peft import LoraConfig, get_peft_model

    from toolorchestra.agents.engines.merged_lora import use_merged

    wanted = LoraConfig(
        r=settings.lora_rank, lora_alpha=settings.lora_alpha, target_modules=[*TARGETS], lora_dropout=0.0
    )
    with torch.random.fork_rng(devices=[]):  # peft draws on the CPU, before it moves what it drew
        torch.manual_seed(seed)
        made = get_peft_model(model, wanted)
    if torch.device(settings.device).type == "cpu" and settings.dtype == "float32":
        use_merged(made)
    return made
