"""Environments behind HTTP: both protocols bring what gym.make brings, and no two rollouts share an episode."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import toolorchestra as to
from tests.integrations.served_environments import ANSWER, SEARCH, Call, alone, figures
from tests.sources import nap
from tests.support.served import on_loopback
from toolorchestra.agents.commands.serve_environments import ServeEnvironmentsOptions, episodes_of, main
from toolorchestra.envs.adapters.environment_server import environment_app
from toolorchestra.envs.adapters.remote_episodes import RemoteEpisodes, SessionError
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.openai_messages import action_of
from toolorchestra.envs.factory import factory
from toolorchestra.envs.money.prices import ORCHESTRATOR, Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap

FULL = Path("/dev/full")
SCALAR = {"split": "test", "reward": "scalar"}
TURNS: list[list[Call]] = [[SEARCH], [("enhance_reasoning", {"model": "reasoner-1"}), SEARCH], [ANSWER]]
ENVS = (("HLE-v0",), ("FRAMES-v0", "split=test", "reward=scalar"), ("ToolScale-v0", "max_turns=4"),
        ("tests.integrations.breaking:Tests/Outage-v0",))  # fmt: skip
USED = {"prompt_tokens": 900, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 100}}
COUNTED = Usage("qwen3-8b", ORCHESTRATOR, Tokens(input=800, cached=100, output=30))


def episodes(**limits: Any) -> RemoteEpisodes:
    return episodes_of(ServeEnvironmentsOptions(env=ENVS, **limits))


def names(observation: Mapping[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in observation["tools"]]


# -- OpenEnv ----------------------------------------------------------------------------------------------------------


class OpenEnvClient:
    """The protocol's messages, on one connection."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket

    def says(self, kind: str, data: Any = None) -> dict[str, Any]:
        self.socket.send_text(json.dumps({"type": kind, **({} if data is None else {"data": data})}))
        reply: dict[str, Any] = json.loads(self.socket.receive_text())
        return reply["data"] if reply["type"] == ("state" if kind == "state" else "observation") else reply


@contextmanager
def connected(store: RemoteEpisodes, clients: int = 1) -> Iterator[list[OpenEnvClient]]:
    with TestClient(environment_app(store)) as http:
        sockets = [http.websocket_connect("/ws") for _ in range(clients)]
        try:
            yield [OpenEnvClient(socket.__enter__()) for socket in sockets]
        finally:
            for socket in sockets:
                socket.__exit__(None, None, None)


def test_an_episode_over_openenv_is_that_of_gym_make() -> None:
    asked: dict[str, Any] = {
        "seed": 11,
        "env": "FRAMES-v0",
        "options": {"luck": 3, "budget": 0.5},
        "episode_id": "mine",
    }
    with connected(episodes()) as (client,):
        first = client.says("reset", asked)
        made = to.make("FRAMES-v0", split="test", reward="scalar")
        observation, info = made.reset(seed=11, options=asked["options"])
        assert [dict(message) for message in observation["messages"]] == first["observation"]["messages"]
        assert names(first["observation"]) == names(observation)
        assert (first["reward"], first["done"]) == (None, False)
        assert first["metadata"]["preference"] == info["preference"]
        rewards = []
        for turn in TURNS:
            calls = [{"name": name, "arguments": arguments} for name, arguments in turn]
            step = client.says("step", {"message": "", "tool_calls": calls, "usage": USED})
            rewards.append(step["reward"])
            made.unwrapped.charge_policy(COUNTED)  # type: ignore[attr-defined]
            heard = made.step(action_of(turn))[4]["new_messages"][1:]
            assert step["observation"]["messages"] == [dict(message) for message in heard]
        state = client.says("state")
    expected = alone("FRAMES-v0", 11, TURNS, used=COUNTED, arguments=SCALAR, **asked["options"])
    assert step["done"] is True
    assert figures(step["observation"]["bill"]) == expected
    assert figures(state) == expected
    assert (state["episode_id"], state["step_count"], state["ended"]) == ("mine", 3, "played")
    assert sum(rewards) == expected["reward"]


