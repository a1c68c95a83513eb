"""Rollouts when the sampler breaks off, and where turns end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.loopback import Loopback, ServerReply
from tests.support.toy import AdderSource, script
from toolorchestra.agents.engines.base import Sample, SamplingParams
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.evaluation.heldout import baseline_measures
from toolorchestra.agents.policies.baselines import NAMES
from toolorchestra.agents.rollouts.grpo import AdvantageParams, Group, Grpo, training_batch
from toolorchestra.agents.rollouts.rollout import Chat, Job, RolloutParams, Rollouts, factory_of, siblings
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import Outage
from toolorchestra.envs.domains.source import Scene
from toolorchestra.envs.factory import factory
from toolorchestra.envs.money.prices import TOOL, PriceSheet, Tokens, Usage
from toolorchestra.envs.tools import Toolbox, ToolContext, tool

CHAT = Chat(load_tokenizer())
TURNS = [[*CHAT.encode(text), CHAT.stop] for text in script()]
FACTORY = factory("tests.support.toy:AdderSource", preference="none")
PARAMS = RolloutParams(max_tokens=64, max_context=2048)


class Scripted:
    """Says the toy's script; sessions that are named break off at their third turn."""

    def __init__(self, *broken: str) -> None:
        self.broken = broken
        self.asked: list[SamplingParams] = []
        self.released: list[str] = []
        self._at: dict[str, int] = {}

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        self.asked.append(params)
        at = self._at[session] = self._at.get(session, -1) + 1
        if session.partition("/")[0] in self.broken and at == 2:
            raise Outage("the engine is gone")
        return Sample(TURNS[at], [-0.1] * len(TURNS[at]), True)

    def release(self, session: str) -> None:
        self.released.append(session)


def collect(engine: Any, params: RolloutParams = PARAMS) -> list[Any]:
    return Rollouts(engine, CHAT, params).collect([Job("toy", FACTORY, 5) for _ in range(4)])


class LossySource(AdderSource):
    """One of whose tasks has lost its file."""

    def open(self, task_id: str, seed: int, sheet: PriceSheet, tools: Sequence[str] | None) -> Scene:
        if seed == 6:
            raise FileNotFoundError("task.json")
        return super().open(task_id, seed, sheet, tools)


def test_a_task_that_cannot_be_opened_is_a_failed_rollout_and_the_others_go_on() -> None:
    made = factory(LossySource(), preference="none")
    jobs = [one for seed in (5, 6) for one in siblings(Job("toy", made, seed), 2)]
    got = Rollouts(Scripted(), CHAT, PARAMS).collect(jobs)
    assert [t.measure.failed for t in got] == [False, False, True, True]
    assert {(t.failure or {}).get("error") for t in got[2:]} == {"FileNotFoundError: task.json"}
    for names in ((), NAMES):
        group = Group(got[2:], baseline_measures(jobs[2], names, CHAT))
        assert not training_batch([group], Grpo(AdvantageParams())).data


def test_connections_to_models_are_closed_as_rollouts_end(tmp_path: Path) -> None:
    """Each collect() has an event loop of its own, and connections of an earlier one nobody can use."""
    models = '[endpoints.here]\nbase_url = "{}"\n[models."*"]\nprice = {{free = "own"}}\n'
    asks = CHAT.encode(render_call("answer", {"model": "answer-1"}))

    class Asking(Scripted):
        async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
            return Sample([*asks, CHAT.stop], [-0.1] * (len(asks) + 1), True)

    with Loopback(lambda _: ServerReply("<answer>42</answer>")) as server:
        (path := tmp_path / "b.toml").write_text(models.format(server.base_url))
        made = factory_of("HLE-v0", style="brief", shown_characters=0, max_turns=1, backends=str(path))
        for _ in range(2):
            Rollouts(Asking(), CHAT, PARAMS).collect([Job("HLE-v0", made, 5)])
        assert server.seen
        assert not made.source.backing._models._clients


def test_an_episode_whose_sampler_broke_off_is_failed_and_the_others_go_on() -> None:
    engine = Scripted("1", "3")
    got = collect(engine)
    assert [t.measure.failed for t in got] == [False, True, False, True]
    assert [t.truncated_by for t in got] == ["", "outage", "", "outage"]
    assert [t.measure.outcome for t in got if not t.measure.failed] == [1.0, 1.0]
    assert got[1].failure is not None
    assert got[1].failure["where"] == "sampler"
    assert got[1].failure["error"] == "Outage: the engine is gone"
    assert len(engine.released) >= 4
    batch = training_batch([Group(got)], Grpo(AdvantageParams()))
    assert batch.failed == 2
    assert [r is None for r in batch.rewards[0]] == [False, True, False, True]


@pytest.mark.parametrize(
    ("settings", "stopped"),
    [({}, ""), ({"max_turns": len(TURNS)}, ""), ({"max_turns": 3}, "turns"), ({"budget": 1e-6}, "usd")],
)
def test_the_output_is_valid_where_no_limit_cut_it_off(settings: dict[str, Any], stopped: str) -> None:
    """The last turn that is allowed still answers."""
    made = factory("tests.support.toy:AdderSource", preference="none", **settings)
    (got,) = Rollouts(Scripted(), CHAT, PARAMS).collect([Job("toy", made, 5)])
    assert (got.truncated_by, got.measure.valid_output) == (stopped, not stopped)
    assert not got.measure.failed


@tool
async def add(context: ToolContext, a: int, b: int) -> int:
    """Add two integers: paid at once, and never done."""
    context.bill.add(Usage("gpt-5", TOOL, Tokens(1_000_000)))
    await asyncio.sleep(60)
    return a + b


class EndlessSource(AdderSource):
    """Its tool is never done."""

    def __init__(self) -> None:
        super().__init__()
        self._toolbox = Toolbox([add])


def test_a_rollout_that_its_deadline_broke_off_is_billed_what_its_call_has_paid() -> None:
    made = factory("tests.agents.rollouts.test_rollout:EndlessSource", preference="none")
    params = replace(PARAMS, deadline_seconds=0.3)
    (got,) = Rollouts(Scripted(), CHAT, params).collect([Job("toy", made, 5)])
    assert (got.truncated_by, got.measure.failed) == ("deadline", True)
    assert got.bill["usd_by_role"][TOOL] == pytest.approx(1.25)


def test_a_rollout_may_have_limits_of_its_own() -> None:
    """What runs out of context is neither failed nor valid; the other is under the limits of all."""
    engine = Scripted()
    jobs = [Job("toy", FACTORY, 5), Job("toy", FACTORY, 5, max_tokens=32, max_context=200)]
    free, cut = Rollouts(engine, CHAT, PARAMS).collect(jobs)  # type: ignore[arg-type]
    assert {params.max_tokens for params in engine.asked} == {64, 32}
    assert (free.truncated_by, free.measure.context_cut, free.measure.outcome) == ("", False, 1.0)
    assert (cut.truncated_by, cut.measure.context_cut, cut.measure.outcome) == ("context", True, 0.0)
    assert (cut.measure.failed, cut.measure.valid_output) == (False, False)
    assert 0 < cut.turns < free.turns
