"""How well baselines do in the simulated worlds: `python scripts/world_players.py` prints one table.

Intervals are of 95 %, by a bootstrap of tasks. SIMULATED.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.policies.oracle import Oracle
from toolorchestra.agents.rollouts.rewards import Measure
from toolorchestra.agents.rollouts.rollout import factory_of, measured
from toolorchestra.envs.episode.episode import Episode

PLAYERS: dict[str, Callable[[int], Callable[[Episode], str]]] = {
    "random": lambda seed: baseline("random", seed),
    "cheapest": lambda _: baseline("cheapest"),
    "strongest": lambda _: baseline("strongest"),
    "planner": lambda _: Oracle(knows_luck=False),
    "oracle": lambda _: Oracle(),
}
DRAWS = 2_000


def interval(values: list[float]) -> str:
    """The mean with its interval, in percent."""
    chosen = np.random.default_rng(0).integers(len(values), size=(DRAWS, len(values)))
    low, high = np.percentile(np.array(values)[chosen].mean(axis=1), (2.5, 97.5))
    return f"{np.mean(values):.1%} ({low:.1%} to {high:.1%})"


def row(env_id: str, world: str, tasks: int) -> list[str]:
    """Accuracy and cents of each player."""
    made = factory_of(env_id, world=world, style="brief", shown_characters=0, preference="none")
    cells = []
    for player in PLAYERS.values():
        seen: list[Measure] = [measured(played(made, player(seed), seed)) for seed in range(tasks)]
        cents = 100 * float(np.mean([one.usd for one in seen]))
        cells.append(f"{interval([one.outcome for one in seen])}, {cents:.2f} ¢")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=300)
    args = parser.parse_args()
    print(f"| world | {' | '.join(PLAYERS)} |")
    print(f"| --- | {' | '.join('---' for _ in PLAYERS)} |")
    for env_id in ("ToolOrchestra/HLE-v0", "ToolOrchestra/FRAMES-v0"):
        for world in ("2026-11", "2025-11"):
            print(f"| {env_id.split('/')[1]}, {world} | {' | '.join(row(env_id, world, args.tasks))} |", flush=True)


if __name__ == "__main__":
    main()
