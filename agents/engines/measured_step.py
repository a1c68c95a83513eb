"""Optimiser steps of a model with random weights, measured: seconds, and the most memory that they took.

python -m toolorchestra.agents.engines.measured_step '{"shape": {...}, "lora_rank": 16}'     # a process of its own

On a GPU the memory is what torch reserved and the context beside it; on a CPU it is the process's resident memory above
what it had before there was a model.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from toolorchestra.agents.engines.base import Datum, LossParams
from toolorchestra.agents.engines.memory import CONTEXT_BYTES, MemoryPlan, Shape, budget
from toolorchestra.agents.engines.settings import LOGIT_BYTES, EngineSettings

SAMPLED_SHARE = 0.5
"""Of a sequence, behind its prompt, is learnt from."""


@dataclass(frozen=True)
class MeasuredStep:
    """A training step that is to be measured: the model, the batches and the device."""

    shape: Mapping[str, Any] = field(default_factory=dict)
    """The model's shape: the keys of a config.json."""
    device: str = "cpu"
    dtype: str = "float32"
    lora_rank: int = 0
    merged: bool = False
    """Adapters as they are in float32 on a CPU: each layer's weight is kept merged too."""
    checkpointing: bool = False
    rows: int = 1
    """Sequences of one batch."""
    batches: int = 2
    """Batches of a step. The second one meets the gradients of the first."""
    length: int = 1024
    """Tokens of each sequence."""
    steps: int = 2
    logit_bytes: int = LOGIT_BYTES
    threads: int = 2

    @property
    def plan(self) -> MemoryPlan:
        """The same step as a plan, from which budget() computes its memory."""
        return MemoryPlan(
            Shape.read({"model_type": "qwen3", **self.shape}),
            device_bytes=0,
            width=4 if self.dtype == "float32" else 2,
            lora_rank=self.lora_rank,
            tokens_per_batch=self.rows * self.length,
            logit_tokens=int(self.rows * self.length * SAMPLED_SHARE),
            logit_bytes=self.logit_bytes,
            checkpointing=self.checkpointing,
            merged=self.merged and bool(self.lora_rank),
        )

    @property
    def predicted_bytes(self) -> int:
        """The most bytes by the budget; on a CPU without the context of a GPU."""
        made = budget(self.plan).total(training=True)
        return made if self.device.startswith("cuda") else made - CONTEXT_BYTES


def measure(wanted: MeasuredStep) -> dict[str, float]:
    """Take the steps in this process, which should have done nothing else before."""
    import torch

    from toolorchestra.agents.engines import merged_lora
    from toolorchestra.agents.engines.adapter import keep_few_activations, with_lora
    from toolorchestra.agents.engines.policy_update import PolicyUpdate
    from toolorchestra.agents.engines.random_models import random_model
    from toolorchestra.agents.engines.reference_weights import ReferenceWeights

    if not wanted.merged:
        merged_lora.use_merged = lambda model: None  # a GPU's way, wherever it is measured
    torch.set_num_threads(wanted.threads)
    settings = EngineSettings(
        device=wanted.device,
        dtype=wanted.dtype,
        tokens_per_batch=wanted.rows * wanted.length,
        lora_rank=wanted.lora_rank,
        gradient_checkpointing=wanted.checkpointing,
        logit_bytes=wanted.logit_bytes,
    )

    def made(shape: Mapping[str, Any]) -> PolicyUpdate:
        model = random_model(shape, wanted.dtype, wanted.device)
        if wanted.checkpointing:
            keep_few_activations(model)
        model = with_lora(model, settings, 0) if wanted.lora_rank else model
        reference = ReferenceWeights(model, kept=False, lora=bool(wanted.lora_rank))
        return PolicyUpdate(model, settings, reference)

    # A small model first: libraries and kernels that are loaded at the first use are no part of the model's memory.
    small = {**wanted.shape, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 512}
    made(small).take(_data(2, 64, 512), LossParams(), 1e-5)
    before = _resident_bytes()
    update = made(wanted.shape)
    data = _data(wanted.rows * wanted.batches, wanted.length, int(wanted.shape["vocab_size"]))
    seconds = []
    for _ in range(wanted.steps):
        _wait(wanted.device)
        started = time.monotonic()
        update.take(data, LossParams(), 1e-5)
        _wait(wanted.device)
        seconds.append(time.monotonic() - started)
    peak = _device_bytes(wanted.device) if wanted.device.startswith("cuda") else _most_resident_bytes() - before
    return {
        "measured_bytes": peak,
        "predicted_bytes": wanted.predicted_bytes,
        "seconds": min(seconds[1:] or seconds),
        "tokens": wanted.rows * wanted.batches * wanted.length,
        "parameters": wanted.plan.shape.parameters,
    }


def _data(rows: int, length: int, vocabulary: int) -> list[Datum]:
    rng = random.Random(0)
    sampled = int(length * SAMPLED_SHARE)
    mask = [*[False] * (length - sampled), *[True] * sampled]
    return [
        Datum(
            [rng.randrange(vocabulary) for _ in range(length)],
            [-1.0] * length,
            [(-1.0) ** row] * length,
            mask,
        )
        for row in range(rows)
    ]


def _wait(device: str) -> None:
    """Until the device has done what it was given."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize(device)


def _device_bytes(device: str) -> int:
    """Reserved at the most, and what the context took beside it."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    context = total - free - torch.cuda.memory_reserved(device)
    return int(torch.cuda.max_memory_reserved(device) + context)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _most_resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def read(text: str) -> MeasuredStep:
    """Reads a MeasuredStep from JSON; unknown keys are ignored."""
    known = {f.name for f in fields(MeasuredStep)}
    return MeasuredStep(**{name: value for name, value in json.loads(text).items() if name in known})


if __name__ == "__main__":
    print(json.dumps(measure(read(sys.argv[1]))))
