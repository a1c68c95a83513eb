"""The server of `toolorchestra serve`, asked by real clients over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import openai
import pytest

import toolorchestra as to
from tests.support.loopback import Loopback, ServerReply
from tests.support.served import ServedPolicies, running
from toolorchestra.agents.serving.accounts import new_key
from toolorchestra.envs.outcomes.recording_forms import read as read_outcomes
from toolorchestra.envs.tools import ToolContext

QUESTIONS = list(to.make("HLE-v0").unwrapped.factory.source.askable)  # type: ignore[attr-defined]
ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPolicies]:
    with running(tmp_path_factory.mktemp("served"), "cascade", "always:answer-1", "random") as server:
        yield server


def client(server: ServedPolicies, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def asked(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_an_answer_has_its_bill_in_usage_and_in_headers(simulated: ServedPolicies) -> None:
    raw = client(simulated).chat.completions.with_raw_response.create(
        model="cascade", messages=asked(QUESTIONS[2]), extra_body={"budget_usd": 0.5}, temperature=0.0
    )
    answer: Any = raw.parse()
    usage = answer.usage
    assert answer.choices[0].message.content == "325"
    assert answer.choices[0].finish_reason == "stop"
    assert usage.cost == pytest.approx(sum(usage.cost_by_role.values()))
    assert usage.cost < 0.5
    assert usage.right == 1.0
    assert usage.ended == "answered"
    assert answer.ignored == ["temperature"]
    assert float(raw.headers["x-toolorchestra-cost-usd"]) == pytest.approx(usage.cost)
    solved = to.load_policy("cascade").solve(QUESTIONS[2], budget_usd=0.5)
    assert (solved.text, solved.usd, dict(solved.calls)) == ("325", usage.cost, usage.calls)


def test_a_stream_tells_steps_when_asked_and_ends_with_the_bill(simulated: ServedPolicies) -> None:
    create = client(simulated).chat.completions.create
    pieces: list[Any] = list(
        create(model="cascade", messages=asked(QUESTIONS[2]), stream=True, extra_body={"steps": True})
    )
    said = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    told = [p.choices[0].delta.model_extra or {} for p in pieces if p.choices]
    steps = [more["reasoning_content"] for more in told if "reasoning_content" in more]
    assert said == "325"
    assert steps
    assert steps[0].startswith("search(")
    assert pieces[-1].usage.cost > 0
    assert pieces[-2].choices[0].finish_reason == "stop"
    quiet: list[Any] = list(create(model="cascade", messages=asked(QUESTIONS[2]), stream=True))
    assert not any("reasoning_content" in (p.choices[0].delta.model_extra or {}) for p in quiet if p.choices)


def test_async_clients_side_by_side(simulated: ServedPolicies) -> None:
    async def all_of_them() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{simulated.url}/v1", api_key="none") as asks:
            return await asyncio.gather(
                *[asks.chat.completions.create(model="cascade", messages=asked(q)) for q in QUESTIONS[:20]]
            )

    for question, answer in zip(QUESTIONS, asyncio.run(all_of_them()), strict=False):
        assert answer.usage.cost == to.load_policy("cascade").solve(question).usd


def test_the_responses_api_is_the_same(simulated: ServedPolicies) -> None:
    create = client(simulated).responses.create
    answer: Any = create(model="cascade", input=QUESTIONS[2], instructions="", extra_body={"budget_usd": 0.5})
    assert (answer.output_text, answer.status) == ("325", "completed")
    assert answer.usage.cost == to.load_policy("cascade").solve(QUESTIONS[2], budget_usd=0.5).usd
    events = list(create(model="cascade", input=asked(QUESTIONS[2]), stream=True))
    assert [one.type for one in events][::4] == ["response.created", "response.completed"]
    assert events[-1].response.output_text == "325"
    cut: Any = create(model="cascade", input=QUESTIONS[0], extra_body={"deadline_seconds": 0.5})
    assert cut.status == "incomplete"
    own = {"type": "function", **ADD["function"]}
    for seed in range(40):
        called: Any = create(model="random", input=asked(QUESTIONS[3]), tools=[own], extra_body={"seed": seed})
        if called.output[-1].type == "function_call":
            break
    sent: Any = asked(QUESTIONS[3])
    while any(item.type == "function_call" for item in called.output):
        sent += [item.model_dump(exclude_none=True) for item in called.output]
        sent += [
            {"type": "function_call_output", "call_id": item.call_id, "output": "3"}
            for item in called.output
            if item.type == "function_call"
        ]
        called = create(model="random", input=sent, tools=[own])
    assert called.ended == "answered"
    with pytest.raises(openai.BadRequestError, match="previous_response_id is not kept"):
        create(model="cascade", input=QUESTIONS[0], previous_response_id="resp_1")


def test_a_preset_of_preference_is_a_model(simulated: ServedPolicies) -> None:
    listed = [model.id for model in client(simulated).models.list()]
    assert {"cascade", "cascade:frugal", "random:fast"} <= {*listed}
    client(simulated).chat.completions.create(model="cascade:frugal", messages=asked(QUESTIONS[0]))
    assert simulated.service.latest[-1].trajectory["preference"]["kind"] == "frugal"
    own = {"preference": "As cheap as you can, please."}
    client(simulated).chat.completions.create(model="cascade", messages=asked(QUESTIONS[0]), extra_body=own)
    assert own["preference"] in simulated.service.latest[-1].trajectory["messages"][0]["content"]


def test_an_answer_that_a_limit_cut_says_so(simulated: ServedPolicies) -> None:
    for limit, ended in (({"budget_usd": 0.0001}, "budget"), ({"deadline_seconds": 0.5}, "deadline")):
        answer: Any = client(simulated).chat.completions.create(
            model="cascade", messages=asked(QUESTIONS[0]), extra_body=limit
        )
        assert answer.choices[0].finish_reason == "length"
        assert answer.ended == ended


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"budgt_usd": 1}, "no key 'budgt_usd'"),
        ({"model": "casc"}, "Did you mean 'cascade'?"),
        ({"budget_usd": -1}, "budget_usd must be a positive number"),
        ({"preference": "cheapo"}, "no preference 'cheapo'"),
        ({"messages": []}, "messages must be a list"),
        ({"messages": asked("What is love?")}, "the experts are simulated"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content must be text"),
        ({"n": 3}, "n must be 1"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "objekt"}}}]}, "objekt"),
        ({"tools": [{**ADD, "function": {**ADD["function"], "name": "search"}}]}, "two tools have one name"),
        ({"orchestrator_tools": ["serch"]}, "Did you mean 'search'?"),
        ({"response_format": {"type": "json_object"}}, "response_format must be text"),
    ],
)
def test_what_cannot_be_honoured_is_a_clear_400(simulated: ServedPolicies, body: dict[str, Any], says: str) -> None:
    told = httpx.post(
        f"{simulated.url}/v1/chat/completions", json={"model": "cascade", "messages": asked(QUESTIONS[0]), **body}
    )
    assert told.status_code == 400, told.text
    assert says in told.json()["error"]["message"]
    assert simulated.service.accounts.accounts()[0].held == 0


def test_a_body_that_is_no_json_or_too_large(simulated: ServedPolicies) -> None:
    url = f"{simulated.url}/v1/chat/completions"
    assert httpx.post(url, content=b"{nonsense").status_code == 400
    assert httpx.post(url, content=b"[1]").status_code == 400
    assert httpx.post(url, content=b" " * (5 << 20)).status_code == 413


def test_a_decision_calls_nothing(simulated: ServedPolicies) -> None:
    body = {"model": "cascade", "messages": asked(QUESTIONS[0])}
    told = httpx.post(f"{simulated.url}/v1/decision", json=body).json()
    assert told["calls"] == [{"name": "search", "arguments": {"model": "search-3"}, "model": "qwen3-32b"}]
    assert 0 < told["cost"] < 0.001


def test_the_clients_own_tools_are_called_back_in_one_session(simulated: ServedPolicies) -> None:
    """`random` calls any tool: sooner or later the client's."""
    create = client(simulated).chat.completions.create
    for seed in range(40):
        messages = asked(QUESTIONS[3])
        answer: Any = create(model="random", messages=messages, tools=[ADD], extra_body={"seed": seed})
        if answer.choices[0].finish_reason == "tool_calls":
            break
    costs, rounds = [answer.usage.cost], 0
    while answer.choices[0].finish_reason == "tool_calls":
        rounds += 1
        message = answer.choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": str(sum(json.loads(call.function.arguments).values()))}
            for call in message.tool_calls
        ]
        messages = [*messages, message.model_dump(exclude_none=True), *results]
        answer = create(model="random", messages=messages, tools=[ADD])
        costs.append(answer.usage.cost)
    ended = simulated.service.latest[-1]
    assert rounds
    assert sum(costs) == pytest.approx(ended.usd)
    assert ended.calls["add"] == rounds
    assert [m["content"] for m in ended.trajectory["messages"] if m.get("name") == "add"]


