"""One vLLM engine for all tests of this folder that do not break it: starting one takes a quarter of a minute."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

HIDDEN = 128
"""Four heads of 32, the narrowest that vLLM's CPU build runs."""
FOUND = importlib.util.find_spec("vllm") is not None
collect_ignore_glob = [] if FOUND else ["test_*.py"]

if FOUND:
    from tests.agents.engines.conformance import CONFIG, STOP, VOCABULARY
    from toolorchestra.agents.engines.tiny import build_model
    from toolorchestra.agents.engines.vllm_sampler import VllmConfig, VllmSampler

    SHAPE = {**build_model(VOCABULARY, HIDDEN, 2).config.to_dict(), "architectures": ["Qwen3ForCausalLM"]}

    @pytest.fixture(scope="session")
    def sampler() -> Iterator[VllmSampler]:
        made = VllmSampler(SHAPE, [STOP], VllmConfig(length=CONFIG.length, rows=CONFIG.rows))
        yield made
        made.close()


def pytest_configure(config: pytest.Config) -> None:
    if FOUND:  # vLLM leaves sockets to the garbage collector
        config.addinivalue_line("filterwarnings", "ignore::pytest.PytestUnraisableExceptionWarning")


def pytest_report_header() -> str:
    return "vllm: found" if FOUND else "vllm: not installed, so tests/vllm is left out; `make test-vllm` installs it"
