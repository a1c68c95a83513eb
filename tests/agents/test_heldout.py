"""The held-out panel: every environment of the mix, scored beside the baselines, also where nothing could be scored."""

from __future__ import annotations

from typing import Any

from toolorchestra.agents.config import EnvMix
from toolorchestra.agents.engines.base import Sample, SamplingParams
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.heldout import HeldOut
from toolorchestra.agents.rollout import RolloutParams, Rollouts
from toolorchestra.agents.tokens import Chat
from toolorchestra.envs.errors import Outage
from toolorchestra.envs.models import ChatRequest, Completion
from toolorchestra.envs.prices import JUDGE, Tokens, Usage
from toolorchestra.envs.worlds.judge import Judge

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


def test_where_every_rollout_failed_the_policy_stands_at_nothing() -> None:
    found = HeldOut([EnvMix(HLE, 1.0, SAME)], 2).evaluate(rollouts(Silent(away=True)))
    assert (found.standings["policy"].reward, found.standings["policy"].accuracy) == (0.0, 0.0)
    assert found.standings["oracle"].accuracy == 1.0
    assert found.of_oracle == 0.0
