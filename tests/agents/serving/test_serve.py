"""The server of `toolorchestra serve`, asked by real clients over real sockets."""

from __future__ import annotations

import asyncio
import json
import runpy
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2 as httpx
import openai
import pytest

import toolorchestra as to
from tests.agents.serving.test_serve_process import wait_for
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.support.served import ADD, ANSWER_ALONE, BACKENDS, PARIS, ServedPolicies, running, running_over
from toolorchestra.agents.commands import serve, serve_environments
from toolorchestra.agents.commands.serve import ServeOptions, check
from toolorchestra.agents.policies import knn_and_skillbook
from toolorchestra.agents.serving import mcp_service, service
from toolorchestra.agents.serving.accounts import new_key
from toolorchestra.envs.outcomes.recording_forms import read as read_outcomes
from toolorchestra.envs.tools import ToolContext

QUESTIONS = list(to.make("HLE-v0").unwrapped.factory.source.askable)  # type: ignore[attr-defined]
ALWAYS, CAPITAL = "always:answer-1", "Capital of France?"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPolicies]:
    with running(tmp_path_factory.mktemp("served"), "cascade", ALWAYS, "random") as server:
        yield server


def client(server: ServedPolicies, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)


def asked(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def results(message: dict[str, Any]) -> list[dict[str, Any]]:
    """What the client's tool says to the calls of a message."""
    sums = [(call["id"], sum(json.loads(call["function"]["arguments"]).values())) for call in message["tool_calls"]]
    return [{"role": "tool", "tool_call_id": call_id, "content": str(found)} for call_id, found in sums]


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
    assert (usage.right, usage.ended) == (1.0, "answered")
    assert answer.ignored == ["temperature"]
    assert float(raw.headers["x-toolorchestra-cost-usd"]) == pytest.approx(usage.cost)
    solved = to.load_policy("cascade").solve(QUESTIONS[2], budget_usd=0.5)
    assert (solved.text, solved.usd, dict(solved.calls)) == ("325", usage.cost, usage.calls)
    lines = [json.loads(line) for file in simulated.folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    row = next(row for row in lines if row["request"] == answer.id)  # every charge is kept
    assert row["totals"]["nano_usd"] == sum(c["nano_usd"] for c in row["charges"]) == round(usage.cost * 1e9)
    assert row["messages"][1]["content"] == QUESTIONS[2]


def test_a_stream_tells_steps_when_asked_and_ends_with_the_bill(simulated: ServedPolicies) -> None:
    create = client(simulated).chat.completions.create
    pieces: list[Any] = list(
        create(model="cascade", messages=asked(QUESTIONS[2]), stream=True, extra_body={"steps": True})
    )
    said = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    told = [p.choices[0].delta.model_extra or {} for p in pieces if p.choices]
    steps = [more["reasoning_content"] for more in told if "reasoning_content" in more]
    assert said == "325"
    assert steps[0].startswith("search(")
    assert pieces[-1].usage.cost > 0
    assert pieces[-1].choices[0].finish_reason == "stop"
    usage_apart: Any = {"stream": True, "stream_options": {"include_usage": True}}
    quiet: list[Any] = list(create(model="cascade", messages=asked(QUESTIONS[2]), **usage_apart))
    assert not any("reasoning_content" in (p.choices[0].delta.model_extra or {}) for p in quiet if p.choices)
    assert quiet[-1].usage.cost == pieces[-1].usage.cost
    assert [(one.choices, one.usage is None) for one in quiet[-1:]] == [([], False)]
    assert quiet[-2].choices[0].finish_reason == "stop"
    assert quiet[-2].usage is None


def test_the_responses_api_is_the_same(simulated: ServedPolicies) -> None:
    create = client(simulated).responses.create
    answer: Any = create(model="cascade", input=QUESTIONS[2], instructions="", extra_body={"budget_usd": 0.5})
    assert (answer.output_text, answer.status) == ("325", "completed")
    assert answer.usage.cost == to.load_policy("cascade").solve(QUESTIONS[2], budget_usd=0.5).usd
    events = list(create(model="cascade", input=asked(QUESTIONS[2]), stream=True))
    assert [one.type for one in events][::7] == ["response.created", "response.completed"]
    assert [one.sequence_number for one in events] == [*range(8)]
    assert events[-1].response.output_text == "325"
    with client(simulated).responses.stream(model="cascade", input=QUESTIONS[2]) as stream:
        assert [one.snapshot for one in stream if one.type == "response.output_text.delta"] == ["325"]
        assert stream.get_final_response().output_text == "325"
    cut: Any = create(model="cascade", input=QUESTIONS[0], extra_body={"deadline_seconds": 0.5})
    assert cut.status == "incomplete"
    own = {"type": "function", **ADD["function"]}
    for seed in range(40):
        called: Any = create(model="random", input=asked(QUESTIONS[3]), tools=[own], extra_body={"seed": seed})
        if called.output[-1].type == "function_call":
            break
    sent: Any = asked(QUESTIONS[3])
    parts = [{"type": "input_text", "text": "3"}]
    while calls := [item for item in called.output if item.type == "function_call"]:
        sent += [item.model_dump(exclude_none=True) for item in called.output]
        sent += [{"type": "function_call_output", "call_id": item.call_id, "output": parts} for item in calls]
        called = create(model="random", input=sent, tools=[own])
    assert called.ended == "answered"
    with pytest.raises(openai.BadRequestError, match="previous_response_id is not kept"):
        create(model="cascade", input=QUESTIONS[0], previous_response_id="resp_1")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"tools": 5}, "tools must be a list, got int"),
        ({"input": [{"role": "user", "content": ["hi"]}]}, "a list of text parts, got ['hi']"),
        (
            {"text": {"format": {"type": "json_schema"}}},
            "text.format must be of type text, got {'type",
        ),
    ],
)
def test_what_the_responses_api_cannot_honour_is_a_clear_400(
    simulated: ServedPolicies, body: dict[str, Any], says: str
) -> None:
    told = httpx.post(f"{simulated.url}/v1/responses", json={"model": "cascade", "input": QUESTIONS[0], **body})
    assert told.status_code == 400, told.text
    assert says in told.json()["error"]["message"]


