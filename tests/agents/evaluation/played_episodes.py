"""Episodes for tests: many at once on one loop or one after the other, each with its bill, and a digest to compare."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from toolorchestra.agents.policies.base import Move
from toolorchestra.agents.policies.players import player
from toolorchestra.envs.base.errors import Outage, ToolError, WrongSetting
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import Charge
from toolorchestra.envs.runtime.invoke import Gates, advance, begin

Policy = Callable[[Episode], Awaitable[Move]]


def policy(name: str, factory: EpisodeFactory) -> Policy:
    """A policy by its name."""
    return player(name, factory).move


class Record(NamedTuple):
    """What an episode came to."""

    right: float
    usd: float
    turns: int
    failed: bool


class PlayedEpisode(NamedTuple):
    """One episode, and what tells it from any other."""

    record: Record
    nano_usd: int
    elapsed_ns: int
    failure: str
    digest: str
    charges: tuple[Charge, ...]


async def play(
    factory: EpisodeFactory, policy: Policy, seed: int, gates: Gates, options: Mapping[str, object] | None = None
) -> PlayedEpisode:
    """One episode to its end. A policy that cannot be asked ends it as failed; the others go on."""
    episode = factory.start(seed, options).episode
    await begin(episode, gates)
    failure = ""
    while not episode.over:
        try:
            move = await policy(episode)
        except (Outage, ToolError, WrongSetting) as err:
            failure = f"policy: {err}"
            episode.settle_policy()
            break
        await advance(episode, move.text, gates, move.usage)
    if episode.failure:
        failure = f"{episode.failure.where}: {episode.failure.error}"
    made, bill = record(episode, failed=bool(failure)), episode.ledger
    return PlayedEpisode(made, bill.nano_usd, bill.elapsed_ns, failure, digest(episode), (*bill,))


def record(episode: Episode, *, failed: bool = False) -> Record:
    """What an ended episode came to."""
    value = episode.outcome.value if episode.outcome else 0.0
    return Record(value, episode.ledger.usd, episode.turn, failed or episode.failure is not None)


def digest(episode: Episode) -> str:
    """Of the transcript, every charge and the outcome."""
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
    gates, places, cap = Gates(), asyncio.Semaphore(at_once), factory.rules.spend_cap
    done = {} if done is None else done

    async def one(number: int, options: Mapping[str, object] | None) -> None:
        async with places:
            await asyncio.sleep(0)  # where nothing waits for a backend, this is where an interrupt is seen
            if cap is None or not cap.used_up:
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


class Standing(NamedTuple):
    """Means over episodes of one policy, none of which may have failed."""

    accuracy: float
    cents: float


def standing(records: Sequence[Record]) -> Standing:
    assert not any(one.failed for one in records)
    return Standing(fmean(one.right for one in records), 100 * fmean(one.usd for one in records))
