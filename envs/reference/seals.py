"""Whether a nested value was changed since it was sealed, and how to undo that in place.

A seal remembers, container by container, which objects stood where. Comparing identities is cheap and misses nothing:
leaves that stand in a database (texts, numbers, dates) cannot change, so whatever is different is another object.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import types
import uuid
from operator import is_
from typing import Any

_set = object.__setattr__
_PYDANTIC = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
_ATOMS: tuple[type, ...] = (
    str, bytes, int, float, complex, bool, type(None), datetime.date, datetime.time, datetime.timedelta,
    datetime.tzinfo, decimal.Decimal, uuid.UUID, enum.Enum, type, types.FunctionType, types.ModuleType, range,
)  # fmt: skip


class Seal:
    """The state of a value's containers at one moment."""

    __slots__ = ("_dicts", "_fields", "_lists", "_marks", "_sets")

    def __init__(self, value: Any) -> None:
        self._fields: list[tuple[dict[str, Any], tuple[Any, ...], tuple[Any, ...]]] = []
        """Attributes of objects. Their names do not change, so they need not be compared."""
        self._dicts: list[tuple[dict[Any, Any], tuple[Any, ...], tuple[Any, ...]]] = []
        self._lists: list[tuple[list[Any], tuple[Any, ...]]] = []
        self._sets: list[tuple[set[Any], frozenset[Any]]] = []
        self._marks: list[tuple[set[Any], frozenset[Any]]] = []
        """Which fields of a model were set: to be restored, but no change by themselves."""
        self._take(value, set())

    def _take(self, value: Any, seen: set[int]) -> None:
        if isinstance(value, _ATOMS) or id(value) in seen:
            return
        seen.add(id(value))
        inside: tuple[Any, ...] = ()
        if isinstance(value, dict):
            inside = tuple(value.values())
            self._dicts.append((value, tuple(value), inside))
        elif isinstance(value, list):
            inside = tuple(value)
            self._lists.append((value, inside))
        elif isinstance(value, set):
            self._sets.append((value, frozenset(value)))
        elif isinstance(value, tuple):
            inside = value
        elif hasattr(value, "__dict__"):
            inside = tuple(value.__dict__.values())
            self._fields.append((value.__dict__, tuple(value.__dict__), inside))
            if hasattr(type(value), "__pydantic_fields__"):
                marks = value.__pydantic_fields_set__
                self._marks.append((marks, frozenset(marks)))
                inside += (value.__pydantic_extra__, value.__pydantic_private__)
        for part in inside:
            self._take(part, seen)

    def broken(self) -> bool:
        """Whether anything inside is not what it was."""
        for held, _, values in self._fields:
            if len(held) != len(values) or not all(map(is_, held.values(), values)):
                return True
        for held, keys, values in self._dicts:
            if len(held) != len(keys) or not all(map(is_, held.values(), values)) or not all(map(is_, held, keys)):
                return True
        for listed, items in self._lists:
            if len(listed) != len(items) or not all(map(is_, listed, items)):
                return True
        return any(members != before for members, before in self._sets)

    def restore(self) -> None:
        """Put everything inside back, in the same objects."""
        for mapping, keys, values in (*self._fields, *self._dicts):
            mapping.clear()
            mapping.update(zip(keys, values, strict=True))
        for listed, items in self._lists:
            listed[:] = items
        for members, before in (*self._sets, *self._marks):
            members.clear()
            members.update(before)


def duplicate(value: Any) -> Any:
    """A deep copy that shares leaves. Records that stand in two places become two."""
    if isinstance(value, _ATOMS):
        return value
    kind = type(value)
    if kind is dict:
        return {key: duplicate(part) for key, part in value.items()}
    if kind is list:
        return [duplicate(part) for part in value]
    if kind is set:
        return set(value)
    if hasattr(kind, "__pydantic_fields__"):
        return remade(value, {name: duplicate(part) for name, part in value.__dict__.items()})
    try:
        return copy.deepcopy(value)
    except TypeError:  # a lock, a file: nothing that a database holds
        return value


def remade(model: Any, fields: dict[str, Any]) -> Any:
    """A model of the same kind with other fields, unvalidated."""
    made = object.__new__(type(model))
    _set(made, "__dict__", fields)
    for name in _PYDANTIC:
        _set(made, name, duplicate(getattr(model, name)))
    return made