def test_the_responses_api_lists_what_it_ignores(simulated: ServedPolicies) -> None:
    more = {"temperature": 0, "max_output_tokens": 9, "text": {"format": {"type": "text"}}}
    body = {"model": "cascade", "input": QUESTIONS[0], **more}
    assert httpx.post(f"{simulated.url}/v1/responses", json=body).json()["ignored"] == [*more]


def test_a_preset_of_preference_is_a_model(simulated: ServedPolicies) -> None:
    listed = [model.id for model in client(simulated).models.list()]
    assert {"cascade", "cascade:frugal", "random:fast"} <= {*listed}
    simulated.ask("cascade:frugal", QUESTIONS[0])
    assert simulated.service.latest[-1].trajectory["preference"]["kind"] == "frugal"
    own = "As cheap as you can, please."
    simulated.ask("cascade", QUESTIONS[0], preference=own)
    assert own in simulated.service.latest[-1].trajectory["messages"][0]["content"]


def test_an_answer_that_a_limit_cut_says_so(simulated: ServedPolicies) -> None:
    for limit, ended in (({"budget_usd": 0.0001}, "budget"), ({"deadline_seconds": 0.5}, "deadline")):
        answer = simulated.ask("cascade", QUESTIONS[0], **limit).json()
        assert (answer["choices"][0]["finish_reason"], answer["ended"]) == ("length", ended)
        assert "failure" not in answer


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"budgt_usd": 1}, "no key 'budgt_usd'"),
        ({"model": "casc"}, "Did you mean 'cascade'?"),
        ({"budget_usd": -1}, "budget_usd must be a number above 0"),
        ({"preference": "cheapo"}, "no preference 'cheapo'"),
        ({"messages": []}, "messages must be a list"),
        ({"messages": asked("What is love?")}, "the experts are simulated"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "content must be text"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]}, "cannot be read as an assistant's"),
        ({"n": 3}, "n must be 1"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "objekt"}}}]}, "objekt"),
        ({"tools": [{**ADD, "function": {**ADD["function"], "name": "search"}}]}, "two tools have one name"),
        ({"orchestrator_tools": ["serch"]}, "Did you mean 'search'?"),
        ({"response_format": {"type": "json_object"}}, "response_format must be text"),
    ],
)
def test_what_cannot_be_honoured_is_a_clear_400(simulated: ServedPolicies, body: dict[str, Any], says: str) -> None:
    told = simulated.ask(**{"model": "cascade", "said": body.pop("messages", QUESTIONS[0]), **body})
    assert told.status_code == 400, told.text
    assert says in told.json()["error"]["message"]
    assert simulated.service.accounts.accounts()[0].held == 0


