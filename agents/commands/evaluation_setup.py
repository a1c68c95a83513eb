"""What `toolorchestra evaluate` takes, and the environments, backends and policies that follow from it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

import tyro

from toolorchestra.agents.commands.console import check_counts, check_spend_cap, say
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environment_options import (
    PAPER,
    ChosenEnv,
    arguments,
    chosen_envs,
    pairs,
    value,
)
from toolorchestra.agents.configuration.environments import as_trained, difference, option, short_id
from toolorchestra.agents.evaluation.paper_tables import BENCHMARKS
from toolorchestra.agents.evaluation.runs import Contest
from toolorchestra.agents.evaluation.trials import trials_of
from toolorchestra.agents.policies.base import PlayerOptions
from toolorchestra.agents.policies.baselines import NAMES
from toolorchestra.agents.policies.chat_player import model_of
from toolorchestra.agents.policies.players import FITTED, WITH_TRAIN, player
from toolorchestra.agents.policies.router import PREFIX as ROUTER
from toolorchestra.agents.policies.router import load_router
from toolorchestra.agents.training.checkpoint_player import PREFIX
from toolorchestra.agents.training.saved_model import saved_model
from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.errors import POSITIVE, ConfigError, no_such, require
from toolorchestra.envs.domains.questions.datasets import Dataset
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import full_id, ids, spec_of
from toolorchestra.envs.sandbox.e2b_and_unsafe import UNSAFE
from toolorchestra.envs.tools.backends import Backing, NamedBackends, read


@cache
def trained_on(policy: str) -> tuple[EnvMix, ...]:
    """The environments of a trained player; none of any other. Looked up once: a checkpoint's weights are hashed for
    it."""
    if policy.startswith(ROUTER):
        known = load_router(Path(policy.removeprefix(ROUTER))).how.environments
        return tuple(EnvMix(env_id, arguments=arguments) for env_id, arguments in known.items())
    return saved_model(Path(policy.removeprefix(PREFIX))).how.environments if policy.startswith(PREFIX) else ()


def environments_of(policies: Sequence[str], most: int | None = None) -> tuple[ChosenEnv, ...]:
    """The first ones, or all, that the first trained model among the players was trained on, which is said; none where
    there is no such player."""
    for policy in policies:
        if trained := trained_on(policy):
            chosen = as_trained(trained)[:most]
            say(f"as {policy} was trained: {' '.join(map(option, chosen))}")
            return chosen
    return ()


def factory_for(policy: str, env: ChosenEnv | None = None, **more: Any) -> EpisodeFactory:
    """The environment that a policy answers questions in: the named one, or the first that it was trained on, or
    HLE-v0."""
    trained = as_trained(trained_on(policy))
    chosen = env or (trained[0] if trained else ChosenEnv(full_id("HLE-v0"), {}))
    split = {"split": "test"} if policy in FITTED else {}  # of questions from outside none is a train task
    return factory(**{**spec_of(chosen.env_id).kwargs, "preference": "none", **split, **chosen.arguments, **more})


def tell_difference(policy: str, env_id: str, made: EpisodeFactory) -> None:
    """Say what a trained model is not used to in an environment, and where it plays what it was trained on."""
    trained = trained_on(policy)
    if trained and (told := difference(trained, env_id, made)):
        say(f"{policy} on {short_id(env_id)}: {told}")
    if made.settings.split in WITH_TRAIN and learns_from(policy, env_id):
        say(f"{policy} on {short_id(env_id)}: it was trained on train tasks, which split {made.settings.split!r} has")


def learns_from(policy: str, env_id: str) -> bool:
    """Whether a policy learns from the train tasks of an environment's data set."""
    named = (mix for mix in trained_on(policy) if short_id(mix.env_id) == short_id(env_id))
    return policy in FITTED or any("dataset" in mix.arguments for mix in named)


BACKEND_WORDS = ("index", "web", "sandbox", "judge", "record", "replay", "cache", "unsafe_exec")
"""What `--backends` takes beside a file."""
TAPES = ("record", "replay", "cache")
SANDBOXES = ("arithmetic", "landlock", "e2b")
FILE = "file"


