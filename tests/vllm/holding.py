"""A process that holds a vLLM engine: says so, and hears Ctrl-C once before it ends. Run by test_vllm_processes.py."""

from __future__ import annotations

import asyncio
import time

from tests.agents.engines.conformance import CONFIG, STOP, VOCABULARY
from tests.vllm.conftest import HIDDEN, SHAPE
from toolorchestra.agents.engines.base import SamplingParams
from toolorchestra.agents.engines.local import LocalEngine
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.vllm_sampler import VllmConfig, VllmSampler


def main() -> None:
    sampler = VllmSampler(SHAPE, [STOP], VllmConfig(length=CONFIG.length, rows=8))
    engine = LocalEngine(build_model(VOCABULARY, HIDDEN, 2), [STOP], CONFIG, sampler)
    asyncio.run(engine.sample([2, 3], SamplingParams(2)))
    try:
        print("ready", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        asyncio.run(engine.sample([2, 3], SamplingParams(2)))
        print(f"still here after {sampler.restarts} restarts", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
