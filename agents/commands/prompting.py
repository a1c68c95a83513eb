"""A person at the terminal: a line becomes a tool call, what is mistyped is asked back, and nothing unmeant is sent."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from toolorchestra.agents.commands.console import say
from toolorchestra.envs.base.actions import OPEN, parse, render_call
from toolorchestra.envs.base.errors import ActionError, ToolError, no_such
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.episode.episode import Episode
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
    for page in pages(text):
        say(page)


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


def pages(text: str, fits: Callable[[], int] | None = None) -> Iterator[str]:
    """A text in pieces that fit the terminal, with a stop between them; whole where nobody sits at one."""
    lines = text.split("\n")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield text
        return
    columns = shutil.get_terminal_size().columns
    height = max(4, (fits() if fits else shutil.get_terminal_size().lines) - 2)
    while lines:
        taken, used = 0, 0
        while taken < len(lines) and (not taken or used + _rows(lines[taken], columns) <= height):
            used += _rows(lines[taken], columns)
            taken += 1
        yield "\n".join(lines[:taken])
        lines = lines[taken:]
        if lines and input(f"-- {len(lines)} more lines: Enter goes on, q skips them -- ").strip() == "q":
            return


def _rows(line: str, columns: int) -> int:
    return max(1, -(-len(line) // max(1, columns)))


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
