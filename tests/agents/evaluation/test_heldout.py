"""The held-out panel: every environment of the mix, scored beside the baselines, also where nothing could be scored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import pytest

from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.engines.base import Sample, SamplingParams
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.evaluation.heldout import (
    HeldOut,
    Split,
    TaskScores,
    played,
    scores,
    share_of_oracle,
    standing,
)
from toolorchestra.agents.policies.baselines import NAMES, baseline
from toolorchestra.agents.reports.stages import plays_of
from toolorchestra.agents.rollouts.grpo import Expected, Measure, Trajectory
from toolorchestra.agents.rollouts.rollout import Chat, Job, RolloutParams, Rollouts, factory_of, measured
from toolorchestra.envs.base.errors import Outage
from toolorchestra.envs.base.preference import Preference, kinds
from toolorchestra.envs.domains.questions.judge import Judge
from toolorchestra.envs.models import ChatRequest, Completion
from toolorchestra.envs.money.prices import JUDGE, Tokens, Usage

CHAT = Chat(load_tokenizer())
HLE = "ToolOrchestra/HLE-v0"
SAME = {"style": "brief", "shown_characters": 0}
SPLITS: tuple[Split, ...] = get_args(Split)


class Silent:
    """Says nothing, or is away."""

    def __init__(self, away: bool = False) -> None:
        self.away = away

    async def sample(self, prompt: Any, params: SamplingParams, session: str = "") -> Sample:
        if self.away:
            raise Outage("away")
        return Sample([CHAT.stop], [-0.1], True)

    def release(self, session: str) -> None:
        """Nothing."""


def rollouts(engine: Any) -> Rollouts:
    return Rollouts(engine, CHAT, RolloutParams(max_tokens=8, max_context=2048))


class Strict:
    """A judge's model that asks a fortune for a verdict."""

    suspends = False
    asked = 0

    async def complete(self, request: ChatRequest) -> Completion:
        self.asked += 1
        return Completion("<verdict>wrong</verdict>", Usage("gpt-5", JUDGE, Tokens(10**6, 0, 10**6)))


def test_baselines_measure_the_same_whether_a_verdict_is_asked_for_or_known() -> None:
    """What the judge is paid is no cost of a player's, the policy's neither."""
    mixes, model = [EnvMix(HLE, 1.0, {**SAME, "max_turns": 9})], Strict()
    first, second = HeldOut(mixes, 4), HeldOut(mixes, 4)
    first.jobs()[0].factory.source.judge = Judge(model, ["gpt-5"])  # type: ignore[attr-defined]
    asked = first.baselines(HLE, CHAT)
    assert model.asked
    assert second.baselines(HLE, CHAT) == asked


def test_what_no_baseline_can_play_counts_by_its_outcome_beside_what_they_can() -> None:
    toolscale = EnvMix("ToolScale-v0", 1.0, {"domain": "finance", "max_turns": 1})
    hle = EnvMix(HLE, 1.0, {**SAME, "max_turns": 2})
    both, alone = (HeldOut(mixes, 2).evaluate(rollouts(Silent())) for mixes in ([hle, toolscale], [hle]))
    assert list(both.by_environment["ToolScale-v0"]) == ["policy"]
    assert both.by_environment[HLE] == alone.by_environment[HLE]
    assert list(both.standings) == ["policy", *NAMES]
    assert both.standings["oracle"] == alone.standings["oracle"]
    assert both.of_oracle == alone.of_oracle
    assert len(both.trajectories) == 4


class Made:
    """Rollouts that were made before."""

    chat = CHAT

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self.trajectories = trajectories

    def collect(self, _jobs: Sequence[Job]) -> Sequence[Trajectory]:
        return self.trajectories


def test_a_task_whose_episode_failed_counts_for_nobody() -> None:
    """Else it would leave the policy's mean alone, and the share of the oracle's reward would rise or fall by it."""
    mixes = [EnvMix(HLE, 1.0, {**SAME, "max_turns": 2})]
    whole, some = HeldOut(mixes, 6), HeldOut(mixes, 6)
    played = rollouts(Silent()).collect(whole.jobs())
    for number, trajectory in enumerate(played):
        trajectory.measure = replace(trajectory.measure, outcome=1.0, failed=number >= 4)
    found = some.evaluate(Made(played))  # type: ignore[arg-type]
    assert found.failed == 2
    assert {s.tasks for s in found.standings.values()} == {4}
    first = [panel["oracle"] for panel in some.baselines(HLE, CHAT)[:4]]
    assert found.standings["oracle"].cents == pytest.approx(100 * sum(m.usd for m in first) / 4)


