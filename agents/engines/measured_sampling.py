"""How fast a model with random weights is sampled from, and how long its weights take to reach a sampler."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolorchestra.agents.engines.base import Datum, LossParams, Sampler, SamplingParams
from toolorchestra.agents.engines.random_models import random_model


def sampling_rates(
    shape: Mapping[str, Any], device: str, dtype: str, batches: Sequence[int], prompt: int, sampled: int
) -> dict[str, float]:
    """Tokens a second of the local sampler, by how many episodes are sampled side by side; the prompts are apart."""
    import torch

    from toolorchestra.agents.engines.decoder import Decoder
    from toolorchestra.agents.engines.sampler import LocalSampler
    from toolorchestra.agents.engines.weights import named_weights

    model = random_model(shape, dtype, device)
    length = prompt + sampled + 8
    decoder = Decoder(model.config, max(batches), length, torch.device(device), getattr(torch, dtype))
    sampler = LocalSampler(decoder, [], 0)
    sampler.sync(named_weights(model), 1)
    rate(sampler, 1, int(shape["vocab_size"]), prompt, 4)  # kernels are loaded by the first one
    return {str(count): rate(sampler, count, int(shape["vocab_size"]), prompt, sampled) for count in batches}


def rate(sampler: Sampler, count: int, vocabulary: int, prompt: int, sampled: int) -> float:
    """Sampled tokens a second, the prompts' time included."""
    rng = random.Random(count)
    prompts = [[rng.randrange(vocabulary) for _ in range(prompt)] for _ in range(count)]

    async def all_of_them() -> int:
        asked = [sampler.sample(p, SamplingParams(sampled), f"r{n}") for n, p in enumerate(prompts)]
        return sum(len(made.tokens) for made in await asyncio.gather(*asked))

    started = time.monotonic()
    tokens = asyncio.run(all_of_them())
    seconds = time.monotonic() - started
    for number in range(count):
        sampler.release(f"r{number}")
    return tokens / seconds


def handover_seconds(shape: Mapping[str, Any], device: str, dtype: str) -> dict[str, float]:
    """Writing all weights as files for another process, where vLLM's sampler would have them."""
    from toolorchestra.agents.engines.vllm_sampler import SHARED_MEMORY
    from toolorchestra.agents.engines.weights import Handover, named_weights

    model = random_model(shape, dtype, device)
    size = sum(value.nbytes for _, value in named_weights(model))
    place = SHARED_MEMORY if SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > size else None
    folder = Path(tempfile.mkdtemp(prefix="toolorchestra-", dir=place))
    try:
        handover = Handover(folder, model.config.to_dict())
        started = time.monotonic()
        handover.write(named_weights(model))
        return {"seconds": time.monotonic() - started, "bytes": float(size), "in_memory": float(place is not None)}
    finally:
        shutil.rmtree(folder)


def vllm_beside_the_trainer(
    shape: Mapping[str, Any], device: str, dtype: str, batches: Sequence[int], prompt: int, sampled: int
) -> dict[str, Any]:
    """A vLLM engine and a trainer on one device, in turns: rates, an optimiser step, sleep and wake, and the gap
    between the two of them before and after it."""
    import torch

    from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
    from toolorchestra.agents.engines.vllm_process import VllmConfig
    from toolorchestra.agents.engines.vllm_sampler import VllmSampler

    model = random_model(shape, dtype, device)
    length, vocabulary = prompt + sampled + 8, int(shape["vocab_size"])
    described = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    rank = 16
    config = VllmConfig(length=length, rows=max(batches), device=device, dtype=dtype, memory_share=0.5, lora_rank=rank)
    held = LocalConfig(device=device, dtype=dtype, lora_rank=rank, gradient_checkpointing=True, length=length)
    engine = LocalEngine(model, [], held, VllmSampler(described, [], config))
    rng = random.Random(0)
    tokens = [rng.randrange(vocabulary) for _ in range(prompt)]
    try:
        started = time.monotonic()
        made = asyncio.run(engine.sample(tokens, SamplingParams(sampled)))
        told: dict[str, Any] = {"first_turn_seconds": time.monotonic() - started, "drift": engine.drift.mean}
        told["rates"] = {str(c): rate(engine.sampler, c, vocabulary, prompt, sampled) for c in batches}
        count = len(made.tokens)
        places = [*[False] * prompt, *[True] * count]
        datum = Datum([*tokens, *made.tokens], [*[0.0] * prompt, *made.logprobs], [1.0] * (prompt + count), places)
        engine.train([datum], LossParams(), 1e-4)
        told["held_while_it_sleeps"] = _used(torch, device)
        started = time.monotonic()
        asyncio.run(engine.sample(tokens, SamplingParams(1)))
        told["sync_seconds"] = time.monotonic() - started
        told["drift_after_a_step"] = engine.drift.mean
    finally:
        engine.close()
    return told


def _used(torch: Any, device: str) -> float:
    if not device.startswith("cuda"):
        return 0.0
    free, total = torch.cuda.mem_get_info(device)
    return float(total - free)
