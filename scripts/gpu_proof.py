"""What this project does on a GPU, measured in parts of under nine minutes each: make gpu-proof

python scripts/gpu_proof.py                          # all parts that have not been measured yet, then the page
python scripts/gpu_proof.py --only steps-8k sampler  # these
python scripts/gpu_proof.py --device cpu --tiny      # the same code in tiny shapes, where there is no GPU

Needs PyTorch, transformers, peft, safetensors and gymnasium; no network and no download: weights are random, in
Qwen3-8B's shape, made on the device. Each part is a process of its own and leaves a JSON in --out; a part that was
measured is not measured again, and one that was stopped half way (learn) goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.config import ModelConfig, TrainConfig, WarmStart
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.base import TrainingFailed
from toolorchestra.agents.engines.measured_step import MeasuredStep, measure
from toolorchestra.agents.engines.memory import Shape
from toolorchestra.agents.engines.shapes import SHAPES
from toolorchestra.agents.engines.step_time import training_operations
from toolorchestra.agents.reports.gpu_page import gpu_page
from toolorchestra.envs.base.errors import ConfigError

PART_SECONDS, SAVING_SECONDS = 480, 50
"""A part may take so long; then it is asked to save and end, and is killed where it does not."""
TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "tie_word_embeddings": True,
}
CURVE = ("reward", "accuracy", "cents")
"""What is kept of each evaluation of the small model, on held-out tasks."""
TFLOPS = {"H200": 989.0, "H100": 989.0, "B200": 2250.0, "A100": 312.0, "L40S": 362.0, "4090": 165.0, "L4": 121.0}
"""Of bfloat16, dense, as the maker states, by a part of the GPU's name; PCIe cards have less."""


@dataclass(frozen=True)
class Where:
    """What the parts run on."""

    device: str
    tiny: bool
    out: Path

    @property
    def large(self) -> Mapping[str, Any]:
        """The shape of the trainer's parts."""
        return TINY if self.tiny else SHAPES["qwen3-8b"]

    @property
    def small(self) -> Mapping[str, Any]:
        """The shape of the sampler's parts."""
        return TINY if self.tiny else SHAPES["qwen3-0.6b"]

    @property
    def dtype(self) -> str:
        """A GPU's, tiny shapes too."""
        return "bfloat16"


def steps(where: Where, tokens: int) -> Mapping[str, Any]:
    """LoRA and an optimiser step on one sequence of so many tokens."""
    wanted = MeasuredStep(
        where.large,
        device=where.device,
        dtype=where.dtype,
        lora_rank=4 if where.tiny else 64,
        checkpointing=True,
        length=tokens // 64 if where.tiny else tokens,
        steps=3,
    )
    made: dict[str, Any] = measure(wanted)
    shape = Shape.read({"model_type": "qwen3", **where.large})
    operations = made["tokens"] * training_operations(shape, wanted.length, lora=True, checkpointing=True)
    return {**made, "length": wanted.length, "tflops": operations / made["seconds"] / 1e12}


def sampler(where: Where) -> Mapping[str, Any]:
    """The local sampler by the number of episodes."""
    from toolorchestra.agents.engines.measured_sampling import sampling_rates

    batches, prompt, sampled = ((1, 2), 16, 8) if where.tiny else ((1, 8, 32, 128), 512, 256)
    return {"rates": sampling_rates(where.small, where.device, where.dtype, batches, prompt, sampled)}


def handover(where: Where) -> Mapping[str, Any]:
    """All weights of the large model on their way to a sampler's process."""
    from toolorchestra.agents.engines.measured_sampling import handover_seconds

    return handover_seconds(where.large, where.device, where.dtype)


def vllm(where: Where) -> Mapping[str, Any]:
    """vLLM beside the trainer, where it is installed."""
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        return {"left_out": "vLLM is not installed"}
    from toolorchestra.agents.engines.measured_sampling import vllm_beside_the_trainer

    shape = {**TINY, "num_attention_heads": 4, "head_dim": 32} if where.tiny else where.small
    batches, prompt, sampled = ((1, 2), 16, 8) if where.tiny else ((1, 8, 32, 128), 512, 256)
    return vllm_beside_the_trainer(shape, where.device, where.dtype, batches, prompt, sampled)


def learning(where: Where) -> TrainConfig:
    """A small model on HLE-v0, sampled in this process."""
    tiny = preset("tiny")
    started = replace(
        tiny,
        preset="gpu-proof",
        environments=tiny.environments[:1],
        model=ModelConfig(device=where.device, rows=128),
        warm_start=replace(tiny.warm_start, steps=400, demonstrations=4_000),
        steps=60,
        evaluate_every=20,
        evaluation_tasks=100,
    )
    if not where.tiny:
        return started
    return replace(
        started, warm_start=WarmStart(steps=0), steps=2, groups=2, rollouts=2, updates=1, evaluation_tasks=2,
        evaluate_every=1,
    )  # fmt: skip