def test_a_checkpoint_is_chosen_by_what_was_to_be_expected_and_reported_by_what_was_drawn() -> None:
    mixes = [EnvMix(HLE, 1.0, {**SAME, "max_turns": 2})]
    held_out = HeldOut(mixes, 6)
    played = rollouts(Silent()).collect(held_out.jobs())
    drawn = held_out.evaluate(Made(played))  # type: ignore[arg-type]
    assert drawn.expected_reward() == drawn.standings["policy"].reward == 0.0
    for trajectory, fixed in zip(played, held_out.baselines(HLE, CHAT), strict=True):
        free = replace(fixed["cheapest"], outcome=0.0)
        trajectory.measure = replace(free, expected=Expected(0.5, free.usd, free.seconds))
    found = held_out.evaluate(Made(played))  # type: ignore[arg-type]
    half = found.expected_reward()
    assert found.standings["policy"].reward == 0.0
    right = [replace(t.measure, outcome=1.0, expected=None) for t in played]
    for trajectory, measure in zip(played, right, strict=True):
        trajectory.measure = measure
    solved = held_out.evaluate(Made(played))  # type: ignore[arg-type]
    assert half == pytest.approx(0.5 * solved.standings["policy"].reward)
    assert solved.expected_reward() == solved.standings["policy"].reward > 0


def test_splits_and_seeds_and_environments_share_no_task_no_preference_no_price_and_no_tools() -> None:
    """The checkpoint is picked on other variants than those that are reported."""
    mixes = [
        EnvMix(HLE, 1.0, {**SAME, "vary": ("tools", "prices")}),
        EnvMix("ToolOrchestra/FRAMES-v0", 1.0, {**SAME, "vary": ("tools", "prices")}),
    ]
    seeds = [{job.seed for job in HeldOut(mixes, 50, split, seed).jobs()} for split in SPLITS for seed in (0, 1, 2)]
    assert len(set().union(*seeds)) == sum(map(len, seeds)) == 600

    def seen(split: Split) -> tuple[set[str], set[str], set[str]]:
        preferences, lines, questions = set(), set(), set()
        for job in HeldOut(mixes, 50, split).jobs():
            episode = job.factory.start(job.seed).episode
            preferences.add(re.sub(r"\b[a-z]+(-[a-z]+)?-\d\b", "TOOL", episode.preference.sentence))
            questions.add(str(episode.messages[1]["content"]))
            lines |= {line for tool in episode.world.toolbox for line in tool.description.split(";")}
        return preferences, lines, questions

    validation, test = (seen(split) for split in SPLITS)
    assert [left & right for left, right in zip(validation, test, strict=True)] == [set(), set(), set()]
    trained: set[str] = set()
    for mix in mixes:
        made = training(mix)
        for seed in range(300):
            toolbox = made.start(seed).episode.world.toolbox
            trained |= {line for tool in toolbox for line in tool.description.split(";")}
    assert len(trained) > 200
    assert not trained & (validation[1] | test[1])


def test_tasks_of_a_split_that_lists_them_are_played_once_each() -> None:
    """Drawn by their seeds, some would come again and count as tasks of their own."""
    toolscale = EnvMix("ToolScale-v0", 1.0, {"domain": "finance", "max_turns": 1})
    mixes = [toolscale, EnvMix(HLE, 1.0, {**SAME, "max_turns": 2})]
    whole, again, few = HeldOut(mixes, 100), HeldOut(mixes, 100), HeldOut(mixes, 8)
    every = whole.jobs()[0].factory.source.task_ids("validation")  # type: ignore[attr-defined]
    named = [job.options["task_id"] for job in whole.jobs() if job.options]
    assert sorted(named) == sorted(every) != named
    assert [job.options for job in whole.jobs()] == [job.options for job in again.jobs()]
    assert [job.options["task_id"] for job in few.jobs() if job.options] == named[:8]
    assert few.fewer() == []
    (said,) = whole.fewer()
    assert said.startswith(f"held out: ToolScale-v0 has {len(every)} tasks in split 'validation'")
    made = few.evaluate(rollouts(Silent()))
    parts = few.by_environment(made.trajectories)
    assert [t.task_id for t in parts["ToolScale-v0"]] == named[:8]
    assert {t.env_id for t in parts[HLE]} == {HLE}
    seen: list[str] = []
    few.beside(lambda: lambda episode: seen.append(episode.task_id) or "", made, CHAT)  # type: ignore[func-returns-value]
    assert list(dict.fromkeys(seen))[:8] == named[:8]


def test_the_oracle_knows_the_preference_and_nobody_fixed_earns_more() -> None:
    tasks = []
    for env_id in (HLE, "ToolOrchestra/FRAMES-v0"):
        held = HeldOut([EnvMix(env_id, 1.0, {**SAME, "max_turns": 10})], 40, "test")
        for job, panel in zip(held.jobs(), held.baselines(env_id, CHAT), strict=True):
            episode = job.factory.start(job.seed).episode
            scored = scores(episode.world.toolbox.keys, episode.preference, panel["strongest"], panel)
            assert scored is not None
            tasks.append(TaskScores(episode.preference.kind, scored))
    for preference in kinds():
        some = [task for task in tasks if task.preference == preference]
        rewards = {name: standing(some, name).reward for name in NAMES}
        assert rewards["oracle"] == max(rewards.values()), (preference, rewards)
    assert standing(tasks, "oracle").accuracy > 0.7
    frugal, accurate = (
        standing([task for task in tasks if task.preference == preference], "oracle").cents
        for preference in ("frugal", "accurate")
    )
    assert frugal < accurate


