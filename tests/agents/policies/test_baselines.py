"""What there is to learn: the spread between the baselines, and that nobody gets anywhere by guessing."""

from __future__ import annotations

import pytest

from tests.agents.evaluation.played_episodes import Summary, plays, summarise, table
from tests.agents.evaluation.played_episodes import play_alone as play
from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.policies.baselines import NAMES, baseline
from toolorchestra.agents.policies.plans import MOST_SEARCHES
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.tools.search import NOTHING_MISSING, NOTHING_NEW

TASKS = 300


def standings(env_id: str, names: tuple[str, ...], **arguments: str) -> dict[str, Summary]:
    made = factory_of(env_id, preference="none", **arguments)
    return {
        name: summarise(name, [play(made, policy, seed) for seed in range(TASKS)])
        for name, policy in ((name, baseline(name)) for name in names)
    }


@pytest.mark.parametrize("env_id", ["HLE-v0", "FRAMES-v0"])
def test_no_expert_alone_is_enough_and_who_plans_is_as_right_for_less(env_id: str) -> None:
    got = standings(env_id, (*NAMES, "task-oracle"), split="test")
    assert not any(s.failed for s in got.values())
    assert 0.55 < got["strongest"].accuracy < 0.85
    assert got["oracle"].accuracy > got["strongest"].accuracy - 0.02
    assert got["oracle"].cents < 0.7 * got["strongest"].cents
    assert got["task-oracle"].accuracy > got["strongest"].accuracy + 0.08
    assert got["random"].accuracy < got["cheapest"].accuracy - 0.05
    assert got["cheapest"].accuracy < got["strongest"].accuracy - 0.1


@pytest.mark.parametrize("name", ["cheapest", "strongest"])
def test_a_fixed_rule_searches_until_nothing_new_comes_and_not_again_after_the_program(name: str) -> None:
    made = factory_of("HLE-v0")
    plain = 0
    for seed in range(40):
        ended = played(made, baseline(name), seed)
        told = [(str(m.get("name")), str(m["content"])) for m in ended.messages if m["role"] == "tool"]
        called = [tool for tool, _ in told]
        assert called == ["search"] * called.count("search") + ["enhance_reasoning", "answer"]
        nothing = [text.startswith((NOTHING_NEW, NOTHING_MISSING)) for tool, text in told if tool == "search"]
        assert not any(nothing[:-1])
        assert nothing[-1] or len(nothing) == MOST_SEARCHES
        plain += len(nothing) == 1
    assert plain > 10


@pytest.mark.parametrize("env_id", ["HLE-v0", "FRAMES-v0"])
def test_a_guesser_without_tools_scores_under_five_per_cent(env_id: str) -> None:
    assert standings(env_id, ("guess",), tools="plain")["guess"].accuracy < 0.05


@pytest.mark.parametrize("env_id", ["HLE-v0", "FRAMES-v0"])
def test_the_plain_tools_can_be_orchestrated_too(env_id: str) -> None:
    got = standings(env_id, ("cheapest", "oracle"), tools="plain")
    assert got["oracle"].accuracy > got["cheapest"].accuracy
    assert got["oracle"].accuracy > 0.6


def test_the_same_seed_gives_the_same_episode() -> None:
    made = factory_of("HLE-v0")
    for name in NAMES:
        assert play(made, baseline(name, 1), 5) == play(made, baseline(name, 1), 5)


def test_the_table_and_unknown_policies() -> None:
    shown = table(list(standings("HLE-v0", ("cheapest",)).values()))
    assert "cheapest" in shown
    assert "reasoner-3 1.00" in shown
    with pytest.raises(ConfigError, match=r"no policy 'oracl'; valid: .* Did you mean 'oracle'"):
        baseline("oracl")
    with pytest.raises(ConfigError, match="the guesser needs the plain tools"):
        play(factory_of("HLE-v0"), baseline("guess"), 0)


def test_what_the_spend_cap_cuts_is_not_played_and_never_wrong() -> None:
    cap = SpendCap(0.01)
    made = factory_of("HLE-v0", preference="none", spend_cap=cap)
    records = list(plays(made, baseline("strongest"), 20, 0))
    spent, cut = cap.spent_usd, [record for record in records if record.cut]
    assert list(plays(made, baseline("random"), 20, 0)) == []
    assert cap.spent_usd == spent
    assert len(records) < 20
    assert cut == records[-1:]
    free = [play(factory_of("HLE-v0", preference="none"), baseline("strongest"), k) for k in range(len(records))]
    got = summarise("strongest", records, 20 - len(records))
    assert (got.failed, got.unplayed, got.episodes) == (0, 21 - len(records), 20)
    assert got.accuracy == summarise("strongest", free[:-1]).accuracy
    shown = table([got, summarise("random", [], 20)]).splitlines()
    assert shown[-1] == f"the spend cap is used up; not played: strongest {got.unplayed} of 20, random 20 of 20"
    assert "0.0%" not in shown[2]
