"""The environments of a run's mix: of what is learnt from and of what is held out, and the tasks that a step plays.

All follows from the run's seed and the step alone, so that a resumed run plays the same tasks.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any, Literal, NamedTuple

from toolorchestra.agents.configuration.config import EnvMix, TrainConfig
from toolorchestra.agents.configuration.environment_options import ChosenEnv, value
from toolorchestra.agents.rollouts.rollout import Job, factory_of
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.registration import NAMESPACE, ids, spec_of
from toolorchestra.envs.tools.backends import names_models
from toolorchestra.envs.tools.tool_config import Half

DUMPED_GROUPS = 1
"""Groups of a dumped step whose rollouts are recorded."""


def training(mix: EnvMix) -> EpisodeFactory:
    """The factory of rollouts to learn from. Tools, aliases and prices vary from task to task where the source can vary
    them. Raises ConfigError where nothing true could be learnt."""
    made = factory_of(mix.env_id, **arguments_of(mix, "train"))
    if idle := getattr(made.source, "idle_searches", ()):
        raise ConfigError(
            f"simulated experts answer a data set's questions without a document as well as with one, so with "
            f"{', '.join(idle)} a policy would learn never to search, and be wrong with real models; train with tools "
            "that do not search, on generated questions, or over real models (backends=FILE)"
        )
    return made


def held_out(mix: EnvMix, split: Literal["validation", "test"]) -> EpisodeFactory:
    """The factory of a split that is held out, with variants and wordings that neither training nor the other split
    ever sees."""
    return factory_of(mix.env_id, **arguments_of(mix, split))


def arguments_of(mix: EnvMix, split: Literal["train", "validation", "test"]) -> dict[str, Any]:
    """What gym.make is given for rollouts to learn from, or for those that are held out."""
    if split == "train":
        return {"wording": "wide", **_varied(mix, "train"), **mix.arguments, "split": mix.train}
    half: Half = "validation" if split == "validation" else "heldout"
    unseen = {**_varied(mix, half), "wording": half}
    return {**mix.arguments, **unseen, "split": getattr(mix, split)}


def simulated(mixes: Iterable[EnvMix]) -> bool:
    """Whether every environment is one of the suite's whose models are the embedded ones, as far as can be told."""
    return not any(
        spec_of(mix.env_id).id not in ids()
        or names_models(mix.arguments.get("backends"))
        # Tau2's `experts` are models by alias; those of questions are simulated, by their name or file.
        or isinstance(mix.arguments.get("experts"), Mapping)
        for mix in mixes
    )


def job_of(mix: EnvMix, made: EpisodeFactory, seed: int, options: Mapping[str, Any] | None = None) -> Job:
    """One rollout of an environment, under the limits that it has in the mix."""
    return Job(mix.env_id, made, seed, options, max_tokens=mix.max_tokens, max_context=mix.max_context)


def labels(mixes: Sequence[EnvMix], *, short: bool = True) -> list[str]:
    """Each environment of the mix by a name of its own, short for metrics: `HLE-v0`, and `HLE-v0 (2)` where it comes
    again with other arguments."""
    names = [mix.env_id.rpartition("/")[2] if short else mix.env_id for mix in mixes]
    again = [names[:place].count(name) for place, name in enumerate(names)]
    return [f"{name} ({n + 1})" if n else name for name, n in zip(names, again, strict=True)]


def _varied(mix: EnvMix, half: Half) -> dict[str, Any]:
    source = spec_of(mix.env_id).kwargs.get("source", "")
    takes = inspect.signature(resolve_name(source)).parameters if isinstance(source, str) and source else ()
    return {"diversify": half} if "diversify" in takes else {}


# -- the tasks of a step -----------------------------------------------------------------------------------------------


class ChosenTask(NamedTuple):
    """A task to be played by a group."""

    label: str
    """The name of its environment in the mix."""
    job: Job


def chosen_tasks(config: TrainConfig, step: int) -> list[ChosenTask]:
    """The tasks of a step. The first ones of a step that is dumped are marked to be recorded."""
    names, factories = labels(config.environments), [training(mix) for mix in config.environments]
    in_turn = _InTurn(config, factories, step) if config.task_order == "epochs" else None
    recorded = DUMPED_GROUPS if config.dump_every and step % config.dump_every == 0 else 0
    made = []
    for place, (env, seed) in enumerate(_draws(config, step)):
        options = in_turn.next(env) if in_turn else None
        job = job_of(config.environments[env], factories[env], seed, options)
        made.append(ChosenTask(names[env], replace(job, record=True) if place < recorded else job))
    return made


def _draws(config: TrainConfig, step: int) -> list[tuple[int, int]]:
    """The environment of each group, and the seed of its task, preference, prices and tools."""
    rng = random.Random(seed_of(config.seed, step))
    weights = [mix.weight for mix in config.environments]
    return [(rng.choices(range(len(weights)), weights)[0], rng.randrange(10**9)) for _ in range(config.groups)]


