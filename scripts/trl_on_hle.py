"""TRL's GRPOTrainer trains the tiny model on HLE-v0: `python scripts/trl_on_hle.py`; minutes.

The model begins with a short supervised start on random routes. Then TRL takes its steps, and every episode is played
through the adapter. Writes docs/results/trl.md with --write.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import textwrap
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.presets import PRESETS
from toolorchestra.agents.engines.base import LossParams
from toolorchestra.agents.evaluation.statistics import mean_interval
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.agents.rollouts.tokens import Chat
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.demonstrations import FIRST_SEED, RandomRoute, demonstrate
from toolorchestra.agents.training.warmstart import RISING, batch_of
from toolorchestra.envs.adapters.trl import TrlRollouts, environment_reward, task_rows

ENV_ID = "ToolOrchestra/HLE-v0"
SETTINGS: dict[str, Any] = {
    "style": "brief",
    "shown_characters": 0,
    "max_turns": 6,
    "reward": "scalar",
    "usd_weight": 10.0,
}
TRAIN = {**SETTINGS, "split": "train"}
HELD_OUT = {**SETTINGS, "split": "test", "wording": "heldout"}
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "trl.md"
FIGURES = {"reward": "reward", "outcome": "right answers", "cents": "cents", "seconds": "seconds"}
Played = dict[str, list[Any]]


class Watched(TrlRollouts):
    """Keeps what was played, batch by batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.batches: list[Played] = []

    def __call__(self, prompts: Sequence[str], trainer: Any) -> Played:
        made = super().__call__(prompts, trainer)
        self.batches.append({**made, "prompts": list(prompts)})
        print(f"batch {len(self.batches)}: reward {told(self.batches[-1:], 'reward')}", file=sys.stderr, flush=True)
        return made


def started(steps: int, routes: int, seed: int) -> tuple[Any, Chat]:
    """The tiny model behind a short supervised start on random routes, right and wrong ones alike: it has seen how to
    call tools, and nothing of whom to ask."""
    tiny = PRESETS["tiny"]
    config = replace(tiny, model=replace(tiny.model, processes=1), average=0.0, seed=seed)
    engine, chat = build(config)
    rng, made = random.Random(seed), factory_of(ENV_ID, **TRAIN)
    shown = [demonstrate(chat, made, RandomRoute(rng), FIRST_SEED + number)[0] for number in range(routes)]
    for number in range(steps):
        rate = config.warm_start.learning_rate * min(1.0, (number + 1) / RISING)
        engine.train(batch_of(shown, config.warm_start.batch, seed, number), LossParams("cross_entropy"), rate)
    return engine.model, chat


def values_of(batches: Sequence[Played], figure: str) -> list[float]:
    """A figure of each task of some batches: the mean over its rollouts that did not fail."""
    by_task: dict[str, list[float]] = {}
    for number, batch in enumerate(batches):
        for place, prompt in enumerate(batch["prompts"]):
            if not batch["failed"][place]:
                value = 100 * batch["usd"][place] if figure == "cents" else batch[figure][place]
                by_task.setdefault(f"{number}/{prompt}", []).append(value)
    return [statistics.fmean(values) for values in by_task.values()]


def told(batches: Sequence[Played], figure: str) -> str:
    """Its mean over tasks with an interval."""
    values = values_of(batches, figure)
    ends = mean_interval(values)
    return f"{statistics.fmean(values):.3f} [{ends.low:.3f}, {ends.high:.3f}]" if ends else "-"


