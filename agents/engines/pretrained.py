"""Loads a model and its tokenizer by transformers, from a folder or a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolorchestra.envs.errors import ConfigError


def load(path: str, dtype: str) -> tuple[Any, Any]:
    """Model and tokenizer. A path that looks like a folder must be one: transformers would ask a hub for it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if path.startswith((".", "/", "~")) and not Path(path).expanduser().is_dir():
        raise ConfigError(
            f"model.path {path!r} is not a folder; name a folder with a model of transformers, or a hub id"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
    except (OSError, ValueError) as err:
        raise ConfigError(f"model.path {path!r} could not be loaded: {err}") from None
    return model, tokenizer
