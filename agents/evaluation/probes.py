"""Counterfactual probes: the same task with one thing changed. Does the choice follow price, preference and subject?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environments import job_of
from toolorchestra.agents.rollouts.grpo import Trajectory
from toolorchestra.agents.rollouts.rollout import Rollouts, factory_of
from toolorchestra.envs.factory import EpisodeFactory

FIRST_SEED = 3_000_000_019
PROBED = 60
"""Tasks on either side of a probe."""
CHEAP, DEAR = Decimal("0.3"), Decimal("3.3")
"""Factors on a model's price; neither is one that training sees."""


@dataclass(frozen=True)
class Probe:
    """One contrast: how often something was chosen on either side."""

    name: str
    left: str
    right: str
    left_rate: float
    right_rate: float
    tasks: int
    """Played on either side; where the sides differ, on the smaller."""

    @property
    def shift(self) -> float:
        return self.right_rate - self.left_rate


def _made(mix: EnvMix) -> EpisodeFactory:
    arguments = {k: v for k, v in mix.arguments.items() if k not in ("vary", "diversify")}
    return factory_of(mix.env_id, **{**arguments, "split": mix.test})


def _offered(mix: EnvMix) -> tuple[str, ...]:
    """The countable keys: of every task, as nothing varies."""
    return _made(mix).start(FIRST_SEED).episode.world.toolbox.keys


def _play(
    rollouts: Rollouts, mix: EnvMix, tasks: int, options: Mapping[str, Any], keep: Callable[[str], bool]
) -> list[Trajectory]:
    made = _made(mix)
    seeds = range(FIRST_SEED, FIRST_SEED + tasks * 4)
    fitting = (s for s in seeds if keep(str(made.start(s).info["task"]["subject"])))
    return rollouts.collect([job_of(mix, made, s, options) for s in islice(fitting, tasks)])


def _rate(trajectories: Sequence[Trajectory], keys: Sequence[str]) -> float:
    """The share of episodes that used any of the keys."""
    used = sum(any(t.measure.calls.get(k, 0) for k in keys) for t in trajectories)
    return used / len(trajectories) if trajectories else 0.0


def price_swap(rollouts: Rollouts, mix: EnvMix, pair: tuple[str, str], tasks: int) -> Probe:
    """Two experts that can both do it: one cheap and one dear, then the other way round."""
    made = _made(mix)
    behind = {o.alias: o.model for t in made.start(FIRST_SEED).episode.world.toolbox for o in t.offers}
    sides = []
    for factors in ((CHEAP, DEAR), (DEAR, CHEAP)):
        changed = {behind[alias]: factor for alias, factor in zip(pair, factors, strict=True)}
        sheet = made.sheet.with_factors(changed, f"probe-{factors[0]}")
        played = _play(rollouts, mix, tasks, {"prices": sheet, "preference": "frugal"}, lambda _: True)
        first, second = _rate(played, pair[:1]), _rate(played, pair[1:])
        sides.append(first / (first + second) if first + second else 0.0)
    return Probe(
        f"share of {pair[0]} among {' and '.join(pair)}",
        f"{pair[0]} dear, {pair[1]} cheap",
        f"{pair[0]} cheap, {pair[1]} dear",
        sides[1],
        sides[0],
        tasks,
    )


def preference_flip(rollouts: Rollouts, mix: EnvMix, tasks: int) -> Probe:
    """Dollars spent when the user does not mind, and when the user pays; as the share of episodes above a cent."""
    sides = []
    for kind in ("accurate", "frugal"):
        played = _play(rollouts, mix, tasks, {"preference": kind}, lambda _: True)
        sides.append(sum(t.measure.usd for t in played) / max(1, len(played)) * 100)
    return Probe("cents a task", "user wants accuracy", "user wants to save", sides[0], sides[1], tasks)


def favoured_tool(rollouts: Rollouts, mix: EnvMix, key: str, tasks: int) -> Probe:
    """How often a tool is used when the user does not name it, and when the user asks for it."""
    sides = []
    for wish in (
        {"outcome": 1.0, "usd": 0.5, "sentence": "Keep the bill as small as you can while still getting it right."},
        {"outcome": 1.0, "usd": 0.5, key: 1.0, "sentence": f"If there is a choice, take {key}."},
    ):
        sides.append(_rate(_play(rollouts, mix, tasks, {"preference": wish}, lambda _: True), [key]))
    return Probe(f"episodes that use {key}", "not named", "asked for", sides[0], sides[1], tasks)


def subject_contrast(
    rollouts: Rollouts, mix: EnvMix, subjects: tuple[str, str], keys: tuple[str, ...], tasks: int
) -> Probe:
    """How often an episode calls any of the keys, for one subject and for another."""
    sides, counts = [], []
    for subject in subjects:
        played = _play(rollouts, mix, tasks, {"preference": "balanced"}, lambda s, wanted=subject: s == wanted)  # type: ignore[misc]
        sides.append(sum(t.measure.calls.get(k, 0) for t in played for k in keys) / max(1, len(played)))
        counts.append(len(played))
    return Probe(f"calls of {', '.join(keys)} a task", *subjects, sides[0], sides[1], min(counts))


def standard_probes(rollouts: Rollouts, mixes: Sequence[EnvMix], tasks: int = PROBED) -> list[Probe]:
    """The probes of the embedded worlds, less those of keys that the mix's tools lack."""
    by_name = {m.env_id.rpartition("/")[2]: m for m in mixes}
    probes: list[Probe] = []
    if frames := by_name.get("FRAMES-v0"):
        probes += _frames_probes(rollouts, frames, tasks)
    if hle := by_name.get("HLE-v0"):
        probes += _hle_probes(rollouts, hle, tasks)
    return probes


def _frames_probes(rollouts: Rollouts, mix: EnvMix, tasks: int) -> Iterator[Probe]:
    has = frozenset(_offered(mix)).issuperset
    if has(pair := ("answer-3", "answer-4")):
        yield price_swap(rollouts, mix, pair, tasks)
    if has(["search-1"]):
        yield favoured_tool(rollouts, mix, "search-1", tasks)


def _hle_probes(rollouts: Rollouts, mix: EnvMix, tasks: int) -> Iterator[Probe]:
    has = frozenset(_offered(mix)).issuperset
    pair = ("answer-1", "answer-2")
    if has(pair):
        yield price_swap(rollouts, mix, pair, 2 * tasks)
    yield preference_flip(rollouts, mix, tasks)
    if has(["answer-1"]):
        yield favoured_tool(rollouts, mix, "answer-1", tasks)
    for subjects, keys in (
        (("number theory", "chemistry"), ("search-1", "search-2", "search-3")),
        (("number theory", "logic"), pair),
        (("logic", "number theory"), ("answer-math-1", "answer-math-2")),
    ):
        if has(keys):
            yield subject_contrast(rollouts, mix, subjects, keys, tasks)