def test_a_result_that_no_session_waits_for(simulated: ServedPolicies) -> None:
    call = {"id": "call_x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    messages = [
        *asked(QUESTIONS[0]),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_x", "content": "3"},
    ]
    body = {"model": "random", "messages": messages, "tools": [ADD]}
    told = httpx.post(f"{simulated.url}/v1/chat/completions", json=body)
    assert told.status_code == 409
    assert "orchestrator_tools=[]" in told.json()["error"]["message"]
    alone = httpx.post(f"{simulated.url}/v1/chat/completions", json={**body, "orchestrator_tools": []})
    assert alone.status_code == 200
    assert alone.json()["ended"] in ("answered", "tool_calls")


def test_every_request_is_a_line_with_every_charge(simulated: ServedPolicies) -> None:
    answer: Any = client(simulated).chat.completions.create(model="cascade", messages=asked(QUESTIONS[1]))
    lines = [json.loads(line) for file in simulated.folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    row = next(row for row in lines if row["request"] == answer.id)
    assert row["totals"]["nano_usd"] == sum(c["nano_usd"] for c in row["charges"]) == round(answer.usage.cost * 1e9)
    assert row["messages"][1]["content"] == QUESTIONS[1]


def test_health_metrics_and_the_page(simulated: ServedPolicies) -> None:
    client(simulated).chat.completions.create(model="cascade", messages=asked(QUESTIONS[0]))
    assert httpx.get(f"{simulated.url}/health").json()["status"] == "ok"
    metrics = httpx.get(f"{simulated.url}/metrics").text
    assert 'toolorchestra_requests_total{ended="answered",policy="cascade"}' in metrics
    activity = httpx.get(f"{simulated.url}/v1/activity").json()
    first = activity["latest"][0]
    assert first["policy"] == "cascade"
    assert first["usd"] > 0
    assert "trajectory" not in first
    shown = httpx.get(f"{simulated.url}/v1/trajectories/{first['request_id']}").json()
    assert shown["messages"][1]["content"] == QUESTIONS[0]
    assert "<html" in httpx.get(simulated.url).text


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """A file of keys: alice may spend little, poor nothing, bob rarely ask, and the admin may look."""
    made = {name: new_key(name) for name in ("alice", "bob", "poor", "root")}
    lines = {name: text for name, (_, text) in made.items()}
    lines["alice"] = lines["alice"].replace("usd = 10.0", "usd = 0.022").replace("= 60", "= 6000")
    lines["poor"] = lines["poor"].replace("usd = 10.0", "usd = 0.0")
    lines["bob"] = lines["bob"].replace("requests_per_minute = 60", "requests_per_minute = 12")
    lines["root"] += "\nadmin = true"
    (tmp_path / "keys.toml").write_text("\n".join(lines.values()))
    return {name: key for name, (key, _) in made.items()}


def test_keys_their_limits_and_who_may_look(tmp_path: Path, keys: dict[str, str]) -> None:
    with (
        Loopback(lambda asked: PARIS) as expert,
        running(
            tmp_path / "out",
            "always:answer-1",
            backends=over(tmp_path, expert),
            keys=str(tmp_path / "keys.toml"),
        ) as server,
    ):
        with pytest.raises(openai.AuthenticationError):
            client(server, "wrong").chat.completions.create(model="always:answer-1", messages=asked("Capital?"))

        def ask(name: str) -> Any:
            return client(server, keys[name]).chat.completions.create(
                model="always:answer-1", messages=asked("Capital of France?"), extra_body=no_search()
            )

        spent = [ask("alice"), ask("alice")]
        assert sum(a.usage.cost for a in spent) == pytest.approx(2 * 0.0101)
        for name, says in (("alice", "has 0.001800000 $ left, and the cheapest call"), ("poor", "0 $ are spent")):
            with pytest.raises(openai.APIStatusError) as refused:
                ask(name)
            assert refused.value.status_code == 402
            assert says in str(refused.value)
        assert server.service.accounts.accounts()[1] == ("alice", round(sum(a.usage.cost for a in spent) * 1e9), 0)
        with pytest.raises(openai.RateLimitError) as late:
            [ask("bob") for _ in range(4)]
        assert int(late.value.response.headers["retry-after"]) == 5
        for path in ("/metrics", "/v1/activity"):
            assert httpx.get(server.url + path).status_code == 401
            as_alice, as_root = ({"authorization": f"Bearer {keys[name]}"} for name in ("alice", "root"))
            assert httpx.get(server.url + path, headers=as_alice).status_code == 403
            assert httpx.get(server.url + path, headers=as_root).status_code == 200
    files = "".join(file.read_text(errors="ignore") for file in (tmp_path / "out").iterdir())
    assert not any(key in files for key in keys.values())


def test_another_keys_session_cannot_be_taken_up(tmp_path: Path, keys: dict[str, str]) -> None:
    with running(tmp_path / "out", "random", keys=str(tmp_path / "keys.toml")) as server:
        for seed in range(40):
            answer: Any = client(server, keys["root"]).chat.completions.create(
                model="random",
                messages=asked(QUESTIONS[3]),
                tools=[ADD],
                extra_body={"seed": seed},
            )
            if answer.choices[0].finish_reason == "tool_calls":
                break
        message = answer.choices[0].message
        results = [{"role": "tool", "tool_call_id": call.id, "content": "1"} for call in message.tool_calls]
        messages = [*asked(QUESTIONS[3]), message.model_dump(exclude_none=True), *results]
        with pytest.raises(openai.ConflictError):
            client(server, keys["bob"]).chat.completions.create(model="random", messages=messages)
        client(server, keys["root"]).chat.completions.create(model="random", messages=messages)


def test_beyond_this_machine_only_with_keys() -> None:
    from toolorchestra.agents.commands.serve import ServeOptions, check

    with pytest.raises(to.ConfigError, match="spend your money"):
        check(ServeOptions(policy=("cascade",), sim=True, host="0.0.0.0"))
    with pytest.raises(to.ConfigError, match="real models, or simulated"):
        check(ServeOptions(policy=("cascade",)))


# -- experts behind sockets: clients that go, experts that die ---------------------------------------------------------

BACKENDS = """
[endpoints.local]
base_url = "{url}"
in_flight = 4
[models."*"]
endpoints = ["local"]
retries = 0
deadline_seconds = 20.0
output_tokens = 1000
price = {{usd_per_mtok = {{input = 1.0, output = 10.0}}}}
"""


PARIS = ServerReply("<answer>Paris</answer>", usage={"prompt_tokens": 100, "completion_tokens": 1000})


def over(tmp_path: Path, expert: Loopback) -> str:
    file = tmp_path / "backends.toml"
    file.write_text(BACKENDS.format(url=expert.base_url))
    return str(file)


def no_search() -> dict[str, Any]:
    return {"orchestrator_tools": ["answer"]}


def test_a_real_expert_answers_any_question(tmp_path: Path) -> None:
    with (
        Loopback(lambda asked: PARIS) as expert,
        running(tmp_path / "out", "always:answer-1", backends=over(tmp_path, expert)) as server,
    ):
        answer: Any = client(server).chat.completions.create(
            model="always:answer-1", messages=asked("Capital of France?"), extra_body=no_search()
        )
        assert answer.choices[0].message.content == "Paris"
        assert "right" not in answer.usage.model_extra
        assert answer.usage.cost_by_role["expert"] == pytest.approx((100 * 1.0 + 1000 * 10.0) / 1e6)


def test_a_dead_expert_is_a_502_with_the_bill(tmp_path: Path) -> None:
    with (
        Loopback(lambda asked: ServerReply(status=500)) as expert,
        running(tmp_path / "out", "always:answer-1", backends=over(tmp_path, expert)) as server,
    ):
        told = httpx.post(
            f"{server.url}/v1/chat/completions",
            json={"model": "always:answer-1", "messages": asked("Capital of France?"), **no_search()},
        )
        assert told.status_code == 502
        assert "did not answer" in told.json()["error"]["message"]
        assert "usage" in told.json()
        assert server.service.accounts.accounts()[0].held == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_stops_its_episode(tmp_path: Path, stream: bool) -> None:
    with (
        Loopback(lambda asked: ServerReply("<answer>Paris</answer>", seconds=5.0)) as expert,
        running(tmp_path / "out", "always:answer-1", backends=over(tmp_path, expert)) as server,
    ):
        body = {"model": "always:answer-1", "messages": asked("Capital of France?"), "stream": stream, **no_search()}
        began = time.monotonic()
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=0.5)
        while not server.service.latest and time.monotonic() - began < 4:
            time.sleep(0.02)
        (ended,) = server.service.latest
        assert ended.ended == "cancelled"
        assert time.monotonic() - began < 3
        assert server.service.active == 0
        assert server.service.accounts.accounts()[0].held == 0


