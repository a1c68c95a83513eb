"""Tools of MCP servers: real ones of the official SDK, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import toolorchestra as to
from tests.paths import REPOSITORY
from toolorchestra.envs.base.cassette import Cassette
from toolorchestra.envs.base.errors import Outage, ToolError
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import NANO, load_sheet
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.tools import ToolContext, ToolResult
from toolorchestra.envs.tools.cassette_backends import Tape
from toolorchestra.envs.tools.mcp_servers import _RecordedListing

COMMAND = f"{sys.executable} -m tests.support.mcp_server"
HERE = {"PYTHONPATH": str(REPOSITORY)}
SHEET: dict[str, Any] = {
    "id": "mcp", "date": "2026-11-27", "source": "a test",
    "prices": {"qwen3-8b": {"usd_per_mtok": {"input": 0.1, "output": 0.1}}, "notes": {"usd_per_unit": 0.002}},
}  # fmt: skip


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = subprocess.Popen([*COMMAND.split(), str(port)], env={**os.environ, **HERE}, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as there:
                if not there.connect_ex(("127.0.0.1", port)):
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        started.kill()
        started.wait()


def tools(mcp: str = COMMAND, **settings: Any) -> dict[str, to.Tool]:
    return {tool.name: tool for tool in to.mcp_tools(mcp, environment=HERE, **settings)}


async def ended(*episodes: ToolContext) -> None:
    """End them, and wait until the servers that they started are gone: one that is left would break a later test."""
    for context in episodes:
        context.end()
    async with asyncio.timeout(20):
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.01)


def call(tool: to.Tool, context: ToolContext | None = None, **arguments: Any) -> ToolResult:
    """Call it on a loop that ends with the call, and its session with the episode."""

    async def one() -> ToolResult:
        found = context or ToolContext(None, 0)
        try:
            result: ToolResult = await tool.run(found, **arguments)
            return result
        finally:
            await ended(found)

    return asyncio.run(one())


def test_a_server_becomes_tools_with_their_schemas() -> None:
    found = tools()
    assert {*found} == {"write", "read", "convert", "refuse", "complain", "show", "sleep", "die", "tell"}
    assert found["convert"].description == "Convert a temperature."
    with pytest.raises(ToolError, match="F, K"):
        to.Toolbox([found["convert"]]).check(to.ToolCall("convert", {"celsius": 1.0, "to": "C"}))
    assert call(found["convert"], celsius=100.0).content == "212.0"
    assert {*tools(only=["read"], prefix="pad_")} == {"pad_read"}
    with pytest.raises(to.ConfigError, match="Did you mean 'read'"):
        tools(only=["reed"])


def test_over_http_too(address: str) -> None:
    assert call(tools(address)["convert"], celsius=0.0, to="K").content == "273.15"


def test_each_episode_has_a_session_of_its_own() -> None:
    found = tools()

    async def both() -> list[str]:
        one, other = ToolContext(None, 1), ToolContext(None, 2)
        await asyncio.gather(found["write"].run(one, text="mine"), found["write"].run(other, text="yours"))
        said = [(await found["read"].run(context)).content for context in (one, other)]
        await ended(one, other)
        return said

    assert asyncio.run(both()) == ["mine", "yours"]


def test_what_a_server_shows_is_read_in_whatever_form_it_comes(address: str) -> None:
    show = tools(address)["show"]
    forms = ["text", "document", "bytes", "link", "picture"]
    read = call(show, forms=forms).content.split("\n")
    assert read == ["as text", "of a document", "[resource note:2]", "[resource_link note:3]", "[image]"]
    assert call(show, forms=["picture"]).content == '[image]\n{"größe": 42}'
    assert call(show, forms=[]).content == '{"größe": 42}'


def test_what_the_server_calls_an_error_is_told_to_the_agent(address: str) -> None:
    with pytest.raises(ToolError, match="not today"):
        call(tools(address)["refuse"])


@pytest.mark.parametrize("code", [-32603, -32600, 7])
def test_an_error_that_the_server_tells_by_the_protocol_is_told_to_the_agent_too(code: int) -> None:
    with pytest.raises(ToolError, match="unbalanced parenthesis"):
        call(tools()["complain"], code=code)


def test_over_http_an_internal_error_may_be_a_gateways(address: str) -> None:
    with pytest.raises(Outage, match="unbalanced parenthesis"):
        call(tools(address)["complain"], code=-32603)
    with pytest.raises(ToolError, match="unbalanced parenthesis"):
        call(tools(address)["complain"], code=7)


def test_a_server_that_dies_is_an_outage() -> None:
    with pytest.raises(Outage, match=r"broke off|did not answer"):
        call(tools(call_seconds=0.5)["die"])


def test_what_a_command_said_before_it_ended_is_told() -> None:
    broken = f"{sys.executable} -c 'import sys; sys.exit(\"no such calendar\")'"
    with pytest.raises(to.ConfigError, match=r"cannot be asked .*, and it said 'no such calendar'; start it, or mend"):
        to.mcp_tools(broken)


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(to.ConfigError, match=r"cannot be asked for its tools.*start it"):
        tools("http://127.0.0.1:9/mcp", connect_seconds=5)
    with pytest.raises(to.ConfigError, match="cannot be asked for its tools"):
        tools("no-such-command --at-all")
    with pytest.raises(to.ConfigError, match=r"no handshake in 0\.5 s"):
        tools("sleep 60", connect_seconds=0.5)


def test_calls_are_billed_also_those_that_fail(address: str) -> None:
    found = tools(address, bills="notes", call_seconds=0.3)
    sheet = load_sheet(SHEET)
    context = ToolContext(None, 0, Bill(sheet))
    call(found["write"], context, text="a")
    with pytest.raises(Outage, match=r"did not answer in 0\.3 s"):
        call(found["sleep"], context, seconds=9.0)
    assert [sheet.charge(usage).nano_usd for usage in context.bill.usages] == [2 * NANO // 1000] * 2


def test_recorded_and_replayed_without_a_server(tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    live = tools(bills="notes", cassette=Cassette(tape, "record"))

    def played(found: Mapping[str, to.Tool]) -> list[Any]:
        context = ToolContext(None, 0, Bill())

        async def both() -> list[Any]:
            said = [await found["write"].run(context, text=str(number)) for number in range(2)]
            await ended(context)
            return said

        return [*asyncio.run(both()), [usage._replace(seconds=0.0) for usage in context.bill.usages]]

    first = played(live)
    again = played(
        {tool.name: tool for tool in to.mcp_tools(COMMAND, bills="notes", cassette=Cassette(tape, "replay"))}
    )
    assert [one.content for one in first[:2]] == ["1 notes", "2 notes"]
    assert first == again
    assert not any("PYTHONPATH" in line for line in tape.read_text().splitlines())


def test_what_the_server_says_has_no_key_of_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-canary-0123456789")
    tape, keyed = tmp_path / "tape.jsonl", {**HERE, "KEY": "$MY_KEY"}
    made = to.mcp_tools(COMMAND, environment=keyed, only=["tell"], cassette=Cassette(tape, "record"))
    assert call(made[0], failing=False).content == "the key is [key]"
    with pytest.raises(ToolError, match=r"bad key \[key\]"):
        call(made[0], failing=True)
    assert "canary" not in tape.read_text()


def test_a_login_in_an_address_is_shown_nowhere(address: str, tmp_path: Path) -> None:
    with pytest.raises(to.ConfigError, match=r"http://127\.0\.0\.1:9/mcp") as refused:
        to.mcp_tools("http://me:hunter2@127.0.0.1:9/mcp", connect_seconds=5)
    tape, known = tmp_path / "tape.jsonl", address.replace("http://", "http://me:hunter2@")
    with pytest.raises(to.ConfigError, match="Did you mean 'read'") as misspelt:
        to.mcp_tools(known, only=["reed"], cassette=Cassette(tape, "record"))
    assert not any("hunter2" in text for text in (str(refused.value), str(misspelt.value), tape.read_text()))
    assert {tool.name for tool in to.mcp_tools(known, cassette=Cassette(tape, "replay"))} == {*tools(address)}


def test_a_recording_with_a_login_in_its_name_replays(tmp_path: Path) -> None:
    known, listed = "http://me:hunter2@127.0.0.1:9/mcp", {"name": "read", "description": "", "schema": {}}
    Tape(f"mcp {known}", Cassette(tmp_path / "tape.jsonl", "record")).about(_RecordedListing, {"tools": [listed]})
    assert {*tools(known, cassette=Cassette(tmp_path / "tape.jsonl", "replay"))} == {"read"}


def test_a_cache_keeps_no_call_of_a_server_that_has_state(tmp_path: Path) -> None:
    write, context = tools(cassette=Cassette(tmp_path / "tape.jsonl", "cache"))["write"], ToolContext(None, 0)

    async def twice() -> list[str]:
        said = [(await write.run(context, text="same")).content for _ in range(2)]
        await ended(context)
        return said

    assert asyncio.run(twice()) == ["1 notes", "2 notes"]


def test_an_interrupt_while_a_server_starts_is_one() -> None:
    silent = f"{sys.executable} -c 'import sys; sys.stdin.read()'"
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        to.mcp_tools(silent, connect_seconds=25)
    assert time.monotonic() - began < 20


def test_a_tool_configuration_names_a_server(tmp_path: Path) -> None:
    config = {
        "name": "with notes",
        "tools": [
            {"kind": "mcp", "name": "notes", "mcp": {"mcp": COMMAND, "environment": HERE, "only": ["convert"]}},
            {"kind": "submit", "name": "submit"},
        ],
    }
    (tmp_path / "tools.json").write_text(json.dumps(config))
    env: Any = to.make("HLE-v0", tools=str(tmp_path / "tools.json"))
    env.reset(seed=random.randrange(100))
    observation, *_ = env.step(to.render_call("convert", {"celsius": 10.0}))
    assert observation["messages"][-1]["content"] == "50.0"
    assert env.unwrapped.episode.world.results == ("50.0",)
    env.close()


def test_calls_that_cost_keep_to_a_cap_side_by_side() -> None:
    sheet = load_sheet(SHEET)
    cap = SpendCap(0.005)
    found = tools(bills="notes")

    async def together() -> list[Any]:
        contexts = [ToolContext(None, random.Random(n), Bill(sheet, cap)) for n in range(6)]
        made = [found["convert"].run(context, celsius=1.0, to="K") for context in contexts]
        ends = await asyncio.gather(*made, return_exceptions=True)  # type: ignore[arg-type]
        for context in contexts:
            context.end()
        await asyncio.sleep(0.05)
        return ends

    ends = asyncio.run(together())
    assert sum(isinstance(end, ToolResult) for end in ends) == 2
    assert sum(isinstance(end, ToolError) and "nothing was sent" in str(end) for end in ends) == 4
    assert cap.spent_usd == 0.004
