"""Write an environment of your own to start from: `toolorchestra new my_env` writes a folder that plays and trains."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from importlib.machinery import PathFinder
from importlib.resources import files
from keyword import kwlist
from pathlib import Path

import tyro

from toolorchestra.agents.commands.console import DONE, check_folder, command, say
from toolorchestra.envs.base.errors import ConfigError

TEMPLATES = {
    "environment.py.txt": "@NAME@.py",
    "test.py.txt": "test_@NAME@.py",
    "record.py.txt": "record.py",
    "README.md.txt": "README.md",
}
TRAIN = "--warm-start.steps 300 --max-tokens 24 --max-context 512 --steps 20 --evaluate-every 10"
"""Options under which the folder's environment is learnt in about two minutes."""


@dataclass(frozen=True)
class NewOptions:
    """What `toolorchestra new` takes."""

    name: tyro.conf.Positional[str]
    """The environment's name, in small letters: a module of Python, such as my_env."""
    out: Path | None = None
    """The folder to write; ./NAME when left out."""


def run(given: NewOptions) -> int:
    """Write the folder, and say what can be done with it."""
    name = given.name
    named = "".join(part.capitalize() for part in name.split("_"))
    if not name.isidentifier() or name != name.lower() or not named.isidentifier() or {name, named} & {*kwlist}:
        raise ConfigError(f"a name is a module of Python in small letters, such as my_env; got {name!r}")
    found = PathFinder.find_spec(name)  # without an origin it is a folder, such as the one that is to be filled
    if name in sys.stdlib_module_names or f"{name}.py" in TEMPLATES.values() or (found and found.origin):
        raise ConfigError(f"{name!r} is the name of another module; take one that is not, such as my_env")
    folder = given.out or Path(name)
    check_folder("--out", folder)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} has files already; take another name, or another folder with --out FOLDER")
    words = {
        "@NAME@": name,
        "@CLASS@": named,
        "@ID@": f"Mine/{named}-v0",
        "@TRAIN@": TRAIN,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for template, file in TEMPLATES.items():
        text = files("toolorchestra.agents").joinpath("data", "new", template).read_text(encoding="utf-8")
        for mark, word in words.items():
            text, file = text.replace(mark, word), file.replace(mark, word)
        (folder / file).write_text(text, encoding="utf-8")
    say(f"{folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}; README.md says what to run")
    return DONE


main = partial(command, NewOptions, run, about=__doc__)
