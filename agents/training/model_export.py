"""Writes what a run has trained as a folder that transformers, peft and vLLM load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.rollouts.rollout import Chat
from toolorchestra.agents.training.build import base_model
from toolorchestra.agents.training.saved_model import SavedModel, TrainedAs, config_of, saved_model
from toolorchestra.envs.base.errors import ConfigError


def export_model(path: Path, folder: Path, *, adapter: bool = False, dtype: str = "") -> TrainedAs:
    """From a run's folder or a checkpoint to a new folder. `dtype` "" takes that of the run's weights. Gives what was
    written."""
    saved = saved_model(path)
    if saved.exported:
        raise ConfigError(f"{path} is such a folder already; name a run's folder, or a checkpoint")
    config = config_of(saved.path)
    if config.engine != "local":
        raise ConfigError(
            f"{path} was trained by engine {config.engine}, which keeps the weights itself; take them from there"
        )
    if adapter:
        _check_adapter(path, config)
    model, chat, averaged = _trained(saved, config)  # says what is missing, before anything is written
    from toolorchestra.agents.engines import weights as files

    how = replace(saved.how, averaged=averaged)
    with files.new_folder(folder) as draft:
        if adapter:
            files.export_adapter(model, chat.tokenizer, draft, dtype or "float32", how.base)
        else:
            how = replace(how, base="", lora_rank=0, lora_alpha=0)
            stops = (chat.stop, *(chat.call_ends if config.stop_at_call else ()))
            sampled = files.HowSampled(stops, config.evaluation_temperature)
            files.export_merged(model, chat.tokenizer, draft, dtype or config.model.dtype, sampled)
        how.write(draft)
    return how


def _check_adapter(path: Path, config: TrainConfig) -> None:
    if not config.model.lora_rank:
        raise ConfigError(
            f"{path} trained all weights, so there is no adapter to write; leave adapter=True out",
            command_line="the same without --adapter",
        )
    if not config.model.path:
        raise ConfigError(
            f"{path} trained an adapter on the tiny model, which is no folder that an adapter could name; leave "
            "adapter=True out",
            command_line="the same without --adapter",
        )


def _trained(saved: SavedModel, config: TrainConfig) -> tuple[Any, Chat, bool]:
    """The model with the checkpoint's weights, its chat, and whether the weights are averaged ones."""
    model, chat = base_model(config)
    from toolorchestra.agents.engines.lora import with_lora
    from toolorchestra.agents.engines.weights import take_evaluated

    if config.model.lora_rank:
        model = with_lora(model, config.model, config.seed)
    return model, chat, take_evaluated(saved.path, model)
