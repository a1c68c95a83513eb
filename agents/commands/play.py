"""Play an episode by hand, or watch a policy: `toolorchestra play --env HLE-v0 --policy oracle --delay 1`.

At the prompt: `search search-2` or `answer answer-4` calls a tool, and a tool's name alone asks for its parameters, one
by one. `?` lists the tools with their parameters, `say TEXT` says something, `q` quits. What is mistyped is asked back.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym

from toolorchestra.agents.commands.console import DONE, check_counts, command, say
from toolorchestra.agents.commands.evaluation_setup import environments_of, tell_difference
from toolorchestra.agents.configuration.environment_options import ChosenEnv, arguments, chosen_envs
from toolorchestra.agents.policies.base import PlayerOptions
from toolorchestra.agents.policies.players import CHECKPOINT
from toolorchestra.agents.policies.players import player as player_by_name
from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.actions import OPEN, parse, render_call
from toolorchestra.envs.base.errors import ActionError, ConfigError, ToolError, no_such
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode import render
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.registration import ids, spec_of
from toolorchestra.envs.tools import Tool

ASKS = "action (? for help, q to quit)> "
HELP = """\
NAME                  call a tool; its parameters are asked for one by one
NAME MODEL TEXT       call it at once, where this fills all that it needs
NAME key=value ...    call it with these parameters
say TEXT              say something to whoever listens
? NAME                a tool with all its parameters
q                     quit"""
UP = "."
"""Gives up a call that is being filled."""
Hand = Callable[[Episode], str | None]
"""Gives the next action, or None to quit."""


def person() -> Hand:
    """Somebody at the keyboard, who is asked for each action."""
    readline: Any = None
    if sys.stdin.isatty() and sys.stdout.isatty() and find_spec("readline"):  # arrow keys, history and Tab
        readline = import_module("readline")
        readline.parse_and_bind("tab: complete")
        readline.set_completer_delims(" ")

    def plays(episode: Episode) -> str | None:
        if readline is not None:
            readline.set_completer(_completer(episode))
        try:
            while (line := input(ASKS).strip()) != "q":
                if (action := read_action(line, episode)) is not None:
                    return action
        except EOFError:
            say("")
        return None

    return plays


def _completer(episode: Episode) -> Callable[[str, int], str | None]:
    words = [*(tool.name for tool in episode.world.toolbox), *episode.world.toolbox.keys, "say", "?"]

    def complete(text: str, state: int) -> str | None:
        found = [word for word in dict.fromkeys(words) if word.startswith(text)]
        return found[state] if state < len(found) else None

    return complete


def read_action(line: str, episode: Episode) -> str | None:
    """What a line means as an action; None: there is something to read, and the prompt comes again."""
    name, _, rest = line.partition(" ")
    rest, toolbox = rest.strip(), episode.world.toolbox
    names = [tool.name for tool in toolbox]
    try:
        if name in toolbox:
            return _call(toolbox[name], rest, episode)
        if line.startswith(OPEN):  # in the grammar of the agents
            for call in parse(line).calls:
                toolbox.check(call)
            return line
    except (ActionError, ToolError) as err:
        say(f"{err}; nothing was sent" + (f". `? {name}` shows its parameters" if name in toolbox else ""))
        return None
    if name == "say" and rest:
        return rest
    if name == "?" and rest and rest not in toolbox:
        say(no_such("tool", rest, names))
    elif name == "?":
        say("\n\n".join([described(toolbox[rest])] if rest else [*map(described, toolbox), HELP]))
    elif line:  # sent as a message only where that is meant: it would be a turn, and billed
        guess = no_such("tool", name, names).partition("Did you mean ")[2]
        say(f"{name!r} is no tool ({', '.join(names)})." + (f" Did you mean {guess}" if guess else ""))
        return line if input("send the line as a message? y or N> ").strip().lower() in ("y", "yes") else None
    return None


def described(tool: Tool) -> str:
    """A tool with all its parameters, a line each."""
    lines = [f"{tool.name}: {tool.description}"]
    for name, schema in tool.checker.arguments.items():
        about = f": {schema['description']}" if schema.get("description") else ""
        left_out = "" if name in tool.parameters.get("required", ()) else ", may be left out"
        lines.append(f"    {name} ({_kind(schema)}{left_out}){about}")
    return "\n".join(lines)


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kinds = schema.get("type", "any JSON")
    return str(kinds) if isinstance(kinds, str) else " or ".join(map(str, kinds))


def _call(tool: Tool, rest: str, episode: Episode) -> str:
    """A call of a tool. What the line does not say is asked for. Raises ToolError where it is given up or does not
    fit."""
    arguments = _shorthand(tool, rest)
    needed = tool.parameters.get("required", ())
    if any(name not in arguments for name in needed):
        for name, schema in tool.checker.arguments.items():
            if name not in arguments and (given := _asked(name, schema, needed=name in needed)):
                arguments[name] = _read(given, schema)
    episode.world.toolbox.check(ToolCall(tool.name, arguments))
    return render_call(tool.name, arguments)


def _asked(name: str, schema: Mapping[str, Any], *, needed: bool) -> str:
    while True:
        given = input(f"  {name} ({_kind(schema)}{'' if needed else '; Enter leaves it out'})> ").strip()
        if given == UP:
            raise ToolError("given up")
        if given and given not in map(str, schema.get("enum", [given])):
            say(f"  {name} is one of: {_kind(schema)}; {UP} gives up")
        elif given or not needed:
            return given
        else:
            say(f"  {name} is needed; {UP} gives up")


def _shorthand(tool: Tool, rest: str) -> dict[str, Any]:
    """The rest of a line as arguments: `key=value ...`, or the model that the tool offers and the text of the first
    other argument."""
    known = tool.checker.arguments
    if named := _named(rest, known):
        return named
    arguments: dict[str, Any] = {}
    if tool.keyed_by and rest:
        arguments[tool.keyed_by], _, rest = rest.partition(" ")
    others = [name for name in known if name != tool.keyed_by]
    if rest.strip() and others:
        arguments[others[0]] = _read(rest.strip(), known[others[0]])
    return arguments


def _named(rest: str, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """`key=value other=some more words` by the keys that the tool has; nothing where it begins with none."""
    made: dict[str, list[str]] = {}
    last = ""
    for word in rest.split(" "):
        key, equals, value = word.partition("=")
        if equals and key in known:
            made[last := key] = [value]
        elif last:
            made[last].append(word)
        else:
            return {}
    return {name: _read(" ".join(words).strip(), known[name]) for name, words in made.items()}


def _read(text: str, schema: Mapping[str, Any]) -> Any:
    """A value: as it stands where a text is wanted, or else as JSON."""
    if schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


# -- play an episode by hand, or watch a policy: `toolorchestra play --env HLE-v0 --policy oracle --delay 1` -----------


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
    """Policy that plays: random, cheapest, strongest, oracle or another one of evaluate's; a run's folder or
    checkpoint:FOLDER, its trained model, one of its checkpoints or what export model wrote; module:maker;
    you, when left out."""
    player: tuple[str, ...] = ()
    """NAME=VALUE for the policy. For example: --player temperature=0.5 of a trained one, fit_tasks=200 of knn"""
    split: str = "train"
    """Split that tasks are of: train, validation or test."""
    seed: int = 0
    """Seed of the first episode. Each next episode takes the next number."""
    episode_seed: int | None = None
    """Play this very episode: the `seed` of a row of an evaluation or of a recorded trajectory, together with its
    --task-id and the --env that it was played in."""
    preference: str = "sampled"
    """The user's preference: "sampled", "none" or the name of a kind."""
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

    def __post_init__(self) -> None:
        check_counts(self, {"episodes": 1})
        if not 0 <= self.delay < math.inf:
            raise ConfigError(f"--delay must be 0 or more seconds, got {self.delay:g}")


