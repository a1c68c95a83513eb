"""The episodes that trainers in other processes play, each in a session of its own: what both protocols stand on."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gymnasium.utils.seeding import np_random

from toolorchestra.envs.adapters import account_of
from toolorchestra.envs.base.errors import ConfigError, one_of
from toolorchestra.envs.base.marks import STANDARD
from toolorchestra.envs.base.types import Observation
from toolorchestra.envs.episode.calls import Failure, failure
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.factory import EpisodeFactory, Started, reset_options
from toolorchestra.envs.models.streamed_reply import OUTPUT, count_in
from toolorchestra.envs.models.usage import tokens_in
from toolorchestra.envs.money.prices import ORCHESTRATOR, Usage
from toolorchestra.envs.runtime.background import BREAK_OFF_SECONDS
from toolorchestra.envs.runtime.invoke import Gates, advance, begin

_LOG = logging.getLogger(__name__)
KEPT = 4096
"""How many accounts of ended episodes can still be asked for."""
ENDED = "The episode has ended."


class SessionError(Exception):
    """A session that cannot go on: why, as a status of HTTP and in words, and its account where it has one."""

    def __init__(self, status: int, text: str, account: Mapping[str, Any] | None = None) -> None:
        super().__init__(text)
        self.status, self.account = status, account


@dataclass(eq=False)
class RemoteEpisode:
    """One rollout's episode. Turns that come at the same time are played one after another."""

    session: str
    episode: Episode
    observation: Observation
    told: Mapping[str, Any]
    """What reset() tells beside the observation."""
    account: dict[str, Any]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    used: float = field(default_factory=time.monotonic)


