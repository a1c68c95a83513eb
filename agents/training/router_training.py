"""Trains a router of numbers by RLlib's PPO, here or on a Ray cluster. The only module that drives Ray.

RLlib samples, learns, and restarts env runners that die. Ray is imported when a training starts, never before.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tyro

from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environments import simulated, training
from toolorchestra.agents.engines.base import TrainingFailed
from toolorchestra.agents.policies.router import Router, TrainedRouter, layers_of, save_router
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.ray_address import OPTION, START, check_address
from toolorchestra.agents.training.spending import PAID_BY_ONE, counted
from toolorchestra.agents.training.training_run import claimed
from toolorchestra.envs.adapters.learner_env import EMBEDDED, ROUTING, EpisodeFailed, RoutingEnv
from toolorchestra.envs.base.errors import AT_LEAST_ONE, POSITIVE, ConfigError, require
from toolorchestra.envs.money.journal import require_money
from toolorchestra.envs.registration import full_id

LAYERS = ("encoder.encoder.", "pi.")
"""What RLlib calls the layers that lead to the actions."""
PROGRESS = "progress.jsonl"
ENVS_PER_RUNNER = 16
MOST_FAILED_ROUNDS = 3
"""Calls of env runners in a row that may fail, before RLlib looks whether they are back."""
MOST_SILENT_SECONDS = 300.0
"""Seconds without a sample, after which the training is given up."""
CHECKPOINTS, LEARNER = "checkpoints", "learner.pt"
FREE = ("steps", "runners")
"""Settings that may change when a training goes on."""
LEFT_OUT = ("environments", "address", "spend_cap")
"""Settings that say nothing of how a router was trained, or stand elsewhere in its folder."""
INSTALL = 'pip install "toolorchestra[rllib]", in an environment of its own: it pins gymnasium 1.2.2'
Say = Callable[[str], None]


@dataclass(frozen=True)
class RouterTraining:
    """Settings of a training."""

    environments: tyro.conf.Suppress[Mapping[str, Mapping[str, Any]]] = field(
        default_factory=lambda: {full_id(name): {} for name in EMBEDDED}
    )
    """Id -> arguments of gym.make. One router learns all of them."""
    address: str = ""
    """A Ray cluster that this machine is a node of: auto or HOST:PORT. Ray is started on this machine when left out."""
    runners: int = 2
    """How many processes play episodes, 16 each in turn."""
    steps: int = 160_000
    """How many turns the router learns from in all."""
    batch: int = 4096
    """How many turns are played between two updates of the weights."""
    learning_rate: float = 1e-3
    """The learning rate at the start. It falls to a tenth by the end."""
    hidden: tuple[int, ...] = (128, 128)
    """How wide each layer of the network is."""
    seed: int = 0
    """Seed of the weights, of the tasks and of the draws."""
    spend_cap: float | None = None
    """The most dollars that real models may cost in the run, over all its lives. None: no limit."""

    def __post_init__(self) -> None:
        if self.spend_cap is not None:
            require(self, POSITIVE, "spend_cap")
        require(self, AT_LEAST_ONE, "runners", "steps", "batch")
        require(self, POSITIVE, "learning_rate")
        if not self.hidden or any(width < 1 for width in self.hidden):
            raise ConfigError(f"hidden lists the widths of the layers, each at least 1, got {self.hidden!r}")

    @property
    def mixes(self) -> tuple[EnvMix, ...]:
        """The environments as those of a training by text."""
        return tuple(EnvMix(env_id, arguments=arguments) for env_id, arguments in self.environments.items())

    @property
    def settings(self) -> dict[str, Any]:
        """What says how a router was trained, beside its environments."""
        return {name: value for name, value in asdict(self).items() if name not in LEFT_OUT}

    @property
    def remote_runners(self) -> int:
        """How many processes play beside this one. None does where real models are paid: a spend cap counts within
        one."""
        return self.runners if simulated(self.mixes) else 0


def train_router(given: RouterTraining, folder: Path, say: Say = print, *, resume: bool = False) -> Router:
    """Train, and save the router into a folder. Raises ConfigError where a setting is wrong, TrainingFailed where
    it broke off. `resume` goes on from the last checkpoint in the folder, and begins where there is none."""
    for mix in given.mixes:
        training(mix)  # refuses a world in which nothing true can be learnt
    probe = RoutingEnv(given.environments)  # a wrong id or argument is found here, not on a cluster
    try:
        probe.reset(seed=given.seed)
    except EpisodeFailed as err:
        raise TrainingFailed(str(err)) from err
    with cluster(given), claimed(folder, (CHECKPOINTS,)), counted(given.mixes, given.spend_cap, folder, say):
        found, done = _last_of(given, folder, resume, say)
        try:
            algorithm = config_of(given, done).build_algo()
        except Exception as err:
            raise TrainingFailed(
                f"the env runners could not start: {_cause(err)}; every node of the cluster needs this version of "
                "toolorchestra and of Ray"
            ) from err
        try:
            if found is not None:
                from toolorchestra.agents.engines.learner_state import load_learner

                load_learner(algorithm, found / LEARNER)
            _train(algorithm, given, folder, say, done)
            state = algorithm.get_module().get_state()
        finally:
            algorithm.stop()
    how = TrainedRouter(
        algo="PPO",
        library=f"ray {_ray().__version__}",
        environments=given.environments,
        features=probe.feature_names,
        actions=probe.action_meanings,
        training={
            **given.settings,
            "runner_seeds": [given.seed + 1 + number for number in range(given.runners)],
        },
    )
    return save_router(folder, layers_of(state, *LAYERS), how)


def config_of(given: RouterTraining, done: int = 0) -> Any:
    """The training as RLlib's own configuration; of one that goes on, what is left behind so many steps."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    left, passed = max(1, given.steps - done), min(1.0, done / given.steps)
    model = DefaultModelConfig(fcnet_hiddens=list(given.hidden), fcnet_activation="tanh", vf_share_layers=True)
    return (
        PPOConfig()
        .environment(ROUTING, env_config={"worlds": given.environments, "raising": False})
        .env_runners(num_env_runners=given.remote_runners, num_envs_per_env_runner=ENVS_PER_RUNNER)
        .training(
            lr=[[0, given.learning_rate * (1 - 0.9 * passed)], [left, given.learning_rate / 10]],
            entropy_coeff=[[0, 0.01 * (1 - passed)], [left, 0.0]],
            gamma=1.0,
            grad_clip=0.5,
            use_kl_loss=False,
            train_batch_size_per_learner=given.batch,
            minibatch_size=min(512, given.batch),
            num_epochs=6,
        )
        .rl_module(model_config=model)
        .fault_tolerance(
            restart_failed_env_runners=True,
            delay_between_env_runner_restarts_s=1.0,
            num_consecutive_env_runner_failures_tolerance=MOST_FAILED_ROUNDS,
        )
        .debugging(seed=given.seed + done, log_level="ERROR")  # other tasks than those that were learnt from
    )


