"""Loads a model and its tokenizer by transformers, from a folder or a hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError


def shape_of(path: str) -> Mapping[str, Any]:
    """A model's configuration, without its weights."""
    from transformers import AutoConfig

    try:
        found: Mapping[str, Any] = AutoConfig.from_pretrained(path).to_dict()
    except (OSError, ValueError) as err:
        raise ConfigError(f"model.path {path!r} could not be loaded: {err}") from None
    return found


def device_memory(device: str) -> tuple[str, int]:
    """A GPU's name and its bytes."""
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(f"model.device={device}, and torch sees no GPU here; install its CUDA build, or take cpu")
    found = torch.cuda.get_device_properties(device)
    return str(found.name), int(found.total_memory)


def load(path: str, dtype: str) -> tuple[Any, Any]:
    """Model and tokenizer. A path that looks like a folder must be one: transformers would ask a hub for it."""
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(path)
    try:
        with without_progress_bar():
            model = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, dtype))
    except (OSError, ValueError) as err:
        raise ConfigError(f"model.path {path!r} could not be loaded: {err}") from None
    return model, tokenizer


def load_tokenizer(path: str) -> Any:
    """Loads the tokenizer of a model, without the model."""
    from transformers import AutoTokenizer

    if path.startswith((".", "/", "~")) and not Path(path).expanduser().is_dir():
        raise ConfigError(
            f"model.path {path!r} is not a folder; name a folder with a model of transformers, or a hub id"
        )
    try:
        return AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as err:
        raise ConfigError(f"model.path {path!r} could not be loaded: {err}") from None


@contextmanager
def without_progress_bar() -> Iterator[None]:
    """Reading or writing weights without a line on the terminal."""
    from transformers.utils import logging as transformers_logging

    logging: Any = transformers_logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