@pytest.mark.parametrize(("content", "status"), [(b"{nonsense", 400), (b"[1]", 400), (b" " * (5 << 20), 413)])
def test_a_body_that_is_no_json_or_too_large(simulated: ServedPolicies, content: bytes, status: int) -> None:
    assert httpx.post(f"{simulated.url}/v1/chat/completions", content=content).status_code == status


def test_a_decision_calls_nothing(simulated: ServedPolicies) -> None:
    body = {"model": "cascade", "messages": asked(QUESTIONS[0])}
    told = httpx.post(f"{simulated.url}/v1/decision", json=body).json()
    assert told["calls"] == [{"name": "search", "arguments": {"model": "search-3"}, "model": "qwen3-32b"}]
    assert 0 < told["cost"] < 0.001


def test_the_clients_own_tools_are_called_back_in_one_session(simulated: ServedPolicies) -> None:
    answer, messages = simulated.left_waiting(QUESTIONS[3]), asked(QUESTIONS[3])
    costs, rounds = [answer["usage"]["cost"]], 0
    while answer["choices"][0]["finish_reason"] == "tool_calls":
        rounds += 1
        message = answer["choices"][0]["message"]
        messages = [*messages, message, *results(message)]
        answer = simulated.ask("random", messages, tools=[ADD]).json()
        costs.append(answer["usage"]["cost"])
    ended = simulated.service.latest[-1]
    assert sum(costs) == pytest.approx(ended.usd)
    assert ended.calls["add"] == rounds > 0
    assert [m["content"] for m in ended.trajectory["messages"] if m.get("name") == "add"]


