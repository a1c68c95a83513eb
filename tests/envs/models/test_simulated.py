"""Simulated experts: what they are shown decides how often they are right; errors are common, luck lasts, lengths have
tails and go with difficulty and each other."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.paths import PACKAGE
from toolorchestra.envs.base.answer_grading import final_answer, is_right
from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.base.types import Message, Question
from toolorchestra.envs.domains.frames.source import FramesSource
from toolorchestra.envs.domains.hle.source import HleSource
from toolorchestra.envs.models import ChatRequest, Completion, Purpose
from toolorchestra.envs.models.simulated import (
    DEFAULT,
    RESULT_MARK,
    SimulatedModels,
    load_experts,
    packaged,
)
from toolorchestra.envs.money.prices import CHARACTERS_PER_TOKEN

DRAWS = 200
"""Attempts on each question: only the attempt's number differs, so they are independent draws of one chance."""
SIGMAS = 4.0
EXPERTS = packaged(DEFAULT)
SIMULATED = sorted(EXPERTS)
PATIENT = replace(EXPERTS["gpt-5"].law, limit_seconds=math.inf, refusals=0.0)
MODELS = SimulatedModels({name: replace(skill, law=PATIENT) for name, skill in EXPERTS.items()})
"""The packaged experts, who always answer."""
PACKAGED = PACKAGE / "envs" / "data" / "experts" / f"{DEFAULT}.json"


def question_where(source: str, **wanted: Any) -> Question:
    """The first question of the source with these fields; `facts` asks for some or none."""
    made = {"hle": HleSource, "frames": FramesSource}[source]()
    for number in range(2000):
        question = made.question(f"{made.name}/train/{number}")
        if all(
            (bool(question.facts) if name == "facts" else getattr(question, name)) == v for name, v in wanted.items()
        ):
            return question
    raise AssertionError(f"no such question in {source}: {wanted}")


@cache
def looked_up() -> Question:
    """Of the encyclopaedia: nothing works without its facts."""
    return question_where("frames", facts=True, computable=True)


@cache
def constants() -> Question:
    """Of a science: constants to look up, then a computation of middling difficulty."""
    return question_where("hle", facts=True, computable=True, difficulty=4.0)


@cache
def self_contained() -> Question:
    """One that every expert may get right, by luck too, and may get wrong."""
    made = HleSource()
    for number in range(2000):
        question = made.question(f"{made.name}/train/{number}")
        if question.family == "math" and question.computable and not question.facts:
            chances = [MODELS.skill(name).answer_chance(question, 1.0, "") for name in ("gpt-5-mini", "llama-3.3-70b")]
            if all(0.15 < chance < 0.7 for chance in (*chances, MODELS.skill("gpt-5-mini").code_chance(question, 1.0))):
                return question
    raise AssertionError("no such question")


PICKED = (looked_up, constants, self_contained)


def evidence(question: Question, *, but: int | None = None) -> str:
    return "\n".join(fact.sentence for number, fact in enumerate(question.facts) if number != but)


def request(question: Question, model: str, purpose: Purpose, material: str = "", attempt: int = 0) -> ChatRequest:
    body = f"{material}\n\nQuestion: {question.text}"
    messages = (Message(role="system", content="Do it."), Message(role="user", content=body))
    return ChatRequest(model, purpose, messages, seed=7, attempt=attempt, truth=question)


def complete(made: ChatRequest) -> Completion:
    return asyncio.run(MODELS.complete(made))


def completions(question: Question, model: str, purpose: Purpose, material: str = "") -> list[Completion]:
    async def several() -> list[Completion]:
        return [await MODELS.complete(request(question, model, purpose, material, n)) for n in range(DRAWS)]

    return asyncio.run(several())


def rate(question: Question, model: str, material: str = "") -> float:
    """How often the model's answer is right."""
    given = (final_answer(c.text) for c in completions(question, model, "answer", material))
    return sum(is_right(question.answer, answer) for answer in given) / DRAWS


def near(measured: float, expected: float, draws: int = DRAWS) -> bool:
    spread = math.sqrt(expected * (1 - expected) / draws)
    return abs(measured - expected) <= SIGMAS * spread + 1e-12


@pytest.mark.parametrize("pick", [looked_up, constants])
@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-mini"])
def test_all_the_evidence_raises_the_rate_and_missing_one_piece_lowers_it(pick: Any, model: str) -> None:
    question = pick()
    skill = MODELS.skill(model)
    full = rate(question, model, evidence(question))
    assert near(full, skill.answer_chance(question, 1.0, ""))
    for hidden in range(len(question.facts)):
        partly = rate(question, model, evidence(question, but=hidden))
        assert near(partly, skill.answer_chance(question, 1 - 1 / len(question.facts), ""))
        assert partly < full / 4 or full < 0.1
    assert rate(question, model) == 0.0


def result(text: str) -> str:
    return f"{RESULT_MARK} {text}"