@dataclass(frozen=True)
class EvaluateOptions:
    """What `toolorchestra evaluate` takes."""

    env: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """An id, then NAME=VALUE for gym.make, such as tools=basic or prices=unseen-2026-01; once for each environment.
    HLE-v0 and FRAMES-v0 when left out; with a policy checkpoint:FOLDER or router:FOLDER what that was trained on.
    `paper` is HLE-v0, FRAMES-v0 and all of Tau2-v0, each with no tools, basic tools and all; then --env HLE-v0 says
    what that one is given."""
    each: tuple[str, ...] = ()
    """NAME=VALUE,VALUE for gym.make: each environment is played under each of the values. For example:
    --each preference=none,frugal,fast"""
    split: tuple[str, ...] = ()
    """Splits that tasks are of, such as train, validation or test. Test when left out; of a data set, all, unless a
    policy learns from its train tasks."""
    tasks: int = 300
    """How many tasks of each split are played."""
    trials: int = 1
    """How often each task is played, each time with other draws."""
    seed: int = 0
    """Seed of the first task. Each next task takes the next number. Of a data set and of Tau2-v0 it also draws which
    tasks are played: each subject or domain in proportion."""
    policy: tuple[str, ...] = ()
    """Policies that play. Simulated: random, cheapest, strongest, oracle (all four when left out), told-oracle,
    task-oracle. Over real backends too: random, cheap, expensive, cascade, knn, skillbook, always:EXPERT; chat (when
    left out and a file of backends is named), chat:MODEL, for several orchestrators in one run, chat:reference, in the
    reference's words. A trained model: checkpoint:FOLDER, of a run, one of its checkpoints, or what export model
    wrote; router:FOLDER, of train --router. Your own: module:maker."""
    player: tuple[str, ...] = ()
    """NAME=VALUE for players. For example: --player fit_tasks=200 temperature=0.5"""
    backends: tuple[str, ...] = ()
    """What is real: a file (TOML or JSON), and NAME=VALUE in place of what it says. index=FOLDER, or index=embedded for
    the invented texts; web=true; sandbox=arithmetic, landlock or e2b; judge=MODEL,MODEL, who all must say right;
    record=FILE, replay=FILE or cache=FILE of requests and replies; unsafe_exec=true, to run programs that models write
    with your own rights"""
    dataset: tuple[str, ...] = ()
    """Real questions: a file, or a hub's NAME or NAME@REVISION; then FIELD=COLUMN, where the set calls a field
    otherwise."""
    spend_cap: float | None = None
    """Dollars that the whole run may cost."""
    stop_after_failures: float | None = None
    """How many trials may fail before no other begins; below 1 a share of them. A wrong setting and credit that is gone
    always stop the run."""
    at_once: int = 64
    """How many trials are played at the same time."""
    estimate: tuple[Path, ...] | None = None
    """Say what the run would cost, and spend nothing: by simulated plays of the same tasks, or by an earlier run whose
    folder is named."""
    out: str = ""
    """Folder to keep the run in: every trial as it ends, and what was asked for."""
    resume: bool = False
    """Go on with the run in --out. Trials that ended are kept; those that failed or were cut are played again."""
    allow_changed: bool = False
    """Go on with --resume also where a file that the run was made with has changed since."""

    def __post_init__(self) -> None:
        check_counts(self, {"tasks": 1, "at_once": 1, "trials": 1})
        check_spend_cap(self.spend_cap)
        if self.stop_after_failures is not None:
            require(self, POSITIVE, "stop_after_failures")


class PlayedEnv(NamedTuple):
    """An environment's split as a run plays it, under one setting."""

    env_id: str
    label: str
    """What the run calls the environment."""
    split: str
    takes: Mapping[str, inspect.Parameter]
    """The arguments of its task source."""
    made: EpisodeFactory


def played_envs(given: EvaluateOptions, backing: Backing | None, cap: SpendCap | None) -> Iterator[PlayedEnv]:
    """Every split of every environment under every setting."""
    seen: set[tuple[str, str]] = set()
    each = [[(name, text) for text in texts.split(",")] for name, texts in pairs("--each", given.each).items()]
    for name, env in _envs(given):
        takes = source_takes(env.env_id)
        if backing is not None and "backends" not in takes:
            named = [env_id for env_id in ids() if "backends" in source_takes(env_id)]
            more = "A source of your own takes them as an argument `backends`, as Source does"
            raise ConfigError(f"{no_such('environment over real backends', env.env_id, named)} {more}")
        learnt = any(learns_from(policy, env.env_id) for policy in given.policy)
        splits = given.split or (("all",) if given.dataset and "dataset" in takes and not learnt else ("test",))
        for settings, split in product([*product(*each)], splits):
            told = {argument: value(text) for argument, text in settings}
            label = ", ".join([name, *(f"{argument}={text}" for argument, text in settings)])
            if (label, split) in seen:
                raise ConfigError(
                    f"--env {label} stands there twice; --each NAME=VALUE,VALUE plays it under both values"
                )
            seen.add((label, split))
            one = ChosenEnv(env.env_id, {**env.arguments, **told})
            made = _factory(given, one, split, backends=backing, spend_cap=cap)
            yield PlayedEnv(env.env_id, label, split, takes, made)


def contests_of(given: EvaluateOptions, backing: Backing | None, cap: SpendCap | None) -> Iterator[Contest]:
    """Every policy on every split of every environment."""
    options = shapes.read(PlayerOptions, arguments("--player", given.player), "--player")
    if given.out and not options.fit_folder:
        options = replace(options, fit_folder=str(Path(given.out) / "fit"))
    for env_id, label, split, takes, env in played_envs(given, backing, cap):
        by_default = ("chat",) if FILE in backend_words(given.backends) else NAMES if "tools" in takes else ("random",)
        for name in given.policy or by_default:
            made = env.changed(orchestrator=model) if (model := model_of(name)) else env
            tell_difference(name, env_id, made)
            trials = trials_of(label, made, name, given.tasks, given.seed, given.trials)
            yield Contest(label, split, name, made, player(name, made, given.seed, options), trials)


