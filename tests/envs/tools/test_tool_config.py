"""Owns the checks of tool configurations and of the toolboxes made of them: the price said is the price billed."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from toolorchestra.envs.base.errors import ConfigError, PriceError, ToolError
from toolorchestra.envs.base.types import Answer, Passage, Question, ToolCall
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.models import ScriptedModel
from toolorchestra.envs.money.prices import PriceSheet, brief_offer, load_sheet
from toolorchestra.envs.retrieval.bm25 import Bm25
from toolorchestra.envs.sandbox.arithmetic import ArithmeticInterpreter
from toolorchestra.envs.tools import Toolbox, ToolContext, ToolResult
from toolorchestra.envs.tools.assemble import Backends, assemble
from toolorchestra.envs.tools.search import SearchSettings
from toolorchestra.envs.tools.tool_config import ENDING, FACTORS, ToolConfig, load, sample, sample_prices

PAPER, PLAIN = load("paper"), load("plain")
SHEET = load_sheet("paper-2025-11")
QUESTION = Question("Subject: rivers.\nHow long is the Alba?", Answer("7"), "rivers", "knowledge", 1.0)
PASSAGES = (Passage("1", "Alba", "The river Alba is seven long."), Passage("2", "Brea", "The river Brea is nine long."))
REPLY = "<query>river Alba</query>\n```python\nprint(3 + 4)\n```\n<answer>7</answer>"
CALLS: Mapping[str, Mapping[str, str]] = {
    "web_search": {"query": "river"},
    "local_search": {"query": "river"},
    "python": {"code": "print(6 * 7)"},
    "submit": {"answer": "7"},
}


def backends() -> Backends:
    models = ScriptedModel(lambda request: REPLY, seconds=2.0)
    return Backends(models, Bm25(PASSAGES), ArithmeticInterpreter(), SearchSettings())


def toolbox(config: ToolConfig = PAPER, sheet: PriceSheet = SHEET) -> Toolbox:
    return assemble(config, sheet, backends())


def called(box: Toolbox, name: str, **arguments: str) -> ToolResult:
    """Checks and runs one call as the drivers do."""
    tool = box.check(ToolCall(name, dict(arguments)))
    world = QaWorld(QUESTION, box, message_answers=False)
    context = ToolContext(world, 0)
    result = tool.run(context, **arguments)
    result = result if isinstance(result, ToolResult) else asyncio.run(result)
    return result._replace(usages=(*context.bill.take(), *result.usages))


def refusal(make: Callable[[], object], kind: type[Exception] = ConfigError) -> str:
    with pytest.raises(kind) as caught:
        make()
    assert type(caught.value) is kind
    return str(caught.value)


def test_every_tool_can_be_called_and_ends_as_its_kind_says() -> None:
    for config in (PAPER, PLAIN):
        box = toolbox(config)
        for entry in config.tools:
            arguments = CALLS.get(entry.kind, {})
            for given in [{"model": o.alias, **arguments} for o in entry.offers] or [arguments]:
                result = called(box, entry.name, **given)
                assert result.final == (entry.kind in ENDING)
                assert result.content
                assert {u.item for u in result.usages} <= set(box[entry.name].bills)


@pytest.mark.parametrize(
    "said",
    [
        "```python3\nprint(6 * 7)\n```\nThis prints 42.",
        "```Python\nprint(6 * 7)\n```\nDone.",
        "```python \nprint(6 * 7)\n```",
        "```python\r\nprint(6 * 7)\r\n```\r\n",
        "```py\nprint(6 * 7)\n```\nExpected output:\n```\nprint(1)\n```",
        "```bash\npip install it\n```\nThen:\n```\nprint(6 * 7)\n```",
        "```\nprint(1)\n```\n```python\nprint(6 * 7)",
        "```\nprint(6 * 7)\n```\n```pycon\n>>> print(1)\n```",
    ],
)
def test_the_program_of_a_reply_is_run(said: str) -> None:
    box = assemble(PAPER, SHEET, replace(backends(), models=ScriptedModel(lambda _: said)))
    assert called(box, "enhance_reasoning", model="reasoner-1").content == "Output: 42"


def test_wrong_calls_name_what_is_valid() -> None:
    box = toolbox()
    assert refusal(lambda: called(box, "search"), ToolError) == (
        "search needs the argument 'model', one of: search-1, search-2, search-3"
    )
    assert refusal(lambda: called(box, "search", model="answer-1"), ToolError) == (
        "model must be one of: search-1, search-2, search-3; got 'answer-1'"
    )
    assert "no tool 'serch'; valid: answer, enhance_reasoning, search. Did you mean 'search'?" in refusal(
        lambda: called(box, "serch"), ToolError
    )
    plain = toolbox(PLAIN)
    assert refusal(lambda: called(plain, "python", code="1" * 9000), ToolError) == (
        "code may have 8000 characters, got 9000"
    )
    assert called(plain, "ask", model="gpt-5").content == "7"
    assert called(plain, "ask", model="gpt-5", question="How long?").content == "7"


def test_what_could_not_be_billed_is_refused_at_construction() -> None:
    for missing, tool in (("gpt-5", "search"), ("code-interpreter", "enhance_reasoning"), ("local-index", "search")):
        prices = {item: price for item, price in SHEET.prices.items() if item != missing}
        sheet = PriceSheet("mine", "d", "t", prices)
        message = refusal(lambda sheet=sheet: toolbox(PAPER, sheet), PriceError)  # type: ignore[misc]
        assert message.startswith(
            f"tool '{tool}': price sheet mine cannot bill ['{missing}']: no price for '{missing}'"
        )
        assert "valid: claude-opus-4.1" in message


def test_only() -> None:
    kept = PAPER.only(["answer", "search-3"])
    assert [(e.name, [o.alias for o in e.offers]) for e in kept.tools] == [
        ("search", ["search-3"]),
        ("answer", ["answer-1", "answer-2", "answer-3", "answer-4", "answer-math-1", "answer-math-2"]),
    ]
    assert PAPER.only([e.name for e in PAPER.tools]) == PAPER
    assert toolbox(PAPER.only(["answer-2"])).keys == ("answer-2",)
    assert refusal(lambda: PAPER.only(["answr"])).startswith("no tool or alias 'answr'; valid: answer, answer-1, ")
    assert refusal(lambda: PLAIN.only(["ask"])) == "tools ['ask'] leave none that ends the task; add submit"


def shape(config: ToolConfig) -> tuple[Any, ...]:
    return tuple(tuple((o.alias, o.model) for o in e.offers) for e in config.tools)


@pytest.mark.parametrize("config", [PAPER, PLAIN], ids=lambda config: config.name)
def test_variants_are_seeded_and_the_halves_disjoint(config: ToolConfig) -> None:
    halves = {half: [sample(config, random.Random(seed), half) for seed in range(200)] for half in ("train", "heldout")}
    assert halves["train"] == [sample(config, random.Random(seed), "train") for seed in range(200)]
    seen = {half: {shape(variant) for variant in made} for half, made in halves.items()}
    assert seen["train"].isdisjoint(seen["heldout"])
    assert len(seen["train"]) > 20
    assert len(seen["heldout"]) > 3
    share = sum(shape(v) in seen["heldout"] for v in (sample(config, random.Random(s)) for s in range(100)))
    assert share == 0


def test_price_schedules_are_seeded_and_the_halves_disjoint() -> None:
    def factors(half: Any) -> set[Fraction]:
        seen = set()
        for seed in range(100):
            made = sample_prices(SHEET, PAPER.models, random.Random(seed), half)
            assert made == sample_prices(SHEET, PAPER.models, random.Random(seed), half)
            assert made.sheet_id.startswith("paper-2025-11*")
            assert made.prices["local-index"] == SHEET.prices["local-index"]
            for item in PAPER.models:
                before, after = SHEET.price(item).pico_usd_per_token, made.price(item).pico_usd_per_token
                assert before
                assert after
                (ratio,) = {Fraction(a, b) for a, b in zip(after, before, strict=True)}
                seen.add(ratio)
        return seen

    train, validation, heldout = (factors(half) for half in ("train", "validation", "heldout"))
    assert (len(train), len(validation), len(heldout)) == (49, 6, 6)
    assert len(train | validation | heldout) == 61


def test_no_price_of_one_half_reads_like_one_of_another() -> None:
    """Not even to the two digits of a brief description: else "unseen prices" were mostly seen."""
    assert brief_offer(SHEET, "search-2", "gpt-5", 16) == "search-2 10 16"
    for model in PAPER.models:
        price = SHEET.prices[model].pico_usd_per_token
        assert price
        read = [
            {f"{price[2] / 1_000_000 * float(factor):.2g}" for factor in FACTORS[half]}
            for half in ("train", "validation", "heldout")
        ]
        assert len(set().union(*read)) == sum(map(len, read)) > 40, model


SUBMIT = {"kind": "submit", "name": "submit"}
OFFER = {"alias": "a-1", "model": "gpt-5", "seconds": 3}


def answer(**change: Any) -> dict[str, Any]:
    return {"tools": [{"kind": "answer", "name": "answer", "offers": [OFFER], **change}]}


BAD: list[tuple[Any, str]] = [
    ({}, "mine: tools is missing; the keys are name, tools, of_simulated"),
    ({"tools": []}, "mine: no tool ends the task; add one of kind answer or submit"),
    ({"tools": [{"kind": "anser", "name": "a"}]}, "mine: tools[0]: no kind 'anser'; valid: answer, ask, "),
    ({"tools": [{"kind": "submit", "name": ""}]}, "mine: tools[0]: a tool needs a name"),
    ({"tools": [{**SUBMIT, "offers": [OFFER]}]}, "tools[0]: kind 'submit' takes no offers"),
    (answer(offers=[]), "tools[0]: kind 'answer' needs offers"),
    (answer(offers=[OFFER, {**OFFER, "model": "o3"}]), "tools[0]: two offers have one alias"),
    (answer(offers=[{**OFFER, "notes": "x"}]), "offers[0]: no key 'notes'; valid: alias, model, note, seconds. Did"),
    (answer(offers=[{**OFFER, "seconds": -1}]), "tools[0]: seconds are numbers from 0 up"),
]


@pytest.mark.parametrize(("data", "said"), BAD, ids=lambda value: ascii(value)[:50])
def test_bad_configurations_say_where_and_what(data: Any, said: str) -> None:
    message = refusal(lambda: ToolConfig.read(data, "mine"))
    assert message.startswith("mine: ")
    assert said in message


def test_two_tools_of_one_name_or_key() -> None:
    twice = ToolConfig.read({"tools": [SUBMIT, SUBMIT]}, "mine")
    assert refusal(lambda: toolbox(twice)) == "two tools have one name: ['submit']"
    shared = {"tools": [answer()["tools"][0], {"kind": "ask", "name": "ask", "offers": [OFFER]}]}
    assert "countable keys must differ across tools" in refusal(lambda: toolbox(ToolConfig.read(shared, "mine")))


def test_a_configuration_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"name": "mine", **answer()}))
    assert toolbox(load(str(path))).keys == ("a-1",)
    path.write_bytes(b'{"name": "\xff"}')
    assert refusal(lambda: load(path)).startswith(
        f"tool configuration {path} is not valid JSON: 'utf-8' codec can't decode"
    )
    path.unlink()
    assert refusal(lambda: load(path)) == (
        f"no file '{path}'; name a tool configuration's file, or one of: basic, none, paper, plain"
    )
