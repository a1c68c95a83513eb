"""The held-out panel: every environment of the mix, scored beside the baselines, also where nothing could be scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.engines.base import Sample, SamplingParams
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.evaluation.heldout import HeldOut, as_metrics
from toolorchestra.agents.policies.baselines import NAMES, players
from toolorchestra.agents.rollouts.rollout import Job, RolloutParams, Rollouts, factory_of
from toolorchestra.agents.rollouts.tokens import Chat
from toolorchestra.agents.rollouts.trajectory import Trajectory
from toolorchestra.envs.base.errors import Outage
from toolorchestra.envs.domains.questions.judge import Judge
from toolorchestra.envs.models import ChatRequest, Completion
from toolorchestra.envs.money.prices import JUDGE, Tokens, Usage
from toolorchestra.envs.tools.backends import Backing, read

CHAT = Chat(load_tokenizer())
HLE = "ToolOrchestra/HLE-v0"
SAME = {"style": "brief", "shown_characters": 0}


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


def test_an_id_may_come_again_with_other_arguments() -> None:
    mixes = [EnvMix(HLE, 1.0, {**SAME, "max_turns": 2}), EnvMix(HLE, 1.0, {**SAME, "max_turns": 3})]
    held = HeldOut(mixes, 2)
    jobs = held.jobs()
    assert [job.env_id for job in jobs] == [HLE] * 4
    assert [job.factory.settings.max_turns for job in jobs] == [2, 2, 3, 3]
    found = held.evaluate(rollouts(Silent()))
    assert list(found.by_environment) == [HLE, f"{HLE} (2)"]
    assert [t.turns for t in found.trajectories] == [2, 2, 3, 3]
    assert len(held.baselines(f"{HLE} (2)")) == 2


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
    asked = first.baselines(HLE)
    assert model.asked
    assert second.baselines(HLE) == asked


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


def test_the_outcome_is_the_reward_where_the_policy_plays_alone() -> None:
    held = HeldOut([EnvMix("ToolScale-v0", 1.0, {"domain": "finance", "max_turns": 1})], 4)
    played = rollouts(Silent()).collect(held.jobs())
    for trajectory, outcome in zip(played, (1.0, 0.0, 0.5, 1.0), strict=True):
        trajectory.measure = replace(trajectory.measure, outcome=outcome, failed=False)
    played[3].measure = replace(played[3].measure, failed=True)
    found = held.evaluate(Made(played))  # type: ignore[arg-type]
    assert found.standings["policy"].reward == found.standings["policy"].accuracy == 0.5
    assert found.of_oracle is None
    assert "of_oracle" not in as_metrics(found)


class Made:
    """Rollouts that were made before."""

    def __init__(self, trajectories: Sequence[Trajectory]) -> None:
        self.trajectories = trajectories

    def collect(self, _jobs: Sequence[Job]) -> Sequence[Trajectory]:
        return self.trajectories


def test_baselines_do_not_play_over_real_backends() -> None:
    """They know the embedded experts' skills, and would be paid for."""
    assert players(factory_of(HLE).source) == NAMES
    assert players(factory_of(HLE, backends=Backing(read(index="embedded"))).source) == ()
    assert players(factory_of("ToolScale-v0").source) == ()


def test_where_every_rollout_failed_the_policy_stands_at_nothing() -> None:
    found = HeldOut([EnvMix(HLE, 1.0, SAME)], 2).evaluate(rollouts(Silent(away=True)))
    assert (found.standings["policy"].reward, found.standings["policy"].accuracy) == (0.0, 0.0)
    assert found.standings["oracle"].accuracy == 1.0
    assert found.of_oracle == 0.0
