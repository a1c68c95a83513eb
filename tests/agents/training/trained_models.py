"""Checkpoints of tiny runs for tests, made without training: averaged weights are drawn, far from the last ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from toolorchestra.agents.configuration.config import EnvMix, ModelConfig, TrainConfig, as_json
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.tiny import build_model, load_tokenizer
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.build import build
from toolorchestra.envs.registration import register

register("Tests/ToyTrain-v0", "tests.support.toy:AdderSource")
TOY = EnvMix("Tests/ToyTrain-v0", 1.0, {"max_turns": 1}, validation="train", test="train")
SHORT = {"style": "brief", "shown_characters": 0, "max_turns": 3, "split": "test"}
"""HLE's, for a tiny model."""
WHOLE = replace(preset("tiny"), average=0.5, model=ModelConfig(hidden=16, rows=8))


def write_base(folder: Path, hidden: int = 16) -> Path:
    """A small model of transformers' that an adapter may be trained on."""
    tokenizer = load_tokenizer()
    build_model(len(tokenizer), hidden, 1, seed=7).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def adapted(base: Path) -> TrainConfig:
    """Of a run that trains an adapter on it."""
    return replace(WHOLE, model=replace(WHOLE.model, path=str(base), lora_rank=2))


def write_run(folder: Path, config: TrainConfig = WHOLE, scale: float = 0.4) -> Path:
    """A run's folder with one checkpoint."""
    engine, _ = build(config, lambda _line: None)
    draws = torch.Generator().manual_seed(3)
    for mean in engine._average:
        mean.add_(scale * torch.randn(mean.shape, generator=draws))
    state = {"config": as_json(config), "best_step": 4, "step": 4}
    checkpoint.save(folder / "checkpoints", 4, state, engine.save)
    engine.close()
    return folder


def kept(folder: Path, step: int | None = None) -> dict[str, Any]:
    """What the engine saved into a checkpoint of the run; the newest, where no step is named."""
    places = folder / "checkpoints"
    place = checkpoint.all_of(places)[-1] if step is None else places / f"step-{step:06d}"
    state: dict[str, Any] = torch.load(place / "engine.pt", weights_only=True)
    return state


def same(weights: Mapping[str, torch.Tensor], others: Mapping[str, torch.Tensor]) -> bool:
    """Whether others have these weights, to the bit."""
    return bool(weights) and all(torch.equal(value, others[name]) for name, value in weights.items())
