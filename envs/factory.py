"""All that is fixed before an episode starts, and the starting of one: shared by both environments and rollouts."""

from __future__ import annotations

import importlib
import inspect
import numbers
import os
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from itertools import islice
from os import PathLike
from pathlib import Path
from stat import S_ISDIR
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from toolorchestra.envs.base import preference as preferences
from toolorchestra.envs.base.errors import ConfigError, SpendCapReached, no_such, one_of
from toolorchestra.envs.base.types import Observation, plain
from toolorchestra.envs.domains.source import PricesOrchestrators, Scene, TaskSource, models_of
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.episode.rules import LIMITS, Limits, Rules, cost_weights, reward_terms
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import PriceSheet, load_sheet
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.tools import ToolContext

if TYPE_CHECKING:
    import numpy as np

_PLAIN: Mapping[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("true or false", lambda value: isinstance(value, bool)),
    int: ("a whole number", lambda value: isinstance(value, numbers.Integral) and not isinstance(value, bool)),
    float: ("a number", lambda value: isinstance(value, numbers.Real) and not isinstance(value, bool)),
    str: ("a text", lambda value: isinstance(value, str)),
    NoneType: ("None", lambda value: value is None),
}


def check(made: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for the first argument that is not what `made` says it takes. Plain types, callables, the
    project's own classes and unions of these are looked at; whoever annotates something else checks it himself."""
    if not arguments or (hints := _hints(made if inspect.isfunction(made) else made.__init__)) is None:
        return
    for name, value in arguments.items():
        hint = hints.get(name, Any)
        wanted = [_wanted(one) for one in (get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,))]
        if any(one is None or one[1](value) for one in wanted):
            continue
        limits = dict(LIMITS.values()) if made is EnvSettings else {}
        words = limits.get(name) or " or ".join(one[0] for one in wanted if one is not None)
        raise ConfigError(f"{name} must be {words}, got {value!r:.80} ({type(value).__name__})")


@lru_cache(maxsize=256)
def _hints(function: Callable[..., Any]) -> Mapping[str, Any] | None:
    """Annotations; None where they have names that exist for type checkers alone. Reading them takes longer than a
    reset, so it is done once."""
    try:
        return get_type_hints(function)
    except (NameError, TypeError):
        return None


def _wanted(hint: Any) -> tuple[str, Callable[[Any], bool]] | None:
    """The kind in words, and the test for it; None: anything goes."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if get_origin(hint) is Callable:
        return "a callable", callable
    if inspect.isclass(hint) and hint.__module__.startswith("toolorchestra") and not getattr(hint, "_is_protocol", 0):
        return f"a {hint.__name__}", lambda value: isinstance(value, hint)
    return None


OPTIONS = ("task_id", "preference", "prices", "tools", "budget", "luck")


@dataclass(frozen=True)
class EnvSettings:
    """What `gym.make` takes for every id, beside what its task source takes."""

    split: str = "train"
    """The tasks that are drawn. `env.unwrapped.factory.source.splits` has the names."""
    prices: str | Path | PriceSheet | Mapping[str, Any] = "paper-2025-11"
    """What everything costs: the name of a shipped price sheet, a JSON file, a PriceSheet, or a sheet as parsed
    JSON."""
    preference: Any = "sampled"
    """What the user wants: "sampled" (another preference for each episode), "none", a kind's name, a mapping of
    weights, or a Preference."""
    wording: preferences.Wording = "train"
    """The set of sentences sampled preferences are said in: "train", "validation" or "heldout", which share none, or
    "wide": "train", twice as many more, and sentences put together from clauses."""
    history: Literal["full", "state"] = "full"
    """What an observation shows of the past. "full": the whole transcript. "state": one message, rebuilt each turn from
    the task and what was gathered."""
    reward: str | Mapping[str, float] = "outcome"
    """"outcome": the last step's reward is the outcome, all others are 0. "scalar": each step's reward is the outcome
    less its dollars. A mapping such as {"usd": 2.0, "seconds": 0.01}: less so much for each dollar and second."""
    reward_terms: Any = ()
    """Terms of your own in the reward: "module:function", a function, or a list of them. Each is called with the
    episode when it ends, and what it gives is added to the last step's reward."""
    max_turns: int = 50
    """The most turns that the agent may take. Then the episode is truncated, and `truncated_by` is "turns"."""
    max_context_tokens: int | None = None
    """The most tokens that the transcript may have. Then the episode is truncated. Four characters count as one
    token. None: no limit."""
    budget: float | None = None
    """Dollars that the agent may spend in an episode, on its own tokens, experts and tools. An episode that ends above
    has not solved its task. None: no limit."""
    max_seconds: float | None = None
    """The most seconds that the episode's clock may show. Then the episode is truncated. None: no limit."""
    orchestrator: str = "qwen3-8b"
    """The agent's own tokens are billed by this row of the price sheet. Without a count of them, four characters are
    one token."""
    spend_cap: SpendCap | None = None
    """The most real money that may be spent. Environments that share one stop together."""

    def rules(self) -> Rules:
        """The rules as the episode wants it."""
        one_of("history", self.history, ("full", "state"))
        limits = Limits(self.max_turns, self.max_context_tokens, self.budget, self.max_seconds)
        terms = reward_terms(self.reward_terms)
        return Rules(limits, self.history, self.orchestrator, cost_weights(self.reward), self.spend_cap, terms)


