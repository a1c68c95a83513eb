"""How far the tiny preset's planned routes come beside the oracle: `python scripts/planned_routes.py`. SIMULATED.

The supervised start learns from these plans, so this says what it can reach. They are made as in a run of seed 0, and
played on the run's validation tasks.
"""

from __future__ import annotations

import argparse
from itertools import groupby

from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.evaluation.heldout import HeldOut
from toolorchestra.agents.evaluation.panel import ORACLE, TaskScores, scores, share_of_oracle, standing
from toolorchestra.agents.evaluation.simulated_evaluation import played_by_tokens
from toolorchestra.agents.rollouts.rollout import measured
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.demonstrations import Planner, try_routes
from toolorchestra.agents.training.route_values import learnt
from toolorchestra.agents.training.routes import FollowRoute


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200, help="validation tasks of each environment")
    args = parser.parse_args()
    config = preset("tiny")
    tried = sorted(try_routes(config, range(config.warm_start.demonstrations)), key=lambda one: one[0])
    values = [learnt([route for _, route in some]) for _, some in groupby(tried, key=lambda one: one[0])]
    _, chat = build(config)
    held_out = HeldOut(config.environments, args.tasks, "validation", config.seed)
    jobs = held_out.jobs()
    labels = [mix.env_id for mix in config.environments]
    panels = [panel for label in labels for panel in held_out.baselines(label, chat)]
    found: list[TaskScores] = []
    for number, (job, panel) in enumerate(zip(jobs, panels, strict=True)):
        opening = job.factory.start(job.seed).episode
        route = Planner(values[number // args.tasks], job.factory, config.anchors).plan(job.seed)
        measure = measured(played_by_tokens(job.factory, FollowRoute(route), job.seed, chat))
        scored = scores(opening.world.toolbox.keys, opening.preference, measure, panel)
        if scored is not None:
            found.append(TaskScores(opening.preference.kind, scored))
    share = share_of_oracle(found)
    mine, best = standing(found, "policy"), standing(found, ORACLE)
    print(f"planned routes: {share} of the oracle's reward")
    print(f"accuracy {mine.accuracy:.1%} (oracle {best.accuracy:.1%}), {mine.cents:.2f} ¢ a task ({best.cents:.2f})")


if __name__ == "__main__":
    main()
