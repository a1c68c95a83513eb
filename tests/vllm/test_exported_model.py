"""vLLM loads an exported folder as any other model, and says token by token what the checkpoint says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.training.test_saved_model import SHORT, Turn, played
from tests.agents.training.trained_models import WHOLE, adapted, write_base, write_run
from tests.vllm.conftest import HIDDEN
from toolorchestra.agents.engines.vllm_sampler import load_vllm
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.agents.training.saved_model import export_model

LENGTH = 512
WIDE = replace(WHOLE, model=replace(WHOLE.model, hidden=HIDDEN))


@contextmanager
def served(folder: Path, **more: Any) -> Iterator[Any]:
    """The folder in an engine of its own, which ends with the block."""
    vllm = load_vllm()  # before the settings of the engine's processes, which change what is imported
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        patch.setenv("TORCHDYNAMO_DISABLE", "1")
        patch.setenv("VLLM_LOGGING_LEVEL", "ERROR")
        llm = vllm.LLM(
            model=str(folder),
            dtype="float32",
            max_model_len=LENGTH,
            kv_cache_memory_bytes=1 << 26,
            enforce_eager=True,
            disable_log_stats=True,
            **more,
        )
        try:
            yield llm
        finally:
            llm.llm_engine.engine_core.shutdown()


def said(llm: Any, turns: Sequence[Turn], **more: Any) -> list[list[int]]:
    """What it continues the prompts with, where its own files end a turn."""
    greedy = load_vllm().SamplingParams(temperature=0.0, max_tokens=WIDE.max_tokens, detokenize=False)
    prompts = [{"prompt_token_ids": prompt} for prompt, _ in turns]
    return [[*made.outputs[0].token_ids] for made in llm.generate(prompts, greedy, use_tqdm=False, **more)]


def test_vllm_says_what_the_checkpoint_says(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", WIDE, scale=0.2)
    export_model(run, tmp_path / "out")
    turns, _ = played(run)
    assert len({tuple(tokens) for _, tokens in turns}) > 3
    observation = factory_of("HLE-v0", **SHORT).start(3).observation
    with served(tmp_path / "out") as llm:
        assert said(llm, turns) == [tokens for _, tokens in turns]
        params = llm.get_default_sampling_params()
        (made,) = llm.chat(list(observation["messages"]), tools=list(observation["tools"]), use_tqdm=False)
    assert (params.temperature, params.top_p) == (WIDE.evaluation_temperature, 1.0)
    assert made.prompt_token_ids == turns[0][0]


def test_vllm_serves_an_adapter_over_its_base(tmp_path: Path) -> None:
    config = adapted(write_base(tmp_path / "base", HIDDEN))
    run = write_run(tmp_path / "run", config)
    export_model(run, tmp_path / "out", adapter=True)
    turns, _ = played(run)
    from vllm.lora.request import LoRARequest

    wanted = [tokens for _, tokens in turns]
    with served(tmp_path / "base", enable_lora=True, max_lora_rank=8) as llm:
        assert said(llm, turns) != wanted
        assert said(llm, turns, lora_request=LoRARequest("trained", 1, str(tmp_path / "out"))) == wanted
