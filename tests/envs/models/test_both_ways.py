"""Replies in one piece and streamed, calls native and as text, over servers that break: what is said, what is billed.

The stand-in server counts a token for four characters, as estimates do. So what it counts and what is billed can be
held against each other to the token, also where a stream broke off and nobody said what it had used.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.envs.models.test_openai import TOOL, asks, backend, run
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply, event
from toolorchestra.envs.base.actions import parse, render_call
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.models import Completion
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import NANO, Tokens, load_sheet
from toolorchestra.envs.money.spend_cap import SpendCap

openai = pytest.importorskip("openai", reason='needs pip install ".[dev]"')
CALLS = 6
SAID = "I add both numbers now, since that was asked for. "
PASSING: dict[str, dict[str, Any]] = {
    "429": {"status": 429, "headers": {"retry-after": "0.05"}},
    "500": {"status": 500},
    "cut": {"fault": "cut"},
    "reset": {"fault": "reset"},
    "error": {"fault": "error"},
    "stall": {"fault": "stall"},
    "reset, counted": {"fault": "reset", "manner": "running usage"},
}
"""What is asked for again. Streamed, half of the reply has come by then of those that have a reply at all."""
HARMLESS: dict[str, dict[str, Any]] = {
    "ok": {},
    "slow body": {"fault": "pieces", "pause": 0.0005},
    "no done": {"manner": "no done"},
    "running usage": {"manner": "running usage"},
    "noisy": {"manner": "noisy"},
    "does not stream": {"manner": "plain"},
}
UNCOUNTED: dict[str, dict[str, Any]] = {
    "no usage": {"usage": False},
    "wrong usage": {"usage": {"prompt_tokens": 10**9, "completion_tokens": 10**9}},
    "too little": {"usage": {"prompt_tokens": 0, "completion_tokens": 0}},
}


class Adder:
    """A server's model that calls `add` with the number that it is told. The first time it is told a number it does so
    with a trouble. It counts what it has to be paid for."""

    def __init__(self, native: bool, trouble: dict[str, Any]) -> None:
        self._native, self._trouble = native, trouble
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.paid: list[Tokens] = []
        """Of whole replies."""
        self.inputs: dict[int, int] = {}
        """By request: its tokens."""

    def __call__(self, asked: ReceivedRequest) -> ServerReply:
        number = asked.text.split()[-1]
        arguments = f'{{"a": {number}, "why": "{"because " * 5}"}}'
        text = "" if self._native else render_call("add", {"a": int(number)})
        calls = ({"name": "add", "arguments": arguments},) if self._native else ()
        characters = len(SAID + text) + (len("add" + arguments) if self._native else 0)
        used = Tokens(len(str(asked.json["messages"])) // 4, 0, -(-characters // 4), 0)
        usage = {"prompt_tokens": used.input, "completion_tokens": used.output}
        good = ServerReply(SAID + text, usage=usage, calls=calls)
        with self._lock:
            self.inputs[asked.number] = used.input
            self._asked[number] += 1
            troubled = replace(good, **self._trouble) if self._asked[number] == 1 else good
            if troubled.status == 200 and troubled.fault in ("", "pieces"):
                self.paid.append(used)
        return troubled


def play(
    server: Loopback, cap: SpendCap, deadline_seconds: float, **served: Any
) -> tuple[list[Completion], list[Bill]]:
    """All calls at once. The same server stands twice in the file, so that a call goes on to it without a pause."""
    models = backend(server, server, endpoint={"failures_to_open": 1000}, deadline_seconds=deadline_seconds, **served)
    sheet = load_sheet("paper-2025-11")
    bills = [Bill(sheet, cap) for _ in range(CALLS)]
    requests = [
        asks(purpose="move", tools=(TOOL,), messages=(Message(role="user", content=f"Add {n}"),), bill=bill)
        for n, bill in enumerate(bills)
    ]
    started = time.monotonic()
    done = run(models, *requests)
    assert time.monotonic() - started < 15
    return done, bills


TROUBLES = {**PASSING, **HARMLESS, **UNCOUNTED}
CASES = [
    *((name, True, True) for name in TROUBLES),
    *((name, False, True) for name in ("reset", "noisy", "no usage")),
    *((name, True, False) for name, trouble in TROUBLES.items() if "manner" not in trouble),
]


@pytest.mark.parametrize(("trouble", "native", "streamed"), CASES)
def test_nothing_of_a_reply_is_lost_billed_twice_or_hung(trouble: str, native: bool, streamed: bool) -> None:
    adder, cap = Adder(native, TROUBLES[trouble]), SpendCap(100)
    with Loopback(adder) as server:
        seconds = 1.0 if trouble == "stall" else 20.0
        done, bills = play(server, cap, seconds, stream=streamed, native_tools=native)
        again = CALLS if trouble in PASSING else 0
        assert len(server.seen) == CALLS + again
        assert {bool(asked.json.get("stream")) for asked in server.seen} == {streamed}
        broken = [Tokens(adder.inputs[one.number], 0, -(-one.characters // 4), 0) for one in server.streamed
                  if not one.whole]  # fmt: skip
    for number, completion in enumerate(done):
        action = parse(completion.text)
        assert [(call.name, call.arguments["a"]) for call in action.calls] == [("add", number)]
        assert action.said == SAID.strip()
    booked = [usage for bill in bills for usage in bill.usages]
    unread = [usage.tokens for usage in booked if usage.unconfirmed]
    estimated = [usage.tokens for usage in booked if usage.estimated and not usage.unconfirmed]
    if trouble in UNCOUNTED:
        # Nobody knows what was thought beside what was said, up to the 4,096 tokens that were allowed.
        assert len(estimated) == len(unread) == len(booked) / 2 == CALLS
        assert {said.output + rest.output for said, rest in zip(estimated, unread, strict=True)} == {4096}
        # As text, what was said is what was written; a native call is written in another way than it is said.
        assert native or sorted(estimated) == sorted(adder.paid)
    else:
        assert sorted(usage.tokens for usage in booked if not usage.estimated) == sorted(adder.paid)
        assert sorted(estimated) == sorted(broken)
        half = streamed and trouble in ("cut", "reset", "error", "stall", "reset, counted")
        assert len(broken) == (CALLS if half else 0)
        assert all(tokens.output > 5 for tokens in broken)
        # What broke off may be paid beyond what had come, up to the 4,096 tokens that were allowed.
        assert len(unread) == (CALLS if half or trouble in ("cut", "reset", "stall") else 0)
        assert [tokens.output for tokens in unread] == ([4096 - broken[0].output] if half else [4096]) * len(unread)
    sheet = load_sheet("paper-2025-11")
    assert round(cap.spent_usd * NANO) == sum(sheet.charge(usage).nano_usd for usage in booked)
    assert cap.held_usd == 0


def test_a_stream_that_drips_for_ever_ends_at_its_deadline_and_is_paid_once_for_each_try() -> None:
    with Loopback(lambda _: ServerReply(fault="drip")) as server:
        request = asks()
        with pytest.raises(Outage, match=r"tried 2 times: end0: no reply within 0\.8 s; end0: no reply within 0\.8 s"):
            run(backend(server, stream=True, deadline_seconds=0.8, retries=1), request)
    assert len(server.seen) == 2
    come, rest = request.bill.usages[::2], request.bill.usages[1::2]
    assert all(1 <= usage.tokens.output <= 8 for usage in come)  # a character in a twentieth of a second
    assert [usage.tokens.output for usage in rest] == [4096 - usage.tokens.output for usage in come]
    assert [usage.unconfirmed for usage in request.bill.usages] == [False, True, False, True]


def text_of_events(*said: Any, end: str = "") -> ServerReply:
    body = "".join(event(one).decode() for one in said) + end
    return ServerReply(body=body, headers={"content-type": "text/event-stream"})


def piece(text: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


@pytest.mark.parametrize(
    ("error", "raised", "says"),
    [
        ({"error": {"message": "overloaded"}}, Outage, r"tried 1 times: end0: 500: in its stre"),
        ({"error": {"message": "too long", "code": "400"}}, ToolError, r"refused the request \(400\)"),
        ({"error": {"message": "no such model", "code": 404}}, ConfigError, r"has no model 'qwen3-32b'"),
    ],
)
def test_an_error_in_a_stream_means_what_a_status_does(error: Any, raised: type[Exception], says: str) -> None:
    request = asks()
    with Loopback(lambda _: text_of_events(piece("so far"), error)) as server, pytest.raises(raised, match=says):
        run(backend(server, stream=True, retries=0), request)
    assert [(usage.tokens.output, usage.unconfirmed) for usage in request.bill.usages] == [(2, False), (4094, True)]


def test_a_whole_reply_is_not_asked_for_again_whatever_its_connection_does_then() -> None:
    """It ends with an error, with half an event, or it stays open; the usage that came before counts."""
    finish = {
        "choices": [{"delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 1},
    }
    for end in ('data: {"error": {"message": "late"}}\n\n', 'data: {"usage": {"pro'):
        with Loopback(lambda _, end=end: text_of_events(piece("42"), finish, end=end)) as server:
            (done,) = run(backend(server, stream=True), asks())
            assert (done.text, done.usage.tokens, len(server.seen)) == ("42", Tokens(20, 0, 1, 0), 1)
            assert not done.usage.estimated


def test_connections_of_streams_are_used_again() -> None:
    with Loopback(lambda _: ServerReply("42", pause=0.01)) as server:
        models = backend(server, stream=True)

        async def one_by_one() -> None:
            for _ in range(5):
                await models.complete(asks())
            await models.aclose()

        asyncio.run(one_by_one())
        assert (len(server.seen), server.connections) == (5, 1)


@pytest.mark.parametrize("manner", ["", "no done", "running usage"])
def test_the_stand_in_s_streams_are_such_as_the_sdk_reads(manner: Any) -> None:
    """So what is tested against them here is the protocol, and not an idea of our own."""
    reply = ServerReply(SAID, calls=({"name": "add", "arguments": '{"a": 20}'},), manner=manner)

    async def read(base_url: str) -> tuple[str, str, Any]:
        async with openai.AsyncOpenAI(api_key="none", base_url=base_url) as client:
            text, arguments, usage = "", "", None
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Add twenty"}], stream=True,
                stream_options={"include_usage": True},
            )  # fmt: skip
            async for chunk in stream:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    text += choice.delta.content or ""
                    for call in choice.delta.tool_calls or ():
                        arguments += call.function.arguments or "" if call.function else ""
            return text, arguments, usage

    with Loopback(lambda _: reply) as server:
        text, arguments, usage = asyncio.run(read(server.base_url))
    assert (text, arguments, usage.prompt_tokens) == (SAID, '{"a": 20}', 2)


def test_thoughts_are_streamed_too() -> None:
    with Loopback(lambda _: ServerReply("Adding.", reasoning="I should add. " * 3)) as server:
        (done,) = run(backend(server, stream=True), asks(purpose="move"))
    assert parse(done.text) == (("I should add. " * 3).strip(), (), "Adding.")


def test_the_file_decides_and_else_the_request() -> None:
    with Loopback(lambda _: ServerReply("42")) as server:
        for said, asked in ((None, True), (None, False), (False, True), (True, False)):
            run(backend(server, **({} if said is None else {"stream": said})), asks(stream=asked))
        off = {"extra": {"stream_options": {}}}
        run(backend(server, stream=True, **off), asks())
    sent = [(asked.json.get("stream"), asked.json.get("stream_options")) for asked in server.seen]
    on = (True, {"include_usage": True})
    assert sent == [on, (None, None), (None, None), on, (True, {})]