def test_a_result_that_no_session_waits_for(simulated: ServedPolicies) -> None:
    call = {"id": "call_x", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = [*asked(QUESTIONS[0]), message, *results(message)]
    told = simulated.ask("random", messages, tools=[ADD])
    assert told.status_code == 409
    assert "orchestrator_tools=[]" in told.json()["error"]["message"]
    alone = simulated.ask("random", messages, tools=[ADD], orchestrator_tools=[])
    assert alone.status_code == 200
    assert alone.json()["ended"] in ("answered", "tool_calls")


def test_health_metrics_and_the_page(simulated: ServedPolicies) -> None:
    simulated.ask("cascade", QUESTIONS[0])
    assert httpx.get(f"{simulated.url}/health").json()["status"] == "ok"
    metrics = httpx.get(f"{simulated.url}/metrics").text
    assert 'toolorchestra_requests_total{ended="answered",policy="cascade"}' in metrics
    first = httpx.get(f"{simulated.url}/v1/activity").json()["latest"][0]
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
    with running_over(lambda asked: PARIS, tmp_path, ALWAYS, keys=str(tmp_path / "keys.toml")) as (server, _):
        with pytest.raises(openai.AuthenticationError):
            client(server, "wrong").chat.completions.create(model=ALWAYS, messages=asked(CAPITAL))

        def ask(name: str) -> Any:
            return server.ask(ALWAYS, CAPITAL, keys[name], **ANSWER_ALONE)

        spent = [ask("alice").json()["usage"]["cost"] for _ in range(2)]
        assert sum(spent) == pytest.approx(2 * 0.0101)
        for name, says in (("alice", "has 0.001800000 $ left, and the cheapest call"), ("poor", "0 $ are spent")):
            refused = ask(name)
            assert refused.status_code == 402
            assert says in refused.text
        assert server.service.accounts.accounts()[1] == ("alice", round(sum(spent) * 1e9), 0)
        late = next(one for one in (ask("bob") for _ in range(4)) if one.status_code == 429)
        assert int(late.headers["retry-after"]) in range(1, 6)  # five seconds, less what asking took
        for path in ("/metrics", "/v1/activity"):
            assert httpx.get(server.url + path).status_code == 401
            as_alice, as_root = ({"authorization": f"Bearer {keys[name]}"} for name in ("alice", "root"))
            assert httpx.get(server.url + path, headers=as_alice).status_code == 403
            assert httpx.get(server.url + path, headers=as_root).status_code == 200
    files = "".join(file.read_text(errors="ignore") for file in (tmp_path / "out").iterdir())
    assert not any(key in files for key in keys.values())


@pytest.mark.parametrize(
    ("options", "says"), [({"sim": True, "host": "0.0.0.0"}, "spend your money"), ({}, "real models, or simulated")]
)
def test_what_would_be_served_by_mistake_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(to.ConfigError, match=says):
        check(ServeOptions(policy=("cascade",), **options))


@pytest.mark.parametrize(
    "words", [(serve.main, "cascade", "--sim", "--port", "0"), (serve_environments.main, "--env", "HLE-v0")]
)
def test_a_file_in_place_of_the_folder_is_refused(
    tmp_path: Path, words: tuple[Any, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    main, *options = words
    assert main([*options, "--out", str(tmp_path / "file")]) == 2
    assert "--out: a folder expected" in capsys.readouterr().err


# -- experts behind sockets: clients that go, experts that die ---------------------------------------------------------


def test_a_dead_expert_is_a_502_with_the_bill(tmp_path: Path) -> None:
    with running_over(lambda asked: ServerReply(status=500), tmp_path, ALWAYS) as (server, _):
        told = server.ask(ALWAYS, CAPITAL, **ANSWER_ALONE)
        assert told.status_code == 502
        assert "did not answer" in told.json()["error"]["message"]
        assert "usage" in told.json()
        assert server.service.accounts.accounts()[0].held == 0


CALLS_ADD = ServerReply(to.render_call("add", {"a": 1, "b": 2}), usage={"prompt_tokens": 100, "completion_tokens": 10})
CLIENTS_ALONE: Any = {"tools": [ADD], "orchestrator_tools": []}


def test_a_move_that_misses_its_deadline_says_so_with_its_bill(tmp_path: Path) -> None:
    with running_over(lambda asked: replace(CALLS_ADD, seconds=2.0), tmp_path, "chat") as (server, _):
        told = server.ask("chat", CAPITAL, deadline_seconds=0.3, **CLIENTS_ALONE)
        assert (told.status_code, told.json()["ended"]) == (200, "deadline")
        assert told.json()["usage"]["cost"] > 0
        body = {"model": "chat", "messages": asked(CAPITAL), "deadline_seconds": 0.3}
        decided = httpx.post(f"{server.url}/v1/decision", json=body)
        assert (decided.status_code, decided.json()["ended"], decided.json()["calls"]) == (200, "deadline", [])
        assert decided.json()["cost"] > 0
        assert [one.ended for one in server.service.latest] == ["deadline"] * 2


def test_a_decision_for_a_model_that_is_no_name_is_told_with_its_bill(tmp_path: Path) -> None:
    move = ServerReply(to.render_call("answer", {"model": ["a"]}), usage=CALLS_ADD.usage)
    with running_over(lambda asked: move, tmp_path, "chat") as (server, _):
        told = httpx.post(f"{server.url}/v1/decision", json={"model": "chat", "messages": asked(CAPITAL)}).json()
    assert (told["calls"], told["cost"]) == ([{"name": "answer", "arguments": {"model": ["a"]}}], 0.0002)


def test_openais_client_does_not_pay_again_for_what_failed(tmp_path: Path) -> None:
    def reply(asked: ReceivedRequest) -> ServerReply:
        if asked.json["model"] == "qwen3-8b":
            return ServerReply(to.render_call("answer", {"model": "answer-1"}), usage=PARIS.usage)
        return ServerReply(status=500)

    with running_over(reply, tmp_path, "chat") as (server, _):
        api = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
        for create, said in ((api.chat.completions.create, "messages"), (api.responses.create, "input")):
            with pytest.raises(openai.InternalServerError, match="did not answer") as failed:
                create(model="chat", extra_body=ANSWER_ALONE, **{said: asked(CAPITAL)})  # type: ignore[call-overload]
            assert failed.value.response.status_code == 502
        (event,) = (
            one
            for one in api.responses.create(model="chat", input=CAPITAL, stream=True, extra_body=ANSWER_ALONE)
            if one.type == "error"
        )
        costs = [one.usd for one in server.service.latest]
        assert (event.code, event.model_extra["usage"]["cost"]) == ("failed", costs[-1])
        assert min(costs) > 0
        assert len(server.service.latest) == 3
        message = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "add"}}]}
        gone = server.ask("chat", [*asked(CAPITAL), message, {"role": "tool", "tool_call_id": "a", "content": "1"}])
        assert (gone.status_code, gone.headers["x-should-retry"]) == (409, "false")


