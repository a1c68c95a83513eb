"""Compare the baselines on an environment: `python scripts/evaluate.py --env HLE-v0 FRAMES-v0 --tasks 300`."""

from __future__ import annotations

import argparse
import sys
import time

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.agents.baselines import NAMES, baseline
from toolorchestra.agents.evaluate import compare, table
from toolorchestra.envs.errors import ConfigError
from toolorchestra.envs.factory import factory
from toolorchestra.envs.registration import full_id


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", nargs="+", default=["HLE-v0", "FRAMES-v0"], help="question environments")
    parser.add_argument("--split", nargs="+", default=["train", "validation", "test"])
    parser.add_argument("--policy", nargs="+", default=list(NAMES))
    parser.add_argument("--tasks", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tools", default="paper", help="tool configuration: paper, plain or a JSON file")
    parser.add_argument("--prices", default="paper-2025-11", help="price sheet: a name or a JSON file")
    args = parser.parse_args()
    try:
        for env in args.env:
            for split in args.split:
                kwargs = gym.spec(full_id(env)).kwargs
                made = factory(**kwargs, split=split, tools=args.tools, prices=args.prices, preference="none")
                started = time.perf_counter()
                policies = {name: (lambda name=name: baseline(name, args.seed)) for name in args.policy}
                summaries = compare(made, policies, args.tasks, args.seed)
                spent = time.perf_counter() - started
                print(f"{full_id(env)} {split}: {args.tasks} tasks, prices {args.prices}, SIMULATED, {spent:.1f} s")
                print(table(summaries), flush=True)
                print()
    except ConfigError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