@pytest.mark.parametrize(
    ("used", "tokens"),
    [
        ({**USED, "total_tokens": 930}, Tokens(800, 100, 30)),
        ({"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 610,
          "completion_tokens_details": {"reasoning_tokens": 500}}, Tokens(100, 0, 10, 500)),
        ({"prompt_tokens": 1000, "completion_tokens": 10, "prompt_cache_hit_tokens": 900}, Tokens(100, 900, 10)),
        ({"prompt_tokens": 1000}, None),
        ({"prompt_tokens": 10, "completion_tokens": 10, "prompt_cache_hit_tokens": 900}, None),
    ],
    ids=["within", "thought apart, xAI's", "cached, DeepSeek's", "no output", "more cached than read"],
)  # fmt: skip
def test_a_turns_usage_is_read_as_that_of_any_model(used: dict[str, Any], tokens: Tokens | None) -> None:
    async def played() -> dict[str, Any]:
        made = episodes()
        return dict((await made.play(await made.start({"seed": 1}), "hm", used)).info["charges"][0])

    charge = asyncio.run(played())
    assert charge["estimated"] == (tokens is None)
    assert tokens is None or charge["tokens"] == tokens._asdict()


def test_whatever_the_model_writes_is_its_turn() -> None:
    """A number, an object of another form and calls that are none: the environment tells the agent, nothing breaks."""
    written = [42, {"answer": 1}, {"message": "", "tool_calls": "search"}, {"tool_calls": [{"arguments": {}}]}]
    with connected(episodes()) as (client,):
        client.says("reset", {"env": "ToolScale-v0", "seed": 1})
        for number, one in enumerate(written, 1):
            step = client.says("step", one if isinstance(one, dict) else {"message": one})
            assert step["metadata"]["bill"]["turns"] == number
        assert step["done"] is True  # max_turns


@pytest.mark.parametrize(
    ("kind", "data", "code", "said"),
    [
        ("step", {"message": "Hello"}, "EXECUTION_ERROR", "reset first"),
        ("reset", {"sed": 3}, "VALIDATION_ERROR", "Did you mean 'seed'?"),
        ("reset", {"seed": -3}, "VALIDATION_ERROR", "seed: a whole number from 0 up"),
        ("reset", {"env": "HLE"}, "VALIDATION_ERROR", "Did you mean 'HLE-v0'?"),
        ("reset", {"options": {"tool": []}}, "VALIDATION_ERROR", "no reset option 'tool'"),
        ("reset", {"options": {"prices": "/etc/prices.json"}}, "VALIDATION_ERROR", "not a file's path"),
        ("dance", {}, "UNKNOWN_TYPE", "reset, step, state or close"),
        ("step", [1], "INVALID_JSON", "data is no object"),
    ],
)
def test_what_is_wrong_is_said(kind: str, data: Any, code: str, said: str) -> None:
    with connected(episodes()) as (client,):
        problem = client.says(kind, data)
        assert problem["data"]["code"] == code
        assert said in problem["data"]["message"]
        assert client.says("reset", {"seed": 1})["done"] is False, "the connection goes on"


def test_the_servers_spend_cap_counts_by_its_own_prices() -> None:
    own = {"id": "mine", "date": "2026-11-01", "source": "me", "prices": {"qwen3-8b": {"free": "mine"}}}
    store = episodes(most_usd=1e-6)
    with connected(store) as (client,):
        for prices in (own, "paper-2025-11"):
            problem = client.says("reset", {"options": {"prices": prices}})
            assert problem["data"]["code"] == "VALIDATION_ERROR"
            assert "prices: none expected, since the server's spend cap counts by its own" in problem["data"]["message"]
        client.says("reset", {"options": {"prices": None}})
        assert "spend cap was used up" in client.says("step", {"message": "Hello" * 100})["data"]["message"]
        late = client.says("reset", {"seed": 1})
        assert "cap of 0.000001 $: no episode can begin" in late["data"]["message"]
    assert [account["ended"] for account in store.ended.values()] == ["failed"]


def test_a_failed_episode_has_a_bill_and_no_reward() -> None:
    store = episodes()
    with connected(store) as (client,):
        client.says("reset", {"env": "Outage-v0", "seed": 1})
        problem = client.says("step", {"message": "", "tool_calls": [{"name": "breaks", "arguments": {}}]})
        assert "so it has no result: RuntimeError: the disk is on fire" in problem["data"]["message"]
        assert problem["data"]["bill"]["usd"] > 0
        assert problem["data"]["bill"]["outcome"] is None
    assert [account["ended"] for account in store.ended.values()] == ["failed"]


