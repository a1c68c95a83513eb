"""Owns the checks of the simulated experts: what they are shown, and nothing else, decides how often they are right."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.grading import final_answer, is_right
from toolorchestra.envs.base.types import Message, Question
from toolorchestra.envs.domains.frames.source import FramesSource
from toolorchestra.envs.domains.hle.source import HleSource
from toolorchestra.envs.models import ChatRequest, Completion, Purpose
from toolorchestra.envs.models.simulated import (
    CAP,
    CHARACTERS_PER_TOKEN,
    FLOOR,
    MISLED,
    RESULT_MARK,
    SimulatedModels,
    answer_chance,
    chance,
    code_chance,
    computed_in,
    facts_in,
    query_chance,
    read_skills,
    skills,
)
from toolorchestra.envs.money.prices import load_sheet
from toolorchestra.envs.sandbox.arithmetic import ArithmeticInterpreter

DRAWS = 400
"""Attempts on each question: only the attempt's number differs, so they are independent draws of one chance."""
SIGMAS = 4.0
MODELS = SimulatedModels()
SIMULATED = sorted(MODELS.skills)


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
    return question_where("hle", facts=False, computable=True, family="math", difficulty=5.0)


QUESTIONS = (looked_up, constants, self_contained)


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


# Evidence


@pytest.mark.parametrize("pick", [looked_up, constants])
@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-mini"])
def test_all_the_evidence_raises_the_rate_and_missing_one_piece_lowers_it(pick: Any, model: str) -> None:
    question = pick()
    skill = MODELS.skill(model)
    full = rate(question, model, evidence(question))
    assert near(full, answer_chance(skill, question, 1.0, ""))
    assert full > 0.3
    for hidden in range(len(question.facts)):
        partly = rate(question, model, evidence(question, but=hidden))
        assert near(partly, answer_chance(skill, question, 1 - 1 / len(question.facts), ""))
        assert partly < full / 4
    assert rate(question, model) == 0.0


@pytest.mark.parametrize("pick", [looked_up, constants])
def test_the_wrong_documents_do_not_help(pick: Any) -> None:
    question = pick()
    others = [f for n in range(30) for f in FramesSource().question(f"frames-sim/train/{n}").facts]
    others += [f for n in range(30) for f in HleSource().question(f"hle-sim/train/{n}").facts]
    wrong = "\n".join(f.sentence for f in others if f not in question.facts)
    assert len(wrong) > 1000
    assert rate(question, "gpt-5", wrong) == 0.0
    assert facts_in(question, wrong) == 0.0
    garbled = evidence(question).replace(" is ", " is not ").replace("1", "2").replace("e", "a")
    assert facts_in(question, garbled) == 0.0


def test_facts_in_counts_sentences() -> None:
    question = constants()
    assert facts_in(question, evidence(question)) == 1.0
    assert facts_in(question, f"Documents:\n[Title] {evidence(question)} And more.") == 1.0
    assert facts_in(question, "") == 0.0
    assert facts_in(self_contained(), "") == 1.0
    assert facts_in(question, "\n".join(fact.query for fact in question.facts)) == 0.0


def test_the_passages_that_searching_finds_hold_the_evidence() -> None:
    for source, question in ((FramesSource(), looked_up()), (HleSource(), constants())):
        found = [hit.passage for f in question.facts for hit in source.retriever().find(f.query, 5)]
        assert facts_in(question, "\n".join(f"[{p.title}] {p.text}" for p in found)) == 1.0


# Computed results


def result(text: str) -> str:
    return f"{RESULT_MARK} {text}"


@pytest.mark.parametrize("model", ["gpt-5-mini", "qwen3-32b", "llama-3.3-70b"])
def test_a_right_result_raises_the_rate_and_wrong_ones_lower_it(model: str) -> None:
    question = self_contained()
    skill = MODELS.skill(model)
    plain = rate(question, model)
    right = rate(question, model, result(question.answer.text))
    wrong = rate(question, model, result(question.decoys[0]))
    assert near(plain, answer_chance(skill, question, 1.0, ""))
    assert near(right, answer_chance(skill, question, 1.0, "right"))
    assert near(wrong, answer_chance(skill, question, 1.0, "wrong"))
    assert right > plain + 0.05
    assert answer_chance(skill, question, 1.0, "wrong") < answer_chance(skill, question, 1.0, "")
    both = result(question.decoys[0]) + "\n" + result(question.answer.text)
    assert near(rate(question, model, both), answer_chance(skill, question, 1.0, "right"))


def test_a_wrong_result_misleads_even_the_strong() -> None:
    question = question_where("hle", facts=False, computable=True, family="math", difficulty=3.0)
    skill = MODELS.skill("gpt-5")
    plain, wrong = rate(question, "gpt-5"), rate(question, "gpt-5", result(question.decoys[0]))
    assert plain > 0.9
    assert near(wrong, MISLED * answer_chance(skill, question, 1.0, ""))
    assert wrong < 0.6


