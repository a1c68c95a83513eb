"""The worlds table of the benchmarks: `python scripts/bench.py --table worlds`. CPU times.

What a step costs in the world whose experts err as recorded ones do, beside the first world, in turn: random play, so
that every kind of call is made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.factory import EpisodeFactory

WORLDS = ("2025-11", "2026-11")
IDS = ("HLE-v0", "FRAMES-v0")
ROUNDS = 10
EPISODES = 100
MOST_MORE = 1.10


def play(made: EpisodeFactory, seeds: range) -> tuple[float, int]:
    """CPU seconds and steps of random play."""
    steps, started = 0, time.process_time()
    for seed in seeds:
        steps += played(made, baseline("random", seed), seed).turn
    return time.process_time() - started, steps


def rows(seconds: float = 1.0) -> Iterator[tuple[str, str, str]]:
    """The least of some rounds, the worlds in turn within each round."""
    for env_id in IDS:
        made = {world: factory_of(f"ToolOrchestra/{env_id}", world=world) for world in WORLDS}
        least = dict.fromkeys(WORLDS, float("inf"))
        for _ in range(max(2, round(ROUNDS * seconds))):
            for world in WORLDS:
                spent, steps = play(made[world], range(EPISODES))
                least[world] = min(least[world], spent / steps * 1e6)
        first, fitted = (least[world] for world in WORLDS)
        yield f"{env_id}, world {WORLDS[0]}, random play", f"{first:.1f} us CPU/step", "resets included"
        note = f"{fitted / first:.2f} x (goal <= {MOST_MORE:.2f})"
        yield f"{env_id}, world {WORLDS[1]}, random play", f"{fitted:.1f} us CPU/step", note
