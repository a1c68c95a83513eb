"""What recordings are read from, by name. A form takes a path of the user's own copy; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.outcomes.bfcl import read_bfcl
from toolorchestra.envs.outcomes.evaluation_rows import read_evaluation
from toolorchestra.envs.outcomes.llmrouterbench import read_llmrouterbench
from toolorchestra.envs.outcomes.mcpmark import read_mcpmark
from toolorchestra.envs.outcomes.openhands import read_openhands
from toolorchestra.envs.outcomes.routerarena import read_routerarena
from toolorchestra.envs.outcomes.rows import Outcomes
from toolorchestra.envs.outcomes.table import read_table
from toolorchestra.envs.outcomes.trajectories import read_recorded

Form = Callable[[Path], Outcomes]
FORMS: Mapping[str, Form] = {
    "evaluation": read_evaluation,
    "trajectories": read_recorded,
    "mcpmark": read_mcpmark,
    "openhands": read_openhands,
    "llmrouterbench": read_llmrouterbench,
    "routerarena": read_routerarena,
    "bfcl": read_bfcl,
}
"""Beside "table"."""


def read(
    form: str, path: str | Path, columns: Mapping[str, str] | None = None, reasoning_apart: Collection[str] = ()
) -> Outcomes:
    """The outcomes at a path. `columns` and `reasoning_apart` are for tables alone."""
    if form == "table":
        return read_table(path, columns, reasoning_apart)
    if form not in FORMS:
        raise ConfigError(no_such("form of outcomes", form, ("table", *FORMS)))
    if columns or reasoning_apart:
        raise ConfigError(f"{form} has names of its own; columns and reasoning_apart are for tables alone")
    try:
        return _with_names(FORMS[form](Path(path)))
    except (TypeError, AttributeError, KeyError, IndexError, ArithmeticError, RecursionError) as err:
        raise ConfigError(
            f"{path}: something in it has another type than {form} gives it ({err!s:.120}); check the form and the file"
        ) from err


def _with_names(read: Outcomes) -> Outcomes:
    names: Iterable[object] = (*read.tasks, *read.families, *read.models)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"a name expected, got {name!r:.60}")
    return read