def test_results_do_not_stand_in_for_evidence() -> None:
    question = looked_up()
    assert rate(question, "gpt-5", result(question.answer.text)) == 0.0


def test_computed_in_reads_results_alone() -> None:
    question = self_contained()
    right, wrong = question.answer.text, question.decoys[0]
    assert computed_in(question, result(right)) == "right"
    assert computed_in(question, result(wrong)) == "wrong"
    assert computed_in(question, f"{result(wrong)}\n{result(right)}") == "right"
    assert computed_in(question, f"The answer may be {right}.") == ""
    assert computed_in(question, "") == ""
    assert computed_in(question, result("no number at all")) == "wrong"
    logic = question_where("hle", computable=False)
    assert computed_in(logic, result(logic.answer.text)) == ""


# Chances


def test_the_chance_is_a_ramp_from_floor_to_cap() -> None:
    assert chance(3.0, 4.5) == FLOOR
    assert chance(0.0, 6.0) == FLOOR
    assert chance(3.0, 2.5) == pytest.approx(CAP)
    assert chance(6.0, 0.0) == pytest.approx(CAP)
    assert chance(3.0, 3.5) == pytest.approx((FLOOR + CAP) / 2)
    steps = [chance(3.0, level / 4) for level in range(25)]
    assert steps == sorted(steps, reverse=True)


@pytest.mark.parametrize("model", SIMULATED)
@pytest.mark.parametrize("pick", QUESTIONS)
def test_rates_match_the_stated_chances(model: str, pick: Any) -> None:
    question = pick()
    skill = MODELS.skill(model)
    shown = evidence(question)
    answers = rate(question, model, shown)
    assert near(answers, answer_chance(skill, question, 1.0, ""))

    programs = completions(question, model, "code", shown)
    printing = f"```python\nprint({question.answer.text!r})\n```"
    assert near(sum(c.text == printing for c in programs) / DRAWS, code_chance(skill, question, 1.0))

    if question.facts:
        hits = f"<query>{question.facts[0].query}</query>"
        queries = completions(question, model, "query")
        assert near(sum(c.text == hits for c in queries) / DRAWS, query_chance(skill, question))


def test_stronger_models_are_right_more_often_where_the_table_says_so() -> None:
    question = self_contained()
    skilled = sorted(SIMULATED, key=lambda model: MODELS.skill(model).answering[question.family])
    expected = [answer_chance(MODELS.skill(model), question, 1.0, "") for model in skilled]
    assert expected == sorted(expected)
    assert rate(question, skilled[-1]) > rate(question, skilled[0]) + 0.3


# Queries and programs


def test_queries_go_for_the_first_missing_fact_and_end_when_none_is() -> None:
    question = looked_up()
    assert len(question.facts) > 1
    seen = question.facts[0].sentence
    texts = {c.text for c in completions(question, "gpt-5", "query", seen)}
    assert f"<query>{question.facts[1].query}</query>" in texts
    assert f"<query>{question.facts[0].query}</query>" not in texts
    assert {c.text for c in completions(question, "gpt-5", "query", evidence(question))} == {"<query></query>"}
    assert {c.text for c in completions(self_contained(), "gpt-5", "query")} == {"<query></query>"}


def test_a_query_that_misses_holds_nothing_of_the_facts() -> None:
    question = looked_up()
    weak = {c.text for c in completions(question, "qwen2.5-math-7b", "query")}
    missed = weak - {f"<query>{fact.query}</query>" for fact in question.facts}
    assert missed
    for text in missed:
        assert text.startswith("<query>")
        assert question.answer.text not in text


def test_programs_run_and_show_the_right_or_a_plausible_result() -> None:
    question = self_contained()
    interpreter = ArithmeticInterpreter()
    outputs = set()
    for text in {c.text for c in completions(question, "gpt-5-mini", "code")}:
        code = text.removeprefix("```python\n").removesuffix("```")
        done = asyncio.run(interpreter.run(code))
        outputs.add(done.stdout.strip())
        assert (done.exit_status == 1) == ("raise_for_missing_step" in code)
    assert question.answer.text in outputs
    assert outputs <= {question.answer.text, *question.decoys, ""}
    hidden = completions(constants(), "gpt-5", "code")
    assert not any(constants().answer.text == c.text.partition("'")[2].partition("'")[0] for c in hidden)


# Asking something else


@pytest.mark.parametrize("pick", QUESTIONS)
@pytest.mark.parametrize("asked", ["What is the capital of France?", "", "Hello.", "Tell me everything you know."])
def test_something_unrelated_gets_no_answer(pick: Any, asked: str) -> None:
    question = pick()
    shown = f"{evidence(question)}\n{result(question.answer.text)}\n\nQuestion: {asked}"
    for attempt in range(50):
        made = ChatRequest("gpt-5", "answer", (Message(role="user", content=shown),), 7, attempt, question)
        assert complete(made).text == "<answer>I do not see the question.</answer>"


