"""Tools of MCP servers, by the official SDK: a command (stdio) or an address (streamable HTTP) becomes tools.

    to.mcp_tools("uvx mcp-server-time")
    to.mcp_tools("https://tools.example/mcp", bills="lookup", only=["search"])

Each episode has a session of its own, so no state leaks from one to another. Where the server cannot be reached, breaks
off or is silent, that is an outage: no agent caused it. What the server itself calls an error is told to the agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from tempfile import TemporaryFile
from typing import Any, NamedTuple, TextIO

from toolorchestra.envs.base.cassette import Cassette
from toolorchestra.envs.base.errors import (
    POSITIVE,
    ConfigError,
    Outage,
    SpendCapReached,
    ToolError,
    install,
    no_such,
    one_line,
    require,
)
from toolorchestra.envs.base.secrets import Address, Secrets
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import TOOL, Usage
from toolorchestra.envs.money.spend_cap import Hold
from toolorchestra.envs.tools import Tool, ToolContext, ToolResult
from toolorchestra.envs.tools.cassette_backends import RecordedReply, Tape, TapedRequest

HTTP = ("http://", "https://")
TOLD_CHARACTERS = 300
RESULT_CHARACTERS = 20_000
SLACK_SECONDS = 5.0
_EPISODE = "toolorchestra/episode"
"""Name of the episode's session in the meta data of each call."""


@dataclass(frozen=True)
class McpServer:
    """An MCP server, and how its tools are called."""

    mcp: str
    """A command line, or the address of a served one."""
    bills: str = ""
    """The price sheet's item of which each call uses one unit; "": calls are free."""
    only: tuple[str, ...] = ()
    """The tools to keep; none: all."""
    prefix: str = ""
    """Letters before each tool's name, where two servers have one name."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of the command's environment. A value $NAME is taken from this process's, and is kept out of what
    the server says."""
    bearer: str = field(default="", repr=False)
    """The variable of this process's environment that holds the key of an address."""
    connect_seconds: float = 30.0
    """Time for starting the command, and the handshake."""
    call_seconds: float = 60.0
    in_flight: int = 16
    """Calls at once; others wait for a place, which is no part of call_seconds."""

    def __post_init__(self) -> None:
        require(self, POSITIVE, "connect_seconds", "call_seconds", "in_flight")
        if not isinstance(self.mcp, str) or not self.mcp.strip():
            raise ConfigError(
                f"mcp is a command line or an address, such as 'uvx mcp-server-time', got {self.mcp!r:.60}"
            )


class Listed(NamedTuple):
    """A tool as a server lists it."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True)
class _RecordedListing:
    tools: tuple[Listed, ...]


@dataclass(frozen=True)
class _RecordedResult(RecordedReply):
    text: str = ""
    seconds: float = 0.0


def mcp_tools(mcp: str, *, cassette: Cassette | None = None, **settings: Any) -> list[Tool]:
    """The tools of an MCP server, for a Toolbox. `settings` are those of McpServer."""
    if isinstance(settings.get("only"), list):
        settings["only"] = tuple(settings["only"])
    return tools_of(McpServer(mcp, **settings), cassette)


def tools_of(server: McpServer, cassette: Cassette | None = None) -> list[Tool]:
    """The server's tools. It is asked for them once in a process; of a replay the cassette is asked."""
    if cassette is not None and cassette.mode == "cache":
        cassette = None  # the same call may change the server's state, and be answered otherwise
    listed = _listed(server, cassette)
    if unknown := [name for name in server.only if name not in [one.name for one in listed]]:
        raise ConfigError(no_such(f"tool of {_shown(server)}", unknown[0], [one.name for one in listed]))
    live = None if cassette is not None and cassette.mode == "replay" else _Connections(server)
    return [_tool(server, one, live, cassette) for one in listed if not server.only or one.name in server.only]


def _tool(server: McpServer, listed: Listed, live: _Connections | None, cassette: Cassette | None) -> Tool:
    """One of them. Where there is a cassette, it is recorded on, or replayed from there."""
    tape = _tape(server, cassette) if cassette is not None else None

    async def call(context: ToolContext, arguments: Mapping[str, Any], bill: Bill) -> _RecordedResult:
        assert live is not None
        connection = await live.connected(context)
        hold, began, unread = await _held(server, bill), time.monotonic(), True
        try:
            text = await connection.call(listed.name, arguments, context.session)
            unread = False
        except ToolError:  # it has answered
            unread = False
            raise
        finally:
            seconds = round(time.monotonic() - began, 3)
            if server.bills:
                bill.add(Usage(server.bills, TOOL, units=1, seconds=seconds, unconfirmed=unread))
            if hold is not None:
                hold.release()
        return _RecordedResult(text=text, seconds=seconds)

    async def run(context: ToolContext, /, **arguments: Any) -> ToolResult:
        if tape is None:
            reply = await call(context, arguments, context.bill)
        else:
            bill = context.bill.part()
            request = {"tool": listed.name, "arguments": dict(arguments)}
            taped = TapedRequest(request, varies=True)
            reply, _ = await tape.play(_RecordedResult, taped, lambda: call(context, arguments, bill), bill)
        return ToolResult(reply.text, seconds=reply.seconds)

    return Tool(
        f"{server.prefix}{listed.name}",
        listed.description or listed.name,
        listed.schema,
        run,
        bills=(server.bills,) if server.bills else (),
        deadline_seconds=server.connect_seconds + server.call_seconds + SLACK_SECONDS,
        backend=f"mcp:{server.mcp}",
        max_in_flight=server.in_flight,
        kind="mcp",
    )


