"""Train an orchestrator: `python scripts/train_agent.py` trains the tiny one on this machine, offline."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from toolorchestra.agents.build import build, default_folder
from toolorchestra.agents.checkpoint import CheckpointError
from toolorchestra.agents.config import PRESETS, preset, with_settings
from toolorchestra.agents.report import write_report
from toolorchestra.agents.trainer import train
from toolorchestra.envs.errors import ConfigError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="tiny", help=f"one of: {', '.join(PRESETS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="", help="folder or hub id of the model; the preset's by default")
    parser.add_argument("--out", type=Path, help="the run's folder; runs/PRESET-seedN by default")
    parser.add_argument("--resume", choices=["no", "auto"], default="no", help="auto: go on from the last checkpoint")
    parser.add_argument("--threads", type=int, default=1, help="torch threads; their number changes the last digits")
    parser.add_argument("--no-report", action="store_true")
    parser.add_argument("--set", nargs="*", default=[], metavar="FIELD=VALUE", help="e.g. steps=50 model.hidden=96")
    args = parser.parse_args()
    try:
        settings = dict(item.split("=", 1) for item in args.set)
        config = with_settings(replace(preset(args.preset), seed=args.seed), settings)
        model = replace(config.model, threads=args.threads, path=args.model or config.model.path)
        config = replace(config, model=model)
        folder = args.out or default_folder(config)
        engine, chat = build(config, _say)
        try:
            run = train(config, folder, engine, chat, resume=args.resume == "auto", say=_say)
            if not args.no_report and not run.stopping:
                print(f"report: {write_report(run)}")
            run.rollouts.close()
        finally:
            engine.close()
    except (ConfigError, CheckpointError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except ValueError as err:
        if "dictionary update" not in str(err):
            raise
        print(f"error: --set takes FIELD=VALUE, got {args.set}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 130 if run.stopping else 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
