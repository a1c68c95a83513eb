"""Play an episode by hand, or watch a policy: `toolorchestra play --env HLE-v0 --policy oracle --delay 1`.

At the prompt: `search search-2` or `answer answer-4` calls a tool, and a tool's name alone asks for its parameters, one
by one. `?` lists the tools with their parameters, `say TEXT` says something, `q` quits. What is mistyped is asked back.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name

import gymnasium as gym

from toolorchestra.agents.commands.console import DONE, check_counts, command, say
from toolorchestra.agents.commands.prompting import Prompt, pages
from toolorchestra.agents.commands.trained_players import environments_of, tell_difference
from toolorchestra.agents.configuration.environment_options import ChosenEnv, arguments, chosen_envs
from toolorchestra.agents.policies.base import Player as Asked
from toolorchestra.agents.policies.base import PlayerOptions
from toolorchestra.agents.policies.baselines import NAMES, baseline
from toolorchestra.agents.policies.players import CHECKPOINT
from toolorchestra.agents.policies.players import player as player_by_name
from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode import render
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.registration import ids

Player = Callable[[Episode], str | None]
"""Gives the next action, or None to quit."""
OTHERWISE = "FRAMES-v0"
"""What is played when nothing is asked for."""


@dataclass(frozen=True)
class PlayOptions:
    """What `toolorchestra play` takes."""

    env: tuple[str, ...] = ()
    """An id, then NAME=VALUE for gym.make; FRAMES-v0 when left out, and with --policy checkpoint:FOLDER and no --set
    the first one that it was trained on. For example: --env Tau2-v0 domain=retail user=scripted"""
    set: tuple[str, ...] = ()
    """NAME=VALUE for gym.make, as behind --env. For example: --set max_turns=5"""
    policy: str = ""
    """Who plays: random, cheapest, strongest, oracle or another one of evaluate's; a run's folder or
    checkpoint:FOLDER, its trained model, one of its checkpoints or what export model wrote; file:TRAJECTORIES;
    package.module:maker; you, when left out."""
    player: tuple[str, ...] = ()
    """NAME=VALUE for players whose name has a colon. For example: --player temperature=0.5"""
    split: str = "train"
    """Which tasks: train, validation or test."""
    seed: int = 0
    """Seed of the first episode. Each next episode takes the next number."""
    episode_seed: int | None = None
    """Play this very episode: the `seed` of a row of an evaluation or of a recorded trajectory, together with its
    --task-id and the --env that it was played in."""
    preference: str = "sampled"
    """The user's wish: "sampled", "none" or the name of a kind."""
    tools: str = ""
    """Tool configuration of question environments: paper, plain, basic, none or a JSON file."""
    prices: str = ""
    """Price sheet: a name or a JSON file; the environment's own when left out, which is mostly paper-2025-11."""
    task_id: str = ""
    """The id of the one task to play, such as frames-sim/test/5. Without it the seed chooses one."""
    episodes: int = 1
    """How many episodes are played, one after the other."""
    delay: float = 0.0
    """Seconds to wait before each turn of a policy."""
    full: bool = False
    """Print long texts whole when a policy plays. You are always shown them whole, page by page."""
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
    if Path(given.policy).is_dir() and given.policy:
        given = replace(given, policy=f"{CHECKPOINT}{given.policy}")
    colour = sys.stdout.isatty() and not given.no_color and not os.environ.get("NO_COLOR")
    chosen = _chosen(given)
    env = _env(given, chosen)
    with ExitStack() as opened:
        player = _player(given, env, opened)
        tell_difference(given.policy, chosen.env_id, env.factory)
        for number in range(given.episodes):
            named = None if given.episode_seed is None else given.episode_seed + number
            options = {"task_id": given.task_id or None, "episode_seed": named}
            env.reset(seed=given.seed + number, options=options)
            if given.policy and not _by_name(given.policy):
                check_plays(given.policy, env, given.env[0] if given.env else OTHERWISE)
            longest = None if given.full or not given.policy else render.LONGEST
            if not play_one(env, player, colour=colour, longest=longest):
                break
    return DONE


