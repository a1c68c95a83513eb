"""The functions behind `toolorchestra.evaluate`, `compare`, `train` and `load_policy`: the commands, from Python."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from toolorchestra.envs.base.errors import ConfigError, one_of

if TYPE_CHECKING:
    import gymnasium as gym

    from toolorchestra.agents.configuration.config import TrainConfig
    from toolorchestra.agents.evaluation.comparison import RunComparison
    from toolorchestra.agents.policies.base import Player
    from toolorchestra.agents.serving.solving import QuestionSolver, Solution
    from toolorchestra.envs.factory import EpisodeFactory


Given = ParamSpec("Given")
Made = TypeVar("Made")


def _in_notebooks_too(work: Callable[Given, Made]) -> Callable[Given, Made]:
    """The same where a loop runs already, as in a notebook: asyncio.run() refuses there, so a thread does it."""

    @wraps(work)
    def done(*arguments: Given.args, **named: Given.kwargs) -> Made:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return work(*arguments, **named)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(work, *arguments, **named).result()

    return done


@_in_notebooks_too
def evaluate(
    env: str, policy: str | Path | Policy | Sequence[str | Path | Policy] = (), *, out: str | Path = "", **options: Any
) -> dict[str, Any]:
    """Play policies on an environment's test tasks, and give the figures, as the run's summary.json has them. A policy
    is a name, a run's folder, or what load_policy gave.

    `options` are those of `toolorchestra evaluate`, such as tasks=60 or spend_cap=5.0; what else is named goes to
    gym.make. `out` keeps the run as a folder, with its page; the same call with resume=True goes on with it.
    """
    from toolorchestra.agents.commands.evaluate import evaluated
    from toolorchestra.agents.commands.evaluation_setup import EvaluateOptions, source_takes
    from toolorchestra.agents.configuration.environment_options import PAPER
    from toolorchestra.envs.factory import EnvSettings, check

    own = {field.name for field in fields(EvaluateOptions)}
    made = [f"{name}={json.dumps(value)}" for name, value in options.items() if name not in own]
    if env != PAPER:  # which is several environments
        known = {*own, "policy", *source_takes(env), *(field.name for field in fields(EnvSettings))}
        _check_names(options, known, "argument of evaluate()")
    several = {field.name for field in fields(EvaluateOptions) if isinstance(field.default, tuple)}
    given: dict[str, Any] = {name: value for name, value in options.items() if name in own}
    check(EvaluateOptions, {name: value for name, value in given.items() if name not in several})
    for name in several & given.keys():
        given[name] = (str(given[name]),) if isinstance(given[name], str | Path) else tuple(given[name])
    policies = [policy] if isinstance(policy, str | Path | Policy) else policy
    if not (isinstance(policies, Sequence) and all(isinstance(one, str | Path | Policy) for one in policies)):
        raise ConfigError(
            f"a policy is a name, a run's folder or what load_policy gave, or a list of these; got {policy!r:.60}"
        )
    if set_apart := [one for one in policies if isinstance(one, Policy) and one._options]:
        told = [f"{name}={value}" for name, value in set_apart[0]._options.items()]
        raise ConfigError(
            f"options are those of all players of a run: evaluate(..., player={told}), and load none with it"
        )
    names = tuple(one.name if isinstance(one, Policy) else _named(str(one)) for one in policies)
    return evaluated(EvaluateOptions(env=((env, *made),), policy=names, out=str(out), **given))[1]


def compare(*runs: str | Path, against: str = "") -> RunComparison:
    """Compare runs of evaluate, trial by trial, as `toolorchestra compare` does."""
    from toolorchestra.agents.evaluation.comparison import compare_runs, read_runs

    if not runs or not all(isinstance(run, str | Path) for run in runs):
        raise ConfigError(
            f"compare takes folders of evaluations, such as compare('runs/a', 'runs/b'), got {runs!r:.80}"
        )
    return compare_runs(read_runs([Path(run) for run in runs]), against, ())


@_in_notebooks_too
def train(config: TrainConfig | str = "tiny", *, out: str | Path = "", resume: bool = False, **settings: Any) -> Path:
    """Train an orchestrator, and give the run's folder. `config` is a TrainConfig or a preset's name; `settings`
    change single ones of it, such as steps=40."""
    from toolorchestra.agents.commands.train import trained
    from toolorchestra.agents.configuration.config import TrainConfig
    from toolorchestra.agents.configuration.presets import preset
    from toolorchestra.agents.training.build import default_folder, follow, follows
    from toolorchestra.agents.training.training_run import claimed
    from toolorchestra.envs.factory import check

    _check_names(settings, [field.name for field in fields(TrainConfig)], "setting of a training")
    check(TrainConfig, settings)
    if not isinstance(config, str | TrainConfig):
        raise ConfigError(f"config is a TrainConfig or a preset's name, such as 'tiny', got {config!r:.60}")
    chosen = replace(preset(config) if isinstance(config, str) else config, **settings)
    folder = Path(out) if out else default_folder(chosen)
    if follows():
        follow(chosen)
        return folder
    with claimed(folder):
        trained(chosen, folder, resume=resume)
    return folder


class Policy:
    """Somebody who can play and answer: a baseline, a trained model, or a chat model behind the environment's
    endpoints."""

    def __init__(self, name: str, made_in: EpisodeFactory | None, options: Mapping[str, Any]) -> None:
        self.name, self._options = name, dict(options)
        self._made_in = made_in
        self._players: dict[EpisodeFactory, Player] = {}
        self._solver: QuestionSolver | None = None

    def __repr__(self) -> str:
        return f"Policy({self.name!r})"

    def player(self, env: gym.Env[Any, Any]) -> Player:
        """The player of an environment's episodes; one for all that it plays there."""
        return self._player(_factory(env))

    def _player(self, factory: EpisodeFactory) -> Player:
        from toolorchestra.agents.policies.base import PlayerOptions
        from toolorchestra.agents.policies.players import player

        if factory not in self._players:
            self._players[factory] = player(self.name, factory, options=PlayerOptions(**self._options))
        return self._players[factory]

    @_in_notebooks_too
    def act(self, env: gym.Env[Any, Any]) -> str:
        """The next action in the environment's episode, for step()."""
        _factory(env)
        episode = getattr(env.unwrapped, "episode", None)
        if episode is None:
            raise ConfigError("act(env) plays an episode that has begun; call env.reset() first")
        return asyncio.run(self.player(env).move(episode)).text

    def solve(self, question: str, **limits: Any) -> Solution:
        """Answer a question with the tools of the environment: the text, the bill by role, the trajectory.

        `limits`: budget_usd=0.05, deadline_seconds=60, preference="frugal" (a kind, weights, or a sentence of one's
        own), seed=3, and tools=[...]: functions and Tools are offered beside the environment's, of which names keep
        some."""
        from toolorchestra.envs.runtime.background import BackgroundLoop

        return BackgroundLoop.shared().run(self._solving(question, limits))

    async def solve_async(self, question: str, **limits: Any) -> Solution:
        """Answer a question, as solve() does, beside others. Cancelling it stops the episode."""
        from toolorchestra.envs.runtime.background import BackgroundLoop

        return await asyncio.wrap_future(BackgroundLoop.shared().submit(self._solving(question, limits)))

    def _solving(self, question: str, limits: Mapping[str, Any]) -> Coroutine[Any, Any, Solution]:
        from toolorchestra.agents.commands.evaluation_setup import factory_for
        from toolorchestra.agents.serving.solving import QuestionSolver, asked

        if self._solver is None:
            made = self._made_in or factory_for(self.name)
            self._solver = QuestionSolver(made, self._player(made))
        return self._solver.solve(asked(question, **limits))

    def close(self) -> None:
        """End what its players hold, such as a model's memory."""
        for player in self._players.values():
            getattr(player, "close", lambda: None)()
        self._players.clear()
        self._solver = None


