"""Real spend is the ledger's is the spend cap's, to the nano-dollar, whatever a server of models does wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.agents.evaluation import played_episodes
from tests.agents.evaluation.test_endpoint_evaluation import expert
from tests.support.chaos_server import SERVER_FAULTS, SILENT, ChaosReplies
from tests.support.loopback import Loopback
from toolorchestra.envs.factory import factory
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.money.prices import NANO, Price
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import full_id
from toolorchestra.envs.testing.rehearsal import Held
from toolorchestra.envs.tools.backends import Backing, NamedBackends

pytest.importorskip("openai", reason='needs pip install ".[models]"')
ROW = {"usd_per_mtok": {"input": 1.5, "output": 7}}
PRICE = Price.read(ROW, "test")


def played(chaos: ChaosReplies, env: str, episodes: int, cap: SpendCap, **served: Any) -> list[Any]:
    """Episodes that a model behind the server plays, with experts and a judge behind it too; their ledgers as they
    ended. Streams that broke off have to be billed by estimate, each once."""
    with Loopback(chaos) as server:
        ends = {"here": {"base_url": server.base_url, "failures_to_open": 10**6}}
        model = {"deadline_seconds": 20.0, "retries": 2, "price": ROW, **served}
        endpoints = Endpoints.read({"endpoints": ends, "models": {"*": model}}, "test")
        backing = Backing(NamedBackends("test", endpoints=endpoints, judges=("gpt-5-mini",)))
        spec = gym.spec(full_id(env)).kwargs
        made = factory(**spec, backends=backing, preference="none", spend_cap=cap, max_turns=6)
        chat = played_episodes.policy("chat", made)
        done: dict[int, played_episodes.PlayedEpisode] = {}
        asyncio.run(played_episodes.evaluate(made, chat, 0, episodes, 32, done))
        chaos.estimated += sum(not one.whole for one in server.streamed)
        return played_episodes.in_order(done)


@pytest.mark.parametrize("fault", SERVER_FAULTS)
def test_the_server_the_ledgers_and_the_cap_count_the_same_dollars(fault: str) -> None:
    played(ChaosReplies(expert, rate=0.0), "HLE-v0", 4, SpendCap(1000))  # what is loaded once is no leak
    held = Held.now()
    cap, chaos = SpendCap(1000), ChaosReplies(expert, seed=1, rate=0.3, faults=(fault,))
    ended = played(chaos, "HLE-v0", 6, cap, retries=1, deadline_seconds=2.0 if fault in SILENT else 20.0)
    assert held.leaked_since() == ""
    assert len(ended) == 6
    assert chaos.made[fault] > 0
    check(chaos, cap, ended)


def check(chaos: ChaosReplies, cap: SpendCap, ended: list[Any]) -> None:
    charges = [charge for p in ended for charge in p.charges]
    assert sum(c.nano_usd for c in charges if counted(c)) == chaos.nano_usd(PRICE)
    assert sum(c.usage.estimated for c in charges) == chaos.estimated
    assert round(cap.spent_usd * NANO) == sum(p.nano_usd for p in ended)
    assert cap.held_usd == 0


def counted(charge: Any) -> bool:
    return not charge.usage.estimated and charge.role != "tool"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_all_faults_together_lose_no_episode_and_no_nano_dollar(stream: bool) -> None:
    faults = [name for name in SERVER_FAULTS if name not in SILENT]  # those take their time, above
    cap, chaos = SpendCap(1000), ChaosReplies(expert, seed=3, rate=0.3, faults=faults)
    ended = played(chaos, "FRAMES-v0", 60, cap, stream=stream)
    assert len(ended) == 60
    check(chaos, cap, ended)
    assert any(p.failure for p in ended)
    assert all(not p.failure or p.record.failed for p in ended)