async def _held(server: McpServer, bill: Bill) -> Hold | None:
    """Set aside what a call costs, where it costs anything."""
    try:
        return await bill.hold_for(Usage(server.bills, TOOL, units=1, unconfirmed=True)) if server.bills else None
    except SpendCapReached as err:
        raise ToolError(f"{err}; nothing was sent") from None


# -- connections -------------------------------------------------------------------------------------------------------


class _Connections:
    """The open connections of one server, one for each episode that has called it."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._open: dict[str, _Connection] = {}
        self._lock = threading.Lock()

    async def connected(self, context: ToolContext) -> _Connection:
        """The connection of the episode's session. Raises Outage where there is none."""
        with self._lock:
            connection = self._open.get(context.session)
            if connection is None:
                connection = self._open[context.session] = _Connection(self._server, asyncio.get_running_loop())
                context.at_end(self._end)
        await connection.ready()
        return connection

    def _end(self, session: str) -> None:
        """End an episode's session, from whatever thread."""
        with self._lock:
            ended = self._open.pop(session, None)
        if ended is not None:
            ended.end()


class _Connection:
    """One connection. Its own task opens and closes it, as the SDK's task groups want it."""

    def __init__(self, server: McpServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server, self._loop, self._secrets = server, loop, _secrets(server)
        self._ready: asyncio.Future[Any] = loop.create_future()
        self._over = asyncio.Event()
        self.broken = False
        self._task = loop.create_task(self._hold())

    async def _hold(self) -> None:
        try:
            async with asyncio.timeout(self._server.connect_seconds) as connecting, _client(self._server) as client:
                connecting.reschedule(None)
                self._ready.set_result(client)
                await self._over.wait()
        except BaseException as err:
            self.broken = True
            if not self._ready.done():
                self._ready.set_exception(_outage(self._server, err, "cannot be reached"))
                self._ready.exception()  # it may be that nobody waits any more
            if isinstance(err, asyncio.CancelledError):
                raise

    async def ready(self) -> Any:
        """The client, when the handshake is done. Raises Outage where it failed, or the connection broke since."""
        client = await asyncio.shield(self._ready)
        if self.broken:
            raise Outage(f"the MCP server {_shown(self._server)} has broken off, with the episode's state")
        return client

    async def call(self, name: str, arguments: Mapping[str, Any], episode: str) -> str:
        """Call a tool. Raises ToolError for what the server calls an error, and Outage."""
        client = await self.ready()
        try:
            async with asyncio.timeout(self._server.call_seconds):
                result = await client.call_tool(name, dict(arguments), meta={_EPISODE: episode})
        except TimeoutError:
            late = f"did not answer in {self._server.call_seconds:g} s"
            raise Outage(f"{name} of {_shown(self._server)} {late}") from None
        except Exception as err:  # noqa: BLE001 - the SDK raises what its transports raise
            if _said_by_the_server(err, by_http=self._server.mcp.startswith(HTTP)):
                raise ToolError(self._secrets.scrubbed(str(err))[:RESULT_CHARACTERS]) from None
            self.broken = True
            raise _outage(self._server, err, "broke off") from None
        text = self._secrets.scrubbed(_read(result))
        if result.is_error:
            raise ToolError(text[:RESULT_CHARACTERS] or f"{name} failed")
        return text[:RESULT_CHARACTERS]

    def end(self) -> None:
        """Close the connection, on its own loop."""
        try:
            self._loop.call_soon_threadsafe(self._over.set)
        except RuntimeError:  # its loop is closed, and the connection with it
            return


def _read(result: Any) -> str:
    """What of a result the agent reads: its texts, also those of documents, and names of what has none. The structured
    result says the same again, so it is read where there is no text."""
    said, has_text = [], False
    for part in result.content:
        held = getattr(part, "resource", part)
        text = getattr(held, "text", None)
        has_text = has_text or text is not None
        name = f"{part.type} {held.uri}" if hasattr(held, "uri") else part.type
        said.append(f"[{name}]" if text is None else text)
    if result.structured_content is not None and not has_text:
        said.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(said)


def _said_by_the_server(err: Exception, *, by_http: bool) -> bool:
    """Whether it is an error that the server itself told, and no break of the connection. Over HTTP the SDK names a
    reply of another kind, such as a gateway's 502, by the codes of JSON-RPC, so those do not count there."""
    from mcp import MCPError
    from mcp.types import CONNECTION_CLOSED, INVALID_PARAMS, PARSE_ERROR, REQUEST_TIMEOUT

    if not isinstance(err, MCPError) or err.error.code in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
        return False
    return err.error.code == INVALID_PARAMS or not (by_http and PARSE_ERROR <= err.error.code <= -32600)


def _outage(server: McpServer, err: BaseException, what: str) -> Outage:
    inner: BaseException = err
    while isinstance(inner, BaseExceptionGroup):  # task groups wrap what went wrong
        inner = inner.exceptions[0]
    said = f"no handshake in {server.connect_seconds:g} s" if isinstance(inner, TimeoutError) else str(inner)
    told = one_line(_secrets(server).scrubbed(f"{type(inner).__name__}: {said}"))[:TOLD_CHARACTERS]
    return Outage(f"the MCP server {_shown(server)} {what}: {told}")


def _shown(server: McpServer) -> str:
    return repr(_secrets(server).scrubbed(_without_login(server)))


def _without_login(server: McpServer) -> str:
    return Address.of(server.mcp).url if server.mcp.startswith(HTTP) else server.mcp


def _secrets(server: McpServer) -> Secrets:
    taken = [name[1:] for name in server.environment.values() if name.startswith("$")]
    login = Address.of(server.mcp).login if server.mcp.startswith(HTTP) else ""
    return Secrets(login, *(os.environ.get(name, "") for name in (*taken, server.bearer)))


def _client(server: McpServer, heard: TextIO | None = None) -> Any:
    """The SDK's client, not connected yet. What a command says beside the protocol goes to `heard`, or nowhere."""
    try:
        import mcp
        from mcp.client.stdio import stdio_client
    except ModuleNotFoundError:
        raise ConfigError(f"tools of MCP servers need the SDK: {install('mcp')}") from None
    if server.mcp.startswith(HTTP):
        if not server.bearer:
            return mcp.Client(server.mcp)
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        key = os.environ.get(server.bearer, "")
        if not key:
            raise ConfigError(f"{_shown(server)}: the environment has no {server.bearer}, which holds its key")
        client = create_mcp_http_client(headers={"Authorization": f"Bearer {key}"})
        return mcp.Client(streamable_http_client(server.mcp, http_client=client))
    command, *arguments = shlex.split(server.mcp)
    given = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    for name, value in server.environment.items():
        given[name] = os.environ.get(value[1:], "") if value.startswith("$") else value
    started = mcp.StdioServerParameters(command=command, args=arguments, env=given)
    return mcp.Client(stdio_client(started, heard or _unheard()))


@cache
def _unheard() -> TextIO:
    """A file for what servers say beside the protocol."""
    return open(os.devnull, "w", encoding="utf-8")


# -- what there is to call ---------------------------------------------------------------------------------------------

_asked: dict[Any, Sequence[Listed]] = {}


def _tape(server: McpServer, cassette: Cassette) -> Tape:
    """The server's tape, without a login in its name; earlier recordings have it there."""
    tape = Tape(f"mcp {_without_login(server)}", cassette, suspends=True)
    if cassette.mode == "replay" and not tape.knows_about:
        return Tape(f"mcp {server.mcp}", cassette, suspends=True)
    return tape


def _listed(server: McpServer, cassette: Cassette | None) -> Sequence[Listed]:
    tape = _tape(server, cassette) if cassette is not None else None
    if tape is not None and tape.cassette.mode == "replay":
        return tape.about(_RecordedListing, None).tools
    key = (server.mcp, server.bearer, tuple(sorted(server.environment.items())))
    found = _asked.get(key)
    if found is None:
        found = _asked[key] = _ask(server)
    if tape is not None:
        tape.about(_RecordedListing, {"tools": [one._asdict() for one in found]})
    return found


def _ask(server: McpServer) -> list[Listed]:
    """Ask it, on a loop of its own: tools are listed before there is any. Raises ConfigError."""

    running: list[asyncio.Task[Any]] = []

    async def ask(heard: TextIO) -> list[Any]:
        running.extend(asyncio.all_tasks())
        async with asyncio.timeout(server.connect_seconds), _client(server, heard) as client:
            page = await client.list_tools()
            made = [*page.tools]
            while page.next_cursor:
                page = await client.list_tools(cursor=page.next_cursor)
                made += page.tools
            return made

    with TemporaryFile("w+", encoding="utf-8", errors="replace") as heard:
        try:
            with ThreadPoolExecutor(1) as pool:  # this thread may run a loop already
                asked = pool.submit(lambda: asyncio.run(ask(heard)))
                try:
                    made = asked.result()
                except (KeyboardInterrupt, SystemExit):  # or the pool would wait for the server
                    for task in running:
                        task.get_loop().call_soon_threadsafe(task.cancel)
                    raise
        except (ConfigError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as err:  # noqa: BLE001 - the SDK raises what its transports raise
            heard.seek(0)
            said = [line for line in heard.read().splitlines() if line.strip()][-1:]
            last = f", and it said {_secrets(server).scrubbed(said[0])[:TOLD_CHARACTERS]!r}" if said else ""
            outage = _outage(server, err, "cannot be asked for its tools")
            raise ConfigError(f"{outage}{last}; start it, or mend `mcp`") from None
    return [Listed(one.name, one.description or "", one.input_schema) for one in made]
