"""The command line, and the settings of training."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from reference_pages.documented import WITHOUT, Field, cell, code, default_of, page, shown, table, texts_of
from reference_pages.environments import as_markdown
from toolorchestra.agents.configuration.config import EnvMix, TrainConfig
from toolorchestra.agents.configuration.presets import MACHINES, PRESETS
from toolorchestra.cli import COMMANDS

PROCESSORS = "*the machine's processors*"
"""A default that differs from machine to machine."""


def options_class(module: ModuleType) -> type:
    """The dataclass of a command's options: the one that its module makes or imports under such a name."""
    found = [
        value
        for name, value in vars(module).items()
        if name.endswith("Options") and isinstance(value, type) and dataclasses.is_dataclass(value)
    ]
    own = [value for value in found if value.__module__ == module.__name__]
    return (own or found)[0]


def command_line() -> str:
    parts = [
        table(("command", "what it does"), [(f"[`{name}`](#{name})", one.about) for name, one in COMMANDS.items()])
    ]
    for name, command in COMMANDS.items():
        module = import_module(command.module)
        parts += [f"## {name}", as_markdown((module.__doc__ or "").strip())]
        rows = [_option(one) for one in fields_of_options(options_class(module))]
        if rows:
            parts.append(table(("option", "default", "meaning"), rows))
    about = (
        "`toolorchestra COMMAND --help` shows the same. Exit codes: 0 done, 1 something failed, 2 the command line or a "
        "setting is wrong, 130 stopped by Ctrl-C."
    )
    return page("Command line", about, *parts)


def fields_of_options(cls: type) -> Iterator[Field]:
    """The options of a command. Training's settings are on a page of their own."""
    if "settings" in {f.name for f in dataclasses.fields(cls)}:
        text = "Every setting of a training run is an option: [training configuration](training-configuration.md)."
        yield Field("settings", "", WITHOUT, text)
    texts = texts_of(cls)
    hints = typing.get_type_hints(cls, include_extras=True)
    for f in dataclasses.fields(cls):
        if f.name == "settings" or not f.init:
            continue
        if not texts.get(f.name):
            raise SystemExit(f"{cls.__name__}: the option {f.name} has no text below it; say what it does")
        positional = "Positional" in str(f.type) or "Positional" in str(hints[f.name])
        name = next(
            (one.name for one in getattr(hints[f.name], "__metadata__", ()) if getattr(one, "name", None)), f.name
        )
        default = default_of(f)
        if f"{f.name}: int = os.cpu_count()" in inspect.getsource(cls):
            default = PROCESSORS
        yield Field(name.upper() if positional else name, str(f.type), default, texts[f.name])


def _option(one: Field) -> tuple[str, str, str]:
    if one.name == "settings":
        return "*settings*", "", one.text
    if one.name.isupper():
        return code(one.name), shown(one.default), cell(one.text)
    default = PROCESSORS if one.default == PROCESSORS else shown(one.default)
    return code(f"--{one.name.replace('_', '-')}"), default, cell(one.text)


def training_configuration() -> str:
    hints = typing.get_type_hints(TrainConfig)
    groups = {f.name: hints[f.name] for f in dataclasses.fields(TrainConfig) if dataclasses.is_dataclass(hints[f.name])}
    flat = [one for one in _settings(TrainConfig) if one.name not in (*groups, "environments")]
    machines = [(code(name), cell(MACHINES[name].about)) for name in PRESETS]
    parts = ["## Presets", table(("preset", "for"), machines), "## The run", _setting_rows(flat)]
    for name, kind in groups.items():
        parts += [f"## {name}", kind.__doc__ or "", _setting_rows(_settings(kind), f"{name}.")]
    parts += [
        "## Environments",
        "`--env ID NAME=VALUE ...`, once for each environment. A name that is none of these goes to `gym.make`:",
        _setting_rows([one for one in _settings(EnvMix) if one.name not in ("env_id", "arguments")], mark=""),
    ]
    about = (
        "Every setting of `toolorchestra train`. The defaults are those of the code; a preset changes some of them, and "
        "`toolorchestra train --preset NAME --help` shows what then holds. A name such as `warm_start.steps` is "
        "`--warm-start.steps` on the command line."
    )
    return page("Training configuration", about, *parts)


def _settings(cls: type) -> list[Field]:
    texts = texts_of(cls)
    return [Field(f.name, str(f.type), default_of(f), texts.get(f.name, "")) for f in dataclasses.fields(cls) if f.init]


def _setting_rows(settings: list[Field], prefix: str = "", mark: str = "--") -> str:
    rows = []
    for one in settings:
        name = f"{prefix}{one.name}"
        shown_name = f"{mark}{name.replace('_', '-')}" if mark else name
        rows.append((code(shown_name), shown(one.default), cell(one.text)))
    return table(("setting", "default", "meaning"), rows)
