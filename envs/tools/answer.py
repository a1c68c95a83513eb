"""Answering: `answer(model)` ends the episode with an expert's answer, `ask` asks one and goes on, `submit` ends it."""

from __future__ import annotations

from toolorchestra.envs.base.answer_grading import final_answer
from toolorchestra.envs.models import ChatModel, ChatRequest, limits_of
from toolorchestra.envs.models import ask as ask_model
from toolorchestra.envs.tools import ToolContext, ToolResult
from toolorchestra.envs.tools.question_material import QuestionMaterial, brief

_ANSWER = "Answer the question. Give the final answer alone inside <answer></answer>."
SHOWN_CHARACTERS = 2000


async def answer(context: ToolContext, models: ChatModel, model: str) -> ToolResult:
    """An expert sees everything gathered and gives the final answer."""
    result = await ask(context, models, model, "")
    return result._replace(final=True, note=result.content)


async def ask(context: ToolContext, models: ChatModel, model: str, question: str) -> ToolResult:
    """An expert sees everything gathered and answers; the agent decides what to do with it."""
    material: QuestionMaterial = context.world
    messages = brief(material, _ANSWER, question, limits_of(models, model))
    request = ChatRequest(model, "answer", messages, context.seed, context.turn, material.question, bill=context.bill)
    completion = await ask_model(models, request)
    return ToolResult(final_answer(completion.text)[:SHOWN_CHARACTERS])


def submit(context: ToolContext, answer: str) -> ToolResult:
    """The agent's own final answer."""
    del context
    return ToolResult(answer, final=True, note=answer)
