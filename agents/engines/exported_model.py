"""A trained model as transformers and vLLM load one: a folder of weights, configuration, tokenizer, chat template."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolorchestra.agents.engines.pretrained import without_progress_bar
from toolorchestra.agents.engines.weights import merged_weights
from toolorchestra.envs.base.errors import ConfigError

SHARD = "5GB"
"""A larger model's weights are written in several files of at most this size."""


@dataclass(frozen=True)
class HowSampled:
    """How the model was sampled where it was trained: what is written down for those who serve it."""

    stops: Sequence[int]
    """Tokens that end a turn."""
    temperature: float
    """0 takes the likeliest token."""


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder that is there when all of it has been written, and not before. One with something in it is refused."""
    check_new(folder)
    draft = folder.absolute().with_name(f".{folder.absolute().name}.{os.getpid()}")
    draft.mkdir(parents=True)
    try:
        yield draft
        draft.rename(folder.absolute())
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_new(folder: Path) -> None:
    """Refuse a place where something is."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise ConfigError(f"a new or an empty folder expected, but {folder} {what}; name another, or remove it")


def write_merged(model: Any, tokenizer: Any, folder: Path, dtype: str, sampled: HowSampled) -> None:
    """The whole model; an adapter is added into the weights, and the model has none afterwards."""
    import torch

    if hasattr(model, "get_base_model"):
        merged = merged_weights(model, getattr(torch, dtype))
        model = model.unload().to(getattr(torch, dtype))
        model.load_state_dict(merged)
    model = model.to(getattr(torch, dtype))
    model.config.use_cache = True
    model.generation_config = _generation(tokenizer, sampled)
    with without_progress_bar():
        model.save_pretrained(folder, max_shard_size=SHARD)
    tokenizer.save_pretrained(folder)


def write_adapter(model: Any, tokenizer: Any, folder: Path, dtype: str, base: str) -> None:
    """The adapter alone, as peft writes it, which names the model that it belongs on."""
    import torch

    model.peft_config["default"].base_model_name_or_path = base
    weights = {k: v.to(getattr(torch, dtype)) for k, v in model.state_dict().items() if "lora_" in k}
    # Whether the embedding belongs to it is known, and peft would ask a hub; its page about the model says nothing.
    model.save_pretrained(folder, state_dict=weights, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    tokenizer.save_pretrained(folder)


def _generation(tokenizer: Any, sampled: HowSampled) -> Any:
    """What a server takes as its defaults: the distribution that the model was trained and evaluated with."""
    from transformers import GenerationConfig

    make: Any = GenerationConfig
    whole = {"do_sample": True, "temperature": sampled.temperature, "top_k": 0, "top_p": 1.0}
    stops = sorted({*sampled.stops})
    return make(
        eos_token_id=stops if len(stops) > 1 else stops[0],
        pad_token_id=tokenizer.pad_token_id,
        **(whole if sampled.temperature else {"do_sample": False}),
    )
