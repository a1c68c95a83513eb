"""The algorithms, each against arithmetic that is written anew here, and the chance of an answer against its draws."""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
import pytest

from tests.agents.rollouts.test_grpo import RIGHT, WRONG, advantages, group_of
from toolorchestra.agents.algorithms import ALGORITHMS, algorithm_of, critic
from toolorchestra.agents.algorithms.critic import Critic, by_turn
from toolorchestra.agents.algorithms.gated import Gated
from toolorchestra.agents.algorithms.leave_one_out import SCALE, LeaveOneOut
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.evaluation.heldout import played
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.policies.expected import WrittenProgram, _chance
from toolorchestra.agents.policies.plans import results, tool_of
from toolorchestra.agents.rollouts.grpo import (
    AdvantageParams,
    Expected,
    Grpo,
    TokenSequence,
    Trajectory,
    training_batch,
)
from toolorchestra.agents.rollouts.rollout import _expected, factory_of, measured
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.models.simulated import MISLED, Skill, packaged

PARAMS = AdvantageParams(least_spread=0.0)
WEIGHTS = 2.0
"""The sum of the weights of the preference that the groups here are played under."""


def test_leave_one_out_compares_each_with_the_mean_of_the_others() -> None:
    got = advantages([0.1, 0.3, 0.8], LeaveOneOut(PARAMS))
    assert got == pytest.approx([SCALE * x / WEIGHTS for x in (0.1 - 0.55, 0.3 - 0.45, 0.8 - 0.2)])


def test_costs_behind_a_gate_weigh_what_the_share_of_right_ones_is() -> None:
    near = replace(RIGHT, usd=0.06)
    between = (replace(WRONG, usd=0.0), replace(RIGHT, usd=0.1))
    scores = Gated(PARAMS).score(group_of(RIGHT, near, WRONG, WRONG, baselines=between))
    plain = Grpo(PARAMS).score(group_of(RIGHT, near, WRONG, WRONG, baselines=between))
    rate = 0.5
    assert [one.total for one in plain if one] == pytest.approx([1.8, 1.4, 0.0, 0.0])
    assert [one.total for one in scores if one] == pytest.approx([2 - rate * 0.2, 2 - rate * 0.6, 0.0, 0.0])
    unread = replace(RIGHT, valid_format=False)
    group = group_of(RIGHT, near, unread, replace(unread, expected=Expected(0.9, 0.02, 1.0)), baselines=between)
    counted = Gated(replace(PARAMS, unreadable="wrong")).score(group)  # they are no right ones in the share either
    assert [one.total for one in counted if one] == pytest.approx([2 - rate * 0.2, 2 - rate * 0.6, 0.0, 0.0])


def test_a_constant_critic_that_hands_everything_back_is_the_groups_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critic, "TRACE", 1.0)
    monkeypatch.setattr(critic, "fitted", lambda rows, gains: np.zeros(critic.WIDTH))
    got = advantages([0.2, 0.4, 0.9], Critic(PARAMS))
    assert got == pytest.approx([SCALE * (x - 0.5) / WEIGHTS for x in (0.2, 0.4, 0.9)])
    assert by_turn(np.zeros(3), 0.25) == [0.25 * SCALE] * 3


def test_a_critic_gives_a_turn_what_it_made_of_the_state() -> None:
    """By hand: surprises 0.3 - 0.1, 0.2 - 0.3 and 0.6 - 0.2, each with TRACE of what comes after it."""
    last = 0.6 - 0.2
    middle = 0.2 - 0.3 + critic.TRACE * last
    first = 0.3 - 0.1 + critic.TRACE * middle
    assert by_turn(np.array([0.1, 0.3, 0.2]), 0.6) == pytest.approx([SCALE * x for x in (first, middle, last)])


def test_each_token_has_the_advantage_of_its_turn() -> None:
    sampled = [False, True, True, False, True, False, True]
    sequence = TokenSequence(list(range(7)), [0.0] * 7, sampled)
    assert sequence.turns == 3
    assert sequence.datum([1.0, -2.0, 3.0]).advantages == [0.0, 1.0, 1.0, 0.0, -2.0, 0.0, 3.0]
    two = replace(group_of(RIGHT).trajectories[0], sequences=[sequence, sequence])
    assert isinstance(two, Trajectory)
    assert [d.advantages[1] for d in two.data([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])] == [1.0, 4.0]


