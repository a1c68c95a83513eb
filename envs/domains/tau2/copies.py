"""Databases that episodes share until they write: a table hands out copies of the records it is asked for by key."""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
import json
import uuid
from collections.abc import Iterator, Mapping, MutableMapping, ValuesView
from itertools import chain
from typing import Any, NoReturn

SHARED: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_UNCHANGING = (
    bytes, str, int, float, complex, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal,
    uuid.UUID, enum.Enum, type(None),
)  # fmt: skip
_set = object.__setattr__


def clone(value: Any, shared: frozenset[type] = SHARED) -> Any:
    """A deep copy. What cannot be changed (texts, numbers, dates) is shared, and so are values of the kinds in
    `shared`."""
    kind = type(value)
    if kind in shared:
        return value
    if kind is dict:
        return {key: part if type(part) in shared else clone(part, shared) for key, part in value.items()}
    if kind is list:
        return [part if type(part) in shared else clone(part, shared) for part in value]
    if hasattr(kind, "__pydantic_fields__"):
        made, marks, extra = object.__new__(kind), value.__pydantic_fields_set__, value.__pydantic_extra__
        full = extra is None and len(marks) == len(kind.__pydantic_fields__)  # it cannot grow: one does for all copies
        _set(made, "__dict__", clone(value.__dict__, shared))
        _set(made, "__pydantic_fields_set__", marks if full else clone(marks, shared))
        _set(made, "__pydantic_extra__", clone(extra, shared))
        _set(made, "__pydantic_private__", clone(value.__pydantic_private__, shared))
        return made
    if isinstance(value, _UNCHANGING):
        return value
    return set(value) if kind is set else copy.deepcopy(value)


def leaves(value: Any) -> frozenset[type]:
    """The kinds of values inside that are no records, lists or dicts: those never change."""
    if isinstance(value, dict):
        return frozenset().union(*map(leaves, value.values()))
    if isinstance(value, list):
        return frozenset().union(*map(leaves, value))
    if hasattr(type(value), "__pydantic_fields__"):
        return leaves(value.__dict__)
    kind: type = type(value)
    return frozenset({kind})


class CopyOnReadTable(MutableMapping[str, Any]):
    """A table over a pristine one that is never changed.

    `table[key]` gives a private copy, made at the first asking, since the domains' code changes what it got that way.
    What iterating gives is shared and only read: the domains look records up by iterating, and never change those.
    """

    __slots__ = ("own", "pristine")

    def __init__(self, pristine: Mapping[str, Any]) -> None:
        self.pristine = pristine
        self.own: dict[str, Any] = {}
        """Records copied or set, by key: all that can differ from the pristine table."""

    def __getitem__(self, key: str) -> Any:
        record = self.own.get(key)
        if record is None:
            record = self.own[key] = clone(self.pristine[key])
        return record

    def __setitem__(self, key: str, record: Any) -> None:
        self.own[key] = record

    def __delitem__(self, key: str) -> NoReturn:
        raise TypeError(f"records of these domains are never deleted, got del table[{key!r}]")

    def __contains__(self, key: object) -> bool:
        return key in self.own or key in self.pristine

    def __iter__(self) -> Iterator[str]:
        if not self.own:
            return iter(self.pristine)
        return chain(self.pristine, [key for key in self.own if key not in self.pristine])

    def __len__(self) -> int:
        return len(self.pristine) + sum(key not in self.pristine for key in self.own)

    def values(self) -> ValuesView[Any]:
        """Shared records, to be read only."""
        return self._now().values()

    def items(self) -> Any:
        """Keys with shared records, to be read only."""
        return self._now().items()

    def _now(self) -> Mapping[str, Any]:
        return {**self.pristine, **self.own} if self.own else self.pristine


def written(record: Any) -> str:
    """A record as text; two are the same record when the benchmark's hash of their databases says so."""
    try:
        return json.dumps(record.model_dump(warnings=False), sort_keys=True, default=_as_text)
    except ValueError as err:  # a number with more digits than Python prints: nothing that a task asks for
        return f"unprintable: {err}"


def _as_text(value: Any) -> Any:
    """A set is a sorted list: as text it would depend on the order in which it was filled."""
    return sorted(value, key=str) if isinstance(value, set | frozenset) else str(value)
