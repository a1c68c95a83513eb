"""What the code says of itself: fields with their types, defaults and texts; docstrings; tables in Markdown."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

WITHOUT = inspect.Parameter.empty


class Field(NamedTuple):
    """One setting: a field of a dataclass or a named tuple, or an argument of a function."""

    name: str
    kind: str
    """Its annotation, as it is written."""
    default: Any
    """WITHOUT: it has to be given."""
    text: str


def fields_of(cls: type) -> list[Field]:
    """The fields that a class is made with, in their order. A field without a text below it is refused."""
    texts = texts_of(cls)
    found = []
    for name, kind, default in _made_with(cls):
        if not texts.get(name):
            raise SystemExit(f"{cls.__module__}.{cls.__qualname__}: {name} has no text below it; say what it means")
        found.append(Field(name, kind, default, texts[name]))
    return found


def texts_of(cls: type) -> dict[str, str]:
    """The texts of a class's fields by name, those of the classes that it is made from too."""
    return {name: text for base in reversed(cls.__mro__) for name, text in _texts(base).items()}


def _made_with(cls: type) -> list[tuple[str, str, Any]]:
    if dataclasses.is_dataclass(cls):
        return [(f.name, str(f.type), default_of(f)) for f in dataclasses.fields(cls) if f.init]
    if issubclass(cls, tuple):
        named: Any = cls
        kinds = inspect.get_annotations(cls)
        return [(name, str(kinds[name]), named._field_defaults.get(name, WITHOUT)) for name in named._fields]
    made = list(inspect.signature(cls).parameters.values())
    return [(one.name, str(one.annotation), one.default) for one in made]


def default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else WITHOUT


@cache
def _texts(cls: type) -> dict[str, str]:
    """The texts below a class's fields, or the lines "name: text" of its docstring."""
    if cls.__module__ == "builtins":
        return {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError):
        return {}
    texts: dict[str, str] = {}
    body: list[ast.stmt] = tree.body[0].body  # type: ignore[attr-defined]
    for field, after in pairwise(body):
        named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if named and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            texts[field.target.id] = one_line(str(after.value.value))  # type: ignore[attr-defined]
    for name, text in re.findall(r"^(\w+): (.*(?:\n  .*)*)", inspect.getdoc(cls) or "", re.M):
        texts[name] = one_line(text)
    return texts


def one_line(text: str) -> str:
    return " ".join(text.split())


def cell(text: str) -> str:
    """A text inside a table: no column ends in it, and no tag begins."""
    outside = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;").replace("*", "\\*") for part in outside)


def code(value: object) -> str:
    """A value as code inside a table."""
    text = str(value).replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def shown(default: Any) -> str:
    """A default as a table shows it."""
    if default is WITHOUT:
        return "*to be given*"
    if isinstance(default, Path):
        return code(f'"{default.as_posix()}"')
    if dataclasses.is_dataclass(default):
        return f"`{type(default).__name__}(...)`"
    if callable(default):
        return f"`{getattr(default, '__name__', default)}`"
    return code(f'"{default}"' if isinstance(default, str) else repr(default))


def fields_table(cls: type, head: str = "key", without: Sequence[str] = ()) -> str:
    rows = [(code(f.name), shown(f.default), cell(f.text)) for f in fields_of(cls) if f.name not in without]
    return table((head, "default", "meaning"), rows)


def first_sentence(text: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return one_line((text or "").split("\n\n")[0])


def page(title: str, about: str, *parts: str) -> str:
    """A page: title, what it is, its parts. It says that it is made, and by what."""
    made = "<!-- Written by `python scripts/write_reference.py`. Change the code's own texts, then run it again. -->"
    return "\n\n".join([made, f"# {title}", about, *(part.strip() for part in parts)]) + "\n"


def doc_of(module: ModuleType) -> str:
    return first_sentence(module.__doc__)