def learn(where: Where) -> Mapping[str, Any]:
    """End to end: rollouts, rewards, steps and evaluations. A run that was stopped goes on."""
    from toolorchestra.agents.training.build import build
    from toolorchestra.agents.training.metrics import read
    from toolorchestra.agents.training.trainer import train

    folder, config = where.out / "learn", learning(where)
    engine, chat = build(config, print)
    started = time.monotonic()
    try:
        made = train(config, folder, engine, chat, resume=(folder / "checkpoints").is_dir(), say=print)
        made.rollouts.close()
    finally:
        engine.close()
    if made.stopping:
        raise TrainingFailed(f"stopped at step {made.step} of {config.steps}; the next call goes on from there")
    rows = [row for row in read(folder / "metrics.jsonl") if row["kind"] == "eval"]
    curve = [{"step": row["step"], **{name: row[f"policy/{name}"] for name in CURVE}} for row in rows]
    return {"curve": curve, "seconds": time.monotonic() - started}


PARTS: Mapping[str, Callable[[Where], Mapping[str, Any]]] = {
    "steps-8k": lambda where: steps(where, 8_192),
    "steps-16k": lambda where: steps(where, 16_384),
    "steps-32k": lambda where: steps(where, 32_768),
    "sampler": sampler,
    "handover": handover,
    "vllm": vllm,
    "learn": learn,
}


def machine(where: Where) -> Mapping[str, Any]:
    """What it was measured on."""
    import torch
    import transformers

    told: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if where.tiny:
        return {**told, "device": f"{where.device}, in tiny shapes: these figures say that the code runs, no more"}
    found = torch.cuda.get_device_properties(where.device)
    peak = next((value for name, value in TFLOPS.items() if name in found.name), 0.0)
    return {
        **told,
        "device": f"{found.name}, {found.total_memory / 1e9:.0f} GB",
        "cuda": torch.version.cuda,
        "peak": peak,
    }


def run_part(name: str, where: Where) -> None:
    """In a process of its own, whose outcome is a file."""
    file = where.out / f"{name}.json"
    words = [__file__, "--run", name, "--device", where.device, "--out", str(where.out), *(["--tiny"] * where.tiny)]
    started = time.monotonic()
    with (where.out / f"{name}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, *words], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(PART_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
        finally:
            try:
                process.wait(SAVING_SECONDS)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    took = time.monotonic() - started
    words_said = (where.out / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
    said = "measured" if file.exists() else f"NOT MEASURED: {words_said[-1] if words_said else 'it said nothing'}"
    print(f"{name}: {said} ({took:.0f} s)", flush=True)


def inside(name: str, where: Where) -> int:
    """The part itself."""
    try:
        made = PARTS[name](where)
    except (ConfigError, TrainingFailed) as err:
        print(f"error: {err}", file=sys.stderr)
        return 1
    draft = where.out / f".{name}.json"
    draft.write_text(json.dumps({"part": name, **made}, indent=1), encoding="utf-8")
    draft.replace(where.out / f"{name}.json")
    return 0


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts")
    parser.add_argument("--again", action="store_true", help="measure parts that have been measured")
    parser.add_argument("--device", default="cuda", help="of torch's")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes: whether the code runs")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-proof"), help="folder of the parts' outcomes")
    parser.add_argument("--page", type=Path, help="write the page here too, such as docs/results/gpu.md")
    parser.add_argument("--run", choices=list(PARTS), help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    where = Where(args.device, args.tiny, args.out)
    if args.run:
        return inside(args.run, where)
    if problem := _refused(args):
        print(f"error: {problem}", file=sys.stderr)
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.only:
        if args.again:
            (args.out / f"{name}.json").unlink(missing_ok=True)
        if (args.out / f"{name}.json").exists():
            print(f"{name}: was measured before; --again measures it anew")
        else:
            run_part(name, where)
    found = {name: json.loads(path.read_text()) for name in PARTS if (path := args.out / f"{name}.json").exists()}
    page = gpu_page(machine(where), found, list(PARTS))
    for path in (args.out / "gpu.md", *([args.page] if args.page else [])):
        path.write_text(page, encoding="utf-8")
        print(f"written: {path}")
    return 0 if len(found) == len(PARTS) or set(args.only) <= set(found) else 1


def _refused(args: argparse.Namespace) -> str:
    """Why these options make no sense; "" where they do."""
    import torch

    if args.device.startswith("cuda") and not torch.cuda.is_available():
        return "torch sees no GPU here; --device cpu --tiny tries the code without one"
    if not args.device.startswith("cuda") and not args.tiny:
        return f"the full shapes are for a GPU, and the device is {args.device}; add --tiny"
    if args.tiny and args.page:
        return "--page is for figures of full shapes; with --tiny read gpu.md in --out"
    return ""


if __name__ == "__main__":
    sys.exit(main())
