"""verifiers' own tasksets for OpenEnv and NeMo Gym play the server's environments: `make test-verifiers`."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from importlib import util
from pathlib import Path
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
from tests.integrations.test_verifiers import vf_eval
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply

pytestmark = pytest.mark.skipif(
    not (util.find_spec("verifiers") and util.find_spec("openenv")), reason="not installed here: make test-verifiers"
)
TASKS = 6
PLAIN = 'harness.id = "null"\nruntime.type = "subprocess"\n'
"""An agent with no tools of its own, on this machine."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedEnvironments]:
    words = ("--env", "HLE-v0", "--env", "tests.integrations.breaking:Tests/Outage-v0")
    with served_environments(tmp_path_factory.mktemp("served"), *words) as made:
        yield made


def turns_of(asked: ReceivedRequest) -> int:
    return sum(message["role"] == "assistant" for message in asked.json["messages"])


def bills(server: ServedEnvironments, ended: str) -> dict[int, dict[str, Any]]:
    return {bill["seed"]: figures(bill) for bill in server.bills() if bill["ended"] == ended}


def evaluated(folder: Path, config: str, reply: Any) -> list[dict[str, Any]]:
    (folder / "eval.toml").write_text(config)
    with Loopback(reply) as policy:
        return vf_eval(folder, "--client.base-url", policy.base_url, taskset=("@", "eval.toml"))


def test_its_openenv_taskset_plays_what_gym_make_plays(server: ServedEnvironments, tmp_path: Path) -> None:
    def reply(asked: ReceivedRequest) -> ServerReply:
        name, arguments = (SEARCH, ANSWER)[turns_of(asked)]
        return ServerReply(json.dumps({"message": "", "tool_calls": [{"name": name, "arguments": arguments}]}))

    resets = ", ".join(f'{{env = "HLE-v0", seed = {seed}}}' for seed in range(100, 100 + TASKS))
    taskset = f'id = "openenv"\nbase_url = "{server.url}"\nresets = [{resets}]'
    traces = evaluated(tmp_path, f"[env.taskset]\n{taskset}\n[env.player]\n{PLAIN}", reply)
    expected = [alone("HLE-v0", seed, [[SEARCH], [ANSWER]]) for seed in range(100, 100 + TASKS)]
    assert [trace["errors"] for trace in traces] == [[]] * TASKS
    assert [trace["rewards"]["openenv_reward"]["score"] for trace in traces] == [one["reward"] for one in expected]
    played = bills(server, "played")
    assert [played[seed] for seed in range(100, 100 + TASKS)] == expected


def test_its_nemo_gym_taskset_plays_what_gym_make_plays(server: ServedEnvironments, tmp_path: Path) -> None:
    def reply(asked: ReceivedRequest) -> ServerReply:
        turn = turns_of(asked)
        if turn == 2:
            return ServerReply("Done.")
        name, arguments = (SEARCH, ANSWER)[turn]
        tools = [tool["function"]["name"] for tool in asked.json["tools"]]
        shown = next(tool for tool in tools if tool.endswith(name))
        return ServerReply(None, calls=({"name": shown, "arguments": json.dumps(arguments)},))

    (tmp_path / "rows.jsonl").write_bytes(
        urllib.request.urlopen(f"{server.url}/rows?env=HLE-v0&tasks={TASKS}&seed=200").read()
    )
    taskset = f'id = "nemo_gym"\ndataset = "rows.jsonl"\ntask.resources_url = "{server.url}"'
    traces = evaluated(tmp_path, f"[env.taskset]\n{taskset}\n[env.agent]\n{PLAIN}", reply)
    expected = [alone("HLE-v0", seed, [[SEARCH], [ANSWER]]) for seed in range(200, 200 + TASKS)]
    assert [trace["errors"] for trace in traces] == [[]] * TASKS
    assert [trace["rewards"]["nemo_gym"]["score"] for trace in traces] == [one["reward"] for one in expected]
    assert [trace["metrics"]["usd"] for trace in traces] == [one["usd"] for one in expected]
    assert [figures(trace["info"]["nemo_gym"]["bill"]) for trace in traces] == expected
