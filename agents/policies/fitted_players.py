"""Routers without a trained model: they choose a plan by what train tasks taught, and follow it. See fit.

`knn` values a plan by how it ended on the train questions most like this one, weighed by likeness (words that few
questions have weigh more). `skillbook` keeps, for each subject and plan, a Beta posterior of success, as
SkillOrchestra (arXiv 2602.19672) does for each skill and agent; its prior is the plan's mean over all subjects. Both
take the plan with the greatest expected success minus `cost_weight` times its bill, as a share of the dearest plan's.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from toolorchestra.agents.policies.base import Move, PlayerOptions, unreal
from toolorchestra.agents.policies.fit import Fit, FittedTask, fitted
from toolorchestra.agents.policies.plans import Plan, asked, can_follow, follow, plans, subject
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory

PRIOR = 4.0
"""Plays that the mean over all subjects counts for."""
MOST_CHOICES = 1024
_WORD = re.compile(r"[^\W_]+")


class Expectations:
    """How likely each plan of a fit is to end well."""

    def __init__(self, fit: Fit, options: PlayerOptions) -> None:
        self.fit, self.options = fit, options

    @cached_property
    def overall(self) -> Sequence[float]:
        """By plan, over all tasks; the prior of a plan that was never played is a half."""
        return [posterior([(1.0, task.right[plan]) for task in self.fit.tasks], 0.5, 1.0) for plan in self._plans]

    @property
    def _plans(self) -> range:
        return range(len(self.fit.plans))

    def of_subject(self, name: str, _text: str) -> Sequence[float]:
        """By plan, on tasks of a subject."""
        tasks = self.fit.subjects.get(name, ())
        return [
            posterior([(1.0, task.right[plan]) for task in tasks], self.overall[plan], PRIOR) for plan in self._plans
        ]

    def of_neighbours(self, _name: str, text: str) -> Sequence[float]:
        """By plan, on the train questions most like this one."""
        nearest = self._nearest(text)
        return [
            posterior([(weight, task.right[plan]) for weight, task in nearest], self.overall[plan], 1.0)
            for plan in self._plans
        ]

    def _nearest(self, text: str) -> Sequence[tuple[float, FittedTask]]:
        mine = self._vector(text)
        likeness = [sum(weight * mine.get(word, 0.0) for word, weight in vector.items()) for vector in self._vectors]
        order = sorted(range(len(likeness)), key=lambda number: (-likeness[number], number))
        return [(likeness[number], self.fit.tasks[number]) for number in order[: self.options.neighbours]]

    @cached_property
    def _rarity(self) -> Mapping[str, float]:
        counts = Counter(word for task in self.fit.tasks for word in set(words(task.text)))
        return {word: math.log(1 + len(self.fit.tasks) / count) for word, count in counts.items()}

    @cached_property
    def _vectors(self) -> Sequence[Mapping[str, float]]:
        return [self._vector(task.text) for task in self.fit.tasks]

    def _vector(self, text: str) -> Mapping[str, float]:
        """Its words by weight, of length 1."""
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
        self._chosen: dict[tuple[str, int, str, tuple[str, ...]], Plan] = {}

    async def prepare(self) -> Fit:
        """Learn, unless that is done; what was learnt, with its cost."""
        async with self._learning:
            if self._known is None:
                self._known = Expectations(await fitted(self._factory, self._seed, self._options), self._options)
        return self._known.fit

    async def move(self, episode: Episode) -> Move:
        """See Player."""
        if self._known is None:
            await self.prepare()
        return Move(follow(self._plan(episode), episode), None)

    def _plan(self, episode: Episode) -> Plan:
        key = (episode.task_id, episode.context.seed, episode.sheet.sheet_id, episode.world.toolbox.keys)
        if key not in self._chosen:
            if len(self._chosen) >= MOST_CHOICES:
                self._chosen.clear()
            self._chosen[key] = self.choose(episode)
        return self._chosen[key]

    def choose(self, episode: Episode) -> Plan:
        """The plan of greatest value among those that the episode's tools allow; of equals the first. Where none of
        them was ever played: the dearest experts for all."""
        if self._known is None:
            raise ConfigError(f"{self.name} has learnt nothing yet; await prepare() first")
        fit = self._known.fit
        able = [number for number, plan in enumerate(fit.plans) if can_follow(plan, episode)]
        if not able:
            return plans(episode)[-1]
        usd = {number: fit.usd_of(number, episode) for number in able}
        dearest = max(usd.values()) or 1.0
        expected = EXPECTS[self.name](self._known, subject(episode), asked(episode))
        weight = self._options.cost_weight
        return fit.plans[max(able, key=lambda number: (expected[number] - weight * usd[number] / dearest, -number))]
