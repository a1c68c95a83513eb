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
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.engines.base import TrainingFailed
from toolorchestra.agents.policies.router import Router, TrainedRouter, layers_of, save_router
from toolorchestra.agents.training.ray_address import OPTION, START, check_address
from toolorchestra.envs.adapters.learner_env import EMBEDDED, ROUTING, EpisodeFailed, RoutingEnv
from toolorchestra.envs.base.errors import AT_LEAST_ONE, POSITIVE, ConfigError, require
from toolorchestra.envs.registration import full_id

LAYERS = ("encoder.encoder.", "pi.")
"""What RLlib calls the layers that lead to the actions."""
PROGRESS = "progress.jsonl"
ENVS_PER_RUNNER = 16
MOST_FAILED_ROUNDS = 3
"""Calls of env runners in a row that may fail, before RLlib looks whether they are back."""
MOST_SILENT_SECONDS = 300.0
"""Seconds without a sample, after which the training is given up."""
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

    def __post_init__(self) -> None:
        require(self, AT_LEAST_ONE, "runners", "steps", "batch")
        require(self, POSITIVE, "learning_rate")
        if not self.hidden or any(width < 1 for width in self.hidden):
            raise ConfigError(f"hidden lists the widths of the layers, each at least 1, got {self.hidden!r}")


def train_router(given: RouterTraining, folder: Path, say: Say = print) -> Router:
    """Train, and save the router into a folder. Raises ConfigError where a setting is wrong, TrainingFailed where
    it broke off."""
    for env_id, arguments in given.environments.items():
        training(EnvMix(env_id, arguments=arguments))  # refuses a world in which nothing true can be learnt
    probe = RoutingEnv(given.environments)  # a wrong id or argument is found here, not on a cluster
    try:
        probe.reset(seed=given.seed)
    except EpisodeFailed as err:
        raise TrainingFailed(str(err)) from err
    with cluster(given):
        try:
            algorithm = config_of(given).build_algo()
        except Exception as err:
            raise TrainingFailed(
                f"the env runners could not start: {_cause(err)}; every node of the cluster needs this version of "
                "toolorchestra and of Ray"
            ) from err
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _train(algorithm, given, folder, say)
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
            **{name: value for name, value in asdict(given).items() if name not in ("environments", "address")},
            "runner_seeds": [given.seed + 1 + number for number in range(given.runners)],
        },
    )
    return save_router(folder, layers_of(state, *LAYERS), how)


def config_of(given: RouterTraining) -> Any:
    """The training as RLlib's own configuration."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    model = DefaultModelConfig(fcnet_hiddens=list(given.hidden), fcnet_activation="tanh", vf_share_layers=True)
    return (
        PPOConfig()
        .environment(ROUTING, env_config={"worlds": given.environments, "raising": False})
        .env_runners(num_env_runners=given.runners, num_envs_per_env_runner=ENVS_PER_RUNNER)
        .training(
            lr=[[0, given.learning_rate], [given.steps, given.learning_rate / 10]],
            entropy_coeff=[[0, 0.01], [given.steps, 0.0]],
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
        .debugging(seed=given.seed, log_level="ERROR")
    )


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


def _train(algorithm: Any, given: RouterTraining, folder: Path, say: Say) -> None:
    """Rounds of sampling and learning until enough steps are done; a line of figures for each."""
    logging.getLogger("ray.rllib").setLevel(logging.CRITICAL)  # what it would tell of runners is told here, once
    group = algorithm.env_runner_group
    begun = sampled = time.monotonic()
    restarts = steps = lost = 0
    with (folder / PROGRESS).open("w", encoding="utf-8") as progress:
        while steps < given.steps:
            result = _round(algorithm)
            if (gone := given.runners - group.num_healthy_remote_workers()) > lost:
                say(f"{gone} of {given.runners} env runners died; Ray starts them again, and the run goes on")
            if (again := group.num_remote_worker_restarts()) > restarts:
                say(f"{again - restarts} of {given.runners} env runners are back")
            lost, restarts = gone, again
            if (now := int(result["num_env_steps_sampled_lifetime"])) > steps:
                steps, sampled = now, time.monotonic()
                row = {"steps": steps, **_figures(algorithm, result), "wall_seconds": round(sampled - begun, 1)}
                progress.write(json.dumps(row) + "\n")
                progress.flush()
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
    answers = group.foreach_env_runner(ask, local_env_runner=False, healthy_only=False, timeout_seconds=10.0)
    return [answer for answer in answers if answer is not None]


def _failure(runner: Any) -> str:
    return next((text for text in runner.env.unwrapped.get_attr("failure") if text), "")


def _cpu_seconds(_runner: Any) -> float:
    return time.process_time()


def _cause(err: BaseException) -> str:
    """The last line that says what went wrong, in whatever it is wrapped."""
    lines = [line.strip() for line in str(err).splitlines() if line.strip()]
    return f"{type(err).__name__}: {lines[-1] if lines else 'no reason given'}"[:500]
