"""What the routers without a trained model learn from: plans played on train tasks, with how each ended and its bill.

Every plan plays every one of the tasks whose tools allow it. What is kept is what an agent learns by playing: the
question's text and subject, the plan, the outcome, and what was used, so that bills can be told at other prices. A fit
is made once for each environment and its settings, and kept in a file under their digest.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from toolorchestra.agents.policies.base import PlayerOptions, digest
from toolorchestra.agents.policies.plans import STAGES, Plan, experts, follow, plans
from toolorchestra.agents.policies.plans import asked as question_of
from toolorchestra.agents.policies.plans import subject as subject_of
from toolorchestra.envs.base.errors import ConfigError, Outage, WrongSetting
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import NANO, REWARDED_ROLES, Tokens, Usage
from toolorchestra.envs.runtime.invoke import Gates, advance, begin

FORMAT = 1
FIRST_SEED = 1_900_000_000
"""Of the tasks that are learnt from; evaluations draw their seeds elsewhere."""
AT_ONCE = 32

Used = dict[str, list[float]]
"""By who used it: input, cached, output and reasoning tokens, units, seconds."""


@dataclass(frozen=True)
class FittedTask:
    """A train task: how each plan ended on it, None where it was not played or has no outcome."""

    text: str
    subject: str
    right: tuple[float | None, ...]


@dataclass(frozen=True)
class Fit:
    """What was learnt of an environment."""

    digest: str
    plans: tuple[Plan, ...]
    tasks: tuple[FittedTask, ...]
    used: tuple[Used, ...]
    """By plan: what its plays used together. An expert stands as STAGE:NAME, all else under its price sheet's item."""
    plays: tuple[int, ...]
    """How many plays each plan had."""
    usd: float
    """What learning cost, judges and all."""
    episodes: int
    failed: int
    """Plays without an outcome."""

    @cached_property
    def subjects(self) -> Mapping[str, Sequence[FittedTask]]:
        """The tasks grouped by their subject."""
        found: dict[str, list[FittedTask]] = {}
        for task in self.tasks:
            found.setdefault(task.subject, []).append(task)
        return found

    def usd_of(self, plan: int, episode: Episode) -> float:
        """What a plan costs on average, at the prices of an episode."""
        toolbox = episode.world.toolbox
        total = 0
        for who, amounts in self.used[plan].items():
            *tokens, units = (round(amount) for amount in amounts[:5])
            usage = Usage(_item(who, toolbox), REWARDED_ROLES[1], Tokens(*tokens), units, amounts[5])
            total += episode.sheet.price(usage.item).nano_usd(usage)
        return total / NANO / max(1, self.plays[plan])


def _item(who: str, toolbox: Any) -> str:
    stage, mark, name = who.partition(":")
    return experts(toolbox.of_kind(*STAGES[stage]))[name].model if mark else who


@dataclass(frozen=True)
class _Play:
    """One play of a plan."""

    right: float | None
    used: Used
    usd: float


_KNOWN: dict[str, Fit] = {}
"""The fits of this process, by digest."""


async def fitted(factory: EpisodeFactory, seed: int, options: PlayerOptions) -> Fit:
    """The fit for an environment: of this process, of the folder, or made now by playing. One with plays that failed is
    kept by this process alone. Raises Outage where the spend cap ended it."""
    train = training(factory)
    name = _digest(train, seed, options.fit_tasks)
    path = Path(options.fit_folder) / f"fit-{name}.json" if options.fit_folder else None
    if name not in _KNOWN:
        _KNOWN[name] = _read(path) if path and path.is_file() else await _made(train, seed, options, name)
    if path and not path.is_file() and not _KNOWN[name].failed:
        _write(path, _KNOWN[name])
    return _KNOWN[name]


def training(factory: EpisodeFactory) -> EpisodeFactory:
    """The train tasks of an environment, with variants of its tools that training draws."""
    source: Any = factory.source
    if source.diversify == "heldout":
        source = replace(source, diversify="train", backends=source.backing)
    return EpisodeFactory(source, replace(factory.settings, split="train", preference="none"), {})


def _digest(train: EpisodeFactory, seed: int, tasks: int) -> str:
    """Of all that the plays depend on: the source's settings, the tools with their prices, and what is played."""
    source: Any = train.source
    first = train.start(FIRST_SEED + seed).episode
    shown = json.dumps(first.world.toolbox.schemas, sort_keys=True, default=str)
    names = (
        "tools",
        "diversify",
        "vary",
        "style",
        "top_k",
        "shown_characters",
        "dataset",
        "version",
        "made_of",
    )
    settings = [f"{name}={getattr(source, name, None)}" for name in (*names, "made_of")]
    behind = source.backing.wanted if source.backing is not None else "simulated"
    table = repr(getattr(source, "skills", ""))
    rules = [first.rules.limits, first.rules.history, first.rules.orchestrator]
    prices = sorted(map(str, first.sheet.prices.items()))
    return digest(FORMAT, source.name, *settings, behind, table, shown, *rules, *prices, plans(first), seed, tasks)


