"""PPO in one file, in CleanRL's manner, on a routing environment that nobody has to wait for.

    python docs/examples/ppo_routing.py --env ToolOrchestra/FRAMES-v0 --turns 40000

It needs torch and nothing else beside this package. An episode goes on as soon as its own call is back: `recv` gives
those that are ready, and only they are acted on. So each environment fills a list of its own, and an update is made of
all turns that have ended, whoever made them. A turn in flight during an update is used after it; PPO's ratio corrects
for the policy being one update older. Episodes that failed are left out: their reward is not known.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import tyro
from gymnasium.vector import AutoresetMode
from torch import nn
from torch.distributions import Categorical

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.wrappers.routing_vector import make_routing_vec


@dataclass(frozen=True)
class Arguments:
    """What can be set."""

    env: str = "ToolOrchestra/HLE-v0"
    turns: int = 60_000
    envs: int = 16
    batch: int = 2048
    minibatch: int = 512
    epochs: int = 8
    rate: float = 1e-3
    gamma: float = 1.0
    trace: float = 0.95
    """GAE's lambda."""
    clip: float = 0.2
    entropy: float = 0.01
    seed: int = 0


@dataclass
class Turn:
    """One turn of one environment; reward and end are known when it is back."""

    observation: torch.Tensor
    mask: torch.Tensor
    action: torch.Tensor
    logprob: torch.Tensor
    value: float
    reward: float = 0.0
    over: bool = False


@dataclass
class Trail:
    """One environment's turns since the last update, oldest first, and the one in flight."""

    turns: list[Turn] = field(default_factory=list)
    flying: Turn | None = None
    begin: int = 0
    """Where the running episode begins in `turns`."""
    gained: float = 0.0


class Router(nn.Module):
    """A policy and a value, each two layers of 64."""

    def __init__(self, features: int, actions: int) -> None:
        super().__init__()
        self.policy = self.layers(features, actions)
        self.value = self.layers(features, 1)

    @staticmethod
    def layers(features: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
        )  # fmt: skip

    def forward(self, observations: torch.Tensor, masks: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        logits = self.policy(observations).masked_fill(masks == 0, -1e8)  # what is not offered is not chosen
        return Categorical(logits=logits), self.value(observations).squeeze(-1)


class Collector:
    """Plays without a barrier, and keeps what came of it."""

    def __init__(self, arguments: Arguments) -> None:
        self.arguments = arguments
        self.envs = make_routing_vec(
            arguments.env, arguments.envs, autoreset_mode=AutoresetMode.SAME_STEP, reward="scalar", preference="none"
        )
        size = (self.envs.single_observation_space.shape or (0,))[0]
        self.router = Router(size, len(self.envs.action_meanings))
        self.trails = [Trail() for _ in range(arguments.envs)]
        self.returns: deque[float] = deque(maxlen=200)
        self.failed = 0
        observations, infos = self.envs.reset(seed=arguments.seed)
        self.act(range(arguments.envs), observations, infos["action_mask"])

    @torch.no_grad()
    def act(self, env_ids: Any, observations: Any, masks: Any) -> None:
        """Choose for the environments that are ready, and let them run."""
        observed, offered = torch.from_numpy(observations), torch.from_numpy(masks)
        chosen, values = self.router(observed, offered)
        actions = chosen.sample()
        logprobs = chosen.log_prob(actions)
        for row, i in enumerate(env_ids):
            self.trails[i].flying = Turn(
                observed[row], offered[row], actions[row], logprobs[row], float(values[row])
            )  # fmt: skip
        self.envs.send(actions.numpy(), env_ids)

    def collect(self) -> list[tuple[Turn, float, float]]:
        """At least a batch of turns that have ended, each with its advantage and its return."""
        while sum(len(trail.turns) for trail in self.trails) < self.arguments.batch:
            got = self.envs.recv(1)
            for row, i in enumerate(got.env_ids):
                over = bool(got.terminations[row] or got.truncations[row])
                self.land(self.trails[i], float(got.rewards[row]), over)
            self.act(got.env_ids, got.observations, got.masks)
        made = []
        for trail in self.trails:
            made += self.advantages(trail)
            trail.turns, trail.begin = [], 0
        return made

    def land(self, trail: Trail, reward: float, over: bool) -> None:
        """A turn is back. One that runs into a limit ends its episode like any other: the world has graded it."""
        turn = trail.flying
        assert turn is not None
        if np.isnan(reward):
            self.failed += 1
            del trail.turns[trail.begin :]
            trail.gained = 0.0
            return
        trail.gained += reward
        turn.reward, turn.over = reward, over
        trail.turns.append(turn)
        if over:
            self.returns.append(trail.gained)
            trail.begin, trail.gained = len(trail.turns), 0.0

    def advantages(self, trail: Trail) -> list[tuple[Turn, float, float]]:
        """Generalised advantage estimation, from the turn in flight backwards."""
        after, advantage = (trail.flying.value if trail.flying else 0.0), 0.0
        made = []
        for turn in reversed(trail.turns):
            goes_on = self.arguments.gamma * (not turn.over)
            advantage = turn.reward + goes_on * after - turn.value + goes_on * self.arguments.trace * advantage
            made.append((turn, advantage, advantage + turn.value))
            after = turn.value
        return made


def update(router: Router, optimizer: torch.optim.Optimizer, made: list[Any], arguments: Arguments) -> None:
    """PPO's clipped objective, a few times over the batch."""
    turns = [turn for turn, _, _ in made]
    observations, masks, actions, before = (
        torch.stack([getattr(turn, name) for turn in turns]) for name in ("observation", "mask", "action", "logprob")
    )
    advantages, returns = (torch.tensor([row[k] for row in made]) for k in (1, 2))
    for _ in range(arguments.epochs):
        for rows in torch.randperm(len(made)).split(arguments.minibatch):
            chosen, values = router(observations[rows], masks[rows])
            ratio = (chosen.log_prob(actions[rows]) - before[rows]).exp()
            scaled = (advantages[rows] - advantages[rows].mean()) / (advantages[rows].std() + 1e-8)
            clipped = ratio.clamp(1 - arguments.clip, 1 + arguments.clip)
            gain = torch.min(ratio * scaled, clipped * scaled).mean() + arguments.entropy * chosen.entropy().mean()
            loss = 0.5 * (returns[rows] - values).pow(2).mean() - gain
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call, unused-ignore]
            nn.utils.clip_grad_norm_(router.parameters(), 0.5)
            optimizer.step()


def main(arguments: Arguments) -> list[float]:
    """Learn, and print how it goes. The mean return of each update's last 200 episodes."""
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    collector, began = Collector(arguments), time.process_time()
    optimizer = torch.optim.Adam(collector.router.parameters(), lr=arguments.rate, eps=1e-5)
    turns, curve = 0, []
    while turns < arguments.turns:
        made = collector.collect()
        for group in optimizer.param_groups:
            group["lr"] = arguments.rate * (1 - turns / arguments.turns)
        update(collector.router, optimizer, made, arguments)
        turns += len(made)
        curve.append(float(np.mean(collector.returns)))
        took = time.process_time() - began
        print(f"{turns} turns, return {curve[-1]:.3f}, {collector.failed} failed, {took:.0f} s of CPU", flush=True)
    collector.envs.close()
    return curve


if __name__ == "__main__":
    main(tyro.cli(Arguments, description=__doc__))
