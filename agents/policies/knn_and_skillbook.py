"""knn and skillbook: routers without a trained model, which choose a plan by what train tasks taught, and follow it.

Every plan plays every one of the train tasks whose tools allow it. What is kept is what an agent learns by playing: the
question's text and subject, the plan, the outcome, and what was used, so that bills can be told at other prices. A fit
is made once for each environment and its settings, and kept in a file under their digest.

`knn` values a plan by how it ended on the train questions most like this one, weighed by likeness (words that few
questions have weigh more). `skillbook` keeps, for each subject and plan, a Beta posterior of success, as
SkillOrchestra (arXiv 2602.19672) does for each skill and agent; its prior is the plan's mean over all subjects. Both
take the plan with the greatest expected success minus `cost_weight` times its bill, as a share of the most expensive
plan's.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from toolorchestra.agents.policies.base import Move, PlayerOptions, digest, unasked, unreal
from toolorchestra.agents.policies.plans import STAGES, Plan, asked, can_follow, experts, follow, plans, question_world
from toolorchestra.envs.base.errors import ConfigError, Outage, WrongSetting, one_line
from toolorchestra.envs.base.files import append_line
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.models.wire import tells_no_credit
from toolorchestra.envs.money.prices import NANO, REWARDED_ROLES, Tokens, Usage
from toolorchestra.envs.runtime.invoke import Gates, advance, begin

NEIGHBOURS = 20
"""Train questions that `knn` asks."""
PRIOR = 4.0
"""Plays that the mean over all subjects counts for."""
MOST_CHOICES = 1024
_WORD = re.compile(r"[^\W_]+")
FORMAT = 1
FIRST_SEED = 1_900_000_000
"""First seed of the tasks that are learnt from; evaluations draw their seeds elsewhere."""
AT_ONCE = 32
PLAYS = ".jsonl"
"""Ending of the file of plays of a fit that is not whole yet."""

Used = dict[str, list[float]]
"""Amounts by who used them: input, cached, output and reasoning tokens, units, seconds."""


# -- what is learnt from train tasks -----------------------------------------------------------------------------------


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
    """What a plan's plays used together. An expert stands as STAGE:NAME, all else under its price sheet's item."""
    plays: tuple[int, ...]
    """How many plays each plan had."""
    usd: float
    """What learning cost, judges and all."""
    episodes: int
    failed: int
    """Plays without an outcome."""

    def usd_of(self, plan: int, episode: Episode) -> float:
        """What a plan costs on average, at the prices of an episode."""
        total = 0
        for who, amounts in self.used[plan].items():
            *tokens, units = (round(amount) for amount in amounts[:5])
            stage, mark, name = who.partition(":")
            item = experts(episode.world.toolbox.of_kind(*STAGES[stage]))[name].model if mark else who
            usage = Usage(item, REWARDED_ROLES[1], Tokens(*tokens), units, amounts[5])
            total += episode.sheet.price(usage.item).nano_usd(usage)
        return total / NANO / max(1, self.plays[plan])


@dataclass(frozen=True)
class _Play:
    """One play of a plan."""

    right: float | None
    used: Used
    usd: float


_KNOWN: dict[str, Fit] = {}
"""The fits of this process, by digest."""


Book = Callable[[int], None]
"""Told what a play has cost, in nano-dollars, as soon as it has ended or was broken off."""


async def fitted(
    factory: EpisodeFactory, seed: int, options: PlayerOptions, book: Book = lambda _nano_usd: None
) -> Fit:
    """The fit for an environment: of this process, of the folder, or made now by playing. One with plays that failed is
    kept by this process alone. A folder also keeps each play as it ends, so that none is paid for twice where the
    learning is broken off. Raises Outage where the spend cap ended it."""
    train, name, path = _kept_at(factory, seed, options)
    if name not in _KNOWN:
        _KNOWN[name] = (
            _read(path) if path and path.is_file() else await _made(train, seed, options, name, _Plays(path, book))
        )
    if path and not path.is_file() and not _KNOWN[name].failed:
        _write(path, _KNOWN[name])
        path.with_suffix(PLAYS).unlink(missing_ok=True)
    return _KNOWN[name]


def _kept_at(factory: EpisodeFactory, seed: int, options: PlayerOptions) -> tuple[EpisodeFactory, str, Path | None]:
    """The train tasks, and the name and the file of what they teach."""
    train = training(factory)
    name = _digest(train, seed, options.fit_tasks)
    return train, name, Path(options.fit_folder) / f"fit-{name}.json" if options.fit_folder else None


def training(factory: EpisodeFactory) -> EpisodeFactory:
    """The train tasks of an environment, with variants of its tools that training draws."""
    source: Any = factory.source
    if source.diversify == "heldout":
        source = replace(source, diversify="train", backends=source.backing)
    return EpisodeFactory(source, replace(factory.settings, split="train", preference="none"), {})


def _digest(train: EpisodeFactory, seed: int, tasks: int) -> str:
    """A digest of all that the plays depend on: the source's settings, the tools with their prices, and what is
    played."""
    source: Any = train.source
    first = train.start(FIRST_SEED + seed).episode
    shown = json.dumps(first.world.toolbox.schemas, sort_keys=True, default=str)
    names = ("tools", "diversify", "vary", "style", "top_k", "shown_characters", "dataset", "version", "made_of")
    settings = [f"{name}={getattr(source, name, None)}" for name in (*names, "made_of")]
    behind = source.backing.wanted if source.backing is not None else "simulated"
    table = repr(getattr(source, "skills", ""))
    rules = [first.rules.limits, first.rules.history, first.rules.orchestrator]
    prices = sorted(map(str, first.sheet.prices.items()))
    return digest(FORMAT, source.name, *settings, behind, table, shown, *rules, *prices, plans(first), seed, tasks)


class _Plays:
    """The plays of a fit that is not whole yet."""

    def __init__(self, path: Path | None, book: Book) -> None:
        self.book = book
        self._file = path.with_suffix(PLAYS) if path is not None else None
        self._known: dict[tuple[int, Plan], _Play] = {}
        lines = self._file.read_bytes().splitlines() if self._file is not None and self._file.is_file() else []
        for line in lines:
            if line.endswith(b"}"):  # else a kill tore it
                task, plan, play = json.loads(line)["play"]
                self._known[task, Plan(*plan[:3])] = _Play(**play)

    async def get(self, task: int, plan: Plan, played: Callable[[], Awaitable[_Play]]) -> _Play:
        """A play that was kept, or one that is played now, and kept where it has an outcome."""
        if (task, plan) not in self._known:
            play = await played()
            if self._file is not None and play.right is not None:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                append_line(self._file, json.dumps({"play": [task, plan, asdict(play)]}).encode() + b"\n")
            return play
        return self._known[task, plan]


async def _made(train: EpisodeFactory, seed: int, options: PlayerOptions, name: str, kept: _Plays) -> Fit:
    gates, places = Gates(), asyncio.Semaphore(AT_ONCE)

    async def one(task: int, plan: Plan) -> _Play:
        async with places:
            return await kept.get(task, plan, lambda: _play(train, plan, FIRST_SEED + seed + task, gates, kept.book))

    shown: list[tuple[str, str]] = []
    outcomes: list[dict[Plan, _Play]] = []
    for number in range(options.fit_tasks):
        episode = train.start(FIRST_SEED + seed + number).episode
        choices = plans(episode)  # where tools vary, they are other ones from task to task
        made = await asyncio.gather(*(one(number, plan) for plan in choices), return_exceptions=True)
        shown.append((asked(episode), subject(episode)))
        if broken := [play for play in made if isinstance(play, BaseException)]:
            raise broken[0]  # when every play beside it has ended
        outcomes.append({plan: play for plan, play in zip(choices, made, strict=True) if isinstance(play, _Play)})
    return _together(name, shown, outcomes)


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


async def _play(train: EpisodeFactory, plan: Plan, seed: int, gates: Gates, book: Book) -> _Play:
    episode = train.start(seed).episode
    try:
        await begin(episode, gates)
        while not episode.over:
            move = unasked(follow(plan, episode), episode, simulated=unreal(train))
            await advance(episode, move.text, gates, move.usage)
            if train.rules.spend_cap is not None and train.rules.spend_cap.used_up:
                raise Outage("the spend cap was used up while plans were learnt from train tasks")
    finally:
        episode.settle()
        book(episode.ledger.nano_usd)
    if episode.failure and episode.failure.setting:
        raise WrongSetting(episode.failure.setting)
    if episode.failure and tells_no_credit(str(episode.failure.error)):
        raise Outage(f"{episode.failure.error}, while plans were learnt from train tasks")
    right = episode.outcome.value if episode.outcome and not episode.failure else None
    used: Used = {}
    for charge in episode.ledger:
        if charge.role in REWARDED_ROLES:
            usage = charge.usage
            _add(used, {_who(episode, charge.tool, usage.item): [*usage.tokens, usage.units, usage.seconds]})
    return _Play(right, used, episode.ledger.usd)


def subject(episode: Episode) -> str:
    """The subject of the question, as reset()'s info shows it."""
    return question_world(episode).question.subject


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
        fit = TypeAdapter(Fit).validate_json(path.read_bytes())
        if any(len(some) != len(fit.plans) for some in (fit.used, fit.plays, *(task.right for task in fit.tasks))):
            raise ValueError("its plans, plays and tasks do not fit together")
        if not math.isfinite(fit.usd):
            raise ValueError("its cost is no number")
        return fit
    except (OSError, ValueError) as err:
        raise ConfigError(
            f"{path} is not what was learnt of an environment ({one_line(str(err)):.100}); remove it"
        ) from None