def test_more_than_the_queue_holds_is_refused_with_429(tmp_path: Path) -> None:
    with (
        Loopback(lambda asked: ServerReply("<answer>Paris</answer>", seconds=0.5)) as expert,
        running(tmp_path / "out", "always:answer-1", backends=over(tmp_path, expert), at_once=1, queue=1) as server,
    ):

        async def three() -> list[int]:
            body = {"model": "always:answer-1", "messages": asked("Capital of France?"), **no_search()}
            async with httpx.AsyncClient(timeout=10) as asks:
                told = await asyncio.gather(
                    *[asks.post(f"{server.url}/v1/chat/completions", json=body) for _ in range(3)]
                )
            return sorted(one.status_code for one in told)

        assert asyncio.run(three()) == [200, 200, 429]


def test_a_page_of_another_site_finds_no_mcp_server_without_keys(simulated: ServedPolicies) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    named = {"host": "rebound.example", "accept": "application/json, text/event-stream"}
    assert httpx.post(f"{simulated.url}/mcp", json=listing, headers=named).status_code in (403, 421)


# -- as an MCP server --------------------------------------------------------------------------------------------------


def test_another_agent_asks_by_mcp(tmp_path: Path, keys: dict[str, str]) -> None:
    with running(tmp_path / "out", "cascade", keys=str(tmp_path / "keys.toml")) as server:
        os.environ["TEST_MCP_KEY"] = keys["bob"]
        found = {tool.name: tool for tool in to.mcp_tools(f"{server.url}/mcp", bearer="TEST_MCP_KEY")}
        assert {*found} == {"ask", "prices", "budget_left"}

        async def asked_and_paid() -> list[dict[str, Any]]:
            context = ToolContext(None, 0)
            said = [
                await found["ask"].run(context, question=QUESTIONS[2], budget_usd=0.5),
                await found["budget_left"].run(context),
                await found["prices"].run(context),
            ]
            with pytest.raises(to.ToolError, match="no model 'casc'"):
                await found["ask"].run(context, question=QUESTIONS[2], model="casc")
            context.end()
            await asyncio.sleep(0.05)
            return [json.loads(one.content) for one in said]

        answer, left, prices = asyncio.run(asked_and_paid())
        assert answer["answer"] == "325"
        assert left["spent_usd"] == pytest.approx(answer["cost_usd"])
        assert left["usd"] == pytest.approx(10 - answer["cost_usd"])
        assert "gpt-5" in prices
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        named = {"host": "orchestrator.example", "accept": "application/json, text/event-stream"}
        told = httpx.post(f"{server.url}/mcp", json=listing, headers=named)
        assert told.status_code == 200, told.text  # under a name of its own, as beyond this machine
        os.environ["TEST_MCP_KEY"] = "wrong"
        wrong = {tool.name: tool for tool in to.mcp_tools(f"{server.url}/mcp", bearer="TEST_MCP_KEY")}
        with pytest.raises(to.ToolError, match="no such key"):
            asyncio.run(wrong["budget_left"].run(ToolContext(None, 0)))


