"""Rebuild the tiny model's tokenizer from scripted episodes: `python scripts/build_tiny_tokenizer.py`."""

from __future__ import annotations

import argparse
import random
import sys
from functools import partial
from pathlib import Path

import jinja2

from toolorchestra.agents.engines.tiny import TEMPLATE, build_tokenizer
from toolorchestra.agents.policies.plans import Follows, random_plan
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.env import run_calls
from toolorchestra.envs.episode.episode import Pending, Step
from toolorchestra.envs.tools import tool_config

TARGET = Path(__file__).parents[1] / "agents" / "data" / "tiny" / "tokenizer.json"


def texts(episodes: int) -> list[str]:
    """Rendered episodes of random plans in both worlds."""
    template = jinja2.Environment().from_string(TEMPLATE)
    rendered = []
    for env_id in ("HLE-v0", "FRAMES-v0"):
        made = factory_of(env_id, style="brief", shown_characters=0, diversify="train")
        rng = random.Random(0)
        for seed in range(episodes):
            episode, policy = made.start(seed).episode, Follows(partial(random_plan, rng=rng))
            while not episode.over:
                moved: Pending | Step = episode.act(policy(episode))
                while isinstance(moved, Pending):
                    moved = episode.resolve(run_calls(moved.calls))
            rendered.append(template.render(messages=episode.messages, tools=episode.world.toolbox.schemas))
    return rendered


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=1500, help="per environment")
    parser.add_argument("--out", type=Path, default=TARGET)
    args = parser.parse_args()
    paper = tool_config.load("paper")
    tools = sorted(e.name for e in paper.tools)
    offers = [o for e in paper.tools for o in e.offers]
    names, seconds = {o.alias for o in offers}, {f" {o.seconds:g}" for o in offers}
    args.out.write_text(build_tokenizer(texts(args.episodes), tools, names, sorted(seconds)), encoding="utf-8")
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