class Started(NamedTuple):
    """A fresh episode with what reset() returns."""

    episode: Episode
    observation: Observation
    info: dict[str, Any]


class EpisodeFactory:
    """Starts episodes of one source under one set of settings. Immutable: any number of environments may share it."""

    def __init__(self, source: str | TaskSource, settings: EnvSettings, source_arguments: Mapping[str, Any]) -> None:
        self.settings = settings
        self._asked = source
        given = {f.name: getattr(settings, f.name) for f in fields(EnvSettings)}
        self._arguments = {**given, **source_arguments}
        if source_arguments and not isinstance(source, str):
            valid = (*(f.name for f in fields(EnvSettings)), "render_mode")
            made = f"the source is made already; give {type(source).__name__} its own arguments"
            raise ConfigError(f"{no_such('argument', next(iter(source_arguments)), valid)} ({made})")
        lacks = [name for name in ("name", "splits", "draw", "open") if not hasattr(source, name)]
        if not isinstance(source, str) and (lacks or isinstance(source, type)):
            wrong = f"lacks {', '.join(lacks)}" if lacks else "is a class; make one of it"
            raise ConfigError(f'a source is "package.module:Class" or a made one, got {source!r:.60}, which {wrong}')
        self.source: TaskSource = _load(source, source_arguments) if isinstance(source, str) else source
        one_of("split", settings.split, self.source.splits, f"{self.source.name}: ")
        self.rules = settings.rules()
        self.sheet = self._sheet(settings.prices)
        preferences.known(settings.preference)
        self._models = models_of(self.source)

    def __reduce__(self) -> tuple[Callable[..., EpisodeFactory], tuple[()]]:
        if not isinstance(self._asked, str):
            raise TypeError(f"only a source named by its path can be made again elsewhere, not {self._asked!r:.80}")
        return partial(factory, self._asked, **self._arguments), ()

    def __deepcopy__(self, _memo: object) -> EpisodeFactory:
        return self

    def changed(self, **settings: Any) -> EpisodeFactory:
        """A factory of the same source under other settings."""
        return factory(self._asked, **{**self._arguments, **settings})

    def _sheet(self, prices: str | Path | PriceSheet | Mapping[str, Any]) -> PriceSheet:
        """The prices that hold, by which the orchestrator's own tokens can be billed."""
        sheet, orchestrator = load_sheet(prices), self.settings.orchestrator
        if isinstance(self.source, PricesOrchestrators):
            sheet = self.source.with_price_of(sheet, orchestrator)
        sheet.require_tokens([orchestrator], "the orchestrator's own tokens")
        return sheet

    def require_money(self) -> None:
        """Raise SpendCapReached where the cap would cut an episode before its first turn."""
        cap = self.rules.spend_cap
        if cap is not None and cap.used_up:
            raise SpendCapReached(f"{cap.told()}: no episode can begin; to play on, give gym.make a higher spend_cap")

    def reset(self, rng: np.random.Generator, options: Mapping[str, Any] | None = None) -> Started:
        """One episode as reset() starts it: of the next seed that `rng` draws, or of options["episode_seed"]."""
        chosen = reset_options(options, ("episode_seed",))
        named = chosen.pop("episode_seed", None)
        return self.start(next_seed(rng) if named is None else int(named), chosen)

    def start(self, seed: int, options: Mapping[str, Any] | None = None) -> Started:
        """One episode. The same seed and options give the same task, preference and simulated results.

        The seed is the episode's own: what `info["episode_seed"]`, a job, a trial and a recorded trajectory name.
        Another `luck` among the options is the same task, preference, tools and prices with other draws, as if the same
        task were played on another day: siblings of a group and repeated trials have each their own."""
        chosen = reset_options(options)
        rng = random.Random(seed)
        # Also when a task is named, so that the preference is the same.
        drawn = self.source.draw(self.settings.split, rng)
        task_id = drawn if chosen.get("task_id") is None else chosen["task_id"]
        sheet = self._sheet(chosen["prices"]) if chosen.get("prices") is not None else self.sheet
        scene = self.source.open(task_id, seed, sheet, chosen.get("tools"))
        rules = self.rules
        if chosen.get("budget") is not None:
            rules = replace(rules, limits=replace(rules.limits, usd=chosen["budget"]))
        wanted = self.settings.preference if chosen.get("preference") is None else chosen["preference"]
        preference = preferences.read(wanted, rng, scene.world.toolbox.keys, self.settings.wording)
        started = self.begin(task_id, scene, drawing_seed(seed, chosen.get("luck")), preference, rules)
        started.episode.origin = (self, seed, chosen)
        started.info["episode_seed"] = seed
        return started

    def begin(self, task_id: str, scene: Scene, seed: int, preference: preferences.Preference, rules: Rules) -> Started:
        """One episode of a scene that is open already, such as one that somebody's question opened. `seed` is what its
        draws follow from."""
        context = ToolContext(scene.world, seed, Bill(scene.sheet, rules.spend_cap), self._models)
        episode = Episode(task_id, scene.world, context, rules, scene.sheet, preference)
        observation = episode.open()
        info = {
            "task_id": task_id,
            "episode_seed": seed,
            "task": plain(scene.public),
            "preference": {
                "weights": {name: float(weight) for name, weight in preference.weights().items()},
                "sentence": preference.sentence,
                "kind": preference.kind,
            },
            "budget": rules.limits.usd,
            "price_sheet": scene.sheet.sheet_id,
        }
        if rules.limits.usd is not None:
            info["least_usd"] = dict(episode.least_usd)
        return Started(episode, observation, info)


