"""Compare policies on question environments: `toolorchestra evaluate --env HLE-v0 --env FRAMES-v0 --tasks 300`.

With real backends: `--backends FILE --index FOLDER --sandbox landlock --policy chat`, recorded (`--record FILE`) and
replayed (`--replay FILE`); docs/real-tools.md says how. The exit code is 1 where an episode failed.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Literal

import gymnasium as gym
import tyro

from toolorchestra.agents.commands.console import DONE, FAILED, check_counts, check_spend_cap, command
from toolorchestra.agents.configuration.environment_options import ChosenEnv, chosen_envs, pairs
from toolorchestra.agents.evaluation import endpoint_evaluation
from toolorchestra.agents.evaluation.simulated_evaluation import Record, plays, summarise, table
from toolorchestra.agents.policies.baselines import NAMES, baseline
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.domains.questions.datasets import Dataset
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import ids
from toolorchestra.envs.sandbox.kinds import UNSAFE
from toolorchestra.envs.tools.backends import Backing, read

REAL = ("backends", "index", "web", "sandbox", "unsafe_exec", "judge", "record", "replay", "cache", "dataset")
"""Options that name something real; without any, everything is simulated."""
SandboxKind = Literal["", "arithmetic", "landlock", "monty", "e2b"]


@dataclass(frozen=True)
class EvaluateOptions:
    """What `toolorchestra evaluate` takes."""

    env: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """An id, then NAME=VALUE for gym.make; once for each environment. HLE-v0 and FRAMES-v0 when left out."""
    set: tuple[str, ...] = ()
    """NAME=VALUE for gym.make, for all environments. For example: --set max_turns=20 orchestrator=my-model"""
    split: tuple[str, ...] = ()
    """Which tasks; train, validation and test when left out, of a data set: all."""
    policy: tuple[str, ...] = ()
    """Who plays. Simulated: random, cheapest, strongest, oracle (all when left out). Over real backends: random, cheap,
    dear, chat (cheap when left out)."""
    tasks: int = 300
    """How many of each split."""
    seed: int = 0
    """Of the first task; the next ones count on from it."""
    tools: str = "paper"
    """Tool configuration: paper, plain or a JSON file."""
    prices: str = "paper-2025-11"
    """Price sheet: a name or a JSON file."""
    backends: str = ""
    """A file of real models, index, web search and sandbox (TOML or JSON)."""
    index: str = ""
    """An index folder, or "embedded"."""
    web: bool = False
    """Search the web by Tavily, with the key in $TAVILY_API_KEY."""
    sandbox: SandboxKind = ""
    """What runs programs."""
    unsafe_exec: bool = False
    """Run programs of models with your own rights."""
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
    """Episodes side by side, over real backends."""

    def __post_init__(self) -> None:
        check_counts(self, {"tasks": 1, "at_once": 1})
        check_spend_cap(self.spend_cap)


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(EvaluateOptions, run, given, about=__doc__)


def run(given: EvaluateOptions) -> int:
    """Play, and print a table for each environment and split."""
    real = any(getattr(given, name) for name in REAL)
    cap = SpendCap(given.spend_cap) if given.spend_cap is not None else None
    envs = [_question_env(one) for one in chosen_envs(given.env or [["HLE-v0"], ["FRAMES-v0"]], given.set)]
    backing = _backing(given) if real else None
    splits = given.split or (("all",) if given.dataset else ("train", "validation", "test"))
    failed = 0
    try:
        for env in envs:
            for split in splits:
                made = _factory(given, env, split, backends=backing, spend_cap=cap)
                title = f"{env.env_id} {split}"
                failed += asyncio.run(_live(given, made, title)) if real else _simulated(given, made, title)
    finally:
        if backing is not None:
            backing.close()
    return FAILED if failed else DONE


def _question_env(env: ChosenEnv) -> ChosenEnv:
    """An environment that asks questions: the policies here play no other."""
    valid = [env_id for env_id in ids() if _asks(env_id)]
    if not _asks(env.env_id):
        raise ConfigError(no_such("question environment", env.env_id, valid))
    return env


def _asks(env_id: str) -> bool:
    """Question sources are those that take a tool configuration."""
    source = gym.spec(env_id).kwargs.get("source", "")
    return "tools" in inspect.signature(resolve_name(source)).parameters if source else False


def _backing(given: EvaluateOptions) -> Backing:
    tapes = {mode: getattr(given, mode) for mode in ("record", "replay", "cache") if getattr(given, mode)}
    if len(tapes) > 1:
        raise ConfigError(f"one cassette at a time; got {', '.join(f'--{mode}' for mode in tapes)}")
    mode, path = next(iter(tapes.items()), ("", ""))
    wanted = read(
        given.backends, index=given.index, web=given.web, sandbox=UNSAFE if given.unsafe_exec else given.sandbox,
        unsafe_exec=given.unsafe_exec, judges=given.judge, cassette=path, mode=mode,
    )  # fmt: skip
    if wanted.judges and wanted.endpoints is None and mode != "replay":
        raise ConfigError(f"the judge {', '.join(wanted.judges)} is a model: name its endpoint: --backends FILE")
    return Backing(wanted)


def _factory(
    given: EvaluateOptions, env: ChosenEnv, split: str, *, backends: Backing | None, spend_cap: SpendCap | None
) -> EpisodeFactory:
    more: dict[str, object] = {}
    if backends is not None:
        more["backends"] = backends
    if given.dataset:
        more["dataset"] = Dataset(given.dataset, pairs("--field", given.field))
    common = {"tools": given.tools, "prices": given.prices, "preference": "none", "max_turns": 50}
    settings = {**gym.spec(env.env_id).kwargs, **common, **more, **env.arguments}
    return factory(**settings, split=split, spend_cap=spend_cap)


def _simulated(given: EvaluateOptions, made: EpisodeFactory, title: str) -> int:
    """Gives how many failed."""
    started = time.perf_counter()
    policies = {name: baseline(name, given.seed) for name in given.policy or NAMES}
    records: dict[str, list[Record]] = {}
    stopped = False
    try:
        for name, policy in policies.items():
            played = records[name] = []
            for record in plays(made, policy, given.tasks, given.seed):
                played.append(record)
    except KeyboardInterrupt:
        stopped = True
    print(f"{title}: {given.tasks} tasks, prices {given.prices}, SIMULATED, {time.perf_counter() - started:.1f} s")
    _show(records, [], given.tasks, stopped=stopped)
    if stopped:
        raise KeyboardInterrupt
    return _failed(records)


async def _live(given: EvaluateOptions, made: EpisodeFactory, title: str) -> int:
    """Gives how many failed."""
    source: Any = made.source  # of a data set: its questions have ids that can be listed
    tasks = source.ids(made.settings.split)[: given.tasks] if given.dataset else given.tasks
    policies = {name: endpoint_evaluation.policy(name, made, given.seed) for name in given.policy or ["cheap"]}
    records: dict[str, list[Record]] = {}
    notes: list[str] = []
    stopped = False
    for name, policy in policies.items():
        started = time.perf_counter()
        done: dict[int, endpoint_evaluation.PlayedEpisode] = {}
        try:
            await endpoint_evaluation.evaluate(made, policy, given.seed, tasks, given.at_once, done)
        except asyncio.CancelledError:
            stopped = True
        played = endpoint_evaluation.in_order(done)
        records[name] = [p.record for p in played]
        notes += _notes(name, played, time.perf_counter() - started)
        if stopped:
            break
    wanted = tasks if isinstance(tasks, int) else len(tasks)
    print(f"{title}: {wanted} tasks, prices {given.prices}{'' if given.backends else ', models SIMULATED'}")
    _show(records, notes, wanted, stopped=stopped)
    if stopped:
        raise asyncio.CancelledError
    return _failed(records)


def _failed(records: Mapping[str, Sequence[Record]]) -> int:
    return sum(record.failed and not record.cut for played in records.values() for record in played)


def _notes(name: str, played: Sequence[endpoint_evaluation.PlayedEpisode], seconds: float) -> list[str]:
    """What a live policy spent, and what failed."""
    usd = sum(p.nano_usd for p in played) / 1e9
    failed = [p for p in played if p.failure and not p.record.cut]
    return [
        f"{name}: {usd:.9f} $ in all, {seconds:.1f} s, digest {endpoint_evaluation.whole_digest(played)}",
        *(f"  failed {p.record.task_id}: {p.failure[:200]}" for p in failed[:5]),
    ]


def _show(records: Mapping[str, Sequence[Record]], notes: Sequence[str], tasks: int, *, stopped: bool) -> None:
    unstarted = {name: 0 if stopped else tasks - len(played) for name, played in records.items()}
    shown = table([summarise(name, played, unstarted[name]) for name, played in records.items()])
    print(shown, *notes, sep="\n")
    if stopped:
        print("stopped; played: " + ", ".join(f"{name} {len(played)} of {tasks}" for name, played in records.items()))
    print(flush=True)
