"""The vLLM sampler: what every sampler does, and what is its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.agents.engines.conformance import CONFIG, STOP, VOCABULARY, SamplerConformance, conversations
from tests.vllm.conftest import HIDDEN, SHAPE
from toolorchestra.agents.engines.agreement import Drift
from toolorchestra.agents.engines.base import LossParams, SamplingParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.vllm_sampler import VllmConfig, VllmSampler
from toolorchestra.agents.engines.weights import named_weights
from toolorchestra.envs.base.errors import ConfigError, Outage


def engine_with(sampler: VllmSampler, config: LocalConfig = CONFIG, seed: int = 0) -> LocalEngine:
    return LocalEngine(build_model(VOCABULARY, HIDDEN, 2, seed), [STOP], config, sampler)


class TestVllm(SamplerConformance):
    @pytest.fixture(autouse=True)
    def _with(self, sampler: VllmSampler) -> None:
        self.sampler = sampler

    def engine(self, config: LocalConfig = CONFIG, seed: int = 0) -> LocalEngine:
        return engine_with(self.sampler, config, seed)


def test_every_sync_is_verified(sampler: VllmSampler) -> None:
    made = engine_with(sampler)
    data = conversations(made)
    assert 0 < made.drift.mean < 1e-5
    first = made.train(data, LossParams(), 1e-3)
    assert first["drift"] == made.drift.mean
    conversations(made)
    assert 0 < made.drift.mean < 1e-5
    assert made.train(data, LossParams(), 1e-3)["drift"] != first["drift"]


EIGHT_BITS = VllmConfig(length=CONFIG.length, rows=8, cache="fp8")


def test_a_processor_without_avx512_is_told_that_it_has_no_cache_in_eight_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine would die at its start."""
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    with pytest.raises(ConfigError, match="with AVX-512 alone, and this one has AVX2"):
        VllmSampler(SHAPE, [STOP], EIGHT_BITS)


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() != "AVX512", reason="vLLM's CPU build wants AVX-512 for it")
def test_a_cache_in_eight_bits_is_held_and_what_it_rounds_is_found() -> None:
    """In float32 it is far above what the check lets pass."""
    made = VllmSampler(SHAPE, [STOP], EIGHT_BITS)
    try:
        engine = engine_with(made)
        with pytest.raises(
            Drift, match=r"differ from the trainer's by .* its cache no narrower one \(model\.cache=auto\)"
        ):
            conversations(engine)
        assert 0.001 < engine.drift.mean < 0.5
    finally:
        made.close()


def test_a_run_stops_when_the_samplers_weights_are_not_the_trainers(sampler: VllmSampler) -> None:
    """Here a sampler that lost one layer on the way."""

    class Careless:
        """Leaves a weight as it was before."""

        suspends = True

        def __init__(self) -> None:
            self.version = -1

        def sync(self, weights: Iterator[tuple[str, object]], version: int) -> None:
            halved = ((k, v * 0.5 if k.endswith("0.mlp.up_proj.weight") else v) for k, v in weights)  # type: ignore[operator]
            sampler.sync(halved, version)  # type: ignore[arg-type]
            self.version = version

        def __getattr__(self, name: str) -> object:
            return getattr(sampler, name)

    made = engine_with(Careless())  # type: ignore[arg-type]
    with pytest.raises(Drift, match="differ from the trainer's by"):
        asyncio.run(made.sample([2, 3], SamplingParams(2)))


@contextlib.contextmanager
def halted(sampler: VllmSampler) -> Iterator[None]:
    """The engine's processes stand still meanwhile, so that no turn can end before a test lets it."""
    for pid in sampler.pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in sampler.pids:
            os.kill(pid, signal.SIGCONT)


def unfinished(sampler: VllmSampler) -> int:
    """Turns that the engine works on now."""
    assert sampler._engine
    return int(sampler._engine.llm.get_num_unfinished_requests())


def test_an_aborted_turn_leaves_the_engine(sampler: VllmSampler) -> None:
    made = engine_with(sampler)

    async def cancelled() -> int:
        tasks = [asyncio.create_task(made.sample([3, 4], SamplingParams(180))) for _ in range(32)]
        async with asyncio.timeout(20):
            while unfinished(sampler) < 32:
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        end = time.monotonic() + 20
        while unfinished(sampler) and time.monotonic() < end:
            await asyncio.sleep(0.01)
        return unfinished(sampler)

    asyncio.run(made.sample([2], SamplingParams(1)))
    with halted(sampler):
        assert asyncio.run(cancelled()) == 0
    assert asyncio.run(made.sample([2, 3], SamplingParams(2))).tokens


def test_a_turn_has_a_deadline(sampler: VllmSampler) -> None:
    made = engine_with(sampler)
    asyncio.run(made.sample([2], SamplingParams(1)))
    kept, sampler.config = sampler.config, replace(sampler.config, request_seconds=0.2)
    try:
        with halted(sampler), pytest.raises(Outage, match=r"not sampled within 0\.2 s, and was aborted"):
            asyncio.run(made.sample([2, 3], SamplingParams(180)))
        assert unfinished(sampler) == 0
    finally:
        sampler.config = kept
    assert asyncio.run(made.sample([2, 3], SamplingParams(2))).tokens


def test_heads_that_the_cpu_build_cannot_run_are_refused() -> None:
    shape = build_model(VOCABULARY, 32, 2).config.to_dict()
    with pytest.raises(ConfigError, match=r"runs attention heads of 32, 64.*this model's have 8.*model\.hidden=128"):
        VllmSampler(shape, [STOP], VllmConfig())


def test_the_weights_that_were_handed_over_go_with_the_sampler(tmp_path: Path) -> None:
    """They are its own; what a user keeps is what he exports."""
    made = VllmSampler(SHAPE, [STOP], VllmConfig(folder=str(tmp_path)))
    made._handover.write(named_weights(build_model(VOCABULARY, HIDDEN, 2)))
    assert [path.name for path in made.folder.glob("*.safetensors")] == ["part-00000.safetensors"]
    assert made.folder.parent == tmp_path
    made.close()
    made.close()
    assert list(tmp_path.iterdir()) == []
    assert not made._scratch.exists()
