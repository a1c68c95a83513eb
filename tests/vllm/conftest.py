"""One vLLM engine for all tests of this folder that do not break it: starting one takes half a minute."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.agents.engines.conformance import CONFIG, STOP, VOCABULARY
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.vllm import VllmSampler
from toolorchestra.agents.engines.vllm_process import VllmConfig

HIDDEN = 128
"""Four heads of 32, the narrowest that vLLM's CPU build runs."""

collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_*.py"]


def pytest_report_header() -> str:
    found = importlib.util.find_spec("vllm") is not None
    return "vllm: found" if found else "vllm: not installed, so tests/vllm is left out; `make test-vllm` installs it"


@pytest.fixture(scope="session")
def sampler() -> Iterator[VllmSampler]:
    shape = {**build_model(VOCABULARY, HIDDEN, 2).config.to_dict(), "architectures": ["Qwen3ForCausalLM"]}
    made = VllmSampler(shape, [STOP], VllmConfig(length=CONFIG.length, rows=CONFIG.rows))
    yield made
    made.close()
