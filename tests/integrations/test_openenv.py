"""OpenEnv's own clients play the server's environments: `make test-openenv-core` with the package openenv-core,
`make test-openenv` with openenv and TRL's harness."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json
import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integrations.served_environments import (
    ANSWER,
    SEARCH,
    ServedEnvironments,
    alone,
    figures,
    served_environments,
)
from tests.paths import REPOSITORY
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply

openenv = pytest.importorskip("openenv", reason="OpenEnv is not installed: make test-openenv")
pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
sys.path.insert(0, str(REPOSITORY / "docs" / "examples"))
TURNS = [[SEARCH], [("enhance_reasoning", {"model": "reasoner-1"}), SEARCH], [ANSWER]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedEnvironments]:
    words = ("--env", "HLE-v0", "--env", "FRAMES-v0", "--env", "tests.integrations.breaking:Tests/Outage-v0")
    with served_environments(tmp_path_factory.mktemp("served"), *words) as made:
        yield made


def byte_tokenizer(folder: Path) -> Any:
    """A token for each byte and each of Qwen3's marks: enough for its template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    paired = [f"<{slash}{name}>" for name in ("tool_call", "tool_response", "think") for slash in ("", "/")]
    made.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|endoftext|>", *paired])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return made


def as_action(turn: Any) -> dict[str, Any]:
    return {"message": "", "tool_calls": [{"name": name, "arguments": arguments} for name, arguments in turn]}


def test_clients_side_by_side_play_what_gym_make_plays(server: ServedEnvironments) -> None:
    from openenv.core import GenericEnvClient

    async def play(seed: int, env: str) -> tuple[float, dict[str, Any]]:
        async with GenericEnvClient(base_url=server.url) as client:
            result = await client.reset(seed=seed, env=env)
            assert [message["role"] for message in result.observation["messages"]] == ["system", "user"]
            earned = 0.0
            for turn in TURNS:
                result = await client.step(as_action(turn))
                earned += result.reward or 0.0
            assert result.done
            assert figures(await client.state()) == figures(result.observation["bill"])
            return earned, figures(result.observation["bill"])

    async def main() -> list[tuple[float, dict[str, Any]]]:
        return await asyncio.gather(*[play(seed, env) for seed in range(8) for env in ("HLE-v0", "FRAMES-v0")])

    expected = [alone(env, seed, TURNS) for seed in range(8) for env in ("HLE-v0", "FRAMES-v0")]
    assert asyncio.run(main()) == [(one["reward"], one) for one in expected]
    assert {one["reward"] for one in expected} == {0.0, 1.0}, "the test can tell right from wrong"
    bills = {(bill["env"], bill["seed"]): figures(bill) for bill in server.bills() if bill["ended"] == "played"}
    assert [bills[env, seed] for seed in range(8) for env in ("HLE-v0", "FRAMES-v0")] == expected


def test_a_failed_episode_raises(server: ServedEnvironments) -> None:
    from openenv.core import GenericEnvClient

    with GenericEnvClient(base_url=server.url).sync() as client:
        client.reset(seed=1, env="Outage-v0")
        with pytest.raises(RuntimeError, match="it has no result: RuntimeError: the disk is on fire"):
            client.step(as_action([("breaks", {})]))
        assert client.state()["usd"] > 0


def scripted(turns: list[Any]) -> Any:
    """A model of the harness that writes these turns: calls, or words."""
    from openenv.core.harness import ModelStepResult
    from openenv.core.llm_client import LLMResponse, ToolCall

    left = iter(turns)

    def model_step(messages: Any, tools: Any, sampling: Any) -> Any:
        turn = next(left)
        calls = [] if isinstance(turn, str) else [ToolCall(id=str(n), name=c[0], args=c[1]) for n, c in enumerate(turn)]
        return ModelStepResult(LLMResponse(content=turn if isinstance(turn, str) else "", tool_calls=calls))

    return model_step


def test_openenvs_harness_plays_the_sessions_of_the_documentation(server: ServedEnvironments) -> None:
    from openenv.core.harness import MCPHarnessAdapter, build_harness_rollout_func
    from openenv_sessions import ToolOrchestraSessions

    def answering(*_: Any) -> Any:
        return scripted([[ANSWER]])

    sessions = ToolOrchestraSessions(server.url, "HLE-v0")
    for seed, turns in ((3, [[SEARCH], [ANSWER]]), (4, [[SEARCH], "I do not know."])):
        session = sessions.create(None, seed=seed)
        rollout = MCPHarnessAdapter().run_white_box(scripted(list(turns)), session)
        verdict = session.verify(rollout.messages)
        assert figures(verdict.metrics) == alone("HLE-v0", seed, turns)
        assert verdict.env_reward == alone("HLE-v0", seed, turns)["reward"]
        session.close()
    rollouts = build_harness_rollout_func(
        session_factory=sessions, harness_adapter=MCPHarnessAdapter(), model_step_builder=answering
    )
    assert len(rollouts(["", ""], None)["env_reward"]) == 2


