"""The page of `make gpu-proof`: what was measured on a GPU, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEAD = """# On a GPU, measured

Written by `make gpu-proof` (`scripts/gpu_proof.py`). Weights are random, in the shapes of Qwen3-8B (trainer, hand-over)
and Qwen3-0.6B (samplers): speed and memory do not depend on their values.
"""


def gpu_page(machine: Mapping[str, Any], found: Mapping[str, Any], parts: Sequence[str]) -> str:
    """From the parts' outcomes; a part that is not there is said to be missing."""
    versions = ", ".join(
        f"{name} {machine[name]}" for name in ("python", "torch", "transformers", "cuda") if machine.get(name)
    )
    lines = [HEAD, f"**Machine:** {machine['device']}; {versions}.", ""]
    missing = [name for name in parts if name not in found]
    if missing:
        lines += [f"**Not measured:** {', '.join(missing)}.", ""]
    steps = [found[name] for name in parts if name.startswith("steps-") and name in found]
    if steps:
        lines += _steps(steps, float(machine.get("peak") or 0))
    if "sampler" in found:
        lines += ["## The local sampler", "", *_rates(found["sampler"]["rates"])]
    if "handover" in found:
        lines += ["## Handing weights over", "", _handover(found["handover"]), ""]
    if "vllm" in found:
        lines += ["## vLLM beside the trainer", "", *_vllm(found["vllm"])]
    if "learn" in found:
        lines += _curve(found["learn"])
    return "\n".join(lines).rstrip() + "\n"


def _steps(steps: Sequence[Mapping[str, Any]], peak: float) -> list[str]:
    """Optimiser steps by length."""
    lines = [
        "## Optimiser steps",
        "",
        "LoRA over 16-bit weights, checkpointing, two sequences of this length, each a batch of its own; the faster of",
        f"two steps after the first. MFU is of {peak:.0f} TFLOP/s."
        if peak
        else "two steps after the first. The GPU's peak is not known here.",
        "",
        "| tokens of a sequence | peak, GB | budget, GB | seconds a step | tokens/s | TFLOP/s | MFU |",
        "|---|---|---|---|---|---|---|",
    ]
    for made in steps:
        share = f"{made['tflops'] / peak:.0%}" if peak else "–"
        lines.append(
            f"| {made['length']:,} | {made['measured_bytes'] / 1e9:.2f} | {made['predicted_bytes'] / 1e9:.2f} | "
            f"{made['seconds']:.2f} | {made['tokens'] / made['seconds']:,.0f} | {made['tflops']:.3g} | {share} |"
        )
    return [*lines, ""]


def _rates(rates: Mapping[str, float]) -> list[str]:
    lines = ["| episodes side by side | sampled tokens/s |", "|---|---|"]
    return [*lines, *(f"| {count} | {value:,.0f} |" for count, value in rates.items()), ""]


def _handover(made: Mapping[str, float]) -> str:
    place = "memory (/dev/shm)" if made["in_memory"] else "a folder on disk"
    return f"{made['bytes'] / 1e9:.2f} GB written to {place} in {made['seconds']:.2f} s."


def _vllm(made: Mapping[str, Any]) -> list[str]:
    if "left_out" in made:
        return [f"{made['left_out']}.", ""]
    return [
        f"First turn, with the engine's start: {made['first_turn_seconds']:.0f} s. New weights, with waking up and the "
        f"check: {made['sync_seconds']:.1f} s. Held by both while it sleeps: {made['held_while_it_sleeps'] / 1e9:.1f} "
        f"GB. Mean gap between its log-probabilities and the trainer's: {made['drift']:.2g} nats, after a step "
        f"{made['drift_after_a_step']:.2g}.",
        "",
        *_rates(made["rates"]),
    ]


def _curve(made: Mapping[str, Any]) -> list[str]:
    """Learning, evaluation by evaluation."""
    names = [name for name in made["curve"][0] if name != "step"]
    lines = [
        "## A small model learns HLE-v0",
        "",
        f"The tiny model, sampled and trained on this device, in {made['seconds']:.0f} s since it was last started:",
        "",
        f"| step | {' | '.join(names)} |",
        "|---" * (1 + len(names)) + "|",
    ]
    for row in made["curve"]:
        lines.append(f"| {row['step']} | {' | '.join(f'{row[name]:.3f}' for name in names)} |")
    return [*lines, ""]
