"""The memory budget beside what a trainer really took, on this machine's CPU: python scripts/measure_memory.py

Models of several shapes are made with random weights, each in a process of its own, and take two optimiser steps. The
most resident memory above that of a process with a small model is measured, and stands beside the budget's sum.
Memory that is freed goes back to the system at once there (MALLOC_MMAP_THRESHOLD_), so that the peak is the trainer's.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolorchestra.agents.engines.measured_step import MeasuredStep

MMAP_BYTES = 65_536


def shape(hidden: int, inner: int, layers: int, heads: int, vocabulary: int) -> Mapping[str, Any]:
    """In Qwen3's proportions."""
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "head_dim": 64,
        "vocab_size": vocabulary,
        "tie_word_embeddings": True,
    }


SMALL, MIDDLE, LARGE = (
    shape(512, 1536, 10, 8, 32_000),
    shape(768, 2304, 12, 12, 32_000),
    shape(1024, 3072, 12, 16, 32_000),
)
SPARE = {"logit_bytes": 1 << 26}
"""Bytes of one copy of the logits: small, so that the other parts are not drowned in them."""
CASES: Mapping[str, MeasuredStep] = {
    "all weights": MeasuredStep(SMALL, rows=2, length=512, **SPARE),
    "all weights, logits whole": MeasuredStep(SMALL, rows=1, length=1024),
    "all weights, checkpointing": MeasuredStep(LARGE, checkpointing=True, rows=2, length=512, **SPARE),
    "LoRA in float32, as on a CPU": MeasuredStep(MIDDLE, lora_rank=16, merged=True, rows=2, length=512, **SPARE),
    "LoRA in 16 bits": MeasuredStep(SMALL, dtype="bfloat16", lora_rank=16, rows=1, length=384, **SPARE),
    "LoRA in 16 bits, checkpointing": MeasuredStep(
        SMALL, dtype="bfloat16", lora_rank=32, checkpointing=True, rows=1, length=384, **SPARE
    ),
}


def measured(wanted: MeasuredStep) -> Mapping[str, float]:
    """In a process of its own."""
    command = [
        sys.executable,
        "-m",
        "toolorchestra.agents.engines.measured_step",
        json.dumps(dataclasses.asdict(wanted)),
    ]
    settings = {"MALLOC_MMAP_THRESHOLD_": str(MMAP_BYTES), "MALLOC_TRIM_THRESHOLD_": str(MMAP_BYTES)}
    done = subprocess.run(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True, check=True)
    found: Mapping[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def row(name: str, wanted: MeasuredStep, found: Mapping[str, float]) -> str:
    """Of the table."""
    size, told = found["measured_bytes"], found["predicted_bytes"]
    return (
        f"| {name} | {found['parameters'] / 1e6:.0f} M | {wanted.dtype} | {wanted.rows} x {wanted.length:,} | "
        f"{told / 1e9:.2f} | {size / 1e9:.2f} | {told / size - 1:+.0%} |"
    )


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), help="cases")
    parser.add_argument("--page", type=Path, help="write the table here too")
    args = parser.parse_args()
    lines = [
        "| what is trained | parameters | dtype | rows x tokens | budget, GB | measured, GB | budget is off by |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    for name in args.only:
        lines.append(row(name, CASES[name], measured(CASES[name])))
        print(lines[-1], flush=True)
    if args.page:
        args.page.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
