"""What a preset takes of a GPU's memory, from the model's shape alone: no GPU and no weights are needed.

toolorchestra memory-budget --preset 8b-h100 --shape qwen3-8b --gigabytes 80
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.agents.commands.train import Settings, preset_named
from toolorchestra.agents.engines.memory import budget
from toolorchestra.agents.training.build import plan
from toolorchestra.envs.base.errors import ConfigError

QWEN3 = {"model_type": "qwen3", "head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151936}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3-8b": {
        **QWEN3,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "tie_word_embeddings": False,
    },
    "qwen3-0.6b": {
        **QWEN3,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "tie_word_embeddings": True,
    },
}


def read_shape(path: Path) -> dict[str, Any]:
    """A model's config.json."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as err:
        raise ConfigError(f"{path} is not JSON: {err}; name a config.json, or one of: {', '.join(SHAPES)}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: a JSON object expected, got {found!r:.60}")
    return found


@dataclass(frozen=True)
class MemoryBudgetOptions:
    """What `toolorchestra memory-budget` takes."""

    settings: Annotated[Settings, tyro.conf.arg(name=""), tyro.conf.FlagConversionOff]
    shape: str = "qwen3-8b"
    """A model's config.json, or one of: qwen3-8b, qwen3-0.6b."""
    gigabytes: float = 80.0
    """Of the device, 10^9 bytes each."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    words = list(sys.argv[1:] if given is None else given)

    def default() -> MemoryBudgetOptions:
        return MemoryBudgetOptions(Settings.of(preset_named(words, "8b-h100")))

    return command(MemoryBudgetOptions, run, words, about=__doc__, default=default)


def run(given: MemoryBudgetOptions) -> int:
    """Print the budget; a run that does not fit is refused."""
    shape = SHAPES.get(given.shape) or read_shape(Path(given.shape))
    made = budget(plan(given.settings.config, shape, int(given.gigabytes * 1e9)))
    made.check()
    say(made.table())
    if made.cached_tokens:
        most = f"{given.settings.max_context:,} are an episode's most"
        say(f"\nthe sampler's cache holds {made.cached_tokens:,} tokens, {most}")
    return DONE
