"""What this project does on a GPU, measured in parts of under nine minutes each: make gpu-proof

python scripts/gpu_proof.py                         # all parts that have not been measured yet, then the table
python scripts/gpu_proof.py --only steps-8k learn   # these
python scripts/gpu_proof.py --device cpu --tiny     # the same code in tiny shapes, where there is no GPU

Needs PyTorch, transformers, peft, safetensors and what setup.cfg's install_requires names; no network and no download:
weights are random, made on the device. liger-kernel and vllm are taken where they are. Each part is a process of its
own and leaves a JSON in --out. A part whose JSON is there, of this device and these shapes, is not measured again;
one that was stopped half way (learn) goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from toolorchestra.agents.configuration.config import TrainConfig, WarmStart
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines import pretrained
from toolorchestra.agents.engines.base import Datum, LossParams, SamplingParams, TrainingFailed
from toolorchestra.agents.engines.gpu_arithmetic import SHAPES, MemoryPlan, Shape, budget, training_operations
from toolorchestra.agents.engines.guarded_processes import ProcessGuard
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.tiny import random_model

PART_SECONDS, SAVING_SECONDS = 480, 50
"""A part may take so long; then it is asked to save and end, and is killed where it does not."""
TINY = {
    **{"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512},
    "tie_word_embeddings": True,
}
REAL_LOGITS = 8.0
"""What a random head is multiplied by: logits then reach 30 and more."""
TFLOPS = {"H200": 989.0, "H100": 989.0, "B200": 2250.0, "A100": 312.0, "L40S": 362.0, "4090": 165.0, "L4": 121.0}
"""Peak in bfloat16, dense, as the maker states, by a part of the GPU's name; PCIe cards have less."""


class Where(NamedTuple):
    """What the parts run on."""

    device: str
    tiny: bool
    out: Path

    @property
    def told(self) -> dict[str, Any]:
        """What tells one measurement's place from another's."""
        name = torch.cuda.get_device_name(self.device) if self.device.startswith("cuda") else self.device
        return {"device": name, "tiny": self.tiny}

    def found(self, part: str) -> dict[str, Any] | None:
        """What was measured of a part in this place."""
        file = self.out / f"{part}.json"
        made = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        here = {name: made.pop(name, None) for name in ("device", "tiny")}
        return made if here == self.told else None


def datum(prompt: Sequence[int], sampled: Sequence[int], logprobs: Sequence[float]) -> Datum:
    """A sequence whose second part is learnt from."""
    given, count = len(prompt), len(sampled)
    places = [*[False] * given, *[True] * count]
    return Datum([*prompt, *sampled], [*[0.0] * given, *logprobs], [1.0] * (given + count), places)


def shape_of(where: Where) -> Mapping[str, Any]:
    """Qwen3-8B's, or a tiny one."""
    return TINY if where.tiny else SHAPES["qwen3-8b"]


def trainer(where: Where, length: int, rank: int, sampler: Any = None, **settings: Any) -> LocalEngine:
    """A model of random weights under an adapter, as preset 8b-h100 trains it. Its head makes logits of the size that a
    trained one makes: in 16 bits what two kernels round apart grows with them."""
    model = random_model(shape_of(where), "bfloat16", where.device)
    model.lm_head.weight.data.mul_(REAL_LOGITS)
    config = LocalConfig(
        device=where.device, dtype="bfloat16", lora_rank=rank, length=length, rows=1, tokens_per_batch=length,
        gradient_checkpointing=True, **settings,
    )  # fmt: skip
    return LocalEngine(model, [], config, sampler)


def sequences(where: Where, length: int, count: int = 2, *, prompts: int = 0) -> list[Datum]:
    """Random tokens, of which the second half is learnt from; of fewer prompts than sequences, where that is said."""
    rng, half, words = random.Random(0), length // 2, range(int(shape_of(where)["vocab_size"]))
    asked = [rng.choices(words, k=half) for _ in range(prompts or count)]
    return [datum(asked[n % len(asked)], rng.choices(words, k=half), [-1.0] * half) for n in range(count)]


def seconds_a_step(engine: LocalEngine, data: Sequence[Datum]) -> float:
    """The best of some optimiser steps, the first of which warms up. With the loss of preset paper, which asks the
    model below the adapter too."""
    took = []
    for _ in range(3):
        started = time.monotonic()
        engine.train(data, preset("paper").loss, 1e-5)  # its metrics are numbers: they wait for the device
        took.append(time.monotonic() - started)
    return min(took[1:])