# -- going on ----------------------------------------------------------------------------------------------------------


def _last_of(given: RouterTraining, folder: Path, resume: bool, say: Say) -> tuple[Path | None, int]:
    """The last whole checkpoint of the run in a folder, and the steps that it has learnt from. Raises ConfigError where
    this is no going on with it."""
    if (found := checkpoint.latest(folder / CHECKPOINTS, say)) is None:
        return None, 0
    if not resume:
        raise ConfigError(
            f"{folder} holds a run already ({found.name}); go on with it: resume=True, or name another folder",
            command_line="the same command and --resume go on with it, --out FOLDER begins another one",
        )
    state, now = checkpoint.read_state(found, checked=True), _told(given)
    if differing := [name for name in now if now[name] != state["settings"].get(name) and name not in FREE]:
        raise ConfigError(
            f"{folder} was trained with other settings ({', '.join(differing)}); give the same ones, or name another "
            f"folder. These may change: {', '.join((*FREE, 'spend_cap'))}",
            command_line="--out FOLDER, another one",
        )
    say(f"resuming from {found.name}")
    return found, int(state["steps"])


def _told(given: RouterTraining) -> dict[str, Any]:
    """The settings as they look after a journey through JSON."""
    told = {**given.settings, "environments": given.environments}
    return dict(json.loads(json.dumps(told, default=str)))


def _save(algorithm: Any, given: RouterTraining, folder: Path, steps: int) -> None:
    """Write a checkpoint of now."""
    from toolorchestra.agents.engines.learner_state import save_learner

    place, number = folder / CHECKPOINTS, steps // given.batch
    state = {"steps": steps, "settings": _told(given)}
    checkpoint.save(place, number, state, lambda draft: save_learner(algorithm, draft / LEARNER))
    checkpoint.prune(place, [], number)


# -- Ray ---------------------------------------------------------------------------------------------------------------


