"""Experts of world 2026-11: errors are common, luck lasts, lengths have tails and go with difficulty and each other."""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from tests.paths import REPOSITORY
from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.policies.base import PlayerOptions
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.policies.fit import fitted
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.base.grading import is_right
from toolorchestra.envs.base.types import Message, Question
from toolorchestra.envs.domains.hle.source import HleSource
from toolorchestra.envs.models import ChatRequest, Completion, Purpose
from toolorchestra.envs.models.fitted import REFUSAL, FittedModels, FittedSkill, latent, packaged, read_file
from toolorchestra.envs.models.simulated import SimulatedModels, skills
from toolorchestra.envs.money.prices import load_sheet

WORLD = "2026-11"
SOURCE = HleSource(world=WORLD)
QUESTIONS = [SOURCE.question(f"{SOURCE.name}/train/{number}") for number in range(250)]
EXPERTS = packaged(WORLD)
MODELS = FittedModels(EXPERTS)
PACKAGED = REPOSITORY / "envs" / "data" / "models" / f"world-{WORLD}.json"


def ask(question: Question, model: str, seed: int = 0, purpose: Purpose = "answer", **kept: Any) -> Completion | None:
    """A reply with all facts in view; None where none came in time."""
    shown = "\n".join((question.text, *(fact.sentence for fact in question.facts)))
    request = ChatRequest(model, purpose, (Message(role="user", content=shown),), seed, 0, question, **kept)
    try:
        return asyncio.run(MODELS.complete(request))
    except ToolError:
        return None


def right(question: Question, made: Completion | None) -> bool:
    return made is not None and is_right(question.answer, made.text.removeprefix("<answer>").removesuffix("</answer>"))


def rate(model: str, seeds: range = range(4)) -> float:
    return statistics.fmean(right(q, ask(q, model, seed)) for q in QUESTIONS for seed in seeds)


# -- success -----------------------------------------------------------------------------------------------------------


def test_the_strongest_is_right_on_between_55_and_85_percent() -> None:
    assert 0.55 < rate("gpt-5") < 0.85


def test_told_chances_are_those_of_the_replies() -> None:
    """Over many seeds of a question, for one that is hard and one that is easy for the expert."""
    skill = EXPERTS["gpt-5"]
    by_chance = sorted(QUESTIONS, key=lambda q: skill.answer_chance(q, 1.0, ""))
    for question in (by_chance[60], by_chance[125], by_chance[190]):
        told = skill.answer_chance(question, 1.0, "")
        seen = statistics.fmean(right(question, ask(question, "gpt-5", seed)) for seed in range(400))
        assert abs(seen - told) < 4 * math.sqrt(told * (1 - told) / 400) + 0.02


def test_what_a_planner_is_told_is_the_mean_over_luck() -> None:
    for name in ("gpt-5", "qwen3-32b"):
        skill = EXPERTS[name]
        knows = statistics.fmean(skill.answer_chance(q, 1.0, "") for q in QUESTIONS)
        blind = statistics.fmean(skill.without_luck().answer_chance(q, 1.0, "") for q in QUESTIONS)
        assert abs(knows - blind) < 0.06
    alike = [q for q in QUESTIONS if (q.family, q.difficulty) == (QUESTIONS[0].family, QUESTIONS[0].difficulty)]
    skill = EXPERTS["gpt-5"].without_luck()
    assert len({skill.answer_chance(q, 1.0, "") for q in alike}) == 1
    assert len({EXPERTS["gpt-5"].answer_chance(q, 1.0, "") for q in alike}) == len(alike) > 3


def test_errors_are_common() -> None:
    """That all experts fail is far likelier than if they failed independently."""
    fails = {name: [not right(q, ask(q, name)) for q in QUESTIONS] for name in EXPERTS}
    together = statistics.fmean(all(row) for row in zip(*fails.values(), strict=True))
    apart = math.prod(statistics.fmean(row) for row in fails.values())
    assert together > 3 * apart


def test_asking_another_helps_more_than_asking_again() -> None:
    first = [q for q in QUESTIONS if not right(q, ask(q, "gpt-5"))]
    again = statistics.fmean(right(q, ask(q, "gpt-5", 1)) for q in first)
    assert again < rate("gpt-5") - 0.2
    blind = EXPERTS["gpt-5-mini"].without_luck()
    expected = statistics.fmean(blind.answer_chance(q, 1.0, "") for q in first)
    other = statistics.fmean(right(q, ask(q, "gpt-5-mini")) for q in first)
    assert other < expected  # what is hard for one is hard for the other
    assert other > 0


