"""An MCP server by the official SDK, to be started: a note pad that keeps state, and tools that misbehave.

`python -m tests.support.mcp_server` speaks over stdio, `... PORT` over streamable HTTP.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Literal

from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

server = MCPServer("notes")
NOTES: list[str] = []


@server.tool()
def write(text: str) -> str:
    """Write a note."""
    NOTES.append(text)
    return f"{len(NOTES)} notes"


@server.tool()
def read() -> str:
    """Read all notes."""
    return "; ".join(NOTES)


@server.tool()
def convert(celsius: float, to: Literal["F", "K"] = "F") -> float:
    """Convert a temperature."""
    return celsius * 9 / 5 + 32 if to == "F" else celsius + 273.15


@server.tool()
def refuse() -> str:
    """Fail as a tool does."""
    raise ToolError("not today")


@server.tool()
def complain(code: int) -> str:
    """Fail as a server does, by a code of the protocol."""
    raise MCPError(code, "the query has an unbalanced parenthesis")


@server.tool()
def tell(*, failing: bool) -> str:
    """Tell the key that the server was given, or fail with it."""
    if failing:
        raise MCPError(7, f"bad key {os.environ['KEY']}")
    return f"the key is {os.environ['KEY']}"


SHOWN = {
    "text": TextContent(text="as text"),
    "document": EmbeddedResource(resource=TextResourceContents(uri="note:1", text="of a document")),
    "bytes": EmbeddedResource(resource=BlobResourceContents(uri="note:2", blob="AAAA")),
    "link": ResourceLink(name="third", uri="note:3"),
    "picture": ImageContent(data="AAAA", mime_type="image/png"),
}


@server.tool()
def show(forms: list[Literal["text", "document", "bytes", "link", "picture"]]) -> CallToolResult:
    """Show a note in each of these forms, with a structured result beside them."""
    return CallToolResult(content=[SHOWN[form] for form in forms], structured_content={"größe": 42})


@server.tool()
async def sleep(seconds: float) -> str:
    """Answer late."""
    await asyncio.sleep(seconds)
    return "awake"


@server.tool()
def die() -> str:
    """End the server."""
    os._exit(3)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
