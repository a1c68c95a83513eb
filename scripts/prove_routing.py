"""PPO by Stable-Baselines3 on the routing environments, beside the baselines over the same test episodes.

    make prove-routing                          # HLE, FRAMES, ToolScale and Tau2: minutes
    python scripts/prove_routing.py --only HLE-v0 --tasks 50 --steps 8000

It trains on the split `train` and plays on `test`: PPO draws its actions from its policy, as it does when it learns,
and "PPO, greedy" takes the likeliest, which now and then repeats a call that no longer helps. A row's reward is the
mean over episodes of outcome minus dollars; its interval, and that of PPO's lead over it on the same episodes, are 95 %
bootstraps of episodes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium as gym
import torch
import tyro
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.agents.evaluation.statistics import mean_interval
from toolorchestra.agents.policies.baselines import NAMES, baseline
from toolorchestra.envs.adapters.stable_baselines import make_vec_env
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.domains.tau2.world import Tau2World
from toolorchestra.envs.domains.toolscale.oracle import moves
from toolorchestra.envs.domains.toolscale.world import SqlWorld
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.testing.tau2_players import gold
from toolorchestra.envs.wrappers import Routing
from toolorchestra.envs.wrappers.routing import QuestionView

FIRST_SEED = 10_000
SCALAR = {"reward": "scalar", "preference": "none"}
Policy = Callable[[Any, Routing], str]
"""From an observation and its environment to the text of a turn."""


@dataclass(frozen=True)
class Case:
    """An environment, and how long to learn on it."""

    env_id: str
    steps: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    actors: int = 16
    ppo: Mapping[str, Any] = field(default_factory=dict)


CASES: Mapping[str, Case] = {
    "HLE-v0": Case("ToolOrchestra/HLE-v0", 98_304, ppo={"n_steps": 64, "batch_size": 256}),
    "FRAMES-v0": Case("ToolOrchestra/FRAMES-v0", 65_536),
    "ToolScale-v0": Case(
        "ToolOrchestra/ToolScale-v0", 327_680, {"domain": "finance", "max_turns": 24}, actors=32, ppo={"ent_coef": 0.01}
    ),
    "Tau2-v0": Case("ToolOrchestra/Tau2-v0", 65_536, {"domain": "telecom", "user": "none"}),
}
PPO_SETTINGS: Mapping[str, Any] = {
    "n_steps": 128, "batch_size": 512, "n_epochs": 8, "gamma": 1.0, "ent_coef": 0.005, "device": "cpu",
}  # fmt: skip


class Played(NamedTuple):
    """What a policy came to on the test episodes."""

    rewards: Sequence[float]
    outcomes: Sequence[float]
    usd: Sequence[float]
    turns: Sequence[float]


class Trained(NamedTuple):
    """A model, and what learning took."""

    model: PPO
    cpu_seconds: float
    wall_seconds: float


def train(case: Case, seed: int, steps: int | None) -> Trained:
    """Learn on the train split."""
    cpu, wall = time.process_time(), time.monotonic()
    made = make_vec_env(case.env_id, case.actors, seed=seed, split="train", **SCALAR, **case.settings)
    rate = 1e-3
    settings = {**PPO_SETTINGS, **case.ppo}
    model = PPO("MlpPolicy", VecMonitor(made), learning_rate=lambda left: rate * left, seed=seed, **settings)
    model.learn(steps or case.steps)
    made.close()
    return Trained(model, time.process_time() - cpu, time.monotonic() - wall)


def learned(model: PPO, *, greedy: bool) -> Policy:
    """The likeliest action, or one drawn from the policy."""

    def play(observation: Any, env: Routing) -> str:
        action, _ = model.predict(observation, deterministic=greedy)
        return env.view.text(int(action), episode_of(env))

    return play


def policies(case: Case) -> Iterator[tuple[str, Policy]]:
    """The baselines of a source."""
    env = Routing(gym.make(case.env_id, split="test", **SCALAR, **case.settings))
    if isinstance(env.view, QuestionView):
        for name in NAMES:
            yield name, _rule(baseline(name))
        return
    yield "random", _random(random.Random(0))
    experts = [meaning.split()[1] for meaning in env.action_meanings if meaning.startswith("expert ")]
    if experts:
        yield "cheapest", _always(render_call("call_expert", {"expert": experts[-1]}))
        yield "strongest", _always(render_call("call_expert", {"expert": experts[0]}))
    yield "oracle", _reference


def _rule(rule: Callable[[Episode], str]) -> Policy:
    return lambda _observation, env: rule(episode_of(env))


def _always(text: str) -> Policy:
    return lambda _observation, _env: text


def _random(rng: random.Random) -> Policy:
    """Any action that is offered, evenly."""

    def play(_observation: Any, env: Routing) -> str:
        offered = [action for action, on in enumerate(env.action_masks()) if on]
        return env.view.text(rng.choice(offered), episode_of(env))

    return play


def _reference(_observation: Any, env: Routing) -> str:
    """The task's reference path, turn by turn."""
    episode = episode_of(env)
    world = episode.world
    if isinstance(world, SqlWorld):
        texts = list(moves(world.domain, world.task))
    elif isinstance(world, Tau2World):
        texts = gold(world.plan, solo=world.domain.solo)
    else:
        raise TypeError(f"no reference path of a {type(world).__name__}")
    return texts[min(episode.turn, len(texts) - 1)]