def trainer_of(args: argparse.Namespace, model: Any, chat: Chat, rollouts: Watched, place: str) -> Any:
    """TRL's trainer as a user would make it."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    settings = GRPOConfig(
        output_dir=place,
        use_cpu=True,
        bf16=False,
        seed=args.seed,
        max_steps=args.steps,
        learning_rate=args.learning_rate,
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        scale_rewards="batch",
        per_device_train_batch_size=args.tasks * args.siblings,
        per_device_eval_batch_size=args.held_out,
        num_generations=args.siblings,
        num_generations_eval=1,
        max_completion_length=200,
        epsilon_high=0.28,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    first = 10_000 * (args.seed + 1)
    return GRPOTrainer(
        model,
        reward_funcs=environment_reward,
        args=settings,
        train_dataset=Dataset.from_list(task_rows(ENV_ID, range(first, first + args.steps * args.tasks), **TRAIN)),
        eval_dataset=Dataset.from_list(task_rows(ENV_ID, range(args.held_out), **HELD_OUT)),
        processing_class=chat.tokenizer,
        rollout_func=rollouts,
    )


def report(args: argparse.Namespace, made: dict[str, Sequence[Played]], seconds: Sequence[float]) -> str:
    """The page."""
    import trl

    columns = list(made)
    lines = [
        f"# TRL {trl.__version__} on HLE-v0",
        "",
        "**Simulated** experts, and one seed: this shows that the door works, and says nothing of real models.",
        "",
        "```",
        f"python scripts/trl_on_hle.py --write --seed {args.seed} --learning-rate {args.learning_rate:g}",
        "```",
        "",
        *textwrap.wrap(
            f"`GRPOTrainer` took {args.steps} steps, each of {args.tasks} new tasks with {args.siblings} rollouts, "
            "with the tiny model of the package, a Qwen3 of width 64. It began with a short supervised start of ours: "
            f"{args.warm_steps} steps on {args.routes:,} random routes, right and wrong ones alike, which show how to "
            'call a tool and nothing of whom to ask. The reward is the environment\'s own, `reward="scalar"` with '
            "`usd_weight=10`: 1 for a right answer, less 0.1 for each cent spent. The held-out tasks are of the test "
            "split, and the sentences of their wishes are held out too. Means over tasks, and in brackets ends of 95 % "
            "by a bootstrap of tasks; a task's value is the mean of its rollouts.",
            width=120,
        ),
        "",
        "|  | " + " | ".join(columns) + " |",
        "| --- |" + " --- |" * len(columns),
    ]
    for figure, name in FIGURES.items():
        lines.append(f"| {name} | " + " | ".join(told(batches, figure) for batches in made.values()) + " |")
    failed = sum(sum(batch["failed"]) for batches in made.values() for batch in batches)
    played = sum(len(batch["failed"]) for batches in made.values() for batch in batches)
    rollouts = " | ".join(str(sum(len(b["failed"]) for b in batches)) for batches in made.values())
    lines += [f"| rollouts | {rollouts} |", "", f"Failed: {failed} of these {played} rollouts."]
    lines += [f"CPU seconds: supervised start {seconds[0]:.0f}, TRL's training {seconds[1]:.0f}."]
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    defaults = {
        "steps": 20,
        "tasks": 32,
        "siblings": 8,
        "seed": 0,
        "warm-steps": 80,
        "routes": 400,
        "held-out": 200,
    }
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--learning-rate", type=float, default=1.5e-3)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    warnings.simplefilter("ignore", FutureWarning)
    began = time.process_time()
    model, chat = started(args.warm_steps, args.routes, args.seed)
    warm = time.process_time() - began
    rollouts = Watched(chat, turn_tokens=10)
    with tempfile.TemporaryDirectory() as place:
        trainer = trainer_of(args, model, chat, rollouts, place)
        trainer.evaluate()
        before, rollouts.batches = rollouts.batches, []
        began = time.process_time()
        trainer.train()
        trained, steps = time.process_time() - began, rollouts.batches
        rollouts.batches = []
        trainer.evaluate()
    made = {
        "first 5 steps": steps[:5],
        "last 5 steps": steps[-5:],
        "held out, before": before,
        "held out, after": rollouts.batches,
    }
    print(text := report(args, made, (warm, trained)))
    if args.write:
        RESULTS.write_text(text, encoding="utf-8")
        print(f"written: {RESULTS}", file=sys.stderr)


if __name__ == "__main__":
    main()