def _envs(given: EvaluateOptions) -> Iterator[tuple[str, ChosenEnv]]:
    """What is asked for, with what it is called; where nothing is, what a model among the policies was trained on."""
    learnt = environments_of(given.policy) if not (given.env or given.dataset) else ()
    paper = [words for words in given.env if words[:1] == (PAPER,)]
    own = learnt or chosen_envs([words for words in given.env if words not in paper] or [["HLE-v0"], ["FRAMES-v0"]])
    if paper:
        yield from _of_paper(arguments(f"--env {PAPER}", paper[-1][1:]), own if len(given.env) > len(paper) else ())
    else:
        yield from ((short_id(env.env_id), env) for env in own)


def _of_paper(for_all: Mapping[str, Any], own: Sequence[ChosenEnv]) -> Iterator[tuple[str, ChosenEnv]]:
    """The paper's benchmarks in its settings. τ²-Bench has tools of its own: all tools are those and the experts."""
    takes = {name: source_takes(full_id(name)) for name in BENCHMARKS}
    theirs = {short_id(env.env_id): env.arguments for env in own}
    if strange := sorted(theirs.keys() - takes.keys()):
        raise ConfigError(f"--env {PAPER} goes with {', '.join(takes)} alone, got {strange[0]}")
    of_one = {argument for known in takes.values() for argument in known}
    for tools, (name, known) in product(("none", "basic", "paper"), takes.items()):
        shared = {argument: it for argument, it in for_all.items() if argument in known or argument not in of_one}
        given: dict[str, Any] = {**({"domain": "all"} if "domain" in known else {}), **shared, **theirs.get(name, {})}
        if "tools" in known:
            given["tools"] = tools
        elif tools == "none" or (tools == "paper" and "experts" not in given):
            continue
        elif tools == "basic":
            given.pop("experts", None)
        yield f"{name}, tools={tools}", ChosenEnv(full_id(name), given)


def source_takes(env_id: str) -> Mapping[str, inspect.Parameter]:
    """The arguments of an environment's task source. Question sources take a tool configuration: `tools`."""
    source = spec_of(env_id).kwargs.get("source", "")
    if not source:
        raise ConfigError(f"{no_such('environment', env_id, ids())} It has no task source of this suite's kind")
    return inspect.signature(resolve_name(source)).parameters


def backend_words(given: Sequence[str]) -> dict[str, str]:
    """What `--backends` says, by name; a file is under FILE."""
    words = {FILE: given[0]} if given and "=" not in given[0] else {}
    words |= pairs("--backends", given[len(words) :])
    for name in words:
        if name not in (FILE, *BACKEND_WORDS):
            raise ConfigError(f"--backends: {no_such('part', name, BACKEND_WORDS)}")
    if words.get("sandbox") not in (None, *SANDBOXES):
        raise ConfigError(f"--backends: {no_such('sandbox', words['sandbox'], SANDBOXES)}")
    return words


def wanted_of(given: EvaluateOptions) -> NamedBackends | None:
    """What is named of real backends; None where nothing is: then everything is simulated."""
    if not (given.backends or given.dataset):
        return None
    words = backend_words(given.backends)
    tapes = [mode for mode in TAPES if mode in words]
    if len(tapes) > 1:
        raise ConfigError(f"--backends: one cassette at a time; got {', '.join(f'{mode}=' for mode in tapes)}")
    mode = tapes[0] if tapes else ""
    flags = {name: value(words[name].capitalize()) for name in ("web", "unsafe_exec") if name in words}
    if wrong := [name for name, flag in flags.items() if not isinstance(flag, bool)]:
        raise ConfigError(f"--backends: {wrong[0]}=true or {wrong[0]}=false expected, got {words[wrong[0]]!r}")
    unsafe = bool(flags.get("unsafe_exec"))
    return read(
        words.get(FILE, ""), index=words.get("index", ""), web=flags.get("web"), unsafe_exec=unsafe,
        sandbox=UNSAFE if unsafe else words.get("sandbox", ""), cassette=words.get(mode, ""), mode=mode,
        judges=tuple(filter(None, words.get("judge", "").split(","))),
    )  # fmt: skip


def _factory(
    given: EvaluateOptions, env: ChosenEnv, split: str, *, backends: Backing | None, spend_cap: SpendCap | None
) -> EpisodeFactory:
    common: dict[str, object] = {"preference": "none"}
    if "tools" in source_takes(env.env_id):
        common["max_turns"] = 50
    if backends is not None:
        common["backends"] = backends
    if given.dataset:
        common["dataset"] = Dataset(given.dataset[0], pairs("--dataset", given.dataset[1:]))
    if "split" in env.arguments:
        raise ConfigError(f"--env {short_id(env.env_id)}: a run names its splits by --split {env.arguments['split']}")
    settings = {**spec_of(env.env_id).kwargs, **common, **env.arguments}
    return factory(**settings, split=split, spend_cap=spend_cap)