def test_a_decision_that_fails_is_a_502_with_its_bill(tmp_path: Path) -> None:
    with running_over(lambda asked: ServerReply(status=500), tmp_path, "chat") as (server, _):
        told = httpx.post(f"{server.url}/v1/decision", json={"model": "chat", "messages": asked(CAPITAL)})
        assert (told.status_code, told.json()["ended"]) == (502, "failed")
        assert told.headers["x-should-retry"] == "false"
        assert "did not answer" in told.json()["error"]["message"]
        assert told.json()["cost"] == server.service.latest[-1].usd


def test_a_deadline_that_passes_while_the_client_runs_its_tool_is_told_when_it_comes_again(tmp_path: Path) -> None:
    with running_over(lambda asked: CALLS_ADD, tmp_path, "chat") as (server, _):
        message = server.ask("chat", CAPITAL, tools=[ADD], deadline_seconds=0.4).json()["choices"][0]["message"]
        wait_for(lambda: bool(server.service.latest))
        wait_for(lambda: server.service.accounts.accounts()[0][1:] == (200_000, 0))
        again = [*asked(CAPITAL), message, *results(message)]
        told = server.ask("chat", again, tools=[ADD]).json()
        assert (told["ended"], told["usage"]["cost"], told["choices"][0]["finish_reason"]) == ("deadline", 0, "length")
        assert [one.ended for one in server.service.latest] == ["deadline"]
        assert server.ask("chat", again, tools=[ADD]).status_code == 409


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_stops_its_episode(tmp_path: Path, stream: bool) -> None:
    slow = ServerReply("<answer>Paris</answer>", seconds=5.0)
    with running_over(lambda asked: slow, tmp_path, ALWAYS) as (server, _):
        body = {"model": ALWAYS, "messages": asked(CAPITAL), "stream": stream, **ANSWER_ALONE}
        began = time.monotonic()
        with pytest.raises(httpx.TimeoutException):
            httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=0.5)
        while not server.service.latest and time.monotonic() - began < 4:
            time.sleep(0.02)
        (ended,) = server.service.latest
        assert ended.ended == "cancelled"
        assert time.monotonic() - began < 3
        assert server.service.active == 0
        wait_for(lambda: server.service.accounts.accounts()[0].held == 0)


def test_more_than_the_queue_holds_is_refused_with_429(tmp_path: Path) -> None:
    slow = ServerReply("<answer>Paris</answer>", seconds=0.5)
    with running_over(lambda asked: slow, tmp_path, ALWAYS, at_once=1, queue=1) as (server, _):

        async def three() -> list[int]:
            body = {"model": ALWAYS, "messages": asked(CAPITAL), **ANSWER_ALONE}
            async with httpx.AsyncClient(timeout=10) as asks:
                told = await asyncio.gather(
                    *[asks.post(f"{server.url}/v1/chat/completions", json=body) for _ in range(3)]
                )
            return sorted(one.status_code for one in told)

        assert asyncio.run(three()) == [200, 200, 429]