def steps(where: Where, tokens: int) -> Mapping[str, Any]:
    """Optimiser steps over one or two sequences, each a batch by itself."""
    length, rank = (tokens // 64, 4) if where.tiny else (tokens, 64)
    engine, count = trainer(where, length, rank), 2 if tokens <= 32 * 1024 else 1
    seconds = seconds_a_step(engine, sequences(where, length, count))
    wanted = MemoryPlan(Shape.read(shape_of(where)), 0, lora_rank=rank, tokens_per_batch=length, checkpointing=True)
    useful, all_of_it = (
        training_operations(wanted.shape, length, lora=True, checkpointing=twice, reference=True)
        for twice in (False, True)
    )
    rate = count * length / seconds
    found = {"length": length, "fused kernels": str(engine.fused), "seconds": seconds, "tokens_per_second": rate}
    if where.device.startswith("cuda"):  # what torch reserved at the most, and the context beside it
        free, total = torch.cuda.mem_get_info(where.device)
        context = total - free - torch.cuda.memory_reserved(where.device)
        found["peak_gb"] = (torch.cuda.max_memory_reserved(where.device) + context) / 1e9
    found |= {"useful_tflops": rate * useful / 1e12, "tflops": rate * all_of_it / 1e12}
    return {**found, "budget_gb": budget(wanted).total(training=True) / 1e9}


def kernels(where: Where) -> Mapping[str, Any]:
    """The same step with torch's own kernels and with fused ones. And that of eight plays, half of each its prompt: of
    one task, whose prompt is run once, and of eight tasks."""
    length, rank = (128, 4) if where.tiny else (16_384, 64)
    data, found = sequences(where, length), dict[str, Any]()
    plain = trainer(where, length, rank, kernels="torch")
    found["torch_seconds"] = seconds_a_step(plain, data)
    del plain
    engine = trainer(where, length, rank)
    found |= {"fused kernels": str(engine.fused), "fused_seconds": seconds_a_step(engine, data)}
    for name, prompts in (("prompt_once_seconds", 1), ("prompt_each_seconds", 8)):
        found[name] = seconds_a_step(engine, sequences(where, length // 4, 8, prompts=prompts))
    return found


def compiled(where: Where) -> Mapping[str, Any]:
    """The step of `kernels`, of blocks that torch.compile has made; and with FlashAttention, where it is installed."""
    length, rank = (128, 4) if where.tiny else (16_384, 64)
    pretrained.COMPILER = "aot_eager" if where.tiny else "inductor"  # for a CPU that takes a minute
    flash = ["flash"] * any(map(find_spec, ("flash_attn", "flash_attn_interface")))
    data, ways = sequences(where, length), ("compiled", *flash)
    return {f"{way}_seconds": seconds_a_step(trainer(where, length, rank, kernels=way), data) for way in ways}


def vllm(where: Where) -> Mapping[str, Any]:
    """vLLM beside the trainer on one device, in turns, as preset 8b-h100 has it: rates, new adapters with sleep and
    wake, and the gap between the two before and after an optimiser step."""
    if find_spec("vllm") is None:
        return {"left_out": "vLLM is not installed"}
    from transformers import Qwen3Config

    from toolorchestra.agents.engines.vllm_sampler import VllmConfig, VllmSampler

    batches, prompt, sampled, rank = ((1, 2), 16, 8, 8) if where.tiny else ((1, 8, 32, 128), 512, 256, 64)
    length, share = prompt + sampled + 8, preset("8b-h100").model.memory_share
    kept = {name: value for name, value in shape_of(where).items() if name != "model_type"}
    described = {**Qwen3Config(**kept).to_dict(), "architectures": ["Qwen3ForCausalLM"]}
    config = VllmConfig(
        device=where.device, dtype="bfloat16", lora_rank=rank, length=length, rows=max(batches), memory_share=share
    )
    sampler = VllmSampler(described, [], config)
    engine = trainer(where, length, rank, sampler)
    words = [random.Random(n).choices(range(int(shape_of(where)["vocab_size"])), k=prompt) for n in range(max(batches))]
    told: dict[str, Any] = {}
    try:
        made = timed(told, "first_turn_seconds", lambda: asyncio.run(engine.sample(words[0], SamplingParams(sampled))))
        told |= {"drift": engine.drift.mean, "own_noise": engine.drift.noise}
        for count in batches:
            told[f"tokens_per_second_of_{count}"] = rate(engine, words[:count], sampled)
        data = [datum(words[0], made.tokens, made.logprobs)]
        timed(told, "sleep_and_step_seconds", lambda: engine.train(data, LossParams(), 1e-3))
        timed(told, "wake_and_sync_seconds", lambda: asyncio.run(engine.sample(words[0], SamplingParams(1))))
        told |= {"drift_after_a_step": engine.drift.mean, "moved": engine.drift.moved, "lost": engine.drift.lost}
        for _ in range(3):
            engine.train(data, LossParams(), 1e-3)
        timed(told, "again_seconds", lambda: asyncio.run(engine.sample(words[0], SamplingParams(1))))
        return {**told, "moved_after_four": engine.drift.moved, "lost_after_four": engine.drift.lost}
    finally:
        engine.close()


def timed(told: dict[str, Any], name: str, act: Callable[[], Any]) -> Any:
    """What a call gives; how long it took is told under this name."""
    started = time.monotonic()
    made = act()
    told[name] = time.monotonic() - started
    return made


def rate(engine: LocalEngine, prompts: Sequence[Sequence[int]], sampled: int) -> float:
    """Tokens a second, sampled side by side; the prompts' time included."""

    async def all_of_them() -> int:
        asked = [engine.sample(p, SamplingParams(sampled), f"r{n}") for n, p in enumerate(prompts)]
        return sum(len(made.tokens) for made in await asyncio.gather(*asked))

    started = time.monotonic()
    return asyncio.run(all_of_them()) / (time.monotonic() - started)


def learning(where: Where) -> TrainConfig:
    """The tiny model on HLE-v0, sampled and trained on the device."""
    tiny = preset("tiny")
    started = replace(
        tiny, preset="gpu-proof", environments=tiny.environments[:1],
        model=replace(tiny.model, device=where.device, processes=1),
        steps=40, evaluate_every=10, evaluation_tasks=100,
    )  # fmt: skip
    if not where.tiny:
        return started
    few = dict[str, Any](steps=2, groups=2, rollouts=2, updates=1, evaluation_tasks=2, evaluate_every=1)
    return replace(started, warm_start=WarmStart(steps=0), **few)


def learn(where: Where) -> Mapping[str, Any]:
    """Rollouts, rewards, steps and evaluations, end to end. A run that was stopped goes on."""
    told, rows = trained(learning(where), where.out / "learn")
    return told | curve(rows, "reward", "cents")


def run(where: Where) -> Mapping[str, Any]:
    """Preset 8b-h100 from a folder of random weights to a checkpoint: a supervised start, episodes by vLLM, optimiser
    steps and evaluations. Fewer and shorter plays than the preset has."""
    if find_spec("vllm") is None:
        return {"left_out": "vLLM is not installed"}
    from toolorchestra.agents.engines.tiny import load_tokenizer

    tiny, wanted, folder = preset("tiny"), preset("8b-h100"), where.out / "model"
    tokenizer, shape = load_tokenizer(), shape_of(where)
    shape = {**shape, "vocab_size": max(int(shape["vocab_size"]), len(tokenizer))}
    random_model(shape, "bfloat16", where.device).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    held = replace(wanted.model, path=str(folder), device=where.device)
    few = dict[str, Any](steps=4, groups=16, rollouts=8, updates=2, evaluate_every=4, evaluation_tasks=50)
    started = WarmStart(steps=200, learning_rate=1e-3, demonstrations=2_000, gate=0)
    if where.tiny:
        few |= {"steps": 2, "groups": 2, "evaluation_tasks": 2}
        held, started = replace(held, rows=4, lora_rank=8, tokens_per_batch=512), replace(started, steps=2)
    config = replace(
        wanted, environments=tiny.environments[:1], model=held, warm_start=started, max_tokens=40, max_context=512,
        learning_rate=1e-4, **few,
    )  # fmt: skip
    told, rows = trained(config, where.out / "run")
    warm = [row["loss"] for row in rows if row["kind"] == "warm"]
    told |= {"first_loss": warm[0], "last_loss": warm[-1]}
    for row in (row for row in rows if row["kind"] == "train"):
        told |= {f"{name}_of_step_{row['step']}": row[name] for name in RUN_METRICS if name in row}
    return told | curve(rows, "reward")


def trained(config: TrainConfig, folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run's seconds, its trainer's peak on a GPU, and its metrics. A run that is in the folder goes on."""
    from toolorchestra.agents.training.build import build
    from toolorchestra.agents.training.metrics import read
    from toolorchestra.agents.training.trainer import train

    engine, chat = build(config, print)
    started = time.monotonic()
    try:
        made = train(config, folder, engine, chat, resume=(folder / "checkpoints").is_dir(), say=print)
        made.rollouts.close()
    finally:
        engine.close()
    if made.stopping:
        raise TrainingFailed(f"stopped at step {made.step} of {config.steps}; the next call goes on from there")
    told = {"seconds": time.monotonic() - started}
    if config.model.device.startswith("cuda"):
        told["peak_gb"] = torch.cuda.max_memory_reserved(config.model.device) / 1e9
    return told, list(read(folder / "metrics.jsonl"))


def curve(rows: Sequence[Mapping[str, Any]], *names: str) -> dict[str, Any]:
    """What the policy came to at each evaluation."""
    evaluated = [row for row in rows if row["kind"] == "eval"]
    return {f"{name}_at_step_{row['step']}": row[f"policy/{name}"] for row in evaluated for name in names}


RUN_METRICS = (
    *("time/step", "time/sampling", "time/training", "time/sync", "sampled_tokens_per_second", "used", "flat_share"),
    *("loss/drift", "loss/moved", "loss/lost_change", "loss/mismatch", "loss/prefix_hits", "turns", "valid"),
)
"""What is told of a step of the run."""

PARTS: Mapping[str, Callable[[Where], Mapping[str, Any]]] = {
    **{f"steps-{k}k": partial(steps, tokens=k * 1024) for k in (8, 16, 32, 64)},
    "kernels": kernels,
    "compiled": compiled,
    "vllm": vllm,
    "run": run,
    "learn": learn,
}


def run_part(name: str, where: Where) -> None:
    """Run a part in a process of its own, whose outcome is a file and which does not outlive this one."""
    log = where.out / f"{name}.log"
    words = [__file__, "--run", name, "--device", where.device, "--out", str(where.out), *(["--tiny"] * where.tiny)]
    guard, started = ProcessGuard(), time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        environment = {**os.environ, **guard.environment}
        process = subprocess.Popen([sys.executable, *words], stdout=file, stderr=subprocess.STDOUT, env=environment)
        try:
            process.wait(PART_SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAVING_SECONDS)
        finally:
            guard.strike()
            process.wait()
    said = log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:] or ["it said nothing"]
    outcome = "measured" if (where.out / f"{name}.json").exists() else f"NOT MEASURED: {said[0]}"
    print(f"{name}: {outcome} ({time.monotonic() - started:.0f} s)", flush=True)


def table(where: Where, found: Mapping[str, Mapping[str, Any]]) -> str:
    """All that was measured, as Markdown."""
    about, peak = f"{where.device}, in tiny shapes: these figures say that the code runs, no more", 0.0
    if not where.tiny:
        device = torch.cuda.get_device_properties(where.device)
        about = f"{device.name}, {device.total_memory / 1e9:.0f} GB, CUDA {torch.version.cuda}"
        peak = next((value for name, value in TFLOPS.items() if name in device.name), 0.0)
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, transformers {transformers.__version__}"
    lines = ["# On a GPU, measured", "", f"By `make gpu-proof`. {about}; {versions}.", ""]
    lines += ["| part | what | measured |", "|---|---|---|"]
    for part in PARTS:
        made = dict(found.get(part, {"left_out": "not measured"}))
        if peak and "tflops" in made:  # of the peak: without checkpointing's second forward pass, and with it
            made |= {"mfu": made["useful_tflops"] / peak, "utilisation": made["tflops"] / peak}
        lines += [f"| {part} | {k} | {v if isinstance(v, str) else format(v, '.4g')} |" for k, v in made.items()]
    return "\n".join([*lines, ""])


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts")
    parser.add_argument("--device", default="cuda", help="of torch's")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes: whether the code runs")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-proof"), help="folder of the outcomes and of gpu.md")
    parser.add_argument("--run", choices=list(PARTS), help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    where = Where(args.device, args.tiny, args.out)
    if args.run:
        draft = args.out / f".{args.run}.json"
        draft.write_text(json.dumps({**where.told, **PARTS[args.run](where)}, indent=1), encoding="utf-8")
        draft.replace(args.out / f"{args.run}.json")
        return 0
    if not args.tiny and not (args.device.startswith("cuda") and torch.cuda.is_available()):
        print(f"error: the full shapes are for a GPU, and torch sees no {args.device} here; "
              "--device cpu --tiny tries the code without one", file=sys.stderr)  # fmt: skip
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    if others := [name for name in PARTS if (args.out / f"{name}.json").exists() and where.found(name) is None]:
        print(f"{args.out} has figures of another device or of other shapes ({', '.join(others)}); name another --out")
        return 2
    for name in args.only:
        if where.found(name) is not None:
            print(f"{name}: was measured before; remove its JSON in {args.out} to measure it anew")
        else:
            run_part(name, where)
    found = {name: made for name in PARTS if (made := where.found(name)) is not None}
    (args.out / "gpu.md").write_text(table(where, found), encoding="utf-8")
    return 0 if set(args.only) <= set(found) else 1


if __name__ == "__main__":
    sys.exit(main())
