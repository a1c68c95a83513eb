"""How often a trained tiny policy plays the planned route: `python scripts/follows_plans.py RUN`. SIMULATED.

The supervised start of the tiny preset learns from plans. Here the policy is led along the plans of new tasks, and its
likeliest next call is compared with the plan's at each turn: of the train split, and of the validation split, whose
tools, prices and sentences of the wish it has never seen.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.environments import held_out, training
from toolorchestra.agents.engines.base import Sample, SamplingParams
from toolorchestra.agents.rollouts.tokens import Chat, TokenSequence
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.demonstrations import Planner, try_routes
from toolorchestra.agents.training.route_values import learnt
from toolorchestra.agents.training.routes import FollowRoute
from toolorchestra.agents.training.saved_model import checkpoint_of, config_of
from toolorchestra.envs.env import run_calls
from toolorchestra.envs.episode.episode import Pending, Step
from toolorchestra.envs.factory import EpisodeFactory

FIRST_SEED = 3_500_000_000


async def followed(engine: Any, chat: Chat, factory: EpisodeFactory, plan: FollowRoute, seed: int) -> tuple[int, int]:
    """Turns of a plan, and how many of them the policy would have played."""
    params = SamplingParams(64, temperature=0.0)
    episode, sequence = factory.start(seed).episode, None
    turns = same = 0
    name = f"{factory.settings.split}/{seed}"
    while not episode.over:
        sequence = _followed_by(chat, sequence, episode.observation)
        said = chat.tokenizer.decode((await engine.sample(sequence.tokens, params, name)).tokens)
        text = plan(episode)
        turns, same = turns + 1, same + (text in said)
        ids = [*chat.encode(text), chat.stop]
        chat.take(sequence, Sample(ids, [0.0] * len(ids), True))
        moved: Pending | Step = episode.act(text)
        while isinstance(moved, Pending):
            moved = episode.resolve(run_calls(moved.calls))
    engine.release(name)
    return turns, same


def _followed_by(chat: Chat, sequence: TokenSequence | None, observation: Any) -> TokenSequence:
    return chat.follow(sequence, observation)[0]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a run of the tiny preset")
    parser.add_argument("--tasks", type=int, default=150, help="of each environment and split")
    args = parser.parse_args()
    best = checkpoint_of(args.run)
    config = config_of(best)
    config = replace(config, model=replace(config.model, processes=1))
    tried = sorted(try_routes(config, range(config.warm_start.demonstrations)), key=lambda one: one[0])
    values = {env: learnt([route for _, route in some]) for env, some in groupby(tried, key=lambda one: one[0])}
    engine, chat = build(config, lambda _line: None)
    engine.load(best)
    with engine.averaged():
        for split in ("train", "validation"):
            counts: Counter[str] = Counter()
            for env, mix in enumerate(config.environments):
                factory = training(mix) if split == "train" else held_out(mix, "validation")
                planner = Planner(values[env], factory, config.anchors)
                for seed in range(FIRST_SEED, FIRST_SEED + args.tasks):
                    plan = FollowRoute(planner.plan(seed))
                    turns, same = await followed(engine, chat, factory, plan, seed)
                    counts.update(turns=turns, same=same, tasks=1, whole=turns == same)
            print(
                f"{split}: {counts['whole'] / counts['tasks']:.0%} of {counts['tasks']} plans from first to last turn, "
                f"{counts['same'] / counts['turns']:.0%} of {counts['turns']} turns"
            )


if __name__ == "__main__":
    asyncio.run(main())
