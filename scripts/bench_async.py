"""The same training run with rollouts before each step and beside it, over experts that really take time.

`python scripts/bench_async.py` prints seconds a step for max_staleness 0, 1 and 2. Experts answer after a time with the
tail that recordings of real models show (docs/results/worlds.md): log-normal, with a deviation of 0.80 over tasks and
of 0.57 within a task and model. `--median` is the middle one of these waits, in seconds: recordings have minutes, which
would only make the difference larger. Everything else is the tiny preset on HLE-v0 behind its supervised start.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.config import EnvMix, ModelConfig, TrainConfig, WarmStart
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.rollouts.advantages import AdvantageParams
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.trainer import train
from toolorchestra.envs.domains.hle.source import HleSource
from toolorchestra.envs.models import ChatModel, ChatRequest, Completion
from toolorchestra.envs.registration import register
from toolorchestra.envs.tools.assemble import Backends
from toolorchestra.envs.tools.backends import Backing, Wanted

ENV_ID = "Bench/SlowHLE-v0"
OVER_TASKS, WITHIN = 0.80, 0.57
"""Recorded standard deviations of the logarithm of seconds."""
ARGUMENTS = {"style": "brief", "shown_characters": 0, "max_turns": 6, "vary": ("tools", "prices")}


class SlowModels:
    """Models whose answers take time."""

    suspends = True

    def __init__(self, inner: ChatModel) -> None:
        self._inner = inner
        self._runs = random.Random(0)

    async def complete(self, request: ChatRequest) -> Completion:
        """The same answer, later."""
        task = OVER_TASKS * random.Random(request.truth and request.truth.text).gauss(0, 1)
        await asyncio.sleep(SlowSource.median * math.exp(task + WITHIN * self._runs.gauss(0, 1)))
        return await self._inner.complete(request)


class SlowSource(HleSource):
    """HLE-v0 with such models."""

    median = 0.1

    def __post_init__(self) -> None:
        self.backends = Backing(Wanted("slow experts"), around=self._slow)
        super().__post_init__()

    @staticmethod
    def _slow(made: Backends) -> Backends:
        return replace(made, models=SlowModels(made.models))


def settings(steps: int) -> TrainConfig:
    tiny = preset("tiny")
    return replace(
        tiny,
        environments=(EnvMix(ENV_ID, 1.0, ARGUMENTS),),
        model=ModelConfig(),
        anchors=(),
        advantage=AdvantageParams(least_spread=0.0),
        steps=steps,
        groups=8,
        evaluate_every=steps,
        evaluation_tasks=1,
        save_every=steps,
        average=0.0,
        updates=1,
    )


def warmed(folder: Path) -> Path:
    """A run that can call tools, over the quick world."""
    quick = EnvMix("ToolOrchestra/HLE-v0", 1.0, ARGUMENTS)
    start = WarmStart(steps=500, demonstrations=4_000, least_valid=0.2, margin=-1.0)
    config = replace(settings(1), environments=(quick,), warm_start=start, groups=1)
    return play(config, folder).folder / "checkpoints" / "step-000000"


def play(config: TrainConfig, folder: Path) -> Any:
    with redirect_stderr(StringIO()):
        return train(config, folder, *build(config), resume=False, say=lambda _: None)


def timed(config: TrainConfig, folder: Path) -> Iterator[dict[str, float]]:
    """The steps of a run, without the first, in which nothing has gone ahead yet."""
    play(config, folder)
    return (row for row in read(folder / "metrics.jsonl") if row["kind"] == "train" and row["step"] > 0)


def learned(folders: list[Path]) -> Iterator[str]:
    """Held-out reward before and after, one line a run."""
    yield "| run | mean staleness | held-out reward before | after | accuracy before | after |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for folder in sorted(folders):
        rows = list(read(folder / "metrics.jsonl"))
        first, *_, last = (row for row in rows if row["kind"] == "eval")
        stale = statistics.fmean(row.get("staleness", 0.0) for row in rows if row["kind"] == "train")
        values = (first["policy/reward"], last["policy/reward"], first["policy/accuracy"], last["policy/accuracy"])
        yield f"| {folder.name} | {stale:.2f} | {' | '.join(f'{value:.3f}' for value in values)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--median", type=float, default=0.5, help="seconds of a call, in the middle")
    parser.add_argument("--learned", nargs="+", type=Path, help="only tell what these runs learnt")
    parser.add_argument("--init-from", default="", help="a run of the tiny preset to start from; else one is made")
    args = parser.parse_args()
    if args.learned:
        print("\n".join(learned(args.learned)))
        return 0
    SlowSource.median = args.median
    register(ENV_ID, f"{__name__}:SlowSource")
    with tempfile.TemporaryDirectory() as place:
        start = Path(args.init_from) if args.init_from else warmed(Path(place) / "warm")
        print("| max_staleness | seconds a step | steps a minute | trainer waits | staleness | reward, last half |")
        print("| --- | --- | --- | --- | --- | --- |")
        seconds: dict[int, float] = {}
        for staleness in (0, 1, 2):
            config = replace(
                settings(args.steps),
                warm_start=WarmStart(steps=0),
                init_from=str(start),
                max_staleness=staleness,
            )
            rows = list(timed(config, Path(place) / f"stale{staleness}"))
            if failed := sum(row["failed"] for row in rows):
                raise SystemExit(f"{failed:.0f} episodes failed, so their times say nothing")
            mean = {name: statistics.fmean(row[name] for row in rows) for name in ("time/step", "time/training")}
            seconds[staleness] = mean["time/step"]
            waits = 1 - sum(row["time/training"] + row["time/sync"] for row in rows) / sum(r["time/step"] for r in rows)
            stale = statistics.fmean(row.get("staleness", 0.0) for row in rows)
            learnt = [row["group_reward"] for row in rows[len(rows) // 2 :]]
            reward = statistics.fmean(value for value in learnt if value is not None)
            print(
                f"| {staleness} | {mean['time/step']:.2f} | {60 / mean['time/step']:.1f} | {waits:.0%} | {stale:.2f} | "
                f"{reward:.3f} |",
                flush=True,
            )
    print("\n" + ", ".join(f"{seconds[0] / seconds[k]:.2f} times as many steps a minute with {k}" for k in (1, 2)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