def drawing_seed(seed: int, luck: int | None) -> int:
    """What the draws of an episode follow from: its seed, and its luck where it has one."""
    return random.Random(f"{seed}/{luck}").getrandbits(62) if luck else seed


def next_seed(rng: np.random.Generator) -> int:
    """The next episode's seed, of an environment's generator."""
    return int(rng.integers(2**62))


def refuse_unnamed(arguments: Sequence[Any]) -> None:
    """reset() takes its arguments by name, as Gymnasium has it."""
    if arguments:
        given = ", ".join(f"{argument!r:.40}" for argument in arguments)
        raise TypeError(
            f"reset() takes its arguments by name: reset(seed=3), reset(options={{'task_id': ...}}); got reset({given})"
        )


def reset_options(options: Mapping[str, Any] | None, more: Sequence[str] = ()) -> dict[str, Any]:
    """A copy of what reset() was given, each option of its kind; None stands for one that is left out."""
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"reset options are a mapping, such as {{'task_id': ...}}, got {options!r:.60}")
    chosen = dict(options or {})
    for name in chosen:
        one_of("reset option", name, (*OPTIONS, *more), behind=_of_make(name))
    check(_kinds, {name: chosen[name] for name in ("task_id", "budget", "episode_seed", "luck") if name in chosen})
    tools = chosen.get("tools")
    if tools is not None and (isinstance(tools, str) or not isinstance(tools, Collection) or not tools):
        raise ConfigError(f"tools is a list of the names to keep, one at least, got {tools!r:.60}; None keeps all")
    return chosen


