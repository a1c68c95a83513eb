"""Makes the engine and the chat that a configuration asks for. Imports torch only when called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolorchestra.agents.config import TrainConfig
from toolorchestra.agents.tokens import Chat
from toolorchestra.envs.errors import ConfigError


def build(config: TrainConfig) -> tuple[Any, Chat]:
    """The local engine over the tiny model or over one of transformers'."""
    try:
        from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
        from toolorchestra.agents.engines.pretrained import load
        from toolorchestra.agents.engines.tiny import build_model, load_tokenizer
    except ModuleNotFoundError as err:
        raise ConfigError(
            f"training needs {err.name}, which is not installed: pip install torch==2.13.0, then "
            'pip install "toolorchestra[train]"'
        ) from None
    wanted = config.model
    if wanted.path:
        model, tokenizer = load(wanted.path, wanted.dtype)
    else:
        tokenizer = load_tokenizer()
        model = build_model(len(tokenizer), wanted.hidden, wanted.layers, config.seed)
    thinking = {} if wanted.thinking is None else {"enable_thinking": wanted.thinking}
    chat = Chat(tokenizer, thinking)
    longest = getattr(model.config, "max_position_embeddings", config.max_context)
    if config.max_context > longest:
        raise ConfigError(f"max_context is {config.max_context}, but {wanted.path or 'the tiny model'} reads {longest}")
    held = LocalConfig(
        rows=wanted.rows,
        length=config.max_context,
        tokens_per_batch=wanted.tokens_per_batch,
        device=wanted.device,
        dtype=wanted.dtype,
        threads=wanted.threads,
        training_threads=max(wanted.threads, wanted.processes),
        lora_rank=wanted.lora_rank,
        lora_alpha=wanted.lora_alpha,
        gradient_checkpointing=wanted.gradient_checkpointing,
        average=config.average,
        seed=config.seed,
        reference=bool(config.loss.kl),
    )
    return LocalEngine(model, [chat.stop], held), chat


def default_folder(config: TrainConfig) -> Path:
    """Where a run goes when nobody says."""
    return Path("runs") / f"{config.preset}-seed{config.seed}"