def episode_of(env: Routing) -> Episode:
    """The episode that is played."""
    base = env.unwrapped
    assert isinstance(base, OrchestraEnv)
    assert base.episode is not None
    return base.episode


def play(case: Case, policy: Policy, tasks: int) -> Played:
    """The test episodes, which are the same for every policy."""
    env = Routing(gym.make(case.env_id, split="test", **SCALAR, **case.settings))
    rows = []
    for number in range(tasks):
        _, info = env.reset(seed=FIRST_SEED + number)
        total, over = 0.0, False
        while not over:
            text = policy(env.observe(), env)
            _, reward, terminated, truncated, info = env.env.step(text)
            total, over = total + float(reward), terminated or truncated
        rows.append((total, info["outcome"]["value"], info["ledger"]["usd"], info["turn"]))
    return Played(*zip(*rows, strict=True))


def table(results: Mapping[str, Played]) -> str:
    """Markdown, PPO's lead over each row included."""
    lines = ["| policy | reward | right | cents | turns | PPO's lead |", "|---|---|---|---|---|---|"]
    for name, played in results.items():
        lead = [a - b for a, b in zip(results["PPO"].rewards, played.rewards, strict=True)]
        said = "" if name == "PPO" else _with_interval(lead, sign="+")
        right, cents, turns = (_mean(part) for part in (played.outcomes, played.usd, played.turns))
        reward = _with_interval(played.rewards)
        lines.append(f"| {name} | {reward} | {100 * right:.1f} % | {100 * cents:.2f} | {turns:.1f} | {said} |")
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _with_interval(values: Sequence[float], sign: str = "") -> str:
    interval = mean_interval(values)
    assert interval is not None
    return f"{_mean(values):{sign}.3f} ({interval.low:{sign}.3f} to {interval.high:{sign}.3f})"


@dataclass(frozen=True)
class Arguments:
    """What to prove."""

    only: tuple[str, ...] = tuple(CASES)
    """Environments."""
    tasks: int = 300
    """Test episodes."""
    seeds: tuple[int, ...] = (0,)
    """Of the learners: a table for each."""
    steps: int | None = None
    """Turns to learn from; None: each environment's own number."""


def main(arguments: Arguments) -> None:
    """Train, play and print."""
    torch.set_num_threads(1)
    for name in arguments.only:
        case = CASES[name]
        baselines = {who: play(case, policy, arguments.tasks) for who, policy in policies(case)}
        for seed in arguments.seeds:
            trained = train(case, seed, arguments.steps)
            torch.manual_seed(seed)
            results = {**baselines, "PPO": play(case, learned(trained.model, greedy=False), arguments.tasks)}
            results["PPO, greedy"] = play(case, learned(trained.model, greedy=True), arguments.tasks)
            said = ", ".join(f"{key}={value}" for key, value in case.settings.items())
            took = f"{trained.cpu_seconds / 60:.1f} CPU minutes, {trained.wall_seconds / 60:.1f} of wall"
            print(f"\n{name} {said}: {arguments.tasks} test episodes, learner's seed {seed}, ", end="")
            print(f"{trained.model.num_timesteps} turns, {took}\n\n{table(results)}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
