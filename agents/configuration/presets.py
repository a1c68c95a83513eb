"""The presets: what a training run starts from, each for a machine that it names.

toolorchestra train --preset small-gpu
toolorchestra budget --preset small-gpu     # what it takes of that machine's GPU
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from toolorchestra.agents.configuration.config import EnvMix, ModelConfig, TrainConfig, WarmStart
from toolorchestra.agents.engines.base import LossParams
from toolorchestra.agents.rollouts.grpo import AdvantageParams
from toolorchestra.envs.base.errors import one_of


@dataclass(frozen=True)
class TargetMachine:
    """GPUs that a preset is made for."""

    gigabytes: float = 0.0
    """Memory of each GPU, in 10^9 bytes; 0 where there is none."""
    gpus: int = 0
    sampling: int = 0
    """GPUs that sample; where it is less than `gpus`, the others train, and nobody waits for memory."""
    shape: str = ""
    """The model's shape, as `toolorchestra budget --shape` names it."""

    @property
    def training(self) -> int:
        """GPUs that train: the others, or all of them, in turns."""
        return self.gpus - self.sampling or self.gpus


_TINY_ARGUMENTS = {"style": "brief", "shown_characters": 0, "max_turns": 10, "vary": ("tools", "prices")}
_WORLDS = ("ToolOrchestra/HLE-v0", "ToolOrchestra/FRAMES-v0")


def _servers(count: int) -> str:
    return ",".join(f"http://127.0.0.1:{8001 + number}/v1" for number in range(count))


# 32 x 16 plays, leave-one-out and a rate that falls far are what learns here (docs/results/training.md). Each of the
# four optimiser steps learns from 128 plays, as many as the paper's. An adapter takes about ten times the rate of full
# weights.
_8B = TrainConfig(
    preset="8b-h100",
    environments=tuple(EnvMix(env_id, 1.0, {"max_turns": 50}) for env_id in _WORLDS),
    model=ModelConfig(
        path="Qwen/Qwen3-8B",
        device="cuda",
        dtype="bfloat16",
        lora_rank=64,
        rows=128,
        tokens_per_batch=32_768,
        gradient_checkpointing=True,
        sampler="vllm",
        memory_share=0.65,
    ),
    warm_start=WarmStart(steps=0),
    steps=100,
    groups=32,
    rollouts=16,
    algorithm="leave-one-out",
    expected_outcome=True,
    baselines=("cheapest", "strongest"),
    updates=4,
    learning_rate=1e-5,
    final_learning_rate=1e-6,
    advantage=AdvantageParams(unreadable="wrong", least_spread=0.0),
    max_tokens=8_000,
    max_context=32_000,
    evaluate_every=25,
    save_every=1,
)

# Two GPUs train, each of the other six has a server of vLLM, for playing takes longer: docs/eight-billion.md.
_8B_NODE = replace(
    _8B,
    preset="8b-node",
    model=replace(
        _8B.model,
        rows=192,
        sampler="served",
        server=_servers(6),
        handover="./runs/8b-node-handover",
    ),
    max_staleness=1,
)

# The paper's numbers: all weights at 1e-6, 16 prompts x 8 rollouts, 24,000 + 8,000 tokens, 50 turns, clip 0.2 / 0.28,
# KL of weight 1e-4, and three filters: groups without spread, turns that cannot be read, rollouts without an answer.
# All weights with their optimiser need four GPUs.
_PAPER = replace(
    _8B_NODE,
    preset="paper",
    model=replace(_8B_NODE.model, dtype="float32", lora_rank=0, server=_servers(4), handover="./runs/paper-handover"),
    steps=200,
    groups=16,
    rollouts=8,
    max_staleness=0,
    algorithm="grpo",
    expected_outcome=False,
    baselines=(),
    updates=1,
    learning_rate=1e-6,
    final_learning_rate=1e-6,
    loss=LossParams(kl_weight=1e-4),
    advantage=AdvantageParams(unreadable="dropped"),
    save_every=10,
)

