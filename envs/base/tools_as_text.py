"""Tools and their results as plain text, for servers and chat templates that have no form of their own for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.base.actions import CLOSE, OPEN

_HERMES = """# Tools

You may call tools, several in one turn if they do not need each other's results. These are the tools, one JSON schema \
a line:
<tools>
{tools}
</tools>

Write each call as one JSON object with the tool's name and its arguments, inside {open} tags:
{open}
{{"name": "TOOL", "arguments": {{"ARGUMENT": "VALUE"}}}}
{close}
Each result comes back inside <tool_response> tags."""
_TOOLS = 'You may call tools. To call one write {open}{{"name": ..., "arguments": {{...}}}}{close}. The tools:\n{tools}'


def tools_as_text(tools: Sequence[Mapping[str, Any]]) -> str:
    """How a tool is called, and the schemas, one a line; "" where there are none. They hold no marks: see marks.py."""
    if not tools:
        return ""
    listed = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    return _TOOLS.format(open=OPEN, close=CLOSE, tools=listed)


def hermes_prompt(tools: Sequence[Mapping[str, Any]]) -> str:
    """A system text as Hermes and Qwen models know it: the tools' schemas and the grammar of calls; "" without tools.

    `tools_as_text` says the same in fewer tokens. `tools` is what an observation has, or any list of OpenAI's schemas.
    """
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return _HERMES.format(open=OPEN, close=CLOSE, tools=listed) if listed else ""


def result_as_text(content: str) -> str:
    """A tool's result for a user's message. The content holds no marks, so only this ends it."""
    return f"<tool_response>\n{content}\n</tool_response>"
