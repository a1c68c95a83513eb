"""Every environment under chaos, held against the same episodes without it: `make robustness`.

    from tests.support.chaos_runs import chaos_run

    print(chaos_run("ToolOrchestra/HLE-v0", episodes=50))

What must hold: no episode is lost. One whose backends had a fault that hides an answer has failed and has no outcome.
Any other ends as it does without chaos. What the ledgers hold under the roles of models is what the models were paid,
usage for usage, and the spend cap has counted all of it. Nothing is left behind: no task, thread, process or file.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from tests.support.chaos import EPISODE, FATAL, Chaos
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.toolscale.model_user import written
from toolorchestra.envs.domains.toolscale.user import Mood, SqlModelUser, SqlUserReply
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.models import ChatRequest, ScriptedModel
from toolorchestra.envs.money.prices import EXPERT, JUDGE, NANO, USER, Usage
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import ids
from toolorchestra.envs.runtime.invoke import Gates, advance, begin
from toolorchestra.envs.testing.rehearsal import Held, RandomCaller
from toolorchestra.envs.tools.backends import Backing, NamedBackends

MODEL_ROLES = (EXPERT, JUDGE, USER)
MAX_TURNS = 8
WARM_UP = 10
MOST_FINDINGS = 20
_SAYINGS = ("I see.", "My order has not come.", "Yes, please.", "What does it cost?", "That is all. ###STOP###")


@dataclass
class ChaosReport:
    """What was played, and what was wrong."""

    env_id: str
    episodes: int = 0
    failed: int = 0
    calls: int = 0
    """Of backends."""
    faults: Counter[str] = field(default_factory=Counter)
    nano_usd: int = 0
    """Paid to models; the ledgers and the spend cap hold the same."""
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        head = f"{self.env_id}: {self.episodes} episodes, {self.failed} failed, {self.calls} calls of backends"
        return "\n".join([f"{head}; faults: {faults}; {len(self.findings)} findings", *self.findings[:MOST_FINDINGS]])


def chaos_run(env_id: str, episodes: int, seed: int = 0, rate: float = 0.3, at_once: int = 32) -> ChaosReport:
    """Play the episodes twice, with chaos and without, and compare."""
    # What is loaded once, such as an index with its library's own thread, is no leak.
    asyncio.run(_played(_factory(env_id, Chaos(seed, 0.0), None), WARM_UP, seed, at_once))
    held = Held.now()
    report = _compared(env_id, episodes, seed, rate, at_once)
    if left := held.leaked_since():
        report.findings.append(f"left behind: {left}")
    return report


def _compared(env_id: str, episodes: int, seed: int, rate: float, at_once: int) -> ChaosReport:
    chaos, calm, cap = Chaos(seed, rate), Chaos(seed, 0.0), SpendCap(1e9)
    wild = asyncio.run(_played(_factory(env_id, chaos, cap), episodes, seed, at_once))
    tame = asyncio.run(_played(_factory(env_id, calm, None), episodes, seed, at_once))
    report = ChaosReport(env_id, episodes, calls=chaos.calls.total())
    for name, episode in wild.items():
        faults = chaos.made.get(name, [])
        report.faults.update(faults)
        report.failed += isinstance(episode, Episode) and episode.failure is not None
        if wrong := _wrong(episode, tame[name], faults, chaos.paid.get(name, [])):
            report.findings.append(f"{name} ({', '.join(faults) or 'no fault'}): {wrong}")
    ledgers = [episode.ledger for episode in wild.values() if isinstance(episode, Episode)]
    report.nano_usd = sum(ledger.nano_usd_of(MODEL_ROLES) for ledger in ledgers)
    spent = sum(ledger.nano_usd for ledger in ledgers)
    if round(cap.spent_usd * NANO) != spent:
        report.findings.append(f"the spend cap counted {cap.spent_usd} $, the ledgers hold {spent / NANO} $")
    return report


def _wrong(episode: Episode | str, tame: Episode | str, faults: list[str], paid: list[Usage]) -> str:
    if isinstance(episode, str) or isinstance(tame, str):
        return f"lost: {episode if isinstance(episode, str) else tame}"
    booked = [charge.usage for charge in episode.ledger if charge.role in MODEL_ROLES]
    if sorted(booked) != sorted(paid):
        return f"the models were paid for {len(paid)} usages, the ledger holds {len(booked)} others"
    fatal = [fault for fault in faults if fault in FATAL]
    if fatal and episode.failure is None:
        return f"went on as if nothing had happened, and ended with {episode.outcome}"
    if fatal:
        return "failed and has an outcome all the same" if episode.outcome is not None else ""
    if episode.failure is not None:
        return f"failed without a cause: {episode.failure.error}"
    same = (episode.messages, episode.outcome) == (tame.messages, tame.outcome)
    return "" if same else "ended otherwise than without chaos"


async def _played(made: EpisodeFactory, episodes: int, seed: int, at_once: int) -> dict[str, Episode | str]:
    """By name: the episode at its end, or how it was lost."""
    gates, places = Gates(), asyncio.Semaphore(at_once)
    ended: dict[str, Episode | str] = {}

    async def one(number: int) -> None:
        name = f"episode {number}"
        EPISODE.set(name)
        async with places:
            try:
                ended[name] = await _play(made, seed + number, gates)
            except (Exception, SystemExit) as err:  # noqa: BLE001 - an episode that raises is lost, and told
                ended[name] = f"{type(err).__name__}: {err}"

    await asyncio.gather(*(one(number) for number in range(episodes)))
    return ended


async def _play(made: EpisodeFactory, seed: int, gates: Gates) -> Episode:
    episode, policy = made.start(seed).episode, RandomCaller(seed)
    await begin(episode, gates)
    while not episode.over:
        await advance(episode, policy(episode), gates)
    return episode


def _factory(env_id: str, chaos: Chaos, cap: SpendCap | None) -> EpisodeFactory:
    if env_id not in _SETTINGS:
        raise ConfigError(no_such("environment", env_id, _SETTINGS))
    common = {"preference": "none", "max_turns": MAX_TURNS, "spend_cap": cap}
    return factory(**{**gym.spec(env_id).kwargs, **_SETTINGS[env_id](chaos), **common})


def _said(request: ChatRequest) -> str:
    """A customer's words, or an expert's turn: the same for the same conversation."""
    words = _SAYINGS[(len(request.messages) + request.seed) % len(_SAYINGS)]
    if request.role != EXPERT or not request.tools:
        return words
    tool = request.tools[request.seed % len(request.tools)]["function"]
    return render_call(tool["name"], RandomCaller(request.seed).value(tool["parameters"]))


def _question(chaos: Chaos) -> Mapping[str, Any]:
    return {"backends": Backing(NamedBackends("chaos"), chaos.around)}


def _toolscale(chaos: Chaos) -> Mapping[str, Any]:
    models = chaos.models(ScriptedModel(_said))
    user = chaos.models(ScriptedModel(lambda request: written(SqlUserReply(_said(request), Mood()))))
    return {"backends": models, "user": SqlModelUser(user, "gpt-5-mini")}


def _tau2(chaos: Chaos) -> Mapping[str, Any]:
    model = chaos.models(ScriptedModel(_said))
    return {"domain": "telecom", "user": (model, "gpt-5-mini"), "experts": {"expert-1": (model, "gpt-5")}}


_SETTINGS: Mapping[str, Callable[[Chaos], Mapping[str, Any]]] = {
    "ToolOrchestra/HLE-v0": _question,
    "ToolOrchestra/FRAMES-v0": lambda chaos: {**_question(chaos), "tools": "plain"},
    "ToolOrchestra/ToolScale-v0": _toolscale,
    "ToolOrchestra/Tau2-v0": _tau2,
}


def covered() -> tuple[str, ...]:
    """Every id of the suite. One that has no settings here is an error."""
    if missing := [env_id for env_id in ids() if env_id not in _SETTINGS]:
        raise ConfigError(f"chaos knows no settings for {', '.join(missing)}; add them to chaos_runs.py")
    return tuple(ids())