def test_every_name_is_an_algorithm_and_an_unknown_one_is_refused() -> None:
    config = preset("tiny")
    for name in ALGORITHMS:
        batch = training_batch([group_of(RIGHT, WRONG)], algorithm_of(replace(config, algorithm=name)))
        assert batch.used == 2
    with pytest.raises(ConfigError, match=r"no algorithm 'ppo'; valid: .*grpo"):
        algorithm_of(replace(config, algorithm="ppo"))
    for name in ("builtins:list", "a:b:c", ":x"):
        with pytest.raises(ConfigError, match=f"algorithm={name} cannot be made .* as your.module:YourAlgorithm"):
            algorithm_of(replace(config, algorithm=name))
    with pytest.raises(ConfigError, match="algorithm=builtins:str has no score, advantages"):
        algorithm_of(replace(config, algorithm="builtins:str"))


# -- the chance of an answer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["HLE-v0", "FRAMES-v0"])
def test_the_expected_outcome_is_the_mean_of_drawn_ones(env_id: str) -> None:
    """Over many tasks, what is expected of the answers is what came of them, be it little or much."""
    factory = factory_of(env_id)
    plays: list[tuple[float, float]] = []
    for seed in range(900):
        episode = played(factory, baseline("strongest" if seed % 3 else "cheapest", seed), seed)
        if (expected := _expected(episode)) is not None and episode.outcome is not None:
            plays.append((expected.chance, episode.outcome.value))
    assert len(plays) > 800
    middle = statistics.median(chance for chance, _ in plays)
    for some in (plays, [p for p in plays if p[0] <= middle], [p for p in plays if p[0] > middle]):
        error = (sum(p * (1 - p) for p, _ in some) / len(some) ** 2) ** 0.5
        assert abs(statistics.fmean(p for p, _ in some) - statistics.fmean(drawn for _, drawn in some)) < 4 * error


def _until_two_agree(episode: Episode) -> str:
    """Search until nothing is missing, have programs written until two print the same, and ask for an answer."""

    def said(kind: str) -> list[str]:
        tool = tool_of(episode, kind)
        return [] if tool is None else list(results(episode, tool))

    def ask(kind: str) -> str:
        tool = tool_of(episode, kind)
        assert tool is not None
        return render_call(tool.name, {"model": tool.offers[-1].alias})

    printed = [text for text in said("enhance_reasoning") if text.startswith("Output")]
    if not any(text.startswith("Nothing further") for text in said("search")) and len(said("search")) < 6:
        return ask("search")
    if tool_of(episode, "enhance_reasoning") and len(printed) == len(set(printed)) and episode.turn < 12:
        return ask("enhance_reasoning")
    return ask("answer")


def test_programs_that_fail_together_are_not_expected_to_be_right_because_they_agree() -> None:
    """An expert that prints the same number twice has not proved it: over many tasks what is expected of such answers
    is what came of them."""
    factory = factory_of("HLE-v0")
    plays: list[tuple[float, float]] = []
    for seed in range(1000):
        episode = played(factory, _until_two_agree, seed)
        if (
            (expected := _expected(episode)) is not None
            and episode.outcome is not None
            and len(episode.world.results) > 1
        ):
            plays.append((expected.chance, episode.outcome.value))
    assert len(plays) > 500
    error = (sum(chance * (1 - chance) for chance, _ in plays) / len(plays) ** 2) ** 0.5
    assert abs(statistics.fmean(c for c, _ in plays) - statistics.fmean(drawn for _, drawn in plays)) < 3 * error