def test_siblings_have_draws_of_their_own(server: ServedEnvironments) -> None:
    from openenv_sessions import ToolOrchestraSessions

    sessions, said = ToolOrchestraSessions(server.url, "HLE-v0"), []
    for number in range(6):
        session = sessions.create(None, seed=5, episode_id=f"{number:032x}")
        said.append((json.dumps(session.initial_messages()), session.call_tool(*SEARCH).data))
        session.close()
    prompts, found = zip(*said, strict=True)
    assert len({*prompts}) == 1
    assert len({*found}) > 1


TRL = importlib.util.find_spec("trl") is not None and importlib.util.find_spec("openenv.core.harness.capture")


@pytest.mark.skipif(not TRL, reason="TRL is not installed beside openenv: make test-openenv")
def test_trls_harness_worker_trains_on_what_was_played(server: ServedEnvironments, tmp_path: Path) -> None:
    """The worker's own loop, over a stand-in for vLLM's server that gives tokens."""
    from accelerate.state import PartialState
    from datasets import Dataset
    from openenv.core.harness import MCPHarnessAdapter
    from openenv_sessions import ToolOrchestraSessions
    from transformers import AutoTokenizer
    from trl import chat_template_utils
    from trl.experimental.async_grpo.openenv_harness import _HarnessRolloutLoop

    PartialState()  # as its worker's process begins
    byte_tokenizer(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = chat_template_utils.qwen3_chat_template
    # As the template writes a call, so that the transcript only grows.
    spelled = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in (SEARCH, ANSWER)]
    turns = [f"<tool_call>\n{call}\n</tool_call><|im_end|>" for call in spelled]

    def generate(asked: ReceivedRequest) -> ServerReply:
        told = tokenizer.decode(asked.json["prompt"])
        ids = tokenizer.encode(turns[told.count("<|im_start|>assistant") - 1])
        return ServerReply(body={"choices": [{"token_ids": ids, "logprobs": {"token_logprobs": [-0.5] * len(ids)}}]})

    samples: Any = queue.Queue()
    with Loopback(generate) as vllm:
        loop = _HarnessRolloutLoop(
            harness_session_factory=functools.partial(ToolOrchestraSessions, server.url, "HLE-v0"),
            harness_adapter=MCPHarnessAdapter(),
            model_name="stand-in",
            dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": "the session says"}]}]),
            reward_funcs=[],
            processing_class=tokenizer,
            eos_token_ids=[tokenizer.eos_token_id],
            rollout_buffer=samples,
            model_version_value=SimpleNamespace(value=0),
            heartbeat_value=SimpleNamespace(value=0.0),
            failed_event=threading.Event(),
            exception_info_queue=queue.Queue(1),
            metrics_queue=queue.Queue(),
            num_generations=4,
            max_inflight_tasks=8,
            vllm_server_url=vllm.base_url.removesuffix("/v1"),
            max_tokens=512,
        )
        worker = threading.Thread(target=loop.run)
        worker.start()
        found = [samples.get(timeout=60) for _ in range(24)]
        loop._loop.call_soon_threadsafe(loop._stop_event.set)
        worker.join(30)
    assert not worker.is_alive()
    groups = {sample.group_id: [] for sample in found}
    for sample in found:
        groups[sample.group_id].append(sample.metrics["rewards/harness_reward"])
        written = [token for token, mine in zip(sample.input_ids, sample.completion_mask, strict=True) if mine]
        assert tokenizer.decode(written) == "".join(turns)
    bills = [bill for bill in server.bills() if bill["episode_id"] and bill["ended"] == "played"]
    assert len({bill["episode_id"] for bill in bills}) == len(bills)
    for group_id, rewards in groups.items():
        played = [bill for bill in bills if bill["seed"] == group_id]
        assert sorted(bill["reward"] for bill in played) == sorted(rewards)
        for bill in played:
            luck = int(bill["episode_id"], 16) % 2**31
            assert figures(bill) == alone("HLE-v0", group_id, [[SEARCH], [ANSWER]], luck=luck)
    assert {reward for rewards in groups.values() for reward in rewards} == {0.0, 1.0}