async def _made(train: EpisodeFactory, seed: int, options: PlayerOptions, name: str) -> Fit:
    gates, places = Gates(), asyncio.Semaphore(AT_ONCE)

    async def one(task: int, plan: Plan) -> _Play:
        async with places:
            return await _play(train, plan, FIRST_SEED + seed + task, gates)

    shown: list[tuple[str, str]] = []
    outcomes: list[dict[Plan, _Play]] = []
    for number in range(options.fit_tasks):
        episode = train.start(FIRST_SEED + seed + number).episode
        choices = plans(episode)  # where tools vary, they are other ones from task to task
        made = await asyncio.gather(*(one(number, plan) for plan in choices), return_exceptions=True)
        shown.append((question_of(episode), subject_of(episode)))
        outcomes.append({plan: _whole(play) for plan, play in zip(choices, made, strict=True)})
    return _together(name, shown, outcomes)


def _whole(play: _Play | BaseException) -> _Play:
    """Raised here, when every play beside it has ended."""
    if isinstance(play, BaseException):
        raise play
    return play


def _together(name: str, shown: Sequence[tuple[str, str]], outcomes: Sequence[Mapping[Plan, _Play]]) -> Fit:
    everybody = tuple(dict.fromkeys(plan for played in outcomes for plan in played))
    nobody = _Play(None, {}, 0.0)
    rows = [tuple(played.get(plan, nobody) for plan in everybody) for played in outcomes]
    tasks = [FittedTask(*told, tuple(play.right for play in row)) for told, row in zip(shown, rows, strict=True)]
    used: list[Used] = [{} for _ in everybody]
    for row in rows:
        for total, play in zip(used, row, strict=True):
            _add(total, play.used if play.right is not None else {})
    plays = tuple(sum(row[plan].right is not None for row in rows) for plan in range(len(everybody)))
    episodes = sum(map(len, outcomes))
    if not any(plays):
        raise ConfigError(f"none of {episodes} plays of train tasks ended with an outcome, so nothing was learnt")
    usd = sum(play.usd for row in rows for play in row)
    return Fit(name, everybody, tuple(tasks), tuple(used), plays, usd, episodes, episodes - sum(plays))


async def _play(train: EpisodeFactory, plan: Plan, seed: int, gates: Gates) -> _Play:
    episode = train.start(seed).episode
    await begin(episode, gates)
    while not episode.over:
        await advance(episode, follow(plan, episode), gates)
        if train.rules.spend_cap is not None and train.rules.spend_cap.used_up:
            raise Outage("the spend cap was used up while plans were learnt from train tasks")
    if episode.failure and episode.failure.setting:
        raise WrongSetting(episode.failure.setting)
    right = episode.outcome.value if episode.outcome and not episode.failure else None
    used: Used = {}
    for charge in episode.ledger:
        if charge.role in REWARDED_ROLES:
            usage = charge.usage
            _add(used, {_who(episode, charge.tool, usage.item): [*usage.tokens, usage.units, usage.seconds]})
    return _Play(right, used, episode.ledger.usd)


def _who(episode: Episode, key: str, item: str) -> str:
    for stage, kinds in STAGES.items():
        for name, offer in experts(episode.world.toolbox.of_kind(*kinds)).items():
            if (offer.alias, offer.model) == (key, item):
                return f"{stage}:{name}"
    return item


def _add(total: Used, more: Mapping[str, Sequence[float]]) -> None:
    for who, amounts in more.items():
        before = total.get(who, [0.0] * len(amounts))
        total[who] = [a + b for a, b in zip(before, amounts, strict=True)]


def _write(path: Path, fit: Fit) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(json.dumps({"format": FORMAT, **asdict(fit)}, indent=1))
        draft.replace(path)
    except OSError as err:
        raise ConfigError(f"what was learnt cannot be kept in {path.parent}: {err}; name another folder") from None


def _read(path: Path) -> Fit:
    try:
        data = json.loads(path.read_bytes())
        tasks = tuple(FittedTask(t["text"], t["subject"], tuple(t["right"])) for t in data["tasks"])
        choices = tuple(Plan(*plan) for plan in data["plans"])
        used, plays = tuple(data["used"]), tuple(data["plays"])
        if not len(choices) == len(used) == len(plays) or any(len(task.right) != len(choices) for task in tasks):
            raise ValueError("its plans, plays and tasks do not fit together")
        if not math.isfinite(data["usd"]):
            raise ValueError("its cost is no number")
        return Fit(data["digest"], choices, tasks, used, plays, data["usd"], data["episodes"], data["failed"])
    except (OSError, ValueError, LookupError, TypeError) as err:
        raise ConfigError(f"{path} is not what was learnt of an environment ({err!s:.100}); remove it") from None