PRESETS: Mapping[str, TrainConfig] = {
    "tiny": TrainConfig(
        # HLE's questions need more practice: ten subjects, each with experts of its own.
        environments=tuple(EnvMix(env_id, w, _TINY_ARGUMENTS) for env_id, w in zip(_WORLDS, (2.0, 1.0), strict=True)),
        model=ModelConfig(processes=2, optimizer="muon"),
        warm_start=WarmStart(steps=1_000, learning_rate=6e-3, demonstrations=16_000),
        # 76,800 plays. A high rate that falls: much of the gain in cents comes where it is low. The large bonus
        # for entropy keeps experts that are good for some subjects alone, until subjects are told apart.
        steps=200,
        groups=24,
        rollouts=16,
        algorithm="leave-one-out",
        expected_outcome=True,
        baselines=("cheapest", "strongest"),
        updates=8,
        learning_rate=3e-3,
        final_learning_rate=5e-4,
        loss=LossParams(entropy_weight=0.1),
        average=0.98,
        # An episode takes about a hundred tokens: one that reaches 256 goes round in circles, and is taught against.
        advantage=AdvantageParams(unreadable="wrong", least_spread=0.0, count_context_cuts=True),
        evaluate_every=25,
        evaluation_temperature=0.25,
        evaluation_tasks=200,
    ),
    # A pretrained model on two CPU cores in some hours. After 32 steps of 8 demonstrations more of its plays can be
    # read than after 16 steps of 16. It plays few times: so many tasks, each eight times, and a rate at which it does
    # not settle on its first habit.
    "lm-cpu": TrainConfig(
        preset="lm-cpu",
        environments=tuple(EnvMix(env_id, 1.0, {**_TINY_ARGUMENTS, "max_turns": 6}) for env_id in _WORLDS),
        model=ModelConfig(
            path="./runs/smollm2", dtype="bfloat16", lora_rank=16, threads=2, rows=64, tokens_per_batch=2_048
        ),
        warm_start=WarmStart(steps=32, batch=8, learning_rate=2e-3, demonstrations=260),
        steps=21,
        groups=8,
        rollouts=8,
        baselines=("cheapest", "strongest"),
        updates=2,
        learning_rate=4e-4,
        final_learning_rate=1e-4,
        loss=LossParams(entropy_weight=0.01),
        algorithm="leave-one-out",
        expected_outcome=True,
        advantage=AdvantageParams(unreadable="wrong", least_spread=0.0),
        max_tokens=40,
        max_context=1_024,
        evaluate_every=7,
        evaluation_temperature=0.5,
        evaluation_tasks=20,
        save_every=2,
    ),
    # One GPU of 24 GB. vLLM's cache is paged: in the local sampler each of `rows` takes max_context tokens, 1.9 GB.
    "small-gpu": TrainConfig(
        preset="small-gpu",
        environments=tuple(EnvMix(env_id, 1.0, {"max_turns": 12}) for env_id in _WORLDS),
        model=ModelConfig(
            path="Qwen/Qwen3-0.6B",
            device="cuda",
            dtype="bfloat16",
            lora_rank=32,
            rows=64,
            gradient_checkpointing=True,
            sampler="vllm",
            memory_share=0.6,
        ),
        warm_start=WarmStart(steps=0),
        learning_rate=2e-5,
        final_learning_rate=2e-5,
        max_tokens=1_024,
        max_context=16_384,
        save_every=1,
    ),
    "8b-h100": _8B,
    "8b-node": _8B_NODE,
    "paper": _PAPER,
}

MACHINES: Mapping[str, TargetMachine] = {
    "small-gpu": TargetMachine(24.0, 1, 1, "qwen3-0.6b"),  # such as an RTX 4090
    "8b-h100": TargetMachine(80.0, 1, 1, "qwen3-8b"),
    "8b-node": TargetMachine(80.0, 8, 6, "qwen3-8b"),
    "paper": TargetMachine(80.0, 8, 4, "qwen3-8b"),
}
"""The machines of the presets for GPUs; the others run on any two CPU cores."""


def preset(name: str) -> TrainConfig:
    """A preset by its name."""
    one_of("preset", name, PRESETS)
    return PRESETS[name]
