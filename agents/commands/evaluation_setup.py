"""What `toolorchestra evaluate` takes, and the environments, backends and policies that follow from it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pkgutil import resolve_name
from typing import Any, Literal, NamedTuple

import tyro

from toolorchestra.agents.commands.console import check_counts, check_spend_cap
from toolorchestra.agents.commands.trained_players import environments_of, tell_difference
from toolorchestra.agents.configuration.environment_options import ChosenEnv, arguments, chosen_envs, pairs
from toolorchestra.agents.configuration.evaluation_presets import preset
from toolorchestra.agents.evaluation.runs import Contest
from toolorchestra.agents.evaluation.trials import trials_of
from toolorchestra.agents.policies.base import PlayerOptions
from toolorchestra.agents.policies.baselines import NAMES
from toolorchestra.agents.policies.players import player
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.questions.datasets import Dataset
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.models.endpoints import read_row
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import ids, spec_of
from toolorchestra.envs.sandbox.kinds import UNSAFE
from toolorchestra.envs.tools.backends import Backing, Wanted, read

REAL = ("backends", "index", "web", "sandbox", "unsafe_exec", "judge", "record", "replay", "cache", "dataset")
"""Options that name something real; without any, everything is simulated."""
SandboxKind = Literal["", "arithmetic", "landlock", "monty", "e2b"]


@dataclass(frozen=True)
class EvaluateOptions:
    """What `toolorchestra evaluate` takes."""

    env: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """An id, then NAME=VALUE for gym.make; once for each environment. HLE-v0 and FRAMES-v0 when left out; with a policy
    checkpoint:FOLDER or router:FOLDER and no --set, what that was trained on."""
    set: tuple[str, ...] = ()
    """NAME=VALUE for gym.make, for all environments. For example: --set max_turns=20 orchestrator=my-model"""
    split: tuple[str, ...] = ()
    """Which tasks, such as train, validation or test. Test when left out; of a data set, all."""
    policy: tuple[str, ...] = ()
    """Who plays. Simulated: random, cheapest, strongest, oracle (all when left out). Over real backends: random, cheap,
    dear, always:EXPERT, chat (cheap when left out); where a policy has to talk, as in Tau2-v0, chat alone. A trained
    model: checkpoint:FOLDER, of a run, one of its checkpoints, or what export model wrote; router:FOLDER, of
    train --router."""
    tasks: int = 300
    """How many tasks of each split are played."""
    seed: int = 0
    """Seed of the first task. Each next task takes the next number."""
    tools: str = "paper"
    """Tool configuration: paper, plain or a JSON file."""
    prices: str = ""
    """Price sheet: a name or a JSON file; the environment's own when left out, which is mostly paper-2025-11."""
    backends: str = ""
    """A file of real models, index, web search and sandbox (TOML or JSON)."""
    index: str = ""
    """The folder of a search index that `toolorchestra index build` built, or "embedded" for the invented texts."""
    web: bool = False
    """Search the web by Tavily, with the key in $TAVILY_API_KEY."""
    sandbox: SandboxKind = ""
    """What runs programs: arithmetic, landlock (Linux), monty or e2b. docs/security.md compares them."""
    unsafe_exec: bool = False
    """Run programs that models write with your own rights, without a sandbox."""
    judge: tuple[str, ...] = ()
    """Models that grade; all must say right."""
    record: str = ""
    """Write every request and its reply to this new file."""
    replay: str = ""
    """Answer every request from this file."""
    cache: str = ""
    """Answer from this file where it can, and add what it lacks."""
    dataset: str = ""
    """Real questions: a file, or a hub's NAME or NAME@REVISION."""
    field: tuple[str, ...] = ()
    """FIELD=COLUMN: what the data set calls a field."""
    spend_cap: float | None = None
    """Dollars that the whole run may cost."""
    at_once: int = 64
    """How many trials are played at the same time."""
    trials: int = 1
    """How often each task is played, each time with other draws."""
    out: str = ""
    """Folder to keep the run in: every trial as it ends, and what was asked for."""
    dry_run: bool = False
    """Say what the run would cost, and spend nothing."""
    like: str = ""
    """With --dry-run: the folder of an earlier run to estimate by; without it simulated plays are."""
    preset: tuple[str, ...] = ()
    """Settings of the paper: no-tools, basic-tools, all-tools, unseen-tools, unseen-prices, turns, preferences."""
    details: bool = False
    """Print the figures of each subject, level, domain too."""
    player: tuple[str, ...] = ()
    """NAME=VALUE for players. For example: --player fit_tasks=200 temperature=0.5"""
    resume: bool = False
    """Go on with the run in --out. Trials that ended are kept; those that failed or were cut are played again."""
    allow_changed: bool = False
    """With --resume: go on also where a file that the run was made with has changed since."""

    def __post_init__(self) -> None:
        check_counts(self, {"tasks": 1, "at_once": 1, "trials": 1})
        check_spend_cap(self.spend_cap)


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
    for env in _envs(given):
        takes = _takes(env.env_id)
        if backing is not None and "backends" not in takes:
            named = [env_id for env_id in ids() if "backends" in _takes(env_id)]
            raise ConfigError(no_such("environment over real backends", env.env_id, named))
        splits = given.split or (("all",) if given.dataset and "dataset" in takes else ("test",))
        for (label, one), split in product(_settings(given, env), splits):
            made = _factory(given, one, split, backends=backing, spend_cap=cap)
            yield PlayedEnv(env.env_id, label, split, takes, made)


