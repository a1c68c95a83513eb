"""The command `toolorchestra`: a table of commands, each imported when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple


class Command(NamedTuple):
    """Where a command lives, and what it does in a line."""

    module: str
    """MODULE of this package, whose `main` is called, or MODULE:FUNCTION."""
    about: str


COMMANDS: Mapping[str, Command] = {
    "new": Command("agents.commands.new", "an environment of your own to start from, as a folder"),
    "ids": Command("agents.commands.ids", "the environments, with their splits"),
    "play": Command("agents.commands.play", "play an episode by hand, or watch a policy"),
    "evaluate": Command("agents.commands.evaluate", "compare policies: accuracy, cents, seconds"),
    "compare": Command("agents.commands.compare", "runs beside each other; billed or graded anew; for other programs"),
    "train": Command("agents.commands.train", "train an orchestrator, or a router of numbers"),
    "serve": Command("agents.commands.serve", "a policy behind OpenAI's chat API, with bills"),
    "export model": Command(
        "agents.commands.export_model", "what a run has trained, as a folder for transformers and vLLM"
    ),
    "recorded fit": Command(
        "agents.commands.recorded:fit", "fit simulated experts to recorded outcomes of real models"
    ),
    "recorded world": Command("agents.commands.recorded:world", "simulated experts of such a fit, for experts=FILE"),
    "recorded replay": Command("agents.commands.recorded:replay", "routing over recorded outcomes of real models"),
    "report": Command("agents.commands.report", "runs as tables, and as pages with every transcript"),
    "synth make": Command("synth.generate", "make a tool domain, and check every task by running it"),
    "synth prove": Command("synth.prove", "prove by running it that every task is self-consistent"),
    "synth lint": Command("synth.lint", "find where a spec's words and its gold calls differ"),
    "synth export": Command("synth.export", "domain folders as a data set with a card"),
    "index build": Command("agents.commands.index", "build a search index over a corpus"),
    "index serve": Command("agents.commands.index:serve", "serve an index to other processes"),
    "serve environments": Command("agents.commands.serve_environments", "environments behind HTTP, for other trainers"),
    "serve experts": Command("agents.commands.serve_experts", "start servers of expert models"),
    "export prompts": Command("agents.commands.export_prompts", "tasks as a Parquet file, for other trainers"),
    "budget": Command("agents.commands.budget", "what a run takes of a GPU's memory"),
    "doctor": Command("agents.commands.doctor", "what is installed here, what is missing, and for what"),
}


def main() -> int:
    """Run the command line."""
    try:
        return _run()
    except KeyboardInterrupt:  # while it starts; commands say themselves what was stopped
        print("stopped", file=sys.stderr)
        return 130


def _run() -> int:
    """Run the command that is named first; its options follow. Some have parts, whose name comes second."""
    name, *rest = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help", "help"):
        print(usage(COMMANDS))
        return 0
    if name == "--version":
        from toolorchestra import __version__

        print(__version__)
        return 0
    parts = {full: command for full, command in COMMANDS.items() if full.startswith(f"{name} ")}
    if rest and f"{name} {rest[0]}" in parts:
        name, *rest = f"{name} {rest[0]}", *rest[1:]
    elif parts and name not in COMMANDS:
        if not rest or rest[0] in ("-h", "--help"):
            print(usage(parts))
            return 0
        name = f"{name} {rest[0]}"
    if name not in COMMANDS:
        from toolorchestra.envs.base.errors import no_such

        print(f"error: {no_such('command', name, parts or COMMANDS)} See toolorchestra --help", file=sys.stderr)
        return 2
    sys.argv = [f"toolorchestra {name}", *rest]
    module, _, function = COMMANDS[name].module.partition(":")
    return int(getattr(import_module(f"toolorchestra.{module}"), function or "main")())


def usage(commands: Mapping[str, Command]) -> str:
    """List commands, a line each."""
    width = max(map(len, commands))
    lines = [f"  {name:{width}}  {command.about}" for name, command in commands.items()]
    return "\n".join(
        ["usage: toolorchestra COMMAND [OPTIONS]", "", *lines, "", "toolorchestra COMMAND --help shows its options."]
    )
