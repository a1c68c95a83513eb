"""Makes the packaged world `2026-11`: `python scripts/build_world.py` writes envs/data/models/world-2026-11.json.

The deviations are those of a fit of MCPMark's recorded runs (docs/results/worlds.md has the command and the intervals).
The skills are the older world's, on the new scale: which model is how good at what was chosen for routing to have a
point, and says nothing of the real models whose names are borrowed.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from toolorchestra.envs.models.fitted import Spread
from toolorchestra.envs.models.simulated import skills

SOURCE = "deviations: fit of MCPMark (eval-sys/mcpmark-experiments, 8f674f0); skills: chosen, as in world 2025-11"
TASK, PAIR = 1.91, 1.22
"""Fitted deviations of what a task is hard by, for all and for one model."""
LEVEL, MIDDLE, LEVELS_DEVIATION = 0.9, 3.57, 1.24
"""What a level of HLE-v0 takes; their mean, and their deviation. The level tells a part of the task's difficulty."""
STRONGEST, BEST = 5.5, 0.9
"""The strongest model's skill in world 2025-11, and here: alone it is right on about 70 % of HLE-v0."""
APART = 0.65
"""How far models are apart: what a level of skill in world 2025-11 is here."""
TOKENS, SECONDS = Spread(0.39, 0.45, 0.60, 0.50), Spread(0.34, 0.40, 0.59, 0.53)
TOGETHER = 0.8
STRETCH = {"qwen3-32b": 1.5, "gpt-5-mini": 1.2, "llama-3.3-70b": 0.7, "qwen2.5-math-7b": 0.7}
"""Whose lengths spread more or less than most: recorded are 95th percentiles of 2.4 to 13 times the median."""
SEARCH, COMPUTED = 0.4, 2.5
LIMIT_SECONDS, REFUSALS = 600.0, 0.005


def world() -> dict[str, Any]:
    """The file's content."""
    law = {
        "level": LEVEL,
        "middle": MIDDLE,
        "task": round(math.sqrt(TASK**2 - (LEVEL * LEVELS_DEVIATION) ** 2), 2),
        "pair": PAIR,
        "search": SEARCH,
        "computed": COMPUTED,
        "tokens": TOKENS._asdict(),
        "seconds": SECONDS._asdict(),
        "together": TOGETHER,
        "limit_seconds": LIMIT_SECONDS,
        "refusals": REFUSALS,
        "source": SOURCE,
    }
    models = {}
    for name, old in skills().items():
        stretch = STRETCH.get(name, 1.0)
        tokens, seconds = TOKENS.mean(stretch), SECONDS.mean(stretch)
        models[name] = {
            "answering": {family: _scaled(value) for family, value in old.answering.items()},
            "coding": {family: _scaled(value) for family, value in old.coding.items()},
            "querying": round(_scaled(old.querying) + 1.0, 2),
            "median_tokens": {purpose: round(value / tokens) for purpose, value in old.output_tokens.items()},
            "median_seconds": {purpose: round(value / seconds, 1) for purpose, value in old.seconds.items()},
            "reasons": old.reasons,
            "stretch": stretch,
        }
    return {"law": law, "models": models}


def _scaled(skill: float) -> float:
    return round(BEST + APART * (skill - STRONGEST), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("envs/data/models/world-2026-11.json"))
    args = parser.parse_args()
    args.out.write_text(json.dumps(world(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
