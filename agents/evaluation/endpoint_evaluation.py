"""Evaluation over real backends: many episodes at once on one loop, each with its bill, and a digest to compare runs.

The policies here look at prices, never at the simulated skills, so they play whatever models stand behind the tools.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolorchestra.agents.evaluation.simulated_evaluation import Record, record, used_up
from toolorchestra.agents.policies.baselines import Baseline, Pipeline, RandomPolicy
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError, no_such
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.models import ChatModel, ChatRequest, Purpose
from toolorchestra.envs.money.prices import ORCHESTRATOR, Usage
from toolorchestra.envs.runtime.driver import advance
from toolorchestra.envs.runtime.invoke import Gates
from toolorchestra.envs.tools import Offer

NAMES = ("random", "cheap", "dear", "chat")


class Move(NamedTuple):
    """What a policy says, and what saying it used (None: nobody counted)."""

    text: str
    usage: Usage | None


Policy = Callable[[Episode], Awaitable[Move]]


class ChatPolicy:
    """A model behind an endpoint as the orchestrator: it sees what the agent may see, and is billed as the agent."""

    def __init__(self, models: ChatModel, model: str) -> None:
        self._models, self._model = models, model

    async def __call__(self, episode: Episode) -> Move:
        seen = episode.observation
        request = ChatRequest(
            self._model,
            "move",
            tuple(seen["messages"]),
            episode.context.seed,
            episode.turn,
            tools=seen["tools"],
            role=ORCHESTRATOR,
            spend_cap=episode.rules.spend_cap,
        )
        done = await self._models.complete(request)
        return Move(done.text, done.usage)


def _price(sign: float) -> Callable[[Episode, Offer, Purpose], float]:
    def prefers(episode: Episode, offer: Offer, _purpose: Purpose) -> float:
        rate = episode.sheet.price(offer.model).pico_usd_per_token or (0, 0, 0, 0)
        return sign * (rate[0] + rate[2])

    return prefers


def _plain(baseline: Baseline) -> Policy:
    async def policy(episode: Episode) -> Move:
        return Move(baseline(episode), None)

    return policy


def policy(name: str, factory: EpisodeFactory, seed: int = 0) -> Policy:
    """A policy by its name. `chat` asks the environment's orchestrator model through the source's own backends."""
    if name == "chat":
        behind = getattr(factory.source, "behind", None)
        if behind is None or behind.endpoints is None:
            raise ConfigError("policy 'chat' asks a model: name its endpoint: --backends FILE")
        return ChatPolicy(behind.models, factory.settings.orchestrator)
    made: Mapping[str, Callable[[], Baseline]] = {
        "random": lambda: RandomPolicy(seed),
        "cheap": lambda: Pipeline(_price(-1.0)),
        "dear": lambda: Pipeline(_price(1.0)),
    }
    if name not in made:
        raise ConfigError(no_such("live policy", name, NAMES))
    return _plain(made[name]())


@dataclass(frozen=True)
class PlayedEpisode:
    """One episode, and what tells it from any other."""

    record: Record
    nano_usd: int
    elapsed_ns: int
    failure: str
    digest: str
    """Of the transcript, every charge and the outcome."""


async def play(
    factory: EpisodeFactory, policy: Policy, seed: int, gates: Gates, options: Mapping[str, object] | None = None
) -> PlayedEpisode:
    """One episode to its end. A policy that cannot be asked ends it as failed; the others go on."""
    episode = factory.start(seed, options).episode
    last, failure = None, ""
    while not episode.over:
        try:
            move = await policy(episode)
        except (Outage, ToolError) as err:
            failure = f"policy: {err}"
            break
        last = await advance(episode, move.text, gates, move.usage)
    if episode.failure:
        failure = f"{episode.failure.where}: {episode.failure.error}"
    made = record(episode, last if episode.over else None)
    return PlayedEpisode(made, episode.ledger.nano_usd, episode.ledger.elapsed_ns, failure, _digest(episode))


def _digest(episode: Episode) -> str:
    parts = [str([dict(m) for m in episode.messages]), str(list(episode.ledger)), str(episode.ledger.elapsed_ns)]
    outcome = episode.outcome
    parts.append(str(outcome and (outcome.value, dict(outcome.evidence))))
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()


async def evaluate(
    factory: EpisodeFactory,
    policy: Policy,
    seed: int,
    tasks: Sequence[str] | int,
    at_once: int = 64,
    done: dict[int, PlayedEpisode] | None = None,
) -> list[PlayedEpisode]:
    """Named tasks, or a number of drawn ones, `at_once` side by side; in the order of the tasks. None is begun once the
    spend cap is used up. `done` is filled by the tasks' numbers as they end, for who may be interrupted."""
    gates, places = Gates(), asyncio.Semaphore(at_once)
    done = {} if done is None else done

    async def one(number: int, options: Mapping[str, object] | None) -> None:
        async with places:
            await asyncio.sleep(0)  # where nothing waits for a backend, this is where an interrupt is seen
            if not used_up(factory.rules.spend_cap):
                done[number] = await play(factory, policy, seed + number, gates, options)

    named = [None] * tasks if isinstance(tasks, int) else [{"task_id": task} for task in tasks]
    try:
        await asyncio.gather(*(one(number, options) for number, options in enumerate(named)))
        return in_order(done)
    finally:
        backing = getattr(factory.source, "backing", None)
        if backing is not None:
            await backing.aclose()


def in_order(done: Mapping[int, PlayedEpisode]) -> list[PlayedEpisode]:
    """Episodes by the tasks' numbers, in that order."""
    return [done[number] for number in sorted(done)]


def whole_digest(played: Sequence[PlayedEpisode]) -> str:
    """One digest of a run: equal when every transcript, charge and outcome is."""
    return hashlib.blake2b("".join(p.digest for p in played).encode(), digest_size=8).hexdigest()