class RemoteEpisodes:
    """The episodes that are played, each under the name of its session, and the accounts of the last that ended."""

    def __init__(
        self, factories: Mapping[str, EpisodeFactory], *, at_once: int = 512, idle_seconds: float = 600.0
    ) -> None:
        self.factories, self.at_once, self.idle_seconds = factories, at_once, idle_seconds
        self.live: dict[str, RemoteEpisode] = {}
        self.ended: dict[str, dict[str, Any]] = {}
        self.on_end: list[Callable[[Mapping[str, Any]], None]] = []
        """Called with the account of each episode that ends, in whatever way."""
        self._gates = Gates()

    def begun(self, asked: Mapping[str, Any]) -> tuple[str, Started]:
        """The environment that is asked for, by name, and its episode: that of gym.make's reset(seed=, options=)."""
        name, seed = asked.get("env") or next(iter(self.factories)), asked.get("seed")
        one_of("environment", name, self.factories, "env: ")
        if isinstance(seed, bool) or not isinstance(seed, int | None) or (seed or 0) < 0:
            raise ConfigError(f"seed: a whole number from 0 up expected, got {seed!r:.60}")
        made, options = self.factories[name], reset_options(asked.get("options"), ("episode_seed",))
        prices = options.get("prices")
        if prices is not None and made.rules.spend_cap is not None:
            raise ConfigError("prices: none expected, since the server's spend cap counts by its own; leave it out")
        if str(prices).endswith(".json"):
            raise ConfigError("prices: the name of a shipped price sheet or a sheet itself expected, not a file's path")
        return name, made.reset(np_random(seed)[0], options)

    async def start(self, asked: Mapping[str, Any]) -> RemoteEpisode:
        """A session of its own, with a fresh episode."""
        if len(self.live) >= self.at_once:
            raise SessionError(503, f"{self.at_once} episodes are played already; end one, or serve with more at once")
        name, (episode, _, told) = self.begun(asked)
        cap = episode.rules.spend_cap
        if cap is not None and cap.used_up:
            raise SessionError(402, f"{cap.told()}: no episode can begin; serve with more dollars")
        session = secrets.token_urlsafe(18)
        named = {"session": session, "env": name, "seed": asked.get("seed")}
        account = {**named, "episode_id": asked.get("episode_id"), "task_id": episode.task_id}
        account |= {"episode_seed": told["episode_seed"], "ended": ""} | account_of(episode, 0.0)
        one = RemoteEpisode(session, episode, {}, told, account)
        self.live[one.session] = one
        async with one.lock:
            one.observation = await begin(episode, self._gates)
            one.account |= account_of(episode, 0.0)
            if episode.failure is not None:
                self._fail(one, episode.failure)
            one.used = time.monotonic()
        return one

    async def play(self, one: RemoteEpisode, text: str, usage: Mapping[str, Any] | None = None) -> Step:
        """One turn. Raises SessionError where the episode has ended meanwhile, or fails now."""
        async with one.lock:
            self.account(one.session)
            if one.session not in self.live:
                raise SessionError(409, ENDED, one.account)
            try:
                step = await advance(one.episode, text, self._gates, _usage(usage, one.episode))
            except Exception as err:  # noqa: BLE001 - a fault of the environment's is no result
                self._fail(one, failure("the server", err))
            one.account |= account_of(one.episode, one.account["reward"], step)
            one.used = time.monotonic()
            if one.episode.failure is not None:
                self._fail(one, one.episode.failure)
            if one.episode.over:
                self.end(one, "played")
            return step

    def _fail(self, one: RemoteEpisode, why: Failure) -> NoReturn:
        one.account |= {"outcome": None, "failed": why.told}
        self.end(one, "failed")
        raise SessionError(502, f"the episode failed in {why.where}, so it has no result: {why.error}", one.account)

    def end(self, one: RemoteEpisode, why: str) -> None:
        """Forget an episode. Its account stays for a while, and is told to who wants to know."""
        if self.live.pop(one.session, None) is None:
            return
        one.episode.settle()
        one.account |= {**one.episode.ledger.summary(), "ended": why}
        self.ended[one.session] = one.account
        if len(self.ended) > KEPT:
            del self.ended[next(iter(self.ended))]
        for told in self.on_end:
            try:
                told(one.account)
            except OSError:  # a full disk ends no server
                _LOG.exception("an episode's account could not be written: %s", one.account)

    def account(self, session: str) -> dict[str, Any]:
        """The account of a session. Raises SessionError where it has no result."""
        one = self.live.get(session)
        account = one.account if one else self.ended.get(session)
        if account is None:
            raise SessionError(404, "no such session: start one, and send each reply's cookie with the next request")
        if (why := account["ended"]) not in ("", "played", "verified"):
            idle = f" for {self.idle_seconds:g} s" if why == "idle" else ""
            raise SessionError(502 if why == "failed" else 410, f"the session has ended, {why}{idle}", account)
        return account

    async def stop(self) -> None:
        """End all of them, as the server ends. Turns that it broke off have a moment to book what they cost."""
        left = list(self.live.values())
        with suppress(TimeoutError):
            async with asyncio.timeout(BREAK_OFF_SECONDS):
                for one in left:
                    async with one.lock:
                        pass
        for one in left:
            self.end(one, "stopped")

    async def reap(self) -> None:
        """End, for ever, what nobody has played for a while."""
        while True:
            await asyncio.sleep(min(5.0, self.idle_seconds / 4))
            due = time.monotonic() - self.idle_seconds
            for one in [one for one in self.live.values() if one.used < due and not one.lock.locked()]:
                self.end(one, "idle")


def _usage(given: Mapping[str, Any] | None, episode: Episode) -> Usage | None:
    """What the policy's turn used, by its server's count. None: the episode estimates it."""
    if not isinstance(given, Mapping):
        return None
    found = tokens_in(given)
    if found is None or count_in(given, OUTPUT) is None:
        return None
    return Usage(episode.rules.orchestrator, ORCHESTRATOR, found[0])


def shown(observation: Observation) -> dict[str, Any]:
    """An observation for a template of somebody else's: no text in it can be read as a mark."""
    messages = STANDARD.told(list(observation["messages"]), spoken=True)
    return {"messages": messages, "tools": STANDARD.schemas(observation["tools"])}


def answers(step: Step) -> list[dict[str, Any]]:
    """The messages that a turn brought, behind the agent's own."""
    return [dict(one) for one in STANDARD.told(list(step.info["new_messages"]), spoken=True)[1:]]
