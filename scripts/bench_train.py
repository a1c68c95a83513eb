"""What training costs on this machine, side by side in one run: `make bench` or `python scripts/bench_train.py`.

Two questions of the tiny preset: how near rollouts come to the bare sampler on the same token counts, and how fast an
optimiser step is beside that of TRL's GRPOTrainer on the same sequences.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.config import TrainConfig, WarmStart
from toolorchestra.agents.configuration.environments import chosen_tasks
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.base import Datum, LossParams, SamplingParams
from toolorchestra.agents.rollouts.grpo import TokenSequence, Trajectory
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.training_run import TrainingRun, open_run
from toolorchestra.agents.training.warmstart import warm_start

Turn = tuple[list[int], int]
"""Tokens given before it, and how many are sampled."""


def turns_of(sequence: TokenSequence) -> list[Turn]:
    """A recorded sequence as what was given and how much was sampled, turn by turn."""
    turns: list[Turn] = []
    given: list[int] = []
    count = 0
    for token, sampled in zip(sequence.tokens, sequence.sampled, strict=True):
        if sampled:
            count += 1
            continue
        if count:
            turns.append((given, count))
            given, count = [], 0
        given.append(token)
    return [*turns, (given, count)] if count else turns


async def sample_alone(engine: Any, plans: Sequence[list[Turn]]) -> None:
    """The same numbers of tokens, given and sampled, with no episode, no text and no tool."""

    async def one(number: int, plan: list[Turn]) -> None:
        tokens: list[int] = []
        for given, count in plan:
            tokens += given
            made = await engine.sample(tokens, SamplingParams(count), f"bare/{number}")
            tokens += made.tokens
        engine.release(f"bare/{number}")

    await asyncio.gather(*(one(n, plan) for n, plan in enumerate(plans)))


def rollouts_against_sampler(run: TrainingRun, rounds: int) -> tuple[list[float], list[float], list[Trajectory]]:
    """Sampled tokens a second by round, of rollouts and of the bare sampler on the same plan, and the last round's
    trajectories. Each round has tasks of its own, so only what is of one round can be compared."""
    engine: Any = run.engine
    rollouts: list[float] = []
    bare: list[float] = []
    trajectories: list[Trajectory] = []
    for run.step in range(rounds):
        jobs = [task.job for task in chosen_tasks(run.config, run.step)]
        started = time.perf_counter()
        trajectories = run.rollouts.collect([job for job in jobs for _ in range(run.config.rollouts)])
        count = sum(t.sampled_tokens for t in trajectories)
        rollouts.append(count / (time.perf_counter() - started))
        plans = [turns_of(s) for t in trajectories for s in t.sequences]
        stop, engine.sampler._stop = engine.sampler._stop, frozenset()
        started = time.perf_counter()
        asyncio.run(sample_alone(engine, plans))
        bare.append(count / (time.perf_counter() - started))
        engine.sampler._stop = stop
    return rollouts, bare, trajectories


def train_here(engine: Any, data: Sequence[Datum], repeats: int) -> float:
    """Seconds of one optimiser step."""
    spent = []
    for _ in range(repeats):
        started = time.perf_counter()
        engine.train(data, LossParams(), 1e-6)
        spent.append(time.perf_counter() - started)
    return min(spent)


def train_trl(model: Any, tokenizer: Any, data: Sequence[Datum], repeats: int, micro_batch: int) -> float:
    """Seconds of one optimiser step of TRL's GRPOTrainer: its loss, backward pass, clipping and AdamW."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    class Given(GRPOTrainer):  # type: ignore[misc]
        """Trains on the sequences it is handed instead of generating."""

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            return generation_batch

    with tempfile.TemporaryDirectory() as place:
        settings = GRPOConfig(
            output_dir=place,
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=micro_batch,
            num_generations=2,
            gradient_accumulation_steps=1,
            beta=0.0,
            report_to=[],
            gradient_checkpointing=False,
        )
        trainer = Given(
            model=model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=settings,
            train_dataset=Dataset.from_dict({"prompt": ["x"] * 8}),
            processing_class=tokenizer,
        )
        trainer.create_optimizer()
        trainer.current_gradient_accumulation_steps = 1
        parts = [as_trl(data[i : i + micro_batch], torch) for i in range(0, len(data), micro_batch)]
        spent = []
        for _ in range(repeats):
            started = time.perf_counter()
            model.train()
            for part in parts:
                trainer.training_step(model, part, None)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
            spent.append(time.perf_counter() - started)
        return min(spent)