@pytest.mark.parametrize("pick", QUESTIONS)
def test_another_question_gets_no_answer(pick: Any) -> None:
    question = pick()
    for other in QUESTIONS:
        if other is not pick:
            made = ChatRequest("gpt-5", "answer", (Message(role="user", content=other().text),), seed=7, truth=question)
            assert complete(made).text == "<answer>I do not see the question.</answer>"


def test_the_question_may_be_put_in_nearly_its_own_words() -> None:
    question = self_contained()
    body = question.text.partition("\n")[2]
    shown = (Message(role="user", content=f"Please, {body.lower()} Thanks!"),)
    given = [complete(ChatRequest("gpt-5", "answer", shown, 7, n, question)).text for n in range(100)]
    assert sum(is_right(question.answer, text) for text in given) > 20
    assert "<answer>I do not see the question.</answer>" not in given


# Tokens and seconds


@pytest.mark.parametrize("model", SIMULATED)
@pytest.mark.parametrize("purpose", ["query", "code", "answer"])
def test_tokens_and_seconds_are_near_the_table(model: str, purpose: Purpose) -> None:
    skill = MODELS.skill(model)
    question = self_contained()
    made = [c.usage for c in completions(question, model, purpose)]
    outputs = [u.tokens.output + u.tokens.reasoning for u in made]
    seconds = [u.seconds for u in made]
    for drawn, typical, spread in (
        (outputs, skill.output_tokens[purpose], math.exp(0.6)),
        (seconds, skill.seconds[purpose], math.exp(0.4)),
    ):
        assert typical / spread - 1 <= min(drawn) <= max(drawn) <= typical * spread + 1
        assert sum(drawn) / DRAWS == pytest.approx(typical, rel=0.1)
        assert len(set(drawn)) > 20
    body = request(question, model, purpose).messages
    characters = len("\n".join(m["content"] for m in body))
    assert {u.tokens.input for u in made} == {characters // CHARACTERS_PER_TOKEN}
    assert {u.tokens.cached for u in made} == {0}
    shares = {round(u.tokens.reasoning / out, 2) for u, out in zip(made, outputs, strict=True)}
    assert shares == ({0.8} if skill.reasons else {0.0})
    assert {(u.item, u.role, u.units, u.estimated) for u in made} == {(model, "expert", 0, False)}


def test_every_simulated_model_can_be_billed() -> None:
    for name in ("paper-2025-11", "unseen-2026-01"):
        load_sheet(name).require(SIMULATED, "the simulated models")
    usage = complete(request(self_contained(), "gpt-5", "answer")).usage
    assert load_sheet("paper-2025-11").charge(usage).usd > 0.02


# Determinism


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


def digest() -> str:
    return hashlib.sha256(json.dumps(replies(range(5))).encode()).hexdigest()


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_the_same_call_gives_the_same_reply_in_any_process(hash_seed: str) -> None:
    here = Path(__file__)
    program = f"import sys; sys.path.insert(0, {str(here.parent)!r}); import {here.stem}; print({here.stem}.digest())"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == digest()


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


MINE: dict[str, Any] = {
    "answering": dict.fromkeys(("math", "science", "code", "logic", "knowledge"), 6.0),
    "coding": dict.fromkeys(("math", "science", "code", "logic", "knowledge"), 0.0),
    "querying": 1.0,
    "output_tokens": {"query": 10, "code": 10, "answer": 10},
    "seconds": {"query": 1, "code": 1, "answer": 1},
    "reasons": False,
}


def test_models_of_a_file_stand_beside_the_packaged_ones(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.write_text(json.dumps({"models": {"mine": MINE, "gpt-5": {**MINE, "querying": 2.0}}}))
    table = read_skills(path)
    assert set(table) == {"mine", *skills()}
    assert (table["mine"].querying, table["gpt-5"].querying) == (1.0, 2.0)
    done = asyncio.run(SimulatedModels(table).complete(request(self_contained(), "mine", "answer")))
    assert done.usage.item == "mine"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "a JSON file"),
        ('{"mine": {}}', "KeyError"),
        ('{"models": {"mine": 3}}', "'mine' of .* is an object with answering, coding"),
        (json.dumps({"models": {"mine": {**MINE, "latency": 3}}}), "got .*latency"),
        (json.dumps({"models": {"mine": {**MINE, "coding": {"math": 1}}}}), "coding has a number for each of math, sc"),
        (json.dumps({"models": {"mine": {**MINE, "seconds": dict.fromkeys(("query", "code", "answer"), -1)}}}), "sec"),
        (json.dumps({"models": {"mine": {**MINE, "querying": "good"}}}), "querying is a number and reasons true or"),
    ],
)
def test_a_file_of_models_that_is_none_says_what_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "models.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_skills(path)
