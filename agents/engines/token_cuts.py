"""Cutting texts by a tokenizer's tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError, install


@cache
def last_tokens(path: str) -> Callable[[str, int], str]:
    """What gives the last so many tokens of a text, by the tokenizer in a folder or of a hub."""
    try:
        from transformers import AutoTokenizer
    except ModuleNotFoundError:
        raise ConfigError(f"cutting by tokens needs transformers: {install('train')}") from None
    if path.startswith((".", "/", "~")) and not Path(path).expanduser().is_dir():
        raise ConfigError(f"tokenizer {path!r} is not a folder; name a folder with a tokenizer, or a hub id")
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as err:
        raise ConfigError(f"tokenizer {path!r} could not be loaded: {err}") from None

    def cut(text: str, tokens: int) -> str:
        ids = tokenizer.encode(text, add_special_tokens=False)
        if len(ids) <= tokens:
            return text
        return str(tokenizer.decode(ids[len(ids) - max(tokens, 0) :])) if tokens > 0 else ""

    return cut