def run(given: PlayOptions) -> int:
    """Play the episodes."""
    if Path(given.policy).is_dir() and given.policy:
        given = replace(given, policy=f"{CHECKPOINT}{given.policy}")
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    chosen = _chosen(given)
    env = _env(given, chosen)
    with ExitStack() as opened:
        plays = _policy(given, env, opened) if given.policy else person()
        tell_difference(given.policy, chosen.env_id, env.factory)
        for number in range(given.episodes):
            named = None if given.episode_seed is None else given.episode_seed + number
            options = {"task_id": given.task_id or None, "episode_seed": named}
            env.reset(seed=given.seed + number, options=options)
            longest = None if given.full or not given.policy else render.LONGEST
            if not play_one(env, plays, colour=colour, longest=longest):
                break
    return DONE


main = partial(command, PlayOptions, run, about=__doc__)


def _chosen(given: PlayOptions) -> ChosenEnv:
    """The environment that is asked for; where nothing is, the first one that a trained model was trained on."""
    if not given.env and not given.set and (learnt := environments_of([given.policy], most=1)):
        return learnt[0]
    (chosen,) = chosen_envs([given.env or [OTHERWISE]], given.set)
    return chosen


def _env(given: PlayOptions, chosen: ChosenEnv) -> OrchestraEnv:
    if "source" not in spec_of(chosen.env_id).kwargs:
        raise ConfigError(f"--env {chosen.env_id} is not of this suite; valid: {', '.join(ids())}")
    settings = {"split": given.split, "preference": given.preference}
    settings |= {name: value for name in ("tools", "prices") if (value := getattr(given, name))}
    env = gym.make(chosen.env_id, **{**settings, **chosen.arguments}).unwrapped
    assert isinstance(env, OrchestraEnv)
    return env


def _policy(given: PlayOptions, env: OrchestraEnv, opened: ExitStack) -> Hand:
    """A policy that waits before each move. What its moves used is billed as it was counted."""
    options = shapes.read(PlayerOptions, arguments("--player", given.player), "--player")
    made = player_by_name(given.policy, env.factory, given.seed, options)
    opened.callback(getattr(made, "close", lambda: None))
    loop = opened.enter_context(asyncio.Runner())

    def plays(episode: Episode) -> str:
        time.sleep(given.delay)
        move = loop.run(made.move(episode))
        if move.usage is not None:
            env.charge_policy(move.usage)
        return move.text

    return plays


def play_one(env: OrchestraEnv, plays: Hand, *, colour: bool, longest: int | None) -> bool:
    """One episode. False when the player quits."""
    episode = env.episode
    assert episode is not None
    # The colours are our own escape sequences; render spells what is not.
    print(render.opening(episode, colour=colour, longest=longest), flush=True)
    while not episode.over:
        action = plays(episode)
        if action is None:
            say(f"left; {render.bill(episode)}")
            return False
        print(render.turn(episode, Step(*env.step(action)), colour=colour, longest=longest), flush=True)
    say(ending(episode))
    for title, sums in (("by role", episode.ledger.usd_by_role()), ("by tool", episode.ledger.usd_by_tool())):
        say("\n".join([title, *(f"  {name or '(own tokens)':20} {usd * 100:10.4f} ¢" for name, usd in sums.items())]))
    return True


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