# -- who plays by it ---------------------------------------------------------------------------------------------------


class Expectations:
    """How likely each plan of a fit is to end well."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        self._overall: Sequence[float] = [0.5] * len(fit.plans)  # the prior of a plan that was never played
        self._overall = self._chances([(1.0, task) for task in fit.tasks], 1.0)

    def _chances(self, seen: Sequence[tuple[float, FittedTask]], strength: float) -> Sequence[float]:
        """Chances by plan, of weighted tasks."""
        return [
            posterior([(weight, task.right[plan]) for weight, task in seen], prior, strength)
            for plan, prior in enumerate(self._overall)
        ]

    def of_subject(self, name: str, _text: str) -> Sequence[float]:
        """Chances by plan, on tasks of a subject."""
        return self._chances([(1.0, task) for task in self.fit.tasks if task.subject == name], PRIOR)

    def of_neighbours(self, _name: str, text: str) -> Sequence[float]:
        """Chances by plan, on the train questions most like this one."""
        return self._chances(self._nearest(text), 1.0)

    def _nearest(self, text: str) -> Sequence[tuple[float, FittedTask]]:
        mine = self._vector(text)
        likeness = [sum(weight * mine.get(word, 0.0) for word, weight in vector.items()) for vector in self._vectors]
        order = sorted(range(len(likeness)), key=lambda number: (-likeness[number], number))
        return [(likeness[number], self.fit.tasks[number]) for number in order[:NEIGHBOURS]]

    @cached_property
    def _rarity(self) -> Mapping[str, float]:
        counts = Counter(word for task in self.fit.tasks for word in set(words(task.text)))
        return {word: math.log(1 + len(self.fit.tasks) / count) for word, count in counts.items()}

    @cached_property
    def _vectors(self) -> Sequence[Mapping[str, float]]:
        return [self._vector(task.text) for task in self.fit.tasks]

    def _vector(self, text: str) -> Mapping[str, float]:
        """Words by weight, of length 1."""
        weights = {word: count * self._rarity.get(word, 0.0) for word, count in Counter(words(text)).items()}
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return {word: weight / length for word, weight in sorted(weights.items())}


def words(text: str) -> list[str]:
    """The words of a text, in small letters; a number is its length, so that like questions look alike."""
    return [f"#{len(word)}" if word.isdecimal() else word for word in _WORD.findall(text.lower())]


def posterior(seen: Sequence[tuple[float, float | None]], prior: float, strength: float) -> float:
    """The mean of a Beta posterior: weighted outcomes, after a prior that counts for `strength` of them."""
    known = [(weight, right) for weight, right in seen if right is not None]
    total = sum(weight for weight, _ in known)
    return (strength * prior + sum(weight * right for weight, right in known)) / (strength + total)


EXPECTS: Mapping[str, Callable[[Expectations, str, str], Sequence[float]]] = {
    "knn": Expectations.of_neighbours,
    "skillbook": Expectations.of_subject,
}


class FittedPlayer:
    """Chooses a plan for each episode and follows it. It learns before its first move, or when `prepare` is called."""

    def __init__(self, name: str, factory: EpisodeFactory, seed: int, options: PlayerOptions) -> None:
        self.name, self.simulated = name, unreal(factory)
        self._factory, self._seed, self._options = factory, seed, options
        self._known: Expectations | None = None
        self._learning = asyncio.Lock()
        self.book: Book = lambda _nano_usd: None
        self._chosen: dict[tuple[str, int, str, tuple[str, ...]], Plan] = {}

    def require_learnt(self) -> None:
        """Raise ConfigError where a first answer would have to pay real models for plays of train tasks, beside all
        limits of who asks."""
        _, name, path = _kept_at(self._factory, self._seed, self._options)
        if not (self.simulated or name in _KNOWN or (path is not None and path.is_file())):
            raise ConfigError(
                f"{self.name} learns from plays of {self._options.fit_tasks} train tasks first, which real models are "
                f"paid for; have it learn in an evaluation, and load it with what that kept: "
                f'load_policy({self.name!r}, backends=..., fit_folder="RUN/fit")'
            )

    async def prepare(self) -> Fit:
        """Learn, unless that is done; what was learnt, with its cost."""
        async with self._learning:
            if self._known is None:
                self._known = Expectations(await fitted(self._factory, self._seed, self._options, self.book))
        return self._known.fit

    async def move(self, episode: Episode) -> Move:
        """Follow the plan that was chosen for this episode."""
        if self._known is None:
            self.require_learnt()
            await self.prepare()
        return unasked(follow(self._plan(episode), episode), episode, simulated=self.simulated)

    def _plan(self, episode: Episode) -> Plan:
        key = (episode.task_id, episode.context.seed, episode.sheet.sheet_id, episode.world.toolbox.keys)
        if key not in self._chosen:
            if len(self._chosen) >= MOST_CHOICES:
                self._chosen.clear()
            self._chosen[key] = self.choose(episode)
        return self._chosen[key]

    def choose(self, episode: Episode) -> Plan:
        """The plan of greatest value among those that the episode's tools allow; of equals the first. Where none of
        them was ever played: the most expensive experts for all."""
        if self._known is None:
            raise ConfigError(f"{self.name} has learnt nothing yet; await prepare() first")
        fit = self._known.fit
        able = [number for number, plan in enumerate(fit.plans) if can_follow(plan, episode)]
        if not able:
            return plans(episode)[-1]
        usd = {number: fit.usd_of(number, episode) for number in able}
        costliest = max(usd.values()) or 1.0
        expected = EXPECTS[self.name](self._known, subject(episode), asked(episode))
        weight = self._options.cost_weight
        return fit.plans[max(able, key=lambda number: (expected[number] - weight * usd[number] / costliest, -number))]
