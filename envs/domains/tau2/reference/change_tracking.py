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


class SavedState:
    """The state of a value's containers at one moment."""

    __slots__ = ("_dicts", "_hidden", "_lists", "_marks", "_objects", "_sets")

    def __init__(self, value: Any) -> None:
        self._objects: list[tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = []
        """Objects with their attributes. The dict that holds these may be replaced: pydantic does, where a model checks
        what is assigned. The names stay, so they need not be compared."""
        self._hidden: list[tuple[Any, Any, Any]] = []
        """Models that have attributes beyond their fields, with the dicts of those."""
        self._dicts: list[tuple[dict[Any, Any], tuple[Any, ...], tuple[Any, ...]]] = []
        self._lists: list[tuple[list[Any], tuple[Any, ...]]] = []
        self._sets: list[tuple[set[Any], frozenset[Any]]] = []
        self._marks: list[tuple[Any, frozenset[Any]]] = []
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
            self._objects.append((value, tuple(value.__dict__), inside))
            if hasattr(type(value), "__pydantic_fields__"):
                self._marks.append((value, frozenset(value.__pydantic_fields_set__)))
                extra, private = value.__pydantic_extra__, value.__pydantic_private__
                if extra is not None or private is not None:
                    self._hidden.append((value, extra, private))
                inside += (extra, private)
        for part in inside:
            self._take(part, seen)

    def broken(self) -> bool:
        """Whether anything inside is not what it was."""
        for made, _, values in self._objects:
            fields = made.__dict__
            if len(fields) != len(values) or not all(map(is_, fields.values(), values)):
                return True
        for made, extra, private in self._hidden:
            if made.__pydantic_extra__ is not extra or made.__pydantic_private__ is not private:
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
        for made, keys, values in self._objects:
            _set(made, "__dict__", dict(zip(keys, values, strict=True)))
        for made, extra, private in self._hidden:
            _set(made, "__pydantic_extra__", extra)
            _set(made, "__pydantic_private__", private)
        for made, marks in self._marks:
            _set(made, "__pydantic_fields_set__", set(marks))
        for mapping, keys, values in self._dicts:
            mapping.clear()
            mapping.update(zip(keys, values, strict=True))
        for listed, items in self._lists:
            listed[:] = items
        for members, before in self._sets:
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
