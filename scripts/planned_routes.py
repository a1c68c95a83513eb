"""How far the tiny preset's planned routes come beside the oracle: `python scripts/planned_routes.py`. SIMULATED.

The supervised start learns from these plans, so this says what it can reach. They are made as in a run of seed 0, and
played on the run's validation tasks.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from itertools import groupby
from statistics import fmean

from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.evaluation.heldout import HeldOut, scale_of
from toolorchestra.agents.evaluation.panel import ORACLE, POLICY, scores
from toolorchestra.agents.evaluation.simulated_evaluation import played_by_tokens
from toolorchestra.agents.evaluation.statistics import ratio_interval
from toolorchestra.agents.policies.baselines import Baseline
from toolorchestra.agents.policies.oracle import Oracle
from toolorchestra.agents.rollouts.rewards import Measure
from toolorchestra.agents.rollouts.rollout import Job, measured
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.demonstrations import Planner, try_routes
from toolorchestra.agents.training.route_values import learnt
from toolorchestra.agents.training.routes import FollowRoute
from toolorchestra.envs.episode.episode import Episode

Panel = Mapping[str, Measure]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200, help="validation tasks of each environment")
    parser.add_argument("--plays", type=int, default=1, help="times that plan and oracle play each, with other luck")
    args = parser.parse_args()
    config = preset("tiny")
    tried = sorted(try_routes(config, range(config.warm_start.demonstrations)), key=lambda one: one[0])
    values = [learnt([route for _, route in some]) for _, some in groupby(tried, key=lambda one: one[0])]
    _, chat = build(config)
    held_out = HeldOut(config.environments, args.tasks, "validation", config.seed)
    jobs = held_out.jobs()
    labels = [mix.env_id for mix in config.environments]
    panels = [panel for label in labels for panel in held_out.baselines(label, chat)]
    mine: dict[str, list[float]] = defaultdict(list)
    best: dict[str, list[float]] = defaultdict(list)
    for number, (job, panel) in enumerate(zip(jobs, panels, strict=True)):
        opening = job.factory.start(job.seed).episode
        route = Planner(values[number // args.tasks], job.factory, config.anchors).plan(job.seed)
        scale = scale_of(measure for name, measure in panel.items() if name != ORACLE)

        def reward(
            player: Baseline, luck: int, job: Job = job, opening: Episode = opening, panel: Panel = panel
        ) -> float:
            ended = played_by_tokens(job.factory, player, job.seed, chat, luck=luck)
            found = scores(opening.world.toolbox.keys, opening.preference, measured(ended), panel)
            return found[POLICY].reward if found else 0.0

        planned = fmean(reward(FollowRoute(route), luck) for luck in range(args.plays))
        oracle = fmean(reward(Oracle(scale), luck) for luck in range(args.plays))
        for name in ("all", labels[number // args.tasks], opening.preference.kind):
            mine[name].append(planned)
            best[name].append(oracle)
    for name, rewards in mine.items():
        share, ends = sum(rewards) / sum(best[name]), ratio_interval(rewards, best[name])
        print(f"{name}: {share:.1%} of the oracle's reward [{ends.low:.1%}, {ends.high:.1%}], {len(rewards)} tasks")


if __name__ == "__main__":
    main()