def contests_of(given: EvaluateOptions, backing: Backing | None, cap: SpendCap | None) -> Iterator[Contest]:
    """Every policy on every split of every environment."""
    options = read_row(PlayerOptions, arguments("--player", given.player), "--player")
    for env_id, label, split, takes, made in played_envs(given, backing, cap):
        for name in given.policy or _default_policies(given, takes):
            tell_difference(name, env_id, made)
            trials = trials_of(label, made, name, given.tasks, given.seed, given.trials)
            yield Contest(label, split, name, made, player(name, made, given.seed, options), trials)


def _envs(given: EvaluateOptions) -> Sequence[ChosenEnv]:
    """What is asked for; where nothing is, what a model among the policies was trained on."""
    nothing = not (given.env or given.set or given.dataset or given.preset)
    learnt = environments_of(given.policy) if nothing else ()
    return learnt or chosen_envs(given.env or [["HLE-v0"], ["FRAMES-v0"]], given.set)


def _settings(given: EvaluateOptions, env: ChosenEnv) -> Iterator[tuple[str, ChosenEnv]]:
    """The environment under each setting of the presets, with what it is called."""
    label = env.env_id.removeprefix("ToolOrchestra/")
    if not given.preset:
        yield label, env
    for name in given.preset:
        for setting in preset(name, env.env_id):
            yield f"{label}, {setting.label}", ChosenEnv(env.env_id, {**setting.arguments, **env.arguments})


def _takes(env_id: str) -> Mapping[str, inspect.Parameter]:
    """The arguments of an environment's task source. Question sources take a tool configuration: `tools`."""
    source = spec_of(env_id).kwargs.get("source", "")
    if not source:
        raise ConfigError(f"{no_such('environment', env_id, ids())} It has no task source of this suite's kind")
    return inspect.signature(resolve_name(source)).parameters


def _default_policies(given: EvaluateOptions, takes: Mapping[str, Any]) -> Sequence[str]:
    if given.backends:
        return ("chat",)
    return NAMES if "tools" in takes else ("random",)


def wanted_of(given: EvaluateOptions) -> Wanted:
    """What is named of real backends."""
    tapes = {mode: getattr(given, mode) for mode in ("record", "replay", "cache") if getattr(given, mode)}
    if len(tapes) > 1:
        raise ConfigError(f"one cassette at a time; got {', '.join(f'--{mode}' for mode in tapes)}")
    mode, path = next(iter(tapes.items()), ("", ""))
    sandbox = UNSAFE if given.unsafe_exec else given.sandbox
    wanted = read(
        given.backends, index=given.index, web=given.web or None, sandbox=sandbox, unsafe_exec=given.unsafe_exec,
        judges=given.judge, cassette=path, mode=mode,
    )  # fmt: skip
    if wanted.judges and wanted.endpoints is None and mode != "replay":
        raise ConfigError(f"the judge {', '.join(wanted.judges)} is a model: name its endpoint: --backends FILE")
    return wanted


def _factory(
    given: EvaluateOptions, env: ChosenEnv, split: str, *, backends: Backing | None, spend_cap: SpendCap | None
) -> EpisodeFactory:
    takes = _takes(env.env_id)
    common: dict[str, object] = {"preference": "none"}
    if given.prices:
        common["prices"] = given.prices
    if "tools" in takes:
        common |= {"tools": given.tools, "max_turns": 50}
    if backends is not None:
        common["backends"] = backends
    if given.dataset:
        common["dataset"] = Dataset(given.dataset, pairs("--field", given.field))
    settings = {**spec_of(env.env_id).kwargs, **common, **env.arguments}
    return factory(**settings, split=split, spend_cap=spend_cap)


def real(given: EvaluateOptions) -> bool:
    """Whether anything real is named."""
    return any(getattr(given, name) for name in REAL)