def test_results_of_the_clients_tools_wait_for_a_place_as_any_request_does(tmp_path: Path) -> None:
    def reply(asked: ReceivedRequest) -> ServerReply:
        if asked.json["model"] != "qwen3-8b":
            return replace(PARIS, seconds=0.5 * ("Slow" in asked.text))
        answer = ServerReply(to.render_call("answer", {"model": "answer-1"}), usage=CALLS_ADD.usage)
        return answer if "<tool_response>" in asked.text else CALLS_ADD

    with (
        running_over(reply, tmp_path, "chat", ALWAYS, at_once=1, queue=1) as (server, expert),
        ThreadPoolExecutor() as by,
    ):

        def resumed() -> tuple[Any, ...]:
            message = server.ask("chat", CAPITAL, tools=[ADD], **ANSWER_ALONE).json()["choices"][0]["message"]
            return "chat", [*asked(CAPITAL), message, *results(message)]

        first, second = resumed(), resumed()
        slow = by.submit(server.ask, ALWAYS, "Slow?", **ANSWER_ALONE)
        wait_for(lambda: len(expert.seen) == 3)
        waits = by.submit(server.ask, *first)
        wait_for(lambda: server.service.waiting == 1)
        assert server.ask(*second).status_code == 429
        assert (server.service.active, len(expert.seen)) == (1, 3)
        assert waits.result().json()["ended"] == slow.result().json()["ended"] == "answered"
        assert server.ask(*second).json()["ended"] == "answered"  # it was not lost by coming too soon