def test_missing_facts_and_wrong_results_mislead_here_too() -> None:
    skill, question = EXPERTS["gpt-5"], next(q for q in QUESTIONS if q.facts and q.computable)
    assert skill.answer_chance(question, 0.5, "") < 0.02
    assert skill.code_chance(question, 0.5) == 0
    plain = skill.answer_chance(question, 1.0, "")
    assert skill.answer_chance(question, 1.0, "wrong") < plain < skill.answer_chance(question, 1.0, "right")


# -- lengths -----------------------------------------------------------------------------------------------------------


def lengths(model: str) -> list[tuple[float, float]]:
    """Logarithms of tokens and seconds, one reply a question."""
    made = [ask(q, model) for q in QUESTIONS]
    used = [one.usage for one in made if one is not None]
    return [(math.log(u.tokens.output + u.tokens.reasoning), math.log(u.seconds)) for u in used]


def test_tokens_and_seconds_spread_and_are_tied() -> None:
    tokens, seconds = zip(*lengths("qwen2.5-coder-32b"), strict=True)
    assert 0.7 < statistics.stdev(tokens) < 1.0
    assert 0.66 < statistics.stdev(seconds) < 0.95
    assert 0.66 < statistics.correlation(tokens, seconds) < 0.9
    expected = EXPERTS["qwen2.5-coder-32b"].output_tokens["answer"]
    assert 0.75 < statistics.fmean(map(math.exp, tokens)) / expected < 1.35


def test_hard_tasks_are_longer_and_failures_with_them() -> None:
    made = [(q, ask(q, "gpt-5-mini")) for q in QUESTIONS]
    failed, solved = (
        statistics.median(m.usage.tokens.reasoning for q, m in made if m is not None and right(q, m) is wanted)
        for wanted in (False, True)
    )
    assert failed > 1.05 * solved
    hard = [latent("task", q.text) for q, m in made if m is not None]
    long = [math.log(m.usage.tokens.reasoning) for _, m in made if m is not None]
    assert statistics.correlation(hard, long) > 0.1


# -- calls that fail ---------------------------------------------------------------------------------------------------


def test_a_call_that_takes_too_long_is_told_and_billed() -> None:
    """The agent reads that nothing came, may ask somebody else, and pays for what was used until then."""
    question, seed = next((q, seed) for q in QUESTIONS for seed in range(9) if ask(q, "gpt-5", seed) is None)
    shown = "\n".join((question.text, *(fact.sentence for fact in question.facts)))
    request = ChatRequest("gpt-5", "answer", (Message(role="user", content=shown),), seed, 0, question)
    with pytest.raises(ToolError, match="gpt-5 gave no answer within 600 s"):
        asyncio.run(MODELS.complete(request))
    (usage,) = request.bill.usages
    assert usage.seconds == 600
    assert usage.tokens.reasoning > 0


def test_an_episode_goes_on_after_such_a_call() -> None:
    env = gym.make("ToolOrchestra/HLE-v0", world=WORLD)
    for seed in range(3000):
        env.reset(seed=seed)
        action = '<tool_call>{"name": "answer", "arguments": {"model": "answer-1"}}</tool_call>'
        obs, _, terminated, truncated, info = env.step(action)
        if "gave no answer within" in obs["messages"][-1]["content"]:
            break
    else:
        pytest.fail("no such call in 3000 episodes")
    assert not terminated
    assert not truncated
    assert info["cost"]["usd"] > 0
    assert info["cost"]["seconds"] >= 600


def test_refusals_come_at_the_stated_rate_and_stay() -> None:
    law = EXPERTS["gpt-5"].law
    refused = [
        (q, seed) for q in QUESTIONS for seed in range(12) if (m := ask(q, "llama-3.3-70b", seed)) and m.text == REFUSAL
    ]
    assert 0.3 * law.refusals < len(refused) / 3000 < 2.5 * law.refusals
    question, seed = refused[0]
    assert right(question, ask(question, "llama-3.3-70b", seed)) is False


# -- a world -----------------------------------------------------------------------------------------------------------


