"""What share of a training batch is padding, by preset: python scripts/padding_waste.py

The batches are those of the trainer (agents/engines/training_batches.py), made of the lengths of one step's rollouts.
For the presets of the tiny model and of small models on a CPU these are played, by random routes, in the preset's own
environments. For those with a GPU nobody has rollouts of a trained model: their lengths are drawn. An episode begins
with its environment's median opening (docs/results/prompts.md); what it adds is drawn log-normally, with the spread of
tokens that was seen in recordings of real models (0.85 over tasks, of which 0.57 between runs of one task, as natural
logarithms), around a quarter of the context; and it ends where the context does.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
from collections.abc import Sequence

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.configuration.presets import MACHINES, PRESETS
from toolorchestra.agents.engines.base import Datum
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.engines.training_batches import (
    LEAST_SHARED,
    MOST_PADDING,
    MOST_PADDING_OF_SMALL,
    batches,
    shared,
)
from toolorchestra.agents.evaluation.simulated_evaluation import played as played_episode
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.rollouts.tokens import Chat
from toolorchestra.envs.runtime.driver import begin
from toolorchestra.envs.runtime.invoke import Gates

OPENINGS = (980, 937, 5_886, 4_735, 4_900, 7_219)
"""Medians of docs/results/prompts.md."""
OVER_TASKS, WITHIN = math.sqrt(0.85**2 - 0.57**2), 0.57
"""Deviations of the logarithm of tokens: of tasks, and of the runs of one."""


def played(config: TrainConfig, step: int) -> list[Datum]:
    """A step's rollouts by random routes; in the tiny model's tokens, whatever the preset's are."""
    chat = Chat(load_tokenizer())
    rng = random.Random(step)
    data = []
    for _ in range(config.groups):
        made = training(rng.choice(config.environments))
        seed = rng.randrange(10**9)
        begun = made.start(seed).episode
        asyncio.run(begin(begun, Gates()))
        opening = len(chat.follow(None, begun.observation)[0].tokens)
        for number in range(config.rollouts):
            episode = played_episode(made, baseline("random", seed + number), seed)
            tokens = chat.encode(chat.render(episode.observation, prompting=False))
            data.append(Datum(tokens, (), (), [place >= opening for place in range(len(tokens))]))
    return data


def drawn(config: TrainConfig, step: int, openings: Sequence[int]) -> list[Datum]:
    """A step's rollouts, of drawn lengths."""
    rng = random.Random(step)
    middle = math.log(config.max_context / 4)
    data = []
    for _ in range(config.groups):
        opening, task = rng.choice(openings), rng.gauss(0, OVER_TASKS)
        for _ in range(config.rollouts):
            added = math.exp(middle + task + rng.gauss(0, WITHIN))
            data.append(Datum(range(min(config.max_context, opening + int(added))), (), (), (True,)))
    return data


def waste(config: TrainConfig, data: Sequence[Datum], step: int) -> float:
    """Padded tokens over all tokens of the batches of a step, with its optimiser steps as the trainer makes them."""
    shuffled = random.Random(step).sample(list(data), len(data))
    size = -(-len(shuffled) // config.updates)
    # As PolicyUpdate has it: the tiny model is small; only where activations are kept are common prompts run once.
    large = bool(config.model.path)
    share, most = large and not config.model.gradient_checkpointing, MOST_PADDING if large else MOST_PADDING_OF_SMALL
    real = whole = 0
    for start in range(0, len(shuffled), size):
        part = shuffled[start : start + size]
        for batch in batches(part, config.model.tokens_per_batch, share=share, most_padding=most):
            common = shared(batch) if share and len(batch) > 1 else 0
            common = common if common >= LEAST_SHARED else 0
            real += common + sum(len(d.tokens) - common for d in batch)
            whole += common + len(batch) * (max(len(d.tokens) for d in batch) - common)
    return 1 - real / whole


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PRESETS), default=list(PRESETS), help="presets")
    parser.add_argument("--steps", type=int, default=20, help="whose batches are looked at")
    args = parser.parse_args()
    print("| preset | lengths | median | longest | padding, mean | worst step |\n|---|---|---|---|---|---|")
    for name in args.only:
        config = PRESETS[name]
        ways = (
            {"drawn, its own environments": OPENINGS[:2], "drawn, all environments": OPENINGS}
            if MACHINES[name].gpus
            else {"played": ()}
        )
        for way, openings in ways.items():
            made = [drawn(config, s, openings) if openings else played(config, s) for s in range(args.steps)]
            shares = [waste(config, data, step) for step, data in enumerate(made)]
            every = [len(d.tokens) for data in made for d in data]
            print(
                f"| {name} | {way} | {statistics.median(every):,.0f} | {max(every):,} | "
                f"{statistics.fmean(shares):.1%} | {max(shares):.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