def load_policy(
    name: str | Path, *, env: gym.Env[Any, Any] | None = None, backends: Any = None, **options: Any
) -> Policy:
    """Load a policy by its name, or a trained one by its folder: "oracle", "chat", "always:answer-2", "runs/mine".

    It answers questions (solve) in `env`, or in what it was trained on, or in HLE-v0, with the real models that
    `backends` names as gym.make's argument does. `options` are those of players, such as temperature=0.5."""
    from toolorchestra.agents.commands.evaluation_setup import factory_for
    from toolorchestra.agents.policies.base import PlayerOptions
    from toolorchestra.agents.policies.players import check_name

    if env is not None and backends is not None:
        raise ConfigError("env has its backends already; give them to make(id, backends=...)")
    if not isinstance(name, str | Path):
        raise ConfigError(f"a policy is named by a text or a run's folder, such as 'oracle', got {name!r:.60}")
    _check_names(options, [field.name for field in fields(PlayerOptions)], "option of a player")
    named = _named(str(name))
    check_name(named)
    made = _factory(env) if env is not None else factory_for(named, backends=backends) if backends is not None else None
    return Policy(named, made, options)


def _named(name: str) -> str:
    """A policy's name; a folder is a run's, whose trained model plays."""
    return f"checkpoint:{name}" if ":" not in name and Path(name).is_dir() else name


def _factory(env: gym.Env[Any, Any]) -> EpisodeFactory:
    factory = getattr(getattr(env, "unwrapped", None), "factory", None)
    if factory is None:
        raise ConfigError(f"a policy plays environments of this suite, made by make(id); got {env!r:.60}")
    found: EpisodeFactory = factory
    return found


def _check_names(given: Mapping[str, Any], known: Collection[str], what: str) -> None:
    for name in given:
        one_of(what, name, known)