def test_who_leaves_or_resets_ends_the_episode_with_its_bill() -> None:
    store, told = episodes(), []
    store.on_end.append(told.append)
    with connected(store, clients=2) as (one, other):
        one.says("reset", {"seed": 1})
        one.says("step", {"message": "", "tool_calls": [{"name": "search", "arguments": {"model": "search-1"}}]})
        one.says("reset", {"seed": 2})
        other.says("reset", {"seed": 1})
        assert len(store.live) == 2
    assert (told[0]["seed"], told[0]["ended"]) == (1, "reset")
    assert told[0]["usd"] == alone("HLE-v0", 1, [[SEARCH]])["usd"]
    assert sorted((account["seed"], account["ended"]) for account in told[1:]) == [(1, "closed"), (2, "closed")]
    assert not store.live


# -- NeMo Gym ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, RemoteEpisodes]]:
    store = episodes(at_once=64)
    with on_loopback(environment_app(store)) as url:
        yield url, store


class NemoRollout:
    """A rollout by NeMo Gym's requests, which keeps the cookies of the last reply alone, as NeMo Gym does."""

    def __init__(self, url: str) -> None:
        self.url, self.cookies = url, {}

    def posts(self, path: str, body: Any) -> httpx.Response:
        with httpx.Client(verify=False) as http:
            cookie = {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
            reply = http.post(f"{self.url}{path}", json=body, headers=cookie if self.cookies else {})
        self.cookies = dict(reply.cookies)
        return reply


def rows(url: str, env: str, seed: int, tasks: int = 1) -> list[dict[str, Any]]:
    asked = {"env": env, "seed": seed, "tasks": tasks}
    reply = httpx.get(f"{url}/rows", params=asked, verify=False).raise_for_status()
    return [json.loads(line) for line in reply.text.splitlines()]


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def test_a_call_is_a_request_of_nemo_gyms(served: tuple[str, RemoteEpisodes]) -> None:
    url, _ = served
    (row,) = rows(url, "HLE-v0", 5)
    observation, _ = to.make("HLE-v0").reset(seed=5)
    asked = row["responses_create_params"]
    assert [m["content"] for m in asked["input"]] == [m["content"] for m in observation["messages"]]
    assert [tool["name"] for tool in asked["tools"]] == names(observation)
    rollout, turns = NemoRollout(url), [[SEARCH], [ANSWER]]
    assert rollout.posts("/seed_session", row).json() == {}
    for ((name, arguments),) in turns:
        reply = rollout.posts(f"/{name}", arguments)
        assert reply.status_code == 200
    assert reply.text.endswith("The episode has ended.")
    told = rollout.posts("/verify", {**row, "response": {"output": [said("done")]}}).json()
    expected = alone("HLE-v0", 5, turns)
    assert figures(told["bill"]) == expected
    assert (told["reward"], told["usd"], told["turns"]) == (expected["reward"], expected["usd"], 2)
    assert told["usd_expert"] == expected["usd_by_role"]["expert"]
    assert {"responses_create_params", "response"} <= told.keys()


def test_what_the_agent_says_last_is_played_at_verify(served: tuple[str, RemoteEpisodes]) -> None:
    url, _ = served
    rollout, (row,) = NemoRollout(url), rows(url, "ToolScale-v0", 3)
    rollout.posts("/seed_session", row)
    assert rollout.posts("/no_such_tool", {}).text.startswith("Error: ")
    output = [said("Let me see."), {"type": "function_call_output", "output": "..."}, said("Goodbye.")]
    told = rollout.posts("/verify", {**row, "response": {"output": output}}).json()
    assert told["bill"]["turns"] == 2
    assert told["usd"] == alone("ToolScale-v0", 3, [action_of([("no_such_tool", {})]), "Goodbye."])["usd"]
    assert (told["reward"], told["bill"]["truncated_by"]) == (0.0, "client")


def test_a_turn_is_a_request_of_nemo_gyms_gymnasium_agent(served: tuple[str, RemoteEpisodes]) -> None:
    url, _ = served
    rollout, (row,) = NemoRollout(url), rows(url, "FRAMES-v0", 8)
    assert rollout.posts("/reset", row).json()["observation"] is None
    earned, used = 0.0, {"input_tokens": 900, "output_tokens": 30, "input_tokens_details": {"cached_tokens": 100}}
    for turn in TURNS:
        calls = [{"type": "function_call", "call_id": f"c{place}", "name": name, "arguments": json.dumps(arguments)}
                 for place, (name, arguments) in enumerate(turn)]  # fmt: skip
        step = rollout.posts("/step", {**row, "response": {"output": calls, "usage": used}}).json()
        earned += step["reward"]
        if not step["terminated"]:
            assert [one["call_id"] for one in step["info"]["tool_outputs"]] == [call["call_id"] for call in calls]
    expected = alone("FRAMES-v0", 8, TURNS, used=COUNTED, arguments=SCALAR)
    assert figures(step["info"]["bill"]) == expected
    assert earned == expected["reward"]


def test_each_call_of_a_turn_that_cannot_be_read_has_an_answer(served: tuple[str, RemoteEpisodes]) -> None:
    url, _ = served
    rollout, (row,) = NemoRollout(url), rows(url, "HLE-v0", 9)
    rollout.posts("/reset", row)
    calls = [{"type": "function_call", "call_id": name, "name": "search", "arguments": "{"} for name in ("a", "b")]
    step = rollout.posts("/step", {**row, "response": {"output": calls}}).json()
    assert [one["call_id"] for one in step["info"]["tool_outputs"]] == ["a", "b"]
    assert all(one["output"].startswith("Error: ") for one in step["info"]["tool_outputs"])
    words = rollout.posts("/step", {**row, "response": {"output": [said("Hm.")]}}).json()
    assert words["observation"]


def test_rollouts_at_the_same_time_share_nothing(served: tuple[str, RemoteEpisodes]) -> None:
    url, store = served
    (row,) = rows(url, "HLE-v0", 21)

    def play(number: int) -> tuple[int, dict[str, Any]]:
        rollout = NemoRollout(url)
        rollout.posts("/seed_session", {**row, "_ng_rollout_index": number})
        for _ in range(number + 1):
            rollout.posts("/search", {"model": "search-1"})
        rollout.posts("/answer", {"model": "answer-1"})
        return number, rollout.posts("/verify", row).json()["bill"]

    with ThreadPoolExecutor(8) as pool:
        plays = dict(pool.map(play, range(8)))
    for number, bill in plays.items():
        luck = {"luck": number} if number else {}
        assert figures(bill) == alone("HLE-v0", 21, [[SEARCH]] * (number + 1) + [[ANSWER]], **luck)
    assert len({bill["session"] for bill in plays.values()}) == 8
    assert not {bill["session"] for bill in plays.values()} & store.live.keys()


def test_a_session_is_its_rollouts_alone(served: tuple[str, RemoteEpisodes]) -> None:
    url, _ = served
    first, second = rows(url, "HLE-v0", 30, tasks=2)
    rollout = NemoRollout(url)
    rollout.posts("/seed_session", first)
    wrong = rollout.posts("/verify", second)
    assert (wrong.status_code, wrong.json()["error"]) == (409, "this session plays HLE-v0, seed 30, not this row")
    assert NemoRollout(url).posts("/search", {"model": "search-1"}).status_code == 404
    stale = NemoRollout(url).posts("/seed_session", {**first, "digest": "0"})
    assert "get /rows anew" in stale.json()["error"]
    assert NemoRollout(url).posts("/reset", {"seed": 3}).json()["error"].endswith("OpenEnv's clients play at /ws")


def test_a_failed_rollout_is_no_verdict(served: tuple[str, RemoteEpisodes]) -> None:
    url, _ = served
    rollout, (row,) = NemoRollout(url), rows(url, "Outage-v0", 1)
    rollout.posts("/seed_session", row)
    session = dict(rollout.cookies)
    assert rollout.posts("/breaks", {}).status_code == 502
    rollout.cookies = session
    verdict = rollout.posts("/verify", row)
    assert verdict.status_code == 502
    assert verdict.json()["bill"]["usd"] > 0


def test_means_of_what_was_verified(served: tuple[str, RemoteEpisodes]) -> None:
    found = [{"reward": 1.0, "usd": 0.2, "_ng_task_index": 0, "env": "HLE-v0"}, {"reward": 0.0, "usd": 0.4}]
    told = NemoRollout(served[0]).posts("/aggregate_metrics", {"verify_responses": found}).json()
    assert told["agent_metrics"] == {"mean/reward": 0.5, "mean/usd": pytest.approx(0.3)}
    assert told["key_metrics"] == told["agent_metrics"]


# -- both -------------------------------------------------------------------------------------------------------------


def test_what_is_idle_is_ended_with_its_bill() -> None:
    async def main() -> None:
        store, told = episodes(idle_seconds=0.05), []
        store.on_end.append(told.append)
        reaper = asyncio.create_task(store.reap())
        one = await store.start({"seed": 1})
        await store.play(one, action_of([SEARCH]))
        while not told:
            await asyncio.sleep(0.01)
        reaper.cancel()
        assert (told[0]["ended"], told[0]["usd"]) == ("idle", alone("HLE-v0", 1, [[SEARCH]])["usd"])
        with pytest.raises(SessionError, match=r"ended, idle for 0\.05 s") as late:
            await store.play(one, "Hello?")
        assert (late.value.status, late.value.account) == (410, told[0])

    asyncio.run(main())


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_ends_no_reaper(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        store = episodes(idle_seconds=0.02)
        with FULL.open("wb", buffering=0) as disk:
            store.on_end.append(lambda account: disk.write(json.dumps(account).encode()))
            reaper = asyncio.create_task(store.reap())
            for seed in (1, 2):
                await store.start({"seed": seed})
                async with asyncio.timeout(20):
                    while store.live:
                        await asyncio.sleep(0.01)
            assert not reaper.done()
            reaper.cancel()

    asyncio.run(main())
    assert caplog.text.count("No space left on device") == 2


def test_a_turn_that_the_servers_end_broke_off_is_on_the_bill() -> None:
    async def main() -> None:
        cap = SpendCap(1.0)
        store, told = RemoteEpisodes({"Sleeper": factory("tests.sources:SleeperSource", spend_cap=cap)}), []
        store.on_end.append(told.append)
        one = await store.start({"seed": 1})
        turn = asyncio.create_task(store.play(one, nap(0) + nap(60_000)))
        await asyncio.sleep(0.05)
        turn.cancel()
        await store.stop()
        assert turn.cancelled()
        assert told[0]["usd_by_role"]["tool"] > 0
        assert told[0]["usd"] == pytest.approx(cap.spent_usd)

    asyncio.run(main())


def test_more_than_at_once_are_refused() -> None:
    with connected(episodes(at_once=1), clients=2) as (one, other):
        one.says("reset", {"seed": 1})
        assert other.says("reset", {"seed": 1})["data"]["code"] == "CAPACITY_REACHED"
        one.says("step", {"message": "", "tool_calls": [{"name": "answer", "arguments": {"model": "answer-1"}}]})
        assert other.says("reset", {"seed": 1})["done"] is False, "an episode that is over leaves its place"


def test_who_may_ask() -> None:
    app = environment_app(episodes())
    with TestClient(app) as http:
        assert http.get("/health").json() == {"status": "healthy"}
        assert http.get("/schema").json()["action"]["required"] == ["message"]
        assert http.post("/seed_session", json={}, headers={"origin": "https://elsewhere.example"}).status_code == 403
        with pytest.raises(WebSocketDisconnect), http.websocket_connect("/ws", headers={"origin": "null"}):
            pass
    with TestClient(environment_app(episodes(), "secret")) as http:
        assert http.get("/health").status_code == 401
        assert http.post("/seed_session", json={}, headers={"authorization": "Bearer secret"}).status_code == 200


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({}, "name an environment"),
        ({"env": (("HLE-v0", "backends=mine.toml"),)}, "the most that all episodes may spend"),
        ({"env": (("HLE-v1",),)}, "no environment 'HLE-v1'"),
    ],
)
def test_wrong_options_are_refused(options: Any, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        episodes_of(ServeEnvironmentsOptions(**options))


def test_the_command_needs_a_token_beyond_this_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--env", "HLE-v0", "--host", "0.0.0.0", "--out", str(tmp_path)]) == 2
    assert "TOOLORCHESTRA_ENVIRONMENTS_TOKEN" in capsys.readouterr().err