class _InTurn:
    """Where each environment's epochs stand at the beginning of a step, and what comes next."""

    def __init__(self, config: TrainConfig, factories: Sequence[EpisodeFactory], step: int) -> None:
        self._seed = config.seed
        self._tasks = [every_task(made) for made in factories]
        earlier = (_draws(config, past) for past in range(step))
        self._taken = Counter(env for draws in earlier for env, _ in draws)

    def next(self, env: int) -> dict[str, Any] | None:
        """Reset's options for the next task of an environment; None where tasks have no end."""
        tasks = self._tasks[env]
        if tasks is None:
            return None
        epoch, place = divmod(self._taken[env], len(tasks))
        self._taken[env] += 1
        order = random.Random(seed_of(self._seed, "epoch", env, epoch)).sample(range(len(tasks)), len(tasks))
        return {"task_id": tasks[order[place]]}


def every_task(made: EpisodeFactory) -> tuple[str, ...] | None:
    """The tasks of an environment's split; None where they are generated without end, or their source does not say."""
    if not hasattr(made.source, "task_ids"):
        return None
    try:
        return tuple(made.source.task_ids(made.settings.split)) or None
    except ConfigError:
        return None


def check_order(config: TrainConfig, say: Callable[[str], None]) -> None:
    """Say what "epochs" means for each environment, and refuse it where it means nothing for any."""
    if config.task_order != "epochs":
        return
    found = {
        name: every_task(training(mix))
        for name, mix in zip(labels(config.environments), config.environments, strict=True)
    }
    if not any(found.values()):
        raise ConfigError(
            f"task_order=epochs takes each task once, but the tasks of {', '.join(found)} are generated without end, "
            "or their source has no task_ids(split) to say them: set task_order=random"
        )
    for name, tasks in found.items():
        known = f"{len(tasks):,} tasks, each once an epoch" if tasks else "tasks without end, drawn at random"
        say(f"task_order=epochs: {name} has {known}")


def seed_of(*parts: object) -> int:
    """A seed that follows from what it is for."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


# -- the environments that a model was trained on, beside those that it is played on: ----------------------------------


def as_trained(trained: Sequence[EnvMix]) -> tuple[ChosenEnv, ...]:
    """Each environment as it was trained on, once."""
    first = {mix.env_id: mix for mix in reversed(trained)}
    return tuple(ChosenEnv(env_id, first[env_id].arguments) for env_id in dict.fromkeys(m.env_id for m in trained))


def difference(trained: Sequence[EnvMix], env_id: str, made: EpisodeFactory) -> str:
    """Tell in a sentence what the model is not used to in this environment; "" where it was trained on the same. An
    argument that neither the settings nor the task source keep under its name is not looked at."""
    same = [mix for mix in trained if _whole_id(mix.env_id) == _whole_id(env_id)]
    if not same:
        return f"it was trained on {', '.join(dict.fromkeys(short_id(mix.env_id) for mix in trained))}, not on this"
    found = [_others(mix.arguments, made) for mix in same]
    if not all(found):
        return ""
    here, mix = min(zip(found, same, strict=True), key=lambda pair: len(pair[0]))
    there = {name: mix.arguments[name] for name in here}
    return f"it was trained with {_words(there)}, and plays with {_words(here)}; as it was trained: {option(mix)}"


def limited(config: TrainConfig, made: EpisodeFactory) -> TrainConfig:
    """The run's settings with the limits of tokens that an environment had in its mix, and with it alone: the others
    may have had higher ones."""
    for mix in config.environments:
        if _source(mix.env_id) is type(made.source):
            tokens, context = mix.max_tokens or config.max_tokens, mix.max_context or config.max_context
            return replace(config, environments=(mix,), max_tokens=tokens, max_context=context)
    return config


def _source(env_id: str) -> Any:
    """The class of an environment's task source; None where it is none of this process's environments."""
    try:
        source = spec_of(env_id).kwargs.get("source")
    except ConfigError:
        return None
    return resolve_name(source) if isinstance(source, str) else source


def option(mix: EnvMix | ChosenEnv) -> str:
    """The option of a command line that chooses an environment like this."""
    return " ".join(["--env", short_id(mix.env_id), _words(mix.arguments)]).strip()


def _others(arguments: Mapping[str, Any], made: EpisodeFactory) -> dict[str, Any]:
    """The arguments that have other values here, with these."""
    others = {}
    for name, trained in arguments.items():
        keeps = made.settings if hasattr(made.settings, name) else made.source
        now = getattr(keeps, name, trained)
        if _plain(now) != _plain(trained):
            others[name] = now
    return others


def _plain(argument: Any) -> Any:
    """An argument as it looks after a journey through JSON."""
    return json.loads(json.dumps(argument, default=str))


def _words(arguments: Mapping[str, Any]) -> str:
    return " ".join(shlex.quote(f"{name}={_text(argument)}") for name, argument in arguments.items())


def _text(argument: Any) -> str:
    """What a command line reads as this argument."""
    plain = _plain(argument)
    return plain if isinstance(plain, str) and value(plain) == plain else json.dumps(plain)


def _whole_id(env_id: str) -> str:
    name = env_id.rpartition(":")[2]
    return name if "/" in name else f"{NAMESPACE}/{name}"


def short_id(env_id: str) -> str:
    return env_id.removeprefix(f"{NAMESPACE}/")
