"""Other people's clients of the server: LangChain and LiteLLM, in an environment of their own (`make test-clients`)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.paths import REPOSITORY
from tests.support.served import ServedPolicies, running

chat_openai = pytest.importorskip("langchain_openai", reason="LangChain is not installed: make test-clients")
litellm = pytest.importorskip("litellm", reason="LiteLLM is not installed: make test-clients")
import toolorchestra as to  # noqa: E402
from toolorchestra.envs.tools import ToolContext  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
QUESTION = list(to.make("HLE-v0").unwrapped.factory.source.askable)[2]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedPolicies]:
    with running(tmp_path_factory.mktemp("served"), "cascade", "random") as made:
        yield made


def test_langchain_answers_and_streams(server: ServedPolicies) -> None:
    chat = chat_openai.ChatOpenAI(base_url=f"{server.url}/v1", api_key="none", model="cascade", temperature=0)
    answer = chat.invoke(QUESTION, extra_body={"budget_usd": 0.5})
    assert answer.content == "325"
    assert answer.response_metadata["token_usage"]["cost"] > 0
    assert "".join(str(piece.content) for piece in chat.stream(QUESTION)) == "325"


def test_langchain_runs_its_own_tool(server: ServedPolicies) -> None:
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    for seed in range(40):
        chat = chat_openai.ChatOpenAI(
            base_url=f"{server.url}/v1", api_key="none", model="random", extra_body={"seed": seed}
        ).bind_tools([add])
        said: Any = chat.invoke(QUESTION)
        if said.tool_calls:
            break
    from langchain_core.messages import HumanMessage, ToolMessage

    results = [ToolMessage(str(add(**call["args"])), tool_call_id=call["id"]) for call in said.tool_calls]
    again = chat.invoke([HumanMessage(QUESTION), said, *results])
    assert again.content or again.tool_calls


def test_litellm_as_a_client(server: ServedPolicies) -> None:
    def ask(**more: Any) -> Any:
        return litellm.completion(
            model="openai/cascade",
            api_base=f"{server.url}/v1",
            api_key="none",
            messages=[{"role": "user", "content": QUESTION}],
            **more,
        )

    answer = ask(extra_body={"budget_usd": 0.5})
    assert answer.choices[0].message.content == "325"
    pieces = [piece.choices[0].delta.content or "" for piece in ask(stream=True) if piece.choices]
    assert "".join(pieces) == "325"


@pytest.mark.parametrize(
    ("program", "name", "arguments", "says"),
    [
        (
            "mcp-server-time",
            "convert_time",
            {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            "T21:00",
        ),
        ("mcp-server-git", "git_status", {"repo_path": str(REPOSITORY)}, "Repository status"),
    ],
)
def test_reference_servers_of_mcp(program: str, name: str, arguments: dict[str, str], says: str) -> None:
    if not (Path(sys.executable).parent / program).is_file():
        pytest.skip(f"{program} is not installed: make test-clients")
    found = {tool.name: tool for tool in to.mcp_tools(str(Path(sys.executable).parent / program))}

    async def call() -> str:
        context = ToolContext(None, 0)
        said = (await found[name].run(context, **arguments)).content
        context.end()
        await asyncio.sleep(0.1)
        return str(said)

    assert says in asyncio.run(call())