@pytest.mark.parametrize("model", ["gpt-5-mini", "llama-3.3-70b"])
def test_a_right_result_raises_the_rate_and_wrong_ones_lower_it(model: str) -> None:
    question = self_contained()
    skill = MODELS.skill(model)
    plain = rate(question, model)
    right = rate(question, model, result(question.answer.text))
    wrong = rate(question, model, result(question.decoys[0]))
    assert near(plain, skill.answer_chance(question, 1.0, ""))
    assert near(right, skill.answer_chance(question, 1.0, "right"))
    assert near(wrong, skill.answer_chance(question, 1.0, "wrong"))
    assert right > plain
    assert skill.answer_chance(question, 1.0, "wrong") < skill.answer_chance(question, 1.0, "")
    both = result(question.decoys[0]) + "\n" + result(question.answer.text)
    assert near(rate(question, model, both), skill.answer_chance(question, 1.0, "right"))


@pytest.mark.parametrize("model", ["gpt-5", "qwen2.5-coder-32b"])
@pytest.mark.parametrize("pick", PICKED)
def test_rates_match_the_stated_chances(model: str, pick: Any) -> None:
    question = pick()
    skill = MODELS.skill(model)
    shown = evidence(question)
    programs = completions(question, model, "code", shown)
    printing = f"```python\nprint({question.answer.text!r})\n```"
    assert near(sum(c.text == printing for c in programs) / DRAWS, skill.code_chance(question, 1.0))

    if question.facts:
        hits = f"<query>{question.facts[0].query}</query>"
        queries = completions(question, model, "query")
        assert near(sum(c.text == hits for c in queries) / DRAWS, skill.query_chance(question))


def test_queries_go_for_the_first_missing_fact_and_end_when_none_is() -> None:
    question = looked_up()
    assert len(question.facts) > 1
    seen = question.facts[0].sentence
    texts = {c.text for c in completions(question, "gpt-5", "query", seen)}
    assert f"<query>{question.facts[1].query}</query>" in texts
    assert f"<query>{question.facts[0].query}</query>" not in texts
    assert {c.text for c in completions(question, "gpt-5", "query", evidence(question))} == {"<query></query>"}
    assert {c.text for c in completions(self_contained(), "gpt-5", "query")} == {"<query></query>"}


@pytest.mark.parametrize("pick", PICKED)
@pytest.mark.parametrize("asked", ["What is the capital of France?", ""])
def test_something_unrelated_gets_no_answer(pick: Any, asked: str) -> None:
    question = pick()
    shown = f"{evidence(question)}\n{result(question.answer.text)}\n\nQuestion: {asked}"
    for attempt in range(10):
        made = ChatRequest("gpt-5", "answer", (Message(role="user", content=shown),), 7, attempt, question)
        assert complete(made).text == "<answer>I do not see the question.</answer>"