def _of_make(name: str) -> str:
    """Where an argument belongs that reset() was given among its options."""
    if name == "seed":
        return " Give it beside the options: reset(seed=3)"
    return f" It is an argument of gym.make: gym.make(id, {name}=...)" if name in _SETTINGS else ""


_SETTINGS = frozenset(f.name for f in fields(EnvSettings))


def _kinds(task_id: str | None, budget: float | None, episode_seed: int | None, luck: int | None) -> None:
    """What `check` reads the kinds of reset's options from."""


def _said_elsewhere(argument: str, valid: Collection[str]) -> str:
    """Where something belongs that gym.make was given and does not take."""
    if argument in ("index", "web", "sandbox", "judge", "endpoints", "models", "cassette") and "backends" in valid:
        return " A file says it: backends='my.toml'"
    if argument == "seed":
        return " Give it to reset: reset(seed=3)"
    if argument in (*OPTIONS, "episode_seed"):
        return f" Give it to reset: reset(options={{{argument!r}: ...}})"
    return ""


def _named(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as err:
        raise ConfigError(f'task source {path!r} cannot be loaded: {err}; write it as "package.module:Class"') from err


def _load(path: str, arguments: Mapping[str, Any]) -> TaskSource:
    made, name = _named(path), path.partition(":")[2]
    valid = inspect.signature(made).parameters
    for argument in arguments:
        if argument not in valid:
            names = (*(f.name for f in fields(EnvSettings)), *valid, "render_mode")
            raise ConfigError(f"{name}: {no_such('argument', argument, names)}{_said_elsewhere(argument, valid)}")
    check(made, arguments)
    return made(**arguments)  # type: ignore[no-any-return]


def factory(source: str | TaskSource, **arguments: Any) -> EpisodeFactory:
    """A factory from gym.make's keyword arguments. Equal arguments share one, which keeps idle environments small,
    until a file that they name is another, or the source's class: a notebook's cell makes it anew each time it runs."""
    if isinstance(terms := arguments.get("reward_terms"), list):  # as a command line's JSON has it
        arguments["reward_terms"] = tuple(terms)
    items = tuple(sorted(arguments.items()))
    try:
        # By type too: True equals 1, and is no number of turns.
        stamps = tuple((type(value), _stamp(value)) for _, value in items)
        return _shared(source, _named(source) if isinstance(source, str) else None, items, stamps)  # type: ignore[arg-type]
    except TypeError:  # an argument that cannot be hashed, such as a mapping of preference weights
        return _make(source, arguments)


_MOST_FILES = 5000
"""Most files of a folder that are looked at each time an environment is made; of a larger one none is shared."""


def _stamp(value: Any) -> tuple[int, int] | None:
    """What changes when a file is written again, or one of a folder's."""
    if not isinstance(value, str | PathLike):
        return None
    try:
        found = os.stat(value)
    except (OSError, ValueError):
        return None
    if not S_ISDIR(found.st_mode):
        return found.st_mtime_ns, found.st_size
    files = sorted(islice(_stamps_inside(os.fsdecode(value)), _MOST_FILES + 1))
    if len(files) > _MOST_FILES:
        raise TypeError(f"{value!r} has more files than are looked at")
    return hash(tuple(files)), len(files)


def _stamps_inside(folder: str) -> Iterator[tuple[str, int, int]]:
    """Files of a folder and of those in it, but for hidden ones, such as a repository's objects."""
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in files:
            path = os.path.join(here, name)
            with suppress(OSError):  # gone since, or a link to nothing
                found = os.stat(path)
                yield path, found.st_mtime_ns, found.st_size


@lru_cache(maxsize=64)
def _shared(
    source: Any, _class: Any, items: tuple[tuple[str, Any], ...], _stamps: tuple[tuple[type, Any], ...]
) -> EpisodeFactory:
    return _make(source, dict(items))


def _make(source: str | TaskSource, arguments: dict[str, Any]) -> EpisodeFactory:
    own = {f.name for f in fields(EnvSettings)}
    given = {k: v for k, v in arguments.items() if k in own}
    check(EnvSettings, given)
    if isinstance(wanted := given.get("preference"), Mapping):
        given["preference"] = dict(wanted)  # its maker may change it for the next environment
    settings = EnvSettings(**given)
    return EpisodeFactory(source, settings, {k: v for k, v in arguments.items() if k not in own})
