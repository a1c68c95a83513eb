"""Real `vllm serve` processes, started by the command that users start them with: samplers and experts behind them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import tomllib
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agents.engines.conformance import (
    CONFIG,
    STOP,
    VOCABULARY,
    SamplerConformance,
    assert_agreement,
    conversations,
)
from tests.command_line import TOOLORCHESTRA
from tests.paths import REPOSITORY
from tests.vllm.conftest import HIDDEN, SHAPE
from tests.vllm.processes import MARK, gone, marked
from toolorchestra.agents.engines.agreement import Drift
from toolorchestra.agents.engines.base import LossParams, SamplingParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.tiny import build_model, load_tokenizer
from toolorchestra.agents.engines.vllm_served import ServedConfig, ServedSampler, SeveralServers
from toolorchestra.agents.engines.weights import named_weights
from toolorchestra.envs.base.actions import parse, render_call
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.models.openai import OpenAiModels

SMOLLM = Path(os.environ.get("SMOLLM2_FOLDER", REPOSITORY / ".venv-vllm" / "smollm2"))
COMMON = ["--enforce-eager", "--dtype", "float32", "--kv-cache-memory-bytes", str(1 << 28)]
EAGER = {"TORCHDYNAMO_DISABLE": "1", "VLLM_LOGGING_LEVEL": "WARNING"}


def servers_file(folder: Path) -> Path:
    """Two servers whose weights may be replaced, and one real instruct model."""
    tiny = folder / "tiny"
    model = build_model(VOCABULARY, HIDDEN, 2)
    model.save_pretrained(tiny)
    load_tokenizer().save_pretrained(tiny)  # the server wants one, though it is asked for ids alone
    (tiny / "config.json").write_text(json.dumps(SHAPE, default=str))
    lengths = ["--max-model-len", str(CONFIG.length), "--max-num-seqs", "64"]
    tokens = ["--logprobs-mode", "processed_logprobs", "--enable-prompt-tokens-details"]
    adapters = ["--enable-lora", "--max-lora-rank", "8"]
    may_change = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    rows = {
        "tiny": (str(tiny), ["policy"], [*COMMON, *lengths, *tokens, *adapters], {**EAGER, **may_change}),
        "second": (str(tiny), ["policy"], [*COMMON, *lengths, *tokens, *adapters], {**EAGER, **may_change}),
        "smollm": (str(SMOLLM), ["qwen3-8b"], [*COMMON, "--max-model-len", "2048"], EAGER),
    }
    lines = []
    for name, (model_name, names, arguments, environment) in rows.items():
        if name == "smollm" and not SMOLLM.is_dir():
            continue
        lines += [f"[servers.{name}]", f"model = {json.dumps(model_name)}", f"names = {json.dumps(names)}"]
        lines += [f"arguments = {json.dumps(arguments)}", f"[servers.{name}.environment]"]
        lines += [f"{k} = {json.dumps(v)}" for k, v in environment.items()]
        lines += [f"[servers.{name}.served]", "context_tokens = 2048", "output_tokens = 64", "temperature = 0.0"]
    path = folder / "experts.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """What the command wrote. At the end Ctrl-C stops the servers, and none of their processes is left."""
    folder, mark = tmp_path_factory.mktemp("serving"), uuid.uuid4().hex
    written = folder / "endpoints.toml"
    script = [*TOOLORCHESTRA, "serve", "experts", str(servers_file(folder))]
    process = subprocess.Popen(
        [*script, "--out", str(written), "--logs", str(folder / "logs"), "--start-seconds", "240"],
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "written; Ctrl-C" in line:
            break
    assert "written; Ctrl-C" in said, said
    yield Endpoints.read(tomllib.loads(written.read_text(encoding="utf-8")), "endpoints.toml")
    assert len(marked(mark)) > 2
    os.killpg(process.pid, signal.SIGINT)
    assert "stopped" in process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert gone(mark, 10) == []


def test_adapters_are_served_over_the_model_that_the_server_has(endpoints: Endpoints, tmp_path: Path) -> None:
    config = ServedConfig(endpoints.endpoints["tiny"].base_url, CONFIG.length, 60.0, handover=str(tmp_path))
    whole, apart = ServedSampler(SHAPE, [STOP], config), ServedSampler(SHAPE, [STOP], replace(config, adapters=True))
    try:
        whole.sync(named_weights(build_model(VOCABULARY, HIDDEN, 2)), 0)  # as if it had been started with it
        lora = replace(CONFIG, lora_rank=4)
        made = LocalEngine(build_model(VOCABULARY, HIDDEN, 2), [STOP], lora, apart)
        for _ in range(3):
            data = conversations(made)
            assert_agreement(made, data)
            made.train(data, LossParams("cross_entropy"), 1e-2)
        with pytest.raises(AssertionError):
            assert_agreement(made, data)
        other = LocalEngine(build_model(VOCABULARY, HIDDEN, 2, seed=1), [STOP], lora, apart)
        with pytest.raises(Drift, match="differ from the trainer's by"):
            asyncio.run(other.sample([2, 3], SamplingParams(2)))
    finally:
        apart.close()
        whole.close()


class TestSeveralServed(SamplerConformance):
    """Two real servers behind one sampler do what one does."""

    @pytest.fixture(autouse=True)
    def _with(self, endpoints: Endpoints, tmp_path: Path) -> Iterator[None]:
        urls = [endpoints.endpoints[name].base_url for name in ("tiny", "second")]
        configs = [ServedConfig(url, CONFIG.length, 60.0, handover=str(tmp_path)) for url in urls]
        self.said: list[str] = []
        self.sampler = SeveralServers([ServedSampler(SHAPE, [STOP], one) for one in configs], self.said.append)
        yield
        self.sampler.close()

    def engine(self, config: LocalConfig = CONFIG, seed: int = 0) -> LocalEngine:
        return LocalEngine(build_model(VOCABULARY, HIDDEN, 2, seed), [STOP], config, self.sampler)

    def test_both_have_the_new_weights_and_an_episode_stays_with_its_server(self) -> None:
        made = self.engine(seed=3)
        prompts = [[2 + (7 * i + n) % 60 for i in range(150)] for n in range(6)]  # a block of its cache is 128 tokens

        async def played() -> None:
            for more in ([], [5, 6], [7, 8, 9]):
                sampled = (made.sample([*p, *more], SamplingParams(4), f"{n}") for n, p in enumerate(prompts))
                await asyncio.gather(*sampled)

        asyncio.run(played())
        asked = [server.stats()["prefix_hits"] for server in self.sampler.servers]
        assert all(hits > 0.3 for hits in asked), asked
        data = conversations(made)
        assert_agreement(made, data)
        made.train(data, LossParams("cross_entropy"), 1e-2)
        assert_agreement(made, conversations(made))
        assert not self.said


@pytest.mark.skipif(not SMOLLM.is_dir(), reason=f"no SmolLM2 at {SMOLLM}; scripts/unpack_smollm.py writes it")
def test_a_real_model_behind_the_endpoint_calls_a_tool(endpoints: Endpoints) -> None:
    """SmolLM2-135M, shown two calls, makes a third one that the action grammar reads."""
    models = OpenAiModels(endpoints)
    shown = []
    for city in ("Oslo", "Lima"):
        shown += [
            Message(role="user", content=f"What is the weather in {city}?"),
            Message(role="assistant", content=render_call("weather", {"city": city})),
        ]
    asked = [*shown, Message(role="user", content="What is the weather in Rome?")]
    request = ChatRequest("qwen3-8b", "move", tuple(asked))

    async def complete() -> tuple[str, int, int]:
        done = await models.complete(request)
        await models.aclose()
        return done.text, done.usage.tokens.input, done.usage.tokens.output

    text, given, said = asyncio.run(complete())
    action = parse(text)
    assert [c.name for c in action.calls] == ["weather"]
    assert action.calls[0].arguments == {"city": "Rome"}
    assert given > 30
    assert said > 5
