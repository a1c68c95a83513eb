"""Train an orchestrator: `python scripts/train_agent.py` trains the tiny one on this machine, offline."""

from __future__ import annotations

import argparse
import errno
import sys
from dataclasses import replace
from pathlib import Path

from toolorchestra.agents.configuration.config import PRESETS, TrainConfig, preset, with_environments, with_settings
from toolorchestra.agents.configuration.option_types import count, folder, pairs
from toolorchestra.agents.reports.training_report import write_report
from toolorchestra.agents.training.build import build, default_folder
from toolorchestra.agents.training.checkpoint import CheckpointError
from toolorchestra.agents.training.run_folder import claimed
from toolorchestra.agents.training.trainer import TrainingRun, train
from toolorchestra.envs.base.errors import ConfigError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="tiny", help=f"one of: {', '.join(PRESETS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="", help="folder or hub id of the model; the preset's by default")
    parser.add_argument("--out", type=folder, help="the run's folder; runs/PRESET-seedN by default")
    parser.add_argument("--resume", choices=["no", "auto"], default="no", help="auto: go on from the last checkpoint")
    parser.add_argument("--threads", type=count, help="torch threads; their number changes the last digits")
    parser.add_argument("--no-report", action="store_true")
    parser.add_argument(
        "--env",
        nargs="+",
        action="append",
        metavar=("ID", "NAME=VALUE"),
        help="train on this instead of the preset's environments, with these arguments for gym.make; give it again for "
        "more: --env ToolScale-v0 domain=finance --env HLE-v0 prices=mine.json weight=2",
    )
    parser.add_argument(
        "--set", nargs="*", action="extend", default=[], metavar="FIELD=VALUE", help="e.g. steps=50 model.hidden=96"
    )
    args = parser.parse_args()
    try:
        config = configured(args)
        with claimed(place := args.out or default_folder(config)):
            run = _trained(args, config, place)
    except (ConfigError, CheckpointError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except OSError as err:
        if err.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"error: {err}; free space, then go on with --resume auto", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 130 if run.stopping else 0


def _trained(args: argparse.Namespace, config: TrainConfig, place: Path) -> TrainingRun:
    engine, chat = build(config, _say)
    try:
        run = train(config, place, engine, chat, resume=args.resume == "auto", say=_say)
        if not args.no_report and not run.stopping:
            print(f"report: {write_report(run)}")
        run.rollouts.close()
    finally:
        engine.close()
    return run


def configured(args: argparse.Namespace) -> TrainConfig:
    """The preset with what was given; an option of its own goes before the same thing in --set."""
    config = with_settings(replace(preset(args.preset), seed=args.seed), pairs("--set", args.set))
    config = with_environments(config, args.env) if args.env else config
    given = {"threads": args.threads, "path": args.model}
    return replace(config, model=replace(config.model, **{name: value for name, value in given.items() if value}))


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
