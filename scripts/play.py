"""Play an episode by hand, or watch a policy: `python scripts/play.py --env HLE-v0 --policy oracle --delay 1`.

At the prompt: `search search-2` or `answer answer-4` calls a tool, `?` lists the tools, `q` quits, and anything else
is sent as it is.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Mapping

import gymnasium as gym

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.agents.configuration.option_types import count, pairs, value
from toolorchestra.agents.policies.baselines import NAMES, baseline
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode import render
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.registration import full_id, ids

Player = Callable[[Episode], str | None]
"""Gives the next action, or None to quit."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="FRAMES-v0", help=f"id, of: {', '.join(ids())}")
    parser.add_argument("--policy", help=f"who plays, of: {', '.join(NAMES)}; you, when left out")
    parser.add_argument("--split", default="train", help="train, validation or test")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode; the next ones count on from it")
    parser.add_argument("--preference", default="sampled", help='the user\'s wish: "sampled", "none" or a kind')
    parser.add_argument(
        "--tools", help="tool configuration of question environments: paper (the default), plain or a JSON file"
    )
    parser.add_argument(
        "--set",
        nargs="*",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="arguments for gym.make, JSON or else text: max_turns=5 domain=retail",
    )
    parser.add_argument("--prices", default="paper-2025-11", help="price sheet: a name or a JSON file")
    parser.add_argument("--task-id", help="play this task")
    parser.add_argument("--episodes", type=count, default=1)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds to wait before each turn of a policy")
    parser.add_argument("--no-color", action="store_true", help="as the environment variable NO_COLOR")
    args = parser.parse_args()
    try:
        play(args)
    except (ConfigError, gym.error.Error, ModuleNotFoundError) as err:  # the last: `--env module:id`
        print(f"error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def play(args: argparse.Namespace) -> None:
    if not 0 <= args.delay < math.inf:
        raise ConfigError(f"--delay must be 0 or more seconds, got {args.delay:g}")
    player = watched(args.policy, args.seed, args.delay) if args.policy else at_prompt
    colour = sys.stdout.isatty() and not args.no_color and not os.environ.get("NO_COLOR")
    settings = {"split": args.split, "preference": args.preference, "prices": args.prices}
    settings |= {"tools": args.tools} if args.tools else {}
    settings |= {name: value(text) for name, text in pairs("--set", args.set).items()}
    env = gym.make(full_id(args.env), **settings).unwrapped
    if not isinstance(env, OrchestraEnv):
        raise ConfigError(f"--env {args.env} is not of this suite; valid: {', '.join(ids())}")
    for number in range(args.episodes):
        env.reset(seed=args.seed + number, options={"task_id": args.task_id})
        if args.policy:
            check_plays(args.policy, env, args.env)
        if not play_one(env, player, colour=colour):
            break


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
    print(table("by role", episode.ledger.usd_by_role()))
    print(table("by tool", episode.ledger.usd_by_tool()), flush=True)
    return True


def table(title: str, sums: Mapping[str, float]) -> str:
    return "\n".join([title, *(f"  {name or '(own tokens)':20} {usd * 100:10.4f} ¢" for name, usd in sums.items())])


def watched(name: str, seed: int, delay: float) -> Player:
    policy = baseline(name, seed)

    def player(episode: Episode) -> str:
        time.sleep(delay)
        return policy(episode)

    return player


def at_prompt(episode: Episode) -> str | None:
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
    texts = [argument for argument in tool.parameters["properties"] if argument != tool.keyed_by]
    if rest.strip() and texts:
        arguments[texts[0]] = rest.strip()
    return render_call(name, arguments)


if __name__ == "__main__":
    sys.exit(main())