def as_trl(data: Sequence[Datum], torch: Any) -> dict[str, Any]:
    """Prompts padded on the left, completions on the right, and a mask over what tools wrote."""
    prompts, completions, masks, advantages = [], [], [], []
    for d in data:
        first = next(i for i, a in enumerate(d.advantages) if a)
        prompts.append(list(d.tokens[:first]))
        completions.append(list(d.tokens[first:]))
        masks.append([int(bool(a)) for a in d.advantages[first:]])
        advantages.append(next(a for a in d.advantages if a))
    before, after = max(map(len, prompts)), max(map(len, completions))
    return {
        "prompt_ids": torch.tensor([[0] * (before - len(p)) + p for p in prompts]),
        "prompt_mask": torch.tensor([[0] * (before - len(p)) + [1] * len(p) for p in prompts]),
        "completion_ids": torch.tensor([c + [0] * (after - len(c)) for c in completions]),
        "completion_mask": torch.tensor([[1] * len(c) + [0] * (after - len(c)) for c in completions]),
        "tool_mask": torch.tensor([m + [0] * (after - len(m)) for m in masks]),
        "advantages": torch.tensor(advantages),
        "num_items_in_batch": torch.tensor(sum(map(sum, masks))),
    }


def warmed(config: TrainConfig, folder: Path) -> TrainingRun:
    """A run whose model speaks the grammar, so that its episodes look like those of training."""
    run = open_run(config, folder, *build(config), resume=False, say=print)
    warm_start(run)
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40, help="of rollouts, and of the bare sampler in turn")
    parser.add_argument("--repeats", type=int, default=7, help="of what is timed alone; the least counts")
    parser.add_argument("--micro-batch", type=int, default=64, help="sequences of one of TRL's passes")
    args = parser.parse_args()
    base = preset("tiny")
    start = WarmStart(steps=200, demonstrations=400, gate=0)
    model = replace(base.model, threads=args.threads, processes=1)
    # No more plays at a time than the sampler has rows: the bare sampler waits for none.
    config = replace(base, warm_start=start, model=model, groups=model.rows // 8, rollouts=8)
    with tempfile.TemporaryDirectory() as place:
        run = warmed(config, Path(place))
        engine: Any = run.engine
        mine, bare, played = rollouts_against_sampler(run, args.rounds)
        low, middle, high = statistics.quantiles([a / b for a, b in zip(mine, bare, strict=True)])
        print(f"rollouts     {statistics.median(mine):10,.0f} sampled tokens/s, the median of {args.rounds} rounds")
        print(
            f"bare sampler {statistics.median(bare):10,.0f} sampled tokens/s on the same counts;"
            f" rollouts reach {middle:.0%} (quartiles {low:.0%} to {high:.0%})"
        )
        data = [s.datum((-1.0) ** n) for n, t in enumerate(played) for s in t.sequences]
        tokens = sum(len(d.tokens) for d in data)
        here = train_here(engine, data, args.repeats)
        print(f"train, here  {tokens / here:10,.0f} tokens/s ({len(data)} sequences, {tokens} tokens, {here:.2f} s)")
        try:
            trl = train_trl(engine.model, run.chat.tokenizer, data, args.repeats, args.micro_batch)
        except ImportError as err:
            print(f"train, TRL   not measured: {err.name} is missing (pip install trl)")
            return 0
        print(f"train, TRL   {tokens / trl:10,.0f} tokens/s ({trl:.2f} s); here is {trl / here:.2f} times as fast")
    return 0


if __name__ == "__main__":
    sys.exit(main())
