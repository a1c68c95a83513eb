"""What recordings are read from, by name. A form takes a path of the user's own copy; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.outcomes.rows import Outcomes
from toolorchestra.envs.outcomes.table import read_table

Form = Callable[[Path], Outcomes]
FORMS: Mapping[str, Form] = {}
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
    return FORMS[form](Path(path))
