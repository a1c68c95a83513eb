"""A model as a player: the environment's own observation, or the reference's prompt to the letter."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agents.evaluation.played_episodes import evaluate
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.two_texts import raises
from toolorchestra.agents.policies.chat_player import (
    FRAMES_FORM,
    HLE_FORM,
    ChatPolicy,
    form_of,
    last_characters,
)
from toolorchestra.agents.policies.players import playable, player
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.models import ChatRequest, Completion
from toolorchestra.envs.money.prices import ORCHESTRATOR, Tokens, Usage


def material(text: str = "Which?", documents: int = 0, results: tuple[str, ...] = ()) -> Any:
    found = tuple(Passage(f"d{n}", f"Title {n}", "x" * 5000) for n in range(documents))
    return SimpleNamespace(question=SimpleNamespace(text=text), documents=found, results=results)


def prompt(form: Any, of: Any) -> str:
    system, user = form.messages(of, last_characters)
    assert system == {"role": "system", "content": "You are good at using tools."}
    assert user["role"] == "user"
    return str(user["content"])


def test_the_wording_of_both_evaluations() -> None:
    assert prompt(HLE_FORM, material()) == "Problem: Which?\n\n\n\nChoose an appropriate tool.'"
    first = prompt(FRAMES_FORM, material())
    assert first == "Problem: Which?\n\n\npython code and execution outputs:\n\n\nChoose an appropriate tool."
    shown = prompt(HLE_FORM, material(documents=1, results=("42",)))
    document = ("Title 0\n" + "x" * 5000)[:1200]
    assert shown == (
        f"Problem: Which?\n\nDocuments:\nDoc 1: {document} ...\n\n\npython code and execution outputs:\n"
        "```output\n42\n```\n\n\n\nChoose an appropriate tool.'"
    )
    wiki = prompt(FRAMES_FORM, material(documents=1))
    assert f"Documents:\nDoc 1: {('Title 0' + chr(10) + 'x' * 5000)[:4000]}\n\n\npython code" in wiki


def test_what_is_too_long_loses_its_beginning_by_tokens() -> None:
    many = prompt(FRAMES_FORM, material(documents=60))
    context = many.split("\n\n", 1)[1].removeprefix("Documents:\n").removesuffix("\n\nChoose an appropriate tool.")
    assert len(context) == 24_000 * 4
    assert "Doc 60: " in many
    assert "Doc 1: " not in many
    hle = prompt(HLE_FORM, material("q" * 4000, documents=200))
    kept = hle.split("\n\n", 1)[1].removeprefix("Documents:\n").removesuffix("\n\nChoose an appropriate tool.'")
    assert len(kept) == (27_000 - 1000) * 4
    outputs = prompt(HLE_FORM, material(results=("y" * 60_000,), documents=1))
    assert "\npython code and execution outputs:\n```\nyyy" in outputs
    crowded = prompt(HLE_FORM, material("q" * 100_000, results=("y" * 60_000,), documents=1))
    assert "Documents:" not in crowded


def test_search_is_offered_until_there_are_documents_where_the_reference_does_so() -> None:
    tools = factory_of("FRAMES-v0").start(0).observation["tools"]
    names = [[t["function"]["name"] for t in form.offered(of, tools)]
             for form in (HLE_FORM, FRAMES_FORM) for of in (material(), material(documents=1))]  # fmt: skip
    everything = ["search", "enhance_reasoning", "answer"]
    assert names == [everything, everything, everything, everything[1:]]
    assert form_of("frames-sim/test/3") is FRAMES_FORM
    assert form_of("hle/all/3") is HLE_FORM


def test_cutting_by_the_tokens_of_a_tokenizer(tmp_path: Path) -> None:
    from toolorchestra.agents.engines.pretrained import last_tokens
    from toolorchestra.agents.engines.tiny import load_tokenizer
    from toolorchestra.envs.base.errors import ConfigError

    tokenizer = load_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    cut, text = last_tokens(str(tmp_path)), "the quick brown fox jumps over 12345 dogs"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert cut(text, len(ids)) == text
    assert cut(text, 3) == tokenizer.decode(ids[-3:])
    assert cut(text, 0) == cut(text, -5) == ""
    with pytest.raises(ConfigError, match=r"tokenizer '\./nowhere' is not a folder"):
        last_tokens("./nowhere")


class _Scripted:
    """Keeps what it was asked, and always answers with the same call."""

    suspends = False

    def __init__(self) -> None:
        self.asked: list[ChatRequest] = []

    async def complete(self, request: ChatRequest) -> Completion:
        self.asked.append(request)
        call = ("search", "search-3") if len(self.asked) < 3 else ("answer", "answer-3")
        text = render_call(call[0], {"model": call[1]})
        return Completion(text, Usage("qwen3-8b", ORCHESTRATOR, Tokens(10, 0, 2)))


def test_a_model_is_asked_in_the_reference_s_form_turn_by_turn() -> None:
    made, models = factory_of("FRAMES-v0", split="test", preference="none"), _Scripted()
    who = ChatPolicy(models, "qwen3-8b", reference=last_characters, name="chat:reference")
    (got,) = asyncio.run(evaluate(made, who.move, 0, 1))
    assert (got.failure, got.record.turns) == ("", 3)
    first, *later = models.asked
    question = made.start(0).observation["messages"][1]["content"]
    assert first.messages[1]["content"].startswith(f"Problem: {question}\n\n")
    assert all(len(one.messages) == 2 for one in models.asked)
    assert all("Documents:\nDoc 1: " in one.messages[1]["content"] for one in later)
    assert [len(one.tools) for one in models.asked] == [3, 2, 2]


def test_both_prompts_over_an_endpoint(tmp_path: Path) -> None:
    pytest.importorskip("httpcore2", reason='needs pip install ".[models]"')

    def serve(asked: ReceivedRequest) -> ServerReply:
        if "<answer>" in asked.text:
            return ServerReply("<answer>4</answer>")
        return ServerReply(render_call("answer", {"model": "answer-4"}))

    with Loopback(serve) as server:
        (tmp_path / "b.toml").write_text(f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\n')
        made = factory_of("HLE-v0", split="test", backends=str(tmp_path / "b.toml"), preference="none")
        for name in ("chat", "chat:reference"):
            who = player(name, made)
            assert (who.name, who.simulated, playable(name, made)) == (name, False, "")
            assert player("cheap", made).simulated is False
            (got,) = asyncio.run(evaluate(made, who.move, 0, 1))
            assert (got.failure, got.record.turns) == ("", 1)
    texts = [asked.text for asked in server.seen if "<answer>" not in asked.text]
    assert [("You are good at using tools." in text, "Problem: " in text) for text in texts] == [
        (False, False), (True, True)]  # fmt: skip
    refused = playable("chat:reference", factory_of("ToolScale-v0"))
    assert refused.startswith("policy 'chat' asks a model")
    with raises(ConfigError, "in a file, backends=FILE for gym.make$", "--backends FILE; of play, --set backends=FILE"):
        player("chat", factory_of("ToolScale-v0"))