def test_the_chance_of_an_answer_is_that_of_latent_numbers_drawn_a_million_times() -> None:
    """By hand: a question's difficulty and each expert's luck are drawn, then programs and the answer; of the draws in
    which the programs print what they printed, how many answers are right."""
    factory = factory_of("HLE-v0")
    question = next(q for seed in range(99) if (q := factory.start(seed).episode.world.question).computable)
    skills = packaged("2026-11")
    one, other = skills["qwen2.5-coder-32b"], skills["gpt-5"]
    rng, count, decoys = np.random.default_rng(0), 1_000_000, len(question.decoys)
    task = rng.standard_normal(count)
    luck = {skill.name: rng.standard_normal(count) for skill in (one, other)}

    def clear(skill: Skill, base: float) -> np.ndarray:
        law = skill.law
        return base - law.level * (question.difficulty - law.middle) - law.task * task + law.pair * luck[skill.name]

    def prints(skill: Skill) -> np.ndarray:
        """0 for the right result, 1 and above for a wrong one, -1 for nothing."""
        works = clear(skill, skill.coding[question.family]) + rng.standard_normal(count) > 0
        wrong = np.where(rng.random(count) < 0.5, -1, rng.integers(1, decoys + 1, count))
        return np.where(works, 0, wrong)

    first, second, third = prints(one), prints(one), prints(other)
    last = np.where(third >= 0, third, second)
    base = other.answering[question.family] + np.where(last == 0, other.law.computed, 0.0)
    right = clear(other, base) + rng.standard_normal(count) > 0
    right &= (last == 0) | (rng.random(count) < MISLED)
    right &= rng.random(count) < (1 - other.law.refusals)
    runs = {
        "agree": ((first == second) & (first >= 0) & (third == -1), [(one, "7"), (one, "7"), (other, "")]),
        "differ": (
            (first == -1) & (second >= 0) & (third >= 0) & (second != third),
            [(one, ""), (one, "7"), (other, "8")],
        ),
    }
    for drawn, programs in runs.values():
        found = _chance(other, question, [WrittenProgram(skill, text, informed=True) for skill, text in programs])
        assert found == pytest.approx(right[drawn].mean(), abs=0.02)


def test_what_nobody_could_know_is_not_in_the_expected_outcome() -> None:
    """On one task and by one rule, what is expected differs less than what the law says of each answer, for whether a
    program printed the right number is not seen in it."""
    factory = factory_of("HLE-v0")
    spreads: list[tuple[float, float]] = []
    for seed in range(12):
        found = [played(factory, baseline("strongest", seed), seed, {"luck": luck}) for luck in range(12)]
        said = [expected.chance for episode in found if (expected := _expected(episode)) is not None]
        drawn = [episode.outcome.value for episode in found if episode.outcome]
        if len(said) > 10:
            spreads.append((statistics.pvariance(said), statistics.pvariance(drawn)))
    assert len(spreads) > 8
    assert sum(said for said, _ in spreads) < 0.5 * sum(drawn for _, drawn in spreads)


def test_the_expected_bill_is_the_mean_of_drawn_ones() -> None:
    """Over many tasks, dollars and seconds that are expected are those that were paid and waited."""
    factory = factory_of("HLE-v0")
    said, drawn = [0.0, 0.0], [0.0, 0.0]
    for seed in range(1500):
        episode = played(factory, baseline("cheapest", seed), seed)
        if expected := _expected(episode):
            measure = measured(episode)
            said = [said[0] + expected.usd, said[1] + expected.seconds]
            drawn = [drawn[0] + measure.usd, drawn[1] + measure.seconds]
    assert said == pytest.approx(drawn, rel=0.1)


def test_a_chance_counts_what_a_right_answer_would_earn() -> None:
    between = (replace(WRONG, usd=0.0), replace(RIGHT, usd=0.1))
    sure = replace(RIGHT, usd=9.0, expected=Expected(1.0, RIGHT.usd, RIGHT.seconds))  # what was drawn does not count
    likely = replace(WRONG, expected=Expected(0.25, 0.02, WRONG.seconds))
    rewards = Grpo(PARAMS).score(group_of(sure, likely, baselines=between))
    assert [one.total for one in rewards if one] == pytest.approx([1.8, 0.25 * 1.8])
    unread = Grpo(replace(PARAMS, unreadable="wrong")).score(group_of(sure, replace(likely, valid_format=False)))
    assert [one.total for one in unread if one][1] == 0.0