def test_usage_counts_what_is_shown_and_shares_out_reasoning() -> None:
    question = self_contained()
    for model in ("gpt-5", "qwen3-32b"):
        made = [c.usage for c in completions(question, model, "answer")]
        characters = len("\n".join(m["content"] for m in request(question, model, "answer").messages))
        assert {u.tokens.input for u in made} == {characters // CHARACTERS_PER_TOKEN}
        shares = {round(u.tokens.reasoning / (u.tokens.output + u.tokens.reasoning), 2) for u in made}
        assert shares == ({0.8} if MODELS.skill(model).reasons else {0.0})
        assert {(u.item, u.role, u.units, u.estimated) for u in made} == {(model, "expert", 0, False)}


SOURCE = HleSource()
QUESTIONS = [SOURCE.question(f"{SOURCE.name}/train/{number}") for number in range(250)]
AS_PACKAGED = SimulatedModels(EXPERTS)


def ask(question: Question, model: str, seed: int = 0, purpose: Purpose = "answer", **kept: Any) -> Completion | None:
    """A reply with all facts in view; None where none came in time."""
    shown = "\n".join((question.text, *(fact.sentence for fact in question.facts)))
    request = ChatRequest(model, purpose, (Message(role="user", content=shown),), seed, 0, question, **kept)
    try:
        return asyncio.run(AS_PACKAGED.complete(request))
    except ToolError:
        return None


def right(question: Question, made: Completion | None) -> bool:
    return made is not None and is_right(question.answer, made.text.removeprefix("<answer>").removesuffix("</answer>"))


def test_errors_are_common() -> None:
    """That all experts fail is far likelier than if they failed independently."""
    fails = {name: [not right(q, ask(q, name)) for q in QUESTIONS] for name in EXPERTS}
    together = statistics.fmean(all(row) for row in zip(*fails.values(), strict=True))
    apart = math.prod(statistics.fmean(row) for row in fails.values())
    assert together > 3 * apart


def test_a_call_that_takes_too_long_is_told_and_billed() -> None:
    """The agent reads that nothing came, may ask somebody else, and pays for what was used until then."""
    question, seed = next((q, seed) for q in QUESTIONS for seed in range(9) if ask(q, "gpt-5", seed) is None)
    shown = "\n".join((question.text, *(fact.sentence for fact in question.facts)))
    request = ChatRequest("gpt-5", "answer", (Message(role="user", content=shown),), seed, 0, question)
    with pytest.raises(ToolError, match="gpt-5 gave no answer within 600 s"):
        asyncio.run(AS_PACKAGED.complete(request))
    (usage,) = request.bill.usages
    assert usage.seconds == 600
    assert usage.tokens.reasoning > 0


def replies(seeds: Sequence[int]) -> list[list[Any]]:
    """A little of everything, for one digest."""
    kept: list[list[Any]] = []
    for source in (HleSource(), FramesSource()):
        for seed in seeds:
            question = source.question(source.draw("validation", random.Random(seed)))
            for model in SIMULATED:
                for purpose in ("query", "code", "answer"):
                    done = complete(request(question, model, purpose, evidence(question), seed))
                    kept.append([question.text, model, purpose, done.text, list(done.usage.tokens), done.usage.seconds])
    return kept


def test_the_same_call_gives_the_same_reply_in_any_process() -> None:
    here = Path(__file__)
    program = f"import sys; sys.path.insert(0, {str(here.parent)!r}); import {here.stem} as t; print(t.replies([0, 1]))"
    environment = {**os.environ, "PYTHONHASHSEED": "4242"}
    done = subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == repr(replies([0, 1]))


def test_every_part_of_the_request_changes_the_draw_and_nothing_global_does() -> None:
    question = self_contained()
    base = request(question, "gpt-5", "answer")

    def seconds(**change: Any) -> float:
        fields = {name: getattr(base, name) for name in base.__dataclass_fields__}
        return complete(ChatRequest(**{**fields, **change})).usage.seconds

    random.seed(1)
    before = random.getstate()
    drawn = [seconds(), seconds(seed=8), seconds(attempt=1), seconds(messages=(*base.messages, Message(content="x")))]
    assert random.getstate() == before
    assert len(set(drawn)) == len(drawn)
    random.seed(2)
    assert seconds() == drawn[0]


def test_wrong_requests_say_what_is_wrong() -> None:
    with pytest.raises(ConfigError, match=r"no simulated model 'gpt5'; valid: gpt-5, .* Did you mean 'gpt-5'\?"):
        complete(request(self_contained(), "gpt5", "answer"))
    with pytest.raises(ConfigError, match="needs the question's truth; only embedded worlds have it"):
        complete(ChatRequest("gpt-5", "answer", (Message(role="user", content="Hello."),)))


def test_experts_of_a_file(tmp_path: Path) -> None:
    data = json.loads(PACKAGED.read_text())
    data["models"]["gpt-5"]["answering"] = dict.fromkeys(data["models"]["gpt-5"]["answering"], 9.0)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(data))
    mine = HleSource(experts=path)
    assert all(mine.skills["gpt-5"].answer_chance(q, 1.0, "") > 0.9 for q in QUESTIONS[:50])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data.pop("law"), "mine.json: law is missing; the keys are law, models, made_of"),
        (lambda data: data["law"].pop("pair"), "law: pair is missing; the keys are level, middle, "),
        (lambda data: data["law"]["tokens"].update(pairs=1), "law.tokens: no key 'pairs'; .* Did you mean 'pair'"),
        (lambda data: data["models"]["gpt-5"].pop("coding"), "models.gpt-5: coding is missing"),
        (
            lambda data: data["models"]["gpt-5"]["answering"].pop("math"),
            "gpt-5: a skill for each of code, knowledge",
        ),
        (
            lambda data: data["models"]["gpt-5"]["answering"].update(maths=1),
            "a skill for each of code",
        ),
        (lambda data: data["models"]["gpt-5"]["median_seconds"].update(code=0), "a positive number for each of answer"),
        (lambda data: data["law"].update(refusals=1.5), "refusals is a share"),
    ],
)
def test_a_file_of_experts_that_is_none_says_what_is_wrong(tmp_path: Path, change: Any, says: str) -> None:
    data = json.loads(PACKAGED.read_text())
    change(data)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=says):
        load_experts(path)


def test_strong_experts_fail_together_where_strength_is_worth_nothing() -> None:
    """Their luck goes together, that of a weak one the other way, and each is right as often as without."""
    first = question_where("hle", family="logic")
    questions = [replace(first, text=f"{first.text} {number}") for number in range(300)]
    skill = replace(EXPERTS["gpt-5"], law=replace(PATIENT, task=0.0, level=0.0, pair=1.5))
    chances = {
        name: [replace(skill, name=name, luck_by_strength=tie).answer_chance(one, 1.0, "") for one in questions]
        for name, tie in (("one", 0.9), ("two", 0.9), ("weak", -0.9), ("own", 0.0))
    }
    ties = np.corrcoef([chances[name] for name in ("one", "two", "weak", "own")])
    assert ties[0, 1] > 0.6
    assert ties[0, 2] < -0.6
    assert abs(ties[0, 3]) < 0.3
    expected = skill.without_luck().answer_chance(questions[0], 1.0, "")
    assert all(np.mean(some) == pytest.approx(expected, abs=0.12) for some in chances.values())
