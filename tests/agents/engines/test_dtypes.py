"""Every dtype with every adapter that it may have: the sampler takes its weights, and agrees with the trainer."""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.agents.engines.conformance import STOP, VOCABULARY, conversations, prompts
from toolorchestra.agents.engines.base import LossParams, SamplingParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.weights import merged_weights

CONFIG = LocalConfig(rows=16, length=192)
COMBINATIONS = [("float32", 0, 1e-5), ("float32", 4, 1e-5), ("bfloat16", 4, 0.05), ("float16", 4, 0.01)]
"""dtype, rank of the adapter, and the mean gap between the sampler's and the trainer's log-probabilities. Full weights
of 16 bits are refused."""


def engine(dtype: str, rank: int, seed: int = 0) -> LocalEngine:
    model = build_model(VOCABULARY, hidden=32, layers=2, seed=seed)
    return LocalEngine(model, [STOP], replace(CONFIG, dtype=dtype, lora_rank=rank))


@pytest.mark.parametrize(("dtype", "rank", "gap"), COMBINATIONS)
def test_what_is_sampled_after_a_step_is_the_trainers(dtype: str, rank: int, gap: float) -> None:
    made = engine(dtype, rank)
    for _ in range(3):
        made.train(conversations(made), LossParams("cross_entropy"), 1e-2)
    data = conversations(made)
    assert made.train(data, LossParams(), 0.0)["mismatch"] < gap
    assert {value.dtype for value in merged_weights(made.model).values()} == {getattr(torch, dtype)}


@pytest.mark.parametrize(("dtype", "rank", "gap"), COMBINATIONS)
def test_a_copy_in_another_process_and_a_resumed_run_sample_alike(
    dtype: str, rank: int, gap: float, tmp_path: Path
) -> None:
    made, copied, resumed = (engine(dtype, rank) for _ in range(3))
    made.train(conversations(made), LossParams("cross_entropy"), 1e-2)
    made.save(tmp_path)
    resumed.load(tmp_path)
    expected = conversations(made, 0)
    assert [d.tokens for d in conversations(resumed, 0)] == [d.tokens for d in expected]
    copied.adopt(made.snapshot(), 3)
    made.adopt(made.snapshot(), 3)
    assert [d.tokens for d in conversations(copied, 0)] == [d.tokens for d in conversations(made, 0)]
    assert statistics.fmean(p for d in expected for p in d.logprobs) < 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_positions_are_computed_in_float32(dtype: str) -> None:
    """As the decoder and vLLM compute them: rounded frequencies turn late positions into others."""
    made, exact = engine(dtype, 4), engine("float32", 4)
    found, expected = (dict(one.model.named_buffers()) for one in (made, exact))
    assert found.keys() == expected.keys() != set()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert {p.dtype for p in made.model.get_base_model().model.embed_tokens.parameters()} == {made.dtype}


def test_a_long_prompt_that_cannot_be_run_is_said_to_all_who_wait() -> None:
    """It breaks while requests are on their way from those that wait to those that are sampled."""
    made = engine("float32", 0)
    asyncio.run(made.sample([2, 3], SamplingParams(2)))  # so that the sampler has the weights
    product = made.sampler.decoder.layers[0].qkv  # type: ignore[attr-defined]
    product._weight = product._weight.double()
    long, short = prompts(9)[3] + [5] * 60, [2, 3]

    async def several() -> list[object]:
        turns = [made.sample(p, SamplingParams(4), f"s{n}") for n, p in enumerate((long, short, long))]
        async with asyncio.timeout(10):
            return list(await asyncio.gather(*turns, return_exceptions=True))

    assert [type(found) for found in asyncio.run(several())] == [RuntimeError] * 3


def test_who_asks_in_the_moment_that_a_step_breaks_gets_an_answer() -> None:
    """Not by the step that comes after: it would go on with requests that are half done."""
    made = engine("float32", 0)
    asyncio.run(made.sample([2, 3], SamplingParams(2)))
    whole, calls = made.sampler._step, list[int]()  # type: ignore[attr-defined]

    def breaking() -> None:
        calls.append(len(calls))
        if len(calls) == 2:
            raise OSError("a broken step")
        whole()

    made.sampler._step = breaking  # type: ignore[attr-defined]

    async def asks_again() -> object:
        with pytest.raises(OSError, match="a broken step"):
            await made.sample([2, 3], SamplingParams(30), "first")
        made.release("first")
        return await made.sample([2, 3], SamplingParams(2), "second")

    async def both() -> list[object]:
        async with asyncio.timeout(10):
            return list(await asyncio.gather(asks_again(), asks_again_later(), return_exceptions=True))

    async def asks_again_later() -> object:
        return await made.sample([4, 5], SamplingParams(30), "other")

    first, other = asyncio.run(both())
    assert getattr(first, "tokens", None)
    assert isinstance(other, OSError)
