"""What a preset takes of a GPU's memory, from the model's shape alone: no GPU and no weights are needed.

python scripts/memory_budget.py --preset 8b-h100 --shape qwen3-8b --gigabytes 80
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.config import preset, with_settings
from toolorchestra.agents.configuration.option_types import pairs
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="8b-h100")
    parser.add_argument("--shape", default="qwen3-8b", help=f"a config.json, or one of: {', '.join(SHAPES)}")
    parser.add_argument("--gigabytes", type=float, default=80.0, help="of the device, 10^9 bytes each")
    parser.add_argument(
        "--set", nargs="*", action="extend", default=[], metavar="FIELD=VALUE", help="e.g. model.memory_share=0.5"
    )
    args = parser.parse_args()
    try:
        config = with_settings(preset(args.preset), pairs("--set", args.set))
        shape = SHAPES.get(args.shape) or read_shape(Path(args.shape))
        made = budget(plan(config, shape, int(args.gigabytes * 1e9)))
        made.check()
    except (ConfigError, OSError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    print(made.table())
    if made.cached_tokens:
        print(
            f"\nthe sampler's cache holds {made.cached_tokens:,} tokens, {config.max_context:,} are an episode's most"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
