"""NeMo Gym's own agents play the server's environments, over a stand-in for its model server: `make test-nemo-gym`."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integrations.served_environments import (
    ANSWER,
    SEARCH,
    ServedEnvironments,
    alone,
    figures,
    served_environments,
)
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply

pytest.importorskip("nemo_gym", reason="NeMo Gym is not installed: make test-nemo-gym")
import uvicorn

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
TWO = [("enhance_reasoning", {"model": "reasoner-1"}), SEARCH]
USAGE = {"input_tokens": 900, "output_tokens": 30, "total_tokens": 930, "input_tokens_details": {"cached_tokens": 0},
         "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedEnvironments]:
    words = ("--env", "HLE-v0", "--env", "ToolScale-v0", "--env", "tests.integrations.breaking:Tests/Outage-v0")
    with served_environments(tmp_path_factory.mktemp("served"), *words) as made:
        yield made


def model(turns: list[Any]) -> Loopback:
    """A stand-in for NeMo Gym's model server: these turns, calls or words, one behind another in each rollout."""

    def reply(asked: ReceivedRequest) -> ServerReply:
        said = asked.json["input"]
        number = len({item["call_id"].partition("-")[0] for item in said if item.get("type") == "function_call"})
        number += sum(item.get("id") == "words" for item in said)
        turn = turns[number]
        output: list[dict[str, Any]] = [
            {"type": "function_call", "call_id": f"c{number}-{place}", "name": name, "arguments": json.dumps(arguments)}
            for place, (name, arguments) in enumerate(() if isinstance(turn, str) else turn)
        ]
        if isinstance(turn, str):
            text = {"type": "output_text", "text": turn, "annotations": []}
            output = [{"type": "message", "id": "words", "role": "assistant", "status": "completed", "content": [text]}]
        body = {"id": "r", "created_at": 0, "model": "stand-in", "object": "response", "output": output}
        body |= {"parallel_tool_calls": False, "tool_choice": "auto", "tools": [], "usage": USAGE}
        return ServerReply(body=body)

    return Loopback(reply)


def rows(server: ServedEnvironments, env: str, tasks: int) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{server.url}/rows?env={env}&tasks={tasks}") as reply:
        return [json.loads(line) for line in reply.read().splitlines()]


def played(server: ServedEnvironments, kind: str, bodies: list[dict[str, Any]], turns: list[Any]) -> list[Any]:
    """What the agent's /run replies to the rows, all at the same time; a status in place of what is no reply."""
    with model(turns) as policy:
        return asyncio.run(_played(server, kind, bodies, urlsplit(policy.base_url)))


async def _played(server: ServedEnvironments, kind: str, bodies: list[dict[str, Any]], policy: Any) -> list[Any]:
    from nemo_gym import server_utils
    from nemo_gym.config_types import BaseServerConfig, ModelServerRef, ResourcesServerRef
    from omegaconf import OmegaConf
    from responses_api_agents.gymnasium_agent.app import GymnasiumAgent, GymnasiumAgentConfig
    from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

    agent, config = {"simple": (SimpleAgent, SimpleAgentConfig), "gym": (GymnasiumAgent, GymnasiumAgentConfig)}[kind]
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        ports = {"environments": urlsplit(server.url).port, "policy": policy.port, "agent": listening.getsockname()[1]}
        places = {name: {"of": {"kind": {"host": "127.0.0.1", "port": port}}} for name, port in ports.items()}
        client = server_utils.ServerClient(
            head_server_config=BaseServerConfig(host="127.0.0.1", port=1), global_config_dict=OmegaConf.create(places)
        )
        server_utils.set_global_aiohttp_client(server_utils.GlobalAIOHTTPAsyncClientConfig())
        made = agent(
            config=config(
                name="agent", host="127.0.0.1", port=ports["agent"], entrypoint="app.py",
                resources_server=ResourcesServerRef(type="resources_servers", name="environments"),
                model_server=ModelServerRef(type="responses_api_models", name="policy"), max_steps=8,
            ),
            server_client=client,
        )  # fmt: skip
        app = made.setup_webserver()
        made.setup_exception_middleware(app)
        serving = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        task = asyncio.create_task(serving.serve(sockets=[listening]))
        try:
            replies = [client.post("agent", "/run", json=body) for body in bodies]
            told = [
                reply.status if reply.status != 200 else await reply.json() for reply in await asyncio.gather(*replies)
            ]
            found = [row for row in told if isinstance(row, dict)]
            means = await (await client.post("agent", "/aggregate_metrics", json={"verify_responses": found})).json()
            return [*told, means]
        finally:
            serving.should_exit = True
            await task
            await server_utils.get_global_aiohttp_client().close()
            server_utils._GLOBAL_AIOHTTP_CLIENT = None


def test_its_simple_agent_plays_call_by_call(server: ServedEnvironments) -> None:
    bodies = rows(server, "HLE-v0", 12)
    *told, means = played(server, "simple", bodies, [[SEARCH], [ANSWER], "Done."])
    expected = [alone("HLE-v0", seed, [[SEARCH], [ANSWER]]) for seed in range(12)]
    assert [figures(row["bill"]) for row in told] == expected
    assert [row["reward"] for row in told] == [one["reward"] for one in expected]
    assert {row["reward"] for row in told} == {0.0, 1.0}, "the test can tell right from wrong"
    assert means["key_metrics"]["mean/reward"] == pytest.approx(sum(row["reward"] for row in told) / 12)
    assert len({row["bill"]["session"] for row in told}) == 12


def test_repetitions_of_a_row_have_each_their_own_luck(server: ServedEnvironments) -> None:
    (row,) = rows(server, "HLE-v0", 1)
    bodies = [{**row, "_ng_task_index": 0, "_ng_rollout_index": number} for number in range(6)]
    *told, _ = played(server, "simple", bodies, [[SEARCH], [ANSWER], "Done."])
    expected = [alone("HLE-v0", 0, [[SEARCH], [ANSWER]], luck=number or None) for number in range(6)]
    assert [figures(one["bill"]) for one in told] == expected


def test_its_gymnasium_agent_plays_turn_by_turn(server: ServedEnvironments) -> None:
    bodies = rows(server, "HLE-v0", 8)
    *told, _ = played(server, "gym", bodies, [[SEARCH], TWO, [ANSWER]])
    for seed, row in enumerate(told):
        bill, unbilled = row["info"]["bill"], alone("HLE-v0", seed, [[SEARCH], TWO, [ANSWER]])
        assert (row["reward"], row["terminated"], bill["turns"], bill["tool_calls"]) == (bill["reward"], True, 3, 4)
        assert (bill["outcome"], bill["seconds"]) == (unbilled["outcome"], unbilled["seconds"])
    billed = {row["info"]["bill"]["usd_by_role"]["orchestrator"] for row in told}
    assert len(billed) == 1, "by the count of the model's server, which is the same for all"


def test_a_user_answers_its_gymnasium_agent(server: ServedEnvironments) -> None:
    *told, _ = played(server, "gym", rows(server, "ToolScale-v0", 2), ["What may I do for you?"] * 8)
    for row in told:
        said = [item["content"] for item in row["response"]["output"] if item.get("role") == "user"]
        assert len(said) == 8
        assert row["truncated"] is True


def test_a_failed_rollout_is_no_result(server: ServedEnvironments) -> None:
    assert played(server, "simple", rows(server, "Outage-v0", 1), [[("breaks", {})], "Done."])[0] == 500