def test_only_so_many_conversations_are_kept_for_clients_that_do_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PARKED_A_PLACE", 1)
    with running_over(lambda _: CALLS_ADD, tmp_path, "chat", at_once=1, queue=1) as (server, _):
        body = {"model": "chat", "messages": [{"role": "user", "content": CAPITAL}], "tools": [ADD], **ANSWER_ALONE}
        left = [server.ask("chat", CAPITAL, tools=[ADD], **ANSWER_ALONE) for _ in range(4)]
        assert {one.json()["ended"] for one in left} == {"tool_calls"}
        refused = httpx.post(f"{server.url}/v1/chat/completions", json=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert "4 conversations wait for their clients" in refused.text
        message = left[0].json()["choices"][0]["message"]
        told = server.ask("chat", [*asked(CAPITAL), message, *results(message)]).json()
        assert told["ended"] == "tool_calls"  # who waits may go on


def test_a_client_that_reads_a_byte_now_and_then_holds_nobody_up_and_is_billed_at_once(tmp_path: Path) -> None:
    """One request runs at once; others read nothing of their answers, or a byte, and keep their connections."""
    long = ServerReply(f"<answer>{'x' * 150_000}</answer>", usage=PARIS.usage)
    with running_over(lambda asked: long, tmp_path, ALWAYS, at_once=1) as (server, _), ExitStack() as slow:
        body = json.dumps({"model": ALWAYS, "messages": asked(CAPITAL), "stream": True, **ANSWER_ALONE}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        for reads in (0, 1):
            one = slow.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            one.connect(("127.0.0.1", httpx.URL(server.url).port))
            one.sendall(head + body)
            one.recv(reads)
        assert server.ask(ALWAYS, CAPITAL, **ANSWER_ALONE).json()["ended"] == "answered"
        assert (server.service.active, [one.ended for one in server.service.latest]) == (0, ["answered"] * 3)
        (account,) = server.service.accounts.accounts()
        assert (account.spent, account.held) == (3 * 10_100_000, 0)


def test_an_answer_says_what_of_its_cost_nobody_has_confirmed(tmp_path: Path) -> None:
    uncounted = ServerReply("<answer>Paris</answer>", usage=False)
    with running_over(lambda asked: uncounted if len(asked.text) % 2 else PARIS, tmp_path, ALWAYS) as (server, _):
        told = [server.ask(ALWAYS, f"{CAPITAL}{more}", **ANSWER_ALONE).json()["usage"] for more in ("", " ")]
    sure, unsure = sorted(told, key=lambda one: "cost_unconfirmed" in one)
    assert "cost_unconfirmed" not in sure
    assert 0.009 < unsure["cost_unconfirmed"] < unsure["cost"] < 0.015  # up to the thousand tokens that it may have


def test_a_router_that_would_pay_to_learn_first_answers_nobody(tmp_path: Path) -> None:
    """Its plays of train tasks would be in no budget, and on no key's account."""
    with Loopback(lambda asked: PARIS) as expert:
        file = tmp_path / "b.toml"
        file.write_text(BACKENDS.format(url=expert.base_url))
        with pytest.raises(to.ConfigError, match="learns from plays of 60 train tasks first, which real models"):
            to.load_policy("knn", backends=file).solve(CAPITAL, budget_usd=0.05)
        with (
            pytest.raises(to.ConfigError, match="skillbook learns"),
            running(tmp_path, "skillbook", backends=str(file)),
        ):
            pass
        env = to.make("HLE-v0", backends=str(file), split="test")
        env.reset(seed=0)
        with pytest.raises(to.ConfigError, match="knn learns"):
            to.load_policy("knn").act(env)
        assert not expert.seen
        learns = {"backends": str(file), "player": ["fit_tasks=2"]}
        to.evaluate("HLE-v0", "knn", tasks=1, out=tmp_path / "run", **learns)
        knn_and_skillbook._KNOWN.clear()
        before = len(expert.seen)
        knn = to.load_policy("knn", backends=file, fit_tasks=2, fit_folder=str(tmp_path / "run" / "fit"))
        assert knn.solve(CAPITAL, budget_usd=0.5).calls
        assert len(expert.seen) - before < 10


def test_what_was_recorded_is_served_again_with_no_expert_behind(tmp_path: Path) -> None:
    told = []
    for mode in ("record", "replay"):
        with Loopback(lambda asked: PARIS) as expert:
            file = tmp_path / "b.toml"
            file.write_text(
                f'{BACKENDS.format(url=expert.base_url)}[cassette]\npath = "{tmp_path / "tape"}"\nmode = "{mode}"\n'
            )
            with running(tmp_path / mode, ALWAYS, backends=str(file)) as server:
                answer = server.ask(ALWAYS, CAPITAL, **ANSWER_ALONE).json()
            told.append((answer["choices"][0]["message"], answer["usage"], len(expert.seen)))
    assert [asks for *_, asks in told] == [1, 0]
    assert told[0][:2] == told[1][:2]


def test_over_an_index_alone_the_server_says_that_its_models_are_simulated(tmp_path: Path) -> None:
    file = tmp_path / "index.toml"
    file.write_text('[retrieval]\nindex = "embedded"\n')
    with running(tmp_path / "out", "cascade", backends=str(file)) as server:
        assert "SIMULATED" in httpx.get(server.url).text


def test_the_async_client_streams_and_runs_its_own_tool(simulated: ServedPolicies) -> None:
    asyncio.run(asks_side_by_side(simulated))
    assert simulated.service.latest[-1].calls["add"] > 0


async def asks_side_by_side(server: ServedPolicies) -> None:
    create: Any = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none").chat.completions.create

    async def streamed(question: str) -> str:
        pieces = await create(model="cascade", messages=asked(question), stream=True)
        return "".join([piece.choices[0].delta.content or "" async for piece in pieces if piece.choices])

    answers = [await create(model="cascade", messages=asked(question)) for question in QUESTIONS[2:4]]
    assert [*await asyncio.gather(*map(streamed, QUESTIONS[2:4]))] == [
        one.choices[0].message.content for one in answers
    ]
    for seed in range(40):
        messages = asked(QUESTIONS[3])
        answer = await create(model="random", messages=messages, tools=[ADD], extra_body={"seed": seed})
        if answer.choices[0].finish_reason == "tool_calls":
            break
    while answer.choices[0].finish_reason == "tool_calls":
        message = answer.choices[0].message.model_dump(exclude_none=True)
        messages = [*messages, message, *results(message)]
        answer = await create(model="random", messages=messages, tools=[ADD])


def test_one_policy_answers_questions_in_python_and_plays_in_evaluate(tmp_path: Path) -> None:
    """Over endpoints: a baseline and a model as the orchestrator, alone and beside others, with a tool of one's own."""

    def reply(asked: ReceivedRequest) -> ServerReply:
        used = {"prompt_tokens": 100, "completion_tokens": 10}
        if "Say 42." in asked.text:
            return ServerReply("42", usage=used)
        if "<answer>" in asked.text:  # it is asked as an expert
            return ServerReply("<answer>42</answer>", usage=used)
        if '"double"' in asked.text and "<tool_response>" not in asked.text:
            return ServerReply(to.render_call("double", {"number": 21}), usage=used)
        return ServerReply(to.render_call("answer", {"model": "answer-1"}), usage=used)

    async def double(number: int) -> str:
        """Twice a number."""
        return str(2 * number)

    with Loopback(reply) as expert:
        file = tmp_path / "b.toml"
        file.write_text(f'{BACKENDS.format(url=expert.base_url)}[retrieval]\nindex = "embedded"\n')
        for name in (ALWAYS, "chat"):
            policy = to.load_policy(name, backends=file)
            one = policy.solve("Six times seven?", budget_usd=0.05, preference="As cheap as you can, please.")

            async def several(policy: Any = policy) -> list[Any]:
                return await asyncio.gather(*[policy.solve_async(f"Of {n}?", budget_usd=0.05) for n in range(3)])

            for answer in (one, *asyncio.run(several())):
                assert (answer.text, answer.ended, answer.usd) == (
                    "42",
                    "answered",
                    pytest.approx(sum(answer.usd_by_role.values())),
                )
                assert answer.trajectory["totals"]["nano_usd"] == round(answer.usd * 1e9) > 0
            if name == "chat":
                own = policy.solve("Twice 21?", tools=["answer", double])
                assert (own.calls["double"], own.text) == (1, "42")
                alone = policy.solve("Say 42.", tools=[])
                assert (alone.text, alone.calls, [*alone.trajectory["tools"]]) == ("42", {}, [])
            (figures,) = to.evaluate("HLE-v0", policy, backends=str(file), tasks=2, out=tmp_path / name[:4])["policies"]
            assert (figures["policy"], figures["trials"]["ended"]) == (name, 2)
            policy.close()


def test_rated_traffic_can_be_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_FILE_BYTES", 1)  # a file for each request
    with running_over(lambda asked: PARIS, tmp_path, ALWAYS) as (server, _):
        for number in range(4):
            about = {"metadata": {"subject": "maps" if number else "seas"}}
            answer = server.ask(ALWAYS, f"Capital of country {number}?", **about, **ANSWER_ALONE).json()
            if number < 3:
                httpx.post(f"{server.url}/v1/feedback", json={"id": answer["id"], "right": number > 0})
    assert len([*(tmp_path / "out").glob("trajectories-*.jsonl")]) == 4
    found = read_outcomes("trajectories", tmp_path / "out")
    assert sorted(found.success) == [0.0, 1.0, 1.0]
    assert list(found.models) == ["gpt-5"]
    assert {*found.families} == {"maps", "seas"}
    assert dict(found.left_out) == {"answers that nobody rated": 1}


# -- as an MCP server --------------------------------------------------------------------------------------------------

LISTING = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def test_a_page_of_another_site_finds_no_mcp_server_without_keys(simulated: ServedPolicies) -> None:
    named = {"host": "rebound.example", "accept": "application/json, text/event-stream"}
    assert httpx.post(f"{simulated.url}/mcp", json=LISTING, headers=named).status_code in (403, 421)


def test_another_version_of_mcp_or_a_part_of_opentelemetry_ends_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("mcp.server", "opentelemetry"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    assert runpy.run_path(mcp_service.__file__)["mcp_app"](None) is None
    made = serve.service_of(ServeOptions(policy=("cascade",), sim=True), tmp_path)
    assert serve.app_of(made).routes
    assert len(made.on_end) == 1  # of the metrics
    made.accounts.close()


def test_an_address_of_ip_6_is_in_brackets() -> None:
    with serve.listening("::1", 0) as (url, _):
        assert httpx.URL(url).host == "::1"


def test_another_agent_asks_by_mcp(tmp_path: Path, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path / "out", "cascade", keys=str(tmp_path / "keys.toml")) as server:
        monkeypatch.setenv("TEST_MCP_KEY", keys["bob"])
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
        named = {"host": "orchestrator.example", "accept": "application/json, text/event-stream"}
        told = httpx.post(f"{server.url}/mcp", json=LISTING, headers=named)
        assert told.status_code == 200, told.text  # under a name of its own, as beyond this machine
        monkeypatch.setenv("TEST_MCP_KEY", "wrong")
        wrong = {tool.name: tool for tool in to.mcp_tools(f"{server.url}/mcp", bearer="TEST_MCP_KEY")}
        for name in ("budget_left", "prices"):
            with pytest.raises(to.ToolError, match="no such key"):
                asyncio.run(wrong[name].run(ToolContext(None, 0)))
