"""The stand-in for real models: its luck is its own, follows from what it was asked, and can be told again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.support.stand_in import EXPERTS, StandIn, questions, recorded, truth
from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.base.types import Message, Question
from toolorchestra.envs.domains.questions.datasets import family_of
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.models.openai import OpenAiModels

ASKED = questions(12)
MODELS = tuple(EXPERTS.values())


def replies(asked: Sequence[tuple[Question, str]]) -> list[tuple[str, int]]:
    """What a fresh server says to these questions, one after another, and with how many tokens."""

    async def ask(base_url: str) -> list[tuple[str, int]]:
        rows = {"endpoints": {"stand-in": {"base_url": base_url}}, "models": {"*": {"output_tokens": 30_000}}}
        models = OpenAiModels(Endpoints.read(rows, "here"))
        made = []
        for question, model in asked:
            shown = (Message(role="user", content=f"Question: {question.text}"),)
            reply = await models.complete(ChatRequest(model, "answer", shown, 0, 0, question))
            tokens = reply.usage.tokens
            made.append((reply.text, tokens.output + tokens.reasoning))
        await models.aclose()
        return made

    with StandIn(asked=ASKED) as server:
        return asyncio.run(ask(server.base_url))


def test_the_order_of_requests_changes_nothing() -> None:
    asked = [(question, model) for question in ASKED[:3] for model in MODELS[1:]] * 2
    there, back = replies(asked), replies(asked[::-1])
    assert sorted(there) == sorted(back)
    assert there[:6] != there[6:]  # asked again it has other luck


def test_other_questions_are_refused() -> None:
    (other,) = [one for one in questions(13) if one not in ASKED][:1]
    with pytest.raises(ToolError, match="knows its own questions alone"):
        replies([(other, MODELS[0])])


def test_questions_are_played_as_the_family_that_their_skills_are_of() -> None:
    assert {one.subject for one in questions(60)} == {"math", "code", "logic"}
    assert all(family_of(one.subject) == one.family for one in ASKED)
    assert len({one.text for one in questions(300)}) == 300


def test_a_recording_follows_from_its_seed() -> None:
    first, again, other = (recorded(10, 2, seed) for seed in (1, 1, 2))
    assert first.success.tolist() == again.success.tolist()
    assert first.texts == again.texts
    assert first.measures["output"].tolist() != other.measures["output"].tolist()
    assert set(first.models) == set(truth()["models"])