def test_rated_traffic_can_be_fitted(tmp_path: Path) -> None:
    with (
        Loopback(lambda asked: PARIS) as expert,
        running(tmp_path / "out", "always:answer-1", backends=over(tmp_path, expert)) as server,
    ):
        for number in range(4):
            answer: Any = client(server).chat.completions.create(
                model="always:answer-1",
                messages=asked(f"Capital of country {number}?"),
                metadata={"subject": "maps" if number else "seas"},
                extra_body=no_search(),
            )
            if number < 3:
                httpx.post(f"{server.url}/v1/feedback", json={"id": answer.id, "right": number > 0})
    found = read_outcomes("trajectories", tmp_path / "out")
    assert sorted(found.success) == [0.0, 1.0, 1.0]
    assert list(found.models) == ["gpt-5"]
    assert {*found.families} == {"maps", "seas"}
    assert dict(found.left_out) == {"answers that nobody rated": 1}


def test_a_client_that_reads_a_byte_at_a_time_holds_up_nobody(simulated: ServedPolicies) -> None:
    host, _, port = simulated.url.removeprefix("http://").partition(":")
    body = json.dumps({"model": "cascade", "messages": asked(QUESTIONS[0]), "stream": True, "steps": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    before = len(simulated.service.latest)
    with socket.create_connection((host, int(port))) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        slow.sendall(head + body)
        for _ in range(5):
            slow.recv(1)
            began = time.monotonic()
            client(simulated).chat.completions.create(model="always:answer-1", messages=asked(QUESTIONS[1]))
            assert time.monotonic() - began < 3
    assert len(simulated.service.latest) >= before + 6  # its own request has ended too, and is booked
    assert simulated.service.active == 0


def test_evaluate_takes_a_loaded_policy() -> None:
    made = to.evaluate("HLE-v0", to.load_policy("cheapest"), tasks=3)
    assert [one["policy"] for one in made["policies"]] == ["cheapest"]
