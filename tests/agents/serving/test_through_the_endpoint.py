"""A policy that is asked through the server plays as it does in process: on all sources, row by row."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.observing import Observing
from tests.support.served import running
from tests.tau2_playing import needs_package
from toolorchestra.agents.policies.players import Player, player
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.runtime.invoke import Gates, advance, begin

TOOLS = {
    "name": "own words",
    "tools": [
        {"kind": "web_search", "name": "look_up"},
        {"kind": "python", "name": "compute"},
        {"kind": "submit", "name": "submit"},
    ],
}
BACKENDS = """
[endpoints.served]
base_url = "{url}/v1"
[models.qwen3-8b]
endpoints = ["served"]
model = "tests.support.observing:player"
native_tools = true
context_tokens = 200000
extra = {{orchestrator_tools = []}}
"""


async def played(made: EpisodeFactory, who: Player, seed: int, gates: Gates) -> dict[str, Any]:
    """An episode's row: what was said and done, what it cost, and how it ended."""
    episode = made.start(seed).episode
    await begin(episode, gates)
    while not episode.over:
        await advance(episode, *(await who.move(episode))[:1], gates)
    outcome = episode.outcome
    return {
        "messages": [dict(message) for message in episode.messages],
        "nano_usd": episode.ledger.nano_usd,
        "tokens": episode.ledger.tokens(),
        "calls": episode.calls,
        "turns": episode.turn,
        "outcome": outcome and (outcome.value, dict(outcome.evidence)),
        "failure": episode.failure,
    }


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        ("HLE-v0", {"tools": "tools.json"}),
        ("FRAMES-v0", {"tools": "tools.json"}),
        ("ToolScale-v0", {"call_expert": False}),
        pytest.param("Tau2-v0", {"domain": "mock", "split": "base"}, marks=needs_package),
    ],
)
def test_through_the_server_and_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: str, settings: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tools.json").write_text(json.dumps(TOOLS))
    common = {"preference": "none", "max_turns": 8, "split": "test", **settings}
    with running(tmp_path / "out", "tests.support.observing:player") as server:
        Path("backends.toml").write_text(BACKENDS.format(url=server.url))
        asked = factory_of(env, **common, backends="backends.toml")
        alone = factory_of(env, **common)

        async def both() -> tuple[list[Any], list[Any]]:
            gates = Gates()
            here = [await played(alone, Observing(), seed, gates) for seed in range(4)]
            there = await asyncio.gather(*[played(asked, player("chat", asked), seed, gates) for seed in range(4)])
            await asked.source.backing.aclose()  # type: ignore[attr-defined]
            return here, there

        here, there = asyncio.run(both())
        moves = len(server.service.latest)
    for mine, theirs in zip(here, there, strict=True):
        assert theirs == mine
    assert moves == sum(one["turns"] for one in here)
    assert sum(one["turns"] for one in here) > 4