@contextmanager
def cluster(given: RouterTraining) -> Iterator[None]:
    """A connection to Ray while this lasts: to the cluster at the address, else to one that is started here. Where this
    process is connected already, that connection serves."""
    ray = _ray()
    if ray.is_initialized():
        yield
        return
    check_address(given.address)
    here = {} if given.address else {"num_cpus": given.runners + 1, "include_dashboard": False}
    try:
        ray.init(given.address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
    except (ConnectionError, RuntimeError, ValueError) as err:
        why = next(iter(str(err).splitlines()), type(err).__name__)
        raise ConfigError(
            f"no Ray cluster at {given.address or 'this machine'}: {why:.200}; {START}", command_line=OPTION
        ) from None
    try:
        cpus = int(ray.cluster_resources().get("CPU", 0))
        if cpus < given.runners:  # Ray would wait for more without end
            raise ConfigError(
                f"{given.runners} env runners take a CPU each, and the cluster has {cpus}; lower runners",
                command_line="a lower --runners",
            )
        yield
    finally:
        ray.shutdown()


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of torch, where nothing has imported it yet
    try:
        import ray
        import ray.rllib
    except ModuleNotFoundError as err:
        raise ConfigError(f"training a router needs Ray's RLlib ({err}); {INSTALL}") from None
    return ray


# -- the loop ----------------------------------------------------------------------------------------------------------


def _train(algorithm: Any, given: RouterTraining, folder: Path, say: Say, done: int) -> None:
    """Rounds of sampling and learning until enough steps are done; a line of figures and a checkpoint for each."""
    logging.getLogger("ray.rllib").setLevel(logging.CRITICAL)  # what it would tell of runners is told here, once
    group = algorithm.env_runner_group
    begun = sampled = time.monotonic()
    restarts = lost = 0
    steps = done
    if given.remote_runners < given.runners > 1:
        say(PAID_BY_ONE)
    with (folder / PROGRESS).open("a" if done else "w", encoding="utf-8") as progress:
        while steps < given.steps:
            result = _round(algorithm)
            if (gone := given.remote_runners - group.num_healthy_remote_workers()) > lost:
                say(f"{gone} of {given.runners} env runners died; Ray starts them again, and the run goes on")
            if (again := group.num_remote_worker_restarts()) > restarts:
                say(f"{again - restarts} of {given.runners} env runners are back")
            lost, restarts = gone, again
            require_money()
            if (now := done + int(result["num_env_steps_sampled_lifetime"])) > steps:
                steps, sampled = now, time.monotonic()
                row = {"steps": steps, **_figures(algorithm, result), "wall_seconds": round(sampled - begun, 1)}
                progress.write(json.dumps(row) + "\n")
                progress.flush()
                _save(algorithm, given, folder, steps)
                say("{steps:>8} steps, mean reward {reward:.3f}, {turns:.1f} turns, {wall_seconds:.0f} s".format(**row))
            elif time.monotonic() - sampled > MOST_SILENT_SECONDS:
                raise TrainingFailed(
                    f"no env runner has sampled anything for {MOST_SILENT_SECONDS:.0f} s. Ray lets other programs of a"
                    " machine go first: if this one is busy, set RAY_worker_niceness=0, or try again later"
                )


def _round(algorithm: Any) -> Mapping[str, Any]:
    """Sample and learn once. An episode that broke down ends the training: it would again, and has no reward."""
    try:
        result: Mapping[str, Any] = algorithm.train()
    except Exception as err:
        raise TrainingFailed(failure_of(algorithm) or _cause(err)) from err
    if failed := failure_of(algorithm):
        raise TrainingFailed(failed)
    return result


def _figures(algorithm: Any, result: Mapping[str, Any]) -> dict[str, float]:
    seen = result["env_runners"]
    own, theirs = time.process_time(), _of_runners(algorithm, _cpu_seconds)
    return {
        "reward": float(seen.get("episode_return_mean", float("nan"))),
        "turns": float(seen.get("episode_len_mean", float("nan"))),
        "healthy_runners": int(algorithm.env_runner_group.num_healthy_remote_workers()),
        "cpu_seconds": round(own + sum(theirs), 1),
    }


def failure_of(algorithm: Any) -> str:
    """Tell which task broke down on an env runner, and by what; "" where none did. Were it raised there, RLlib would
    start the runner again and go on, and the reason were lost."""
    return next((text for text in _of_runners(algorithm, _failure) if text), "")


def _of_runners(algorithm: Any, ask: Callable[[Any], Any]) -> list[Any]:
    group = algorithm.env_runner_group
    answers = group.foreach_env_runner(
        ask, local_env_runner=not group.num_remote_env_runners(), healthy_only=False, timeout_seconds=10.0
    )
    return [answer for answer in answers if answer is not None]


def _failure(runner: Any) -> str:
    return next((text for text in runner.env.unwrapped.get_attr("failure") if text), "")


def _cpu_seconds(_runner: Any) -> float:
    return time.process_time()


def _cause(err: BaseException) -> str:
    """The last line that says what went wrong, in whatever it is wrapped."""
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    return f"{type(err).__name__}: {lines[-1] if lines else 'no reason given'}"[:500]
