"""The tables of docs/scaling.md: python scripts/scaling.py. No GPU is needed: all of it is arithmetic.

Memory: of one GPU, from the model's shape, by the budget that `toolorchestra memory-budget` prints. FSDP gives each GPU
its share of weights, gradients and optimiser, and gathers one block at a time; activations and logits are of the
sequences that the GPU works on. Speed: from the sampling rates that are written below with where they come from.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from toolorchestra.agents.engines.memory import GB, MemoryPlan, Shape, budget
from toolorchestra.agents.engines.shapes import SHAPES

DEVICE = 80.0
TOKENS = 33_000
"""Of one micro-batch; two GPUs share a sequence under sequence_parallel_size=2."""
SHARDED = ("weights", "gradients", "optimiser", "adapter")
RATES = (2_000, 3_000)
"""Tokens a second that one inference GPU samples in episodes of many turns: an estimate, for want of a measurement.
Others report 6,300 for a 7B model without turns (vLLM on one H100)."""
PROMPTS, ROLLOUTS, SAMPLED = 16, 8, 8_000
"""Of a step: tasks, rollouts of each, and tokens that an episode samples (an assumption)."""


def memory(gpus: int, rank: int) -> dict[str, float]:
    """GB on each of so many GPUs while the model is trained, by part."""
    shape = Shape.read(SHAPES["qwen3-8b"])
    share = 2 if gpus > 1 else 1
    plan = MemoryPlan(shape, int(DEVICE * GB), lora_rank=rank, tokens_per_batch=TOKENS // share, checkpointing=True)
    if not rank:
        plan = replace(plan, width=4)  # full fine-tuning keeps its weights and states in float32, as SkyRL's FSDP does
    made: dict[str, float] = {}
    for part in budget(plan).parts:
        if not part.training:
            continue
        name = part.name.removeprefix("trainer: ").removesuffix(", estimated")
        size = part.bytes / GB
        if plan.width == 4 and name == "activations":
            size /= 2  # computed in bfloat16
        made[name] = size / gpus if name in SHARDED else size
    if gpus > 1:
        made["one block, gathered"] = 2 * 2 * shape.parameters / shape.layers / GB
    return made


def memory_rows() -> list[str]:
    """As Markdown."""
    rows = ["| GPUs that train | weights | states | work | together, of 80 GB |", "|---|---|---|---|---|"]
    for rank, kind in ((64, "LoRA 64"), (0, "full")):
        for gpus in (1, 4, 8, 16):
            parts = memory(gpus, rank)
            states = sum(parts.get(name, 0.0) for name in ("gradients", "optimiser", "adapter"))
            together = sum(parts.values())
            work = together - states - parts["weights"]
            verdict = "" if together < DEVICE else ": **does not fit**"
            rows.append(
                f"| {gpus}, {kind} | {parts['weights']:.1f} | {states:.1f} | {work:.1f} | {together:.1f}{verdict} |"
            )
    return rows


def speed_rows() -> list[str]:
    """As Markdown: a step's rollouts at the rates above."""
    rows = ["| | GPUs that sample | tokens a step | tokens/s | seconds of rollouts a step |", "|---|---|---|---|---|"]
    for name, gpus, scale in (
        ("1 GPU, in turns", 1, 1),
        ("1x8, in turns", 8, 1),
        ("1x8, 4 + 4 at the same time", 4, 1),
        ("2x8, in turns", 16, 2),
        ("2x8, 8 + 8 at the same time", 8, 2),
    ):
        tokens = scale * PROMPTS * ROLLOUTS * SAMPLED
        low, high = (gpus * rate for rate in RATES)
        seconds = f"{tokens / high:.0f} to {tokens / low:.0f}"
        rows.append(f"| {name} | {gpus} | {tokens / 1e6:.1f} M | {low:,} to {high:,} | {seconds} |")
    return rows


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("\n".join([*memory_rows(), "", *speed_rows()]))
