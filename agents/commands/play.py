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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import gymnasium as gym

from toolorchestra.agents.commands.console import DONE, check_counts, command, say
from toolorchestra.agents.commands.evaluation_setup import environments_of, tell_difference
from toolorchestra.agents.configuration.environment_options import ChosenEnv, arguments, chosen_envs
from toolorchestra.agents.policies.base import Player as Asked
from toolorchestra.agents.policies.base import PlayerOptions
from toolorchestra.agents.policies.baselines import NAMES, baseline
from toolorchestra.agents.policies.players import CHECKPOINT
from toolorchestra.agents.policies.players import player as player_by_name
from toolorchestra.envs.base import shapes
from toolorchestra.envs.base.actions import OPEN, parse, render_call
from toolorchestra.envs.base.errors import ActionError, ConfigError, ToolError, no_such
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.episode import render
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.registration import ids
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


class Quit(Exception):
    """The person has had enough."""


class Prompt:
    """Asks a person for the next action of an episode."""

    def __init__(self) -> None:
        self._readline = _line_editing()

    def __call__(self, episode: Episode) -> str | None:
        """The next action, or None to quit."""
        if self._readline is not None:
            self._readline.set_completer(_completer(episode))
        try:
            while True:
                if (action := read_action(ask(ASKS), episode)) is not None:
                    return action
        except (EOFError, Quit):
            return None


def ask(what: str) -> str:
    """One line of the person's. Raises EOFError at the end of the input."""
    try:
        return input(what).strip()
    except EOFError:
        say("")
        raise


def read_action(line: str, episode: Episode) -> str | None:
    """What a line means as an action; None: there is something to read, and the prompt comes again."""
    name, _, rest = line.partition(" ")
    if line == "q":
        raise Quit
    if name == "?":
        _help(rest.strip(), episode)
        return None
    if name in episode.world.toolbox:
        return _call(episode.world.toolbox[name], rest.strip(), episode)
    if name == "say" and rest.strip():
        return rest.strip()
    if line.startswith(OPEN):
        return _as_written(line, episode)
    return _perhaps_said(line, episode) if line else None


def _help(name: str, episode: Episode) -> None:
    toolbox = episode.world.toolbox
    if name and name not in toolbox:
        say(no_such("tool", name, (tool.name for tool in toolbox)))
        return
    shown = [toolbox[name]] if name else list(toolbox)
    text = "\n\n".join(["\n".join(described(tool)) for tool in shown] + ([] if name else [HELP]))
    say(text)


def described(tool: Tool) -> Iterator[str]:
    """A tool with all its parameters, a line each."""
    yield f"{tool.name}: {tool.description}"
    needed = tool.parameters.get("required", ())
    for name, schema in tool.checker.arguments.items():
        about = f": {schema['description']}" if schema.get("description") else ""
        yield f"    {name} ({_kind(schema)}{'' if name in needed else ', may be left out'}){about}"


def _kind(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kinds = schema.get("type", "any JSON")
    return str(kinds) if isinstance(kinds, str) else " or ".join(map(str, kinds))


def _call(tool: Tool, rest: str, episode: Episode) -> str | None:
    """A call of a tool. What the line does not say is asked for; None: it was given up, or does not fit."""
    arguments = _shorthand(tool, rest)
    needed = tool.parameters.get("required", ())
    try:
        if any(name not in arguments for name in needed):
            for name, schema in tool.checker.arguments.items():
                if name not in arguments:
                    _fill(arguments, name, schema, needed=name in needed)
        episode.world.toolbox.check(ToolCall(tool.name, arguments))
    except _GivenUp:
        say("given up; nothing was sent")
        return None
    except ToolError as err:
        say(f"{err}; nothing was sent. `? {tool.name}` shows its parameters")
        return None
    return render_call(tool.name, arguments)


class _GivenUp(Exception):
    """The call that is being filled is not wanted any more."""


def _fill(arguments: dict[str, Any], name: str, schema: Mapping[str, Any], *, needed: bool) -> None:
    while True:
        given = ask(f"  {name} ({_kind(schema)}{'' if needed else '; Enter leaves it out'})> ")
        if given == UP:
            raise _GivenUp
        if given and given not in map(str, schema.get("enum", [given])):
            say(f"  {name} is one of: {_kind(schema)}; {UP} gives up")
        elif given or not needed:
            break
        else:
            say(f"  {name} is needed; {UP} gives up")
    if given:
        arguments[name] = _read(given, schema)


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


def _as_written(line: str, episode: Episode) -> str | None:
    """A call in the grammar of the agents, where it can be read and fits its tools."""
    try:
        for call in parse(line).calls:
            episode.world.toolbox.check(call)
    except (ActionError, ToolError) as err:
        say(f"{err}; nothing was sent")
        return None
    return line


def _perhaps_said(line: str, episode: Episode) -> str | None:
    """What is no command is sent as a message only where that is meant: it would be a turn, and billed."""
    names = [tool.name for tool in episode.world.toolbox]
    guess = no_such("tool", line.partition(" ")[0], names).partition("Did you mean ")[2]
    hint = f" Did you mean {guess}" if guess else ""
    say(f"{line.partition(' ')[0]!r} is no tool ({', '.join(names)}).{hint}")
    return line if ask("send the line as a message? y or N> ").lower() in ("y", "yes") else None


def _line_editing() -> Any:
    """Arrow keys, history and Tab, where this Python has the library for them and somebody sits at a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    try:
        import readline
    except ImportError:
        return None
    readline.parse_and_bind("tab: complete")
    readline.set_completer_delims(" ")
    return readline


def _completer(episode: Episode) -> Callable[[str, int], str | None]:
    words: Sequence[str] = [*(tool.name for tool in episode.world.toolbox), *episode.world.toolbox.keys, "say", "?"]

    def complete(text: str, state: int) -> str | None:
        found = [word for word in dict.fromkeys(words) if word.startswith(text)]
        return found[state] if state < len(found) else None

    return complete


# -- play an episode by hand, or watch a policy: `toolorchestra play --env HLE-v0 --policy oracle --delay 1` -----------


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
    """Policy that plays: random, cheapest, strongest, oracle or another one of evaluate's; a run's folder or
    checkpoint:FOLDER, its trained model, one of its checkpoints or what export model wrote; file:TRAJECTORIES;
    package.module:maker; you, when left out."""
    player: tuple[str, ...] = ()
    """NAME=VALUE for players whose name has a colon. For example: --player temperature=0.5"""
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
    return policy not in NAMES


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
    print(render.opening(episode, colour=colour, longest=longest), flush=True)
    while not episode.over:
        action = player(episode)
        if action is None:
            say(f"left; {render.bill(episode)}")
            return False
        print(render.turn(episode, Step(*env.step(action)), colour=colour, longest=longest), flush=True)
    say(ending(episode))
    say(_table("by role", episode.ledger.usd_by_role()))
    say(_table("by tool", episode.ledger.usd_by_tool()))
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