def _player(given: PlayOptions, env: OrchestraEnv, opened: ExitStack) -> Player:
    if not given.policy:
        return Prompt()
    if not _by_name(given.policy):
        return watched(given.policy, given.seed, given.delay)
    options = shapes.read(PlayerOptions, arguments("--player", given.player), "--player")
    made = player_by_name(given.policy, env.factory, given.seed, options)
    opened.callback(getattr(made, "close", lambda: None))
    return asked(made, env, opened.enter_context(asyncio.Runner()), given.delay)


def _by_name(policy: str) -> bool:
    """Whether it is a player that evaluate knows too, and no baseline."""
    return policy not in (*NAMES, "guess")


def _chosen(given: PlayOptions) -> ChosenEnv:
    """The environment that is asked for; where nothing is, the first one that a trained model was trained on."""
    if not given.env and not given.set and (learnt := environments_of([given.policy], most=1)):
        return learnt[0]
    (chosen,) = chosen_envs([given.env or [OTHERWISE]], given.set)
    return chosen


def _env(given: PlayOptions, chosen: ChosenEnv) -> OrchestraEnv:
    settings = {"split": given.split, "preference": given.preference}
    settings |= {name: value for name in ("tools", "prices") if (value := getattr(given, name))}
    foreign = ConfigError(f"--env {chosen.env_id} is not of this suite; valid: {', '.join(ids())}")
    try:
        env = gym.make(chosen.env_id, **{**settings, **chosen.arguments}).unwrapped
    except TypeError:
        if _is_foreign(chosen.env_id):  # its class does not take these settings
            raise foreign from None
        raise
    if not isinstance(env, OrchestraEnv):
        raise foreign
    return env


def _is_foreign(env_id: str) -> bool:
    """Whether an id stands for a class that is none of this suite's."""
    entry = gym.spec(env_id.rpartition(":")[2]).entry_point
    made = resolve_name(entry) if isinstance(entry, str) else entry
    return isinstance(made, type) and not issubclass(made, OrchestraEnv)


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


def play_one(env: OrchestraEnv, player: Player, *, colour: bool, longest: int | None = render.LONGEST) -> bool:
    """One episode. False when the player quits."""
    episode = env.episode
    assert episode is not None
    # The colours are our own escape sequences; render spells what is not.
    by_hand = isinstance(player, Prompt)
    _show(render.opening(episode, colour=colour, longest=longest), by_hand)
    while not episode.over:
        action = player(episode)
        if action is None:
            say(f"left; {render.bill(episode)}")
            return False
        _show(render.turn(episode, Step(*env.step(action)), colour=colour, longest=longest), by_hand)
    say(ending(episode))
    say(_table("by role", episode.ledger.usd_by_role()))
    say(_table("by tool", episode.ledger.usd_by_tool()))
    return True


def _show(text: str, by_hand: bool) -> None:
    """Print what was rendered; to a person page by page."""
    for rendered_page in pages(text) if by_hand else (text,):
        print(rendered_page, flush=True)


def ending(episode: Episode) -> str:
    """How the episode ended, for people: the outcome, the answer beside the expected one, and the whole bill."""
    outcome, ledger = episode.outcome, episode.ledger
    bill = f"{ledger.usd * 100:.4f} ¢, {ledger.seconds:.1f} s, {episode.turn} turns"
    if outcome is None:  # it failed, which was told with its reason
        return f"no outcome; {bill}"
    lines = [f"{'solved' if outcome.value == 1 else 'not solved'} (outcome {outcome.value:g}); {bill}"]
    evidence = outcome.evidence
    if "expected" in evidence:
        lines += [f"  answered  {evidence.get('answer')}", f"  expected  {evidence['expected']}"]
    return "\n".join(lines)


def _table(title: str, sums: Mapping[str, float]) -> str:
    return "\n".join([title, *(f"  {name or '(own tokens)':20} {usd * 100:10.4f} ¢" for name, usd in sums.items())])


def watched(name: str, seed: int, delay: float) -> Player:
    """A policy that waits before each move."""
    policy = baseline(name, seed)

    def player(episode: Episode) -> str:
        time.sleep(delay)
        return policy(episode)

    return player


def asked(who: Asked, env: OrchestraEnv, loop: asyncio.Runner, delay: float) -> Player:
    """A player that thinks on an event loop. What its moves used is billed as it was counted."""

    def player(episode: Episode) -> str:
        time.sleep(delay)
        move = loop.run(who.move(episode))
        if move.usage is not None:
            env.charge_policy(move.usage)
        return move.text

    return player