def test_the_same_call_gives_the_same_reply_in_any_process() -> None:
    code = (
        "from tests.envs.models.test_fitted import QUESTIONS, ask\n"
        "print([ask(q, 'gpt-5-mini', 3) for q in QUESTIONS[:5]])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert done.stdout.strip() == repr([ask(q, "gpt-5-mini", 3) for q in QUESTIONS[:5]])


def test_players_stand_in_the_expected_order() -> None:
    """Nobody who guesses comes near the best single expert; who knows everybody's luck is clearly above it."""
    made = factory_of("ToolOrchestra/HLE-v0", world=WORLD)
    solved = {
        name: statistics.fmean(played(made, make(seed), seed).outcome.value for seed in range(150))  # type: ignore[union-attr]
        for name, make in {
            "random": lambda seed: baseline("random", seed),
            "cheapest": lambda _: baseline("cheapest"),
            "strongest": lambda _: baseline("strongest"),
            "oracle": lambda _: baseline("oracle"),
            "task-oracle": lambda _: baseline("task-oracle"),
        }.items()
    }
    assert solved["random"] < solved["strongest"] - 0.2
    assert solved["cheapest"] < solved["strongest"] - 0.1
    assert 0.55 < solved["strongest"] < 0.85
    assert solved["task-oracle"] > solved["strongest"] + 0.08
    assert solved["oracle"] < solved["task-oracle"]


def test_recorded_results_of_the_first_world_can_be_made_again() -> None:
    """What was played before there were worlds is what world 2025-11 plays."""
    first = HleSource(world="2025-11")
    assert first.skills == skills()
    question = QUESTIONS[0]
    request = ChatRequest("gpt-5", "answer", (Message(role="user", content=question.text),), 7, 0, question)
    replies = [asyncio.run(models.complete(request)) for models in (first.behind.models, SimulatedModels(skills()))]
    assert replies[0] == replies[1]
    assert first.skills["gpt-5"].output_tokens["answer"] == 6000


def test_the_default_world(tmp_path: Path) -> None:
    """It is the one that errs as recordings do; models of one's own stand beside the first world's."""
    assert HleSource().skills == SOURCE.skills == EXPERTS
    (tmp_path / "models.json").write_text(json.dumps({"models": {}}))
    assert HleSource(simulated=tmp_path / "models.json").skills == skills()


def test_what_was_learnt_in_another_world_is_not_used() -> None:
    few = PlayerOptions(fit_tasks=2)
    fits = [asyncio.run(fitted(factory_of("HLE-v0", world=world), 0, few)) for world in ("", WORLD, "2025-11")]
    assert fits[0] is fits[1]
    assert fits[0].digest != fits[2].digest


def test_every_expert_can_be_billed() -> None:
    sheet = load_sheet("paper-2025-11")
    assert all(sheet.price(name).pico_usd_per_token for name in EXPERTS)


def test_the_packaged_file_is_what_the_script_writes(tmp_path: Path) -> None:
    script = REPOSITORY / "scripts" / "build_world.py"
    subprocess.run([sys.executable, str(script), "--out", str(tmp_path / "made.json")], check=True)
    assert (tmp_path / "made.json").read_bytes() == PACKAGED.read_bytes()


def test_a_world_of_a_file(tmp_path: Path) -> None:
    data = json.loads(PACKAGED.read_text())
    data["models"]["gpt-5"]["answering"] = dict.fromkeys(data["models"]["gpt-5"]["answering"], 9.0)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(data))
    mine = HleSource(world=path)
    assert isinstance(mine.skills["gpt-5"], FittedSkill)
    assert all(mine.skills["gpt-5"].answer_chance(q, 1.0, "") > 0.9 for q in QUESTIONS[:50])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data.pop("law"), '"law": '),
        (lambda data: data["law"].pop("pair"), "pair"),
        (lambda data: data["models"]["gpt-5"].pop("coding"), "coding"),
        (lambda data: data["models"]["gpt-5"]["answering"].pop("math"), "gpt-5: a skill for each of code, knowledge"),
        (lambda data: data["models"]["gpt-5"]["median_seconds"].update(code=0), "a positive number for each of answer"),
        (lambda data: data["law"].update(refusals=1.5), "refusals is a share"),
    ],
)
def test_a_file_that_is_no_world_says_what_is_wrong(tmp_path: Path, change: Any, says: str) -> None:
    data = json.loads(PACKAGED.read_text())
    change(data)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=says):
        read_file(path)


def test_names_of_worlds_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no world '2026-12'; valid: 2025-11, 2026-11.*Or name a file"):
        HleSource(world="2026-12")
    with pytest.raises(ConfigError, match="a file of models for world 2025-11; for another world name"):
        HleSource(world=WORLD, simulated=tmp_path / "models.json")
    with pytest.raises(ConfigError, match="expected at"):
        HleSource(world=tmp_path / "none.json")
