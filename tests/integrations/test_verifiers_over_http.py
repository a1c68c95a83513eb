"""verifiers plays the server's environments by its own command and tasksets: `make test-verifiers`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
from tests.paths import REPOSITORY
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply

pytestmark = pytest.mark.skipif(
    not (util.find_spec("verifiers") and util.find_spec("openenv")), reason="not installed here: make test-verifiers"
)
TASKS = 6
PLAIN = 'harness.id = "null"\nruntime.type = "subprocess"\n'
"""An agent with no tools of its own, on this machine."""
SECONDS = 600
"""A run's deadline: importing verifiers takes 5 s of CPU time, and the machine may be busy."""
OUTAGE = "tests.integrations.breaking:Tests/Outage-v0"
WORDS = "What may I do for you?"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedEnvironments]:
    words = ("--env", "HLE-v0", "--env", "FRAMES-v0", "--env", "ToolScale-v0", "max_turns=2", "--env", OUTAGE)
    with served_environments(tmp_path_factory.mktemp("served"), *words) as made:
        yield made


def turns_of(asked: ReceivedRequest) -> int:
    return sum(message["role"] == "assistant" for message in asked.json["messages"])


def bills(server: ServedEnvironments, ended: str) -> dict[int, dict[str, Any]]:
    return {bill["seed"]: figures(bill) for bill in server.bills() if bill["ended"] == ended}


def evaluated(folder: Path, config: str, reply: Any) -> list[dict[str, Any]]:
    """verifiers' command, to its end: its traces, in the order of the seeds."""
    (folder / "eval.toml").write_text(config)
    command = [str(Path(sys.executable).with_name("vf-eval")), "@", "eval.toml", "--no-push", "--no-rich"]
    found = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # uv, which verifiers calls
    with Loopback(reply) as policy:
        done = subprocess.run(
            [*command, "-m", "stand-in", "-o", str(folder), "--run.dir", "run", "--client.base-url", policy.base_url],
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
            env={**os.environ, "PATH": found, "PYTHONPATH": str(REPOSITORY / "src")},
            cwd=folder,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    episodes = [json.loads(line) for line in (folder / "run" / "traces.jsonl").read_text().splitlines()]
    traces: list[dict[str, Any]] = [trace for episode in episodes for trace in episode["traces"]]
    return sorted(
        traces, key=lambda trace: int((trace["task"]["data"].get("reset") or trace["task"]["data"]["row"])["seed"])
    )


def test_its_openenv_taskset_plays_what_gym_make_plays(server: ServedEnvironments, tmp_path: Path) -> None:
    """Questions of two kinds, and a service whose user speaks first."""

    def reply(asked: ReceivedRequest) -> ServerReply:
        if "search-1" not in asked.text:
            return ServerReply(json.dumps({"message": WORDS}))
        name, arguments = (SEARCH, ANSWER)[turns_of(asked)]
        return ServerReply(json.dumps({"message": "", "tool_calls": [{"name": name, "arguments": arguments}]}))

    tasks = [("HLE-v0", 100), ("FRAMES-v0", 200), ("ToolScale-v0", 300)]
    named = [(env, seed) for env, first in tasks for seed in range(first, first + TASKS)]
    resets = ", ".join(f'{{env = "{env}", seed = {seed}}}' for env, seed in named)
    taskset = f'id = "openenv"\nbase_url = "{server.url}"\nresets = [{resets}]'
    traces = evaluated(tmp_path, f"[env.taskset]\n{taskset}\n[env.player]\n{PLAIN}", reply)
    expected = [
        alone(env, seed, [WORDS, WORDS], arguments={"max_turns": 2})
        if env == "ToolScale-v0"
        else alone(env, seed, [[SEARCH], [ANSWER]])
        for env, seed in named
    ]
    assert [trace["errors"] for trace in traces] == [[]] * len(named)
    assert [trace["rewards"]["openenv_reward"]["score"] for trace in traces] == [one["reward"] for one in expected]
    assert {one["reward"] for one in expected} == {0.0, 1.0}, "the test can tell right from wrong"
    played = bills(server, "played")
    assert [played[seed] for _, seed in named] == json.loads(json.dumps(expected))


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
        urllib.request.urlopen(f"{server.url}/rows?env=HLE-v0&tasks={TASKS}&seed=400").read()
    )
    taskset = f'id = "nemo_gym"\ndataset = "rows.jsonl"\ntask.resources_url = "{server.url}"'
    traces = evaluated(tmp_path, f"[env.taskset]\n{taskset}\n[env.agent]\n{PLAIN}", reply)
    expected = [alone("HLE-v0", seed, [[SEARCH], [ANSWER]]) for seed in range(400, 400 + TASKS)]
    assert [trace["errors"] for trace in traces] == [[]] * TASKS
    assert [trace["rewards"]["nemo_gym"]["score"] for trace in traces] == [one["reward"] for one in expected]
    assert [trace["metrics"]["usd"] for trace in traces] == [one["usd"] for one in expected]
    assert [figures(trace["info"]["nemo_gym"]["bill"]) for trace in traces] == expected


def test_an_outage_is_an_error_and_no_wrong_answer(server: ServedEnvironments, tmp_path: Path) -> None:
    def reply(asked: ReceivedRequest) -> ServerReply:
        if turns_of(asked):
            return ServerReply("Done.")
        shown = next(tool["function"]["name"] for tool in asked.json["tools"])
        return ServerReply(None, calls=({"name": shown, "arguments": "{}"},))

    (tmp_path / "rows.jsonl").write_bytes(urllib.request.urlopen(f"{server.url}/rows?env=Outage-v0&tasks=1").read())
    taskset = f'id = "nemo_gym"\ndataset = "rows.jsonl"\ntask.resources_url = "{server.url}"'
    (trace,) = evaluated(tmp_path, f"[env.taskset]\n{taskset}\n[env.agent]\n{PLAIN}", reply)
    assert (trace["ok"], trace["rewards"]) == (False, {"nemo_gym": None})
    assert bills(server, "failed")[0]["usd"] > 0, "what it cost stands there all the same"
