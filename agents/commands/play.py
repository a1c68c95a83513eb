"""Play an episode by hand, or watch a policy: `toolorchestra play --env HLE-v0 --policy oracle --delay 1`.

At the prompt: `search search-2` or `answer answer-4` calls a tool, `?` lists the tools, `q` quits, and anything else
is sent as it is.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import gymnasium as gym

from toolorchestra.agents.commands.console import DONE, check_counts, command
from toolorchestra.agents.configuration.environment_options import chosen_envs
from toolorchestra.agents.policies.baselines import NAMES, baseline
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode import render
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.registration import ids

Player = Callable[[Episode], str | None]
"""Gives the next action, or None to quit."""


@dataclass(frozen=True)
class PlayOptions:
    """What `toolorchestra play` takes."""

    env: tuple[str, ...] = ("FRAMES-v0",)
    """An id, then NAME=VALUE for gym.make. For example: --env Tau2-v0 domain=retail user=scripted"""
    set: tuple[str, ...] = ()
    """NAME=VALUE for gym.make, as behind --env. For example: --set max_turns=5"""
    policy: str = ""
    """Who plays: random, cheapest, strongest or oracle; you, when left out."""
    split: str = "train"
    """Which tasks: train, validation or test."""
    seed: int = 0
    """Of the first episode; the next ones count on from it."""
    preference: str = "sampled"
    """The user's wish: "sampled", "none" or the name of a kind."""
    tools: str = ""
    """Tool configuration of question environments: paper, plain or a JSON file."""
    prices: str = "paper-2025-11"
    """Price sheet: a name or a JSON file."""
    task_id: str = ""
    """Play this task."""
    episodes: int = 1
    """How many, one after the other."""
    delay: float = 0.0
    """Seconds to wait before each turn of a policy."""
    no_color: bool = False
    """Print without colours, as with the environment variable NO_COLOR."""

    def __post_init__(self) -> None:
        check_counts(self, {"episodes": 1})
        if not 0 <= self.delay < math.inf:
            raise ConfigError(f"--delay must be 0 or more seconds, got {self.delay:g}")


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(PlayOptions, run, given, about=__doc__)


def run(given: PlayOptions) -> int:
    """Play the episodes."""
    player = watched(given.policy, given.seed, given.delay) if given.policy else at_prompt
    colour = sys.stdout.isatty() and not given.no_color and not os.environ.get("NO_COLOR")
    env = _env(given)
    for number in range(given.episodes):
        env.reset(seed=given.seed + number, options={"task_id": given.task_id or None})
        if given.policy:
            check_plays(given.policy, env, given.env[0])
        if not play_one(env, player, colour=colour):
            break
    return DONE


def _env(given: PlayOptions) -> OrchestraEnv:
    (chosen,) = chosen_envs([given.env], given.set)
    settings = {"split": given.split, "preference": given.preference, "prices": given.prices}
    settings |= {"tools": given.tools} if given.tools else {}
    env = gym.make(chosen.env_id, **{**settings, **chosen.arguments}).unwrapped
    if not isinstance(env, OrchestraEnv):
        raise ConfigError(f"--env {given.env[0]} is not of this suite; valid: {', '.join(ids())}")
    return env


def check_plays(name: str, env: OrchestraEnv, shown: str) -> None:
    """Refuse a policy that has no first move, before the episode is shown."""
    wrong = _cannot(name, env)
    if wrong:
        can = [other for other in NAMES if not _cannot(other, env)]
        raise ConfigError(
            f"--policy {name} cannot play {shown}: {wrong:.300}; who can: {', '.join([*can, 'you'])} (no --policy)"
        )


def _cannot(name: str, env: OrchestraEnv) -> str:
    assert env.episode is not None
    try:
        baseline(name)(env.episode)
    except ConfigError as err:
        return str(err)
    return ""


def play_one(env: OrchestraEnv, player: Player, *, colour: bool) -> bool:
    """One episode. False when the player quits."""
    episode = env.episode
    assert episode is not None
    print(render.opening(episode, colour=colour), flush=True)
    while not episode.over:
        action = player(episode)
        if action is None:
            print(f"left; {render.bill(episode)}")
            return False
        print(render.turn(episode, Step(*env.step(action)), colour=colour), flush=True)
    print(_table("by role", episode.ledger.usd_by_role()))
    print(_table("by tool", episode.ledger.usd_by_tool()), flush=True)
    return True


def _table(title: str, sums: Mapping[str, float]) -> str:
    return "\n".join([title, *(f"  {name or '(own tokens)':20} {usd * 100:10.4f} ¢" for name, usd in sums.items())])


def watched(name: str, seed: int, delay: float) -> Player:
    """A policy that waits before each move."""
    policy = baseline(name, seed)

    def player(episode: Episode) -> str:
        time.sleep(delay)
        return policy(episode)

    return player


def at_prompt(episode: Episode) -> str | None:
    """A person at the terminal."""
    while True:
        try:
            line = input("action (? lists the tools, q quits)> ").strip()
        except EOFError:
            print()
            return None
        if line == "q":
            return None
        if line == "?":
            for tool in episode.world.toolbox:
                print(tool.name, "|".join(tool.keys) if tool.keyed_by else "...", tool.description)
        elif line:
            return read(line, episode)


def read(line: str, episode: Episode) -> str:
    """Shorthand as a tool call: the tool's name, its model if it offers any, and the text of its next argument."""
    name, _, rest = line.partition(" ")
    if name not in episode.world.toolbox:
        return line
    tool = episode.world.toolbox[name]
    arguments = {}
    if tool.keyed_by:
        arguments[tool.keyed_by], _, rest = rest.strip().partition(" ")
        if arguments[tool.keyed_by] not in tool.keys:
            return line
    texts = [argument for argument in tool.checker.arguments if argument != tool.keyed_by]
    if rest.strip() and texts:
        arguments[texts[0]] = rest.strip()
    return render_call(name, arguments)