def test_the_score_of_one_player_does_not_depend_on_another() -> None:
    keys, preference = ("answer-1", "search-1"), Preference(outcome=1.0, usd=1.0, tools={"search-1": 1.0})
    fixed = {
        "cheapest": Measure(0.0, 0.01, 5.0, {}),
        "oracle": Measure(1.0, 0.02, 5.0, {"search-1": 1}),
        "strongest": Measure(1.0, 0.11, 9.0, {"search-1": 2}),
    }
    thrifty, greedy = Measure(1.0, 0.005, 5.0, {}), Measure(1.0, 0.2, 5.0, {"search-1": 9})
    first, second = (scores(keys, preference, mine, fixed) for mine in (thrifty, greedy))
    assert first is not None
    assert second is not None
    assert {name: first[name].reward for name in fixed} == {name: second[name].reward for name in fixed}
    assert first["oracle"].reward == pytest.approx((1 + 9 / 10 + 1 / 2) / 3)
    assert first["policy"].reward == pytest.approx((1 + 1 + 0) / 3)
    assert second["policy"].reward == pytest.approx((1 + 0 + 1) / 3)
    assert second["cheapest"].reward == 0.0
    assert scores(keys, preference, replace(thrifty, failed=True), fixed) is None


def test_a_baseline_whose_episode_failed_is_left_out_and_being_right_counts_all_the_same() -> None:
    keys, preference = (), Preference(outcome=1.0, usd=1.0)
    broken = Measure(0.0, 9.0, 5.0, {}, failed=True)
    right = Measure(1.0, 0.02, 5.0, {})
    for fixed in ({"random": broken, "cheapest": right}, {"cheapest": right, "oracle": broken}):
        found = scores(keys, preference, right, fixed)
        assert found is not None
        assert {name: one.reward for name, one in found.items()} == {"policy": 0.5, "cheapest": 0.5}
    alone = scores(keys, preference, right, {"oracle": broken})
    assert alone is not None
    assert {name: one.reward for name, one in alone.items()} == {"policy": 1.0}


def test_where_an_oracle_failed_its_share_is_over_the_other_tasks() -> None:
    """As 0 it would make a share that is above 100 %."""
    right = Measure(1.0, 0.02, 5.0, {})
    panels = [{"cheapest": right, "oracle": replace(right, failed=number < 4)} for number in range(24)]
    made = [scores((), Preference(outcome=1.0), right, panel) for panel in panels]
    tasks = [TaskScores("accurate", found) for found in made if found is not None]
    assert standing(tasks, "oracle").tasks == 20
    share = share_of_oracle(tasks)
    assert share is not None
    assert share.value == 1.0
    assert [play is None for play in plays_of(tasks, "oracle")] == [True] * 4 + [False] * 20


def test_baselines_are_billed_by_the_tokens_that_the_policy_would_be() -> None:
    """The same moves cost the same, whoever makes them."""
    factory = factory_of(HLE, **SAME, preference="none")

    class Says:
        """A policy that says what the baseline says."""

        def __init__(self) -> None:
            self.texts = [str(m["content"]) for m in played(factory, baseline("cheapest"), 3).messages]
            self.texts = [t for t in self.texts if t.startswith("<tool_call>")]

        async def sample(self, prompt: Any, params: SamplingParams, session: str = "") -> Sample:
            ids = [*CHAT.encode(self.texts.pop(0)), CHAT.stop]
            return Sample(ids, [0.0] * len(ids), True)

        def release(self, session: str) -> None:
            """Nothing."""

    (policy,) = rollouts(Says()).collect([Job(HLE, factory, 3)])
    fixed = measured(played(factory, baseline("cheapest"), 3, chat=CHAT))
    assert policy.measure == fixed
    by_characters = measured(played(factory, baseline("cheapest"), 3))
    assert by_characters.usd > fixed.usd


def test_terms_of_ones_own_are_part_of_everybodys_held_out_reward() -> None:
    preference = Preference(outcome=1.0, usd=1.0)
    right = Measure(1.0, 0.1, 1.0, {})
    fixed = {"cheapest": replace(right, terms={"late": -0.5}), "oracle": right}
    plain = scores((), preference, right, {"cheapest": right, "oracle": right})
    found = scores((), preference, replace(right, terms={"late": 0.25}), fixed)
    assert plain
    assert found
    added = {name: found[name].reward - plain[name].reward for name in found}
    assert added == pytest.approx({"policy": 0.25, "cheapest": -0.5, "oracle": 0.0})
    alone = scores((), preference, replace(right, outcome=0.0, terms={"late": -0.25}), {})
    assert alone
    assert alone["policy"].reward == -0.25
