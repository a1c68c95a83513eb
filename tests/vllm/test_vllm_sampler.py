"""The vLLM sampler: what every sampler does, and its own."""

from __future__ import annotations

import pytest

from tests.agents.engines.conformance import CONFIG, STOP, VOCABULARY, SamplerConformance
from tests.vllm.conftest import HIDDEN
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.vllm import VllmSampler


class TestVllm(SamplerConformance):
    steps = 25

    @pytest.fixture(autouse=True)
    def _with(self, sampler: VllmSampler) -> None:
        self.sampler = sampler

    def engine(self, config: LocalConfig = CONFIG, seed: int = 0) -> LocalEngine:
        return LocalEngine(build_model(VOCABULARY, HIDDEN, 2, seed), [STOP], config, self.sampler)
