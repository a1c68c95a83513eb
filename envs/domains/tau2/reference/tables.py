"""A table that an episode changes over one that all episodes of a domain share.

Records are lent, not copied. After a call those that it may have seen are checked against their seals: a changed one
becomes the episode's own, and the shared one is put back as it was. A call that raises is undone altogether. Toolkits
may therefore find and change records in any way, also those that they come upon by iterating.
"""

from __future__ import annotations

import copy
from collections.abc import ItemsView, Iterator, ValuesView
from typing import Any

from toolorchestra.envs.domains.tau2.reference.change_tracking import SavedState, duplicate

ABSENT = object()


class Lent:
    """A table's records as every episode sees them until it changes one."""

    __slots__ = ("records", "seals")

    def __init__(self, records: dict[Any, Any]) -> None:
        self.records = records
        self.seals = {key: SavedState(record) for key, record in records.items()}


class TrackedTable(dict[Any, Any]):
    """One episode's table. Notes which records a call may have seen."""

    __slots__ = ("_all", "_before", "_broken", "_images", "_lent", "_seen", "_shaped", "own")

    def __init__(self, lent: Lent) -> None:
        super().__init__(lent.records)
        self._lent = lent
        self.own: set[Any] = set()
        """Keys whose record is not the lent one: changed, new or gone."""
        self._before: dict[Any, Any] = lent.records
        """What the table held before the call; never changed, so that episodes which change nothing share it."""
        self._begin_empty()

    def _begin_empty(self) -> None:
        self._seen: set[Any] = set()
        self._images: dict[Any, SavedState] = {}
        self._broken: list[SavedState] = []
        self._all = self._shaped = False

    # -- a call --------------------------------------------------------------------------------------------------------

    def refill(self, records: dict[Any, Any]) -> None:
        """Take over what the toolkit put in this table's place."""
        kept = dict(records)
        self._shaped = True
        dict.clear(self)
        dict.update(self, kept)

    def settle(self) -> set[Any]:
        """Copies of what a good call changed, to be this episode's own; says whose keys. One of commit() and undo()
        has to follow."""
        changed = set()
        for key in self._suspects():
            if self._lent.seals[key].broken():
                self._broken.append(self._lent.seals[key])
                changed.add(key)
        changed.update(key for key, image in self._images.items() if image.broken())
        if self._shaped:
            changed.update(k for k, r in dict.items(self) if r is not self._before.get(k, ABSENT))
            changed.update(k for k in self._before if not dict.__contains__(self, k))
        for key in changed:
            if (record := self.get_quietly(key)) is not ABSENT:
                dict.__setitem__(self, key, duplicate(record))
        return changed

    def commit(self, changed: set[Any]) -> None:
        """Put the lent records back as they were, and keep the copies."""
        for seal in self._broken:
            seal.restore()
        if changed or self._shaped:
            self.own |= changed
            self._before = dict(zip(dict.keys(self), dict.values(self), strict=True))
        self._begin_empty()

    def undo(self) -> None:
        """As before the call."""
        for seal in (*self._images.values(), *(self._lent.seals[key] for key in self._suspects())):
            if seal.broken():
                seal.restore()
        dict.clear(self)
        dict.update(self, self._before)
        self._begin_empty()

    def _suspects(self) -> list[Any]:
        """Keys of lent records that the call may have changed."""
        lent, before = self._lent.records, self._before
        keys = before if self._all else self._seen
        return [key for key in keys if key in before and before[key] is lent.get(key, ABSENT)]

    def get_quietly(self, key: Any) -> Any:
        """A record, without noting it."""
        return dict.get(self, key, ABSENT)

    # -- what a toolkit does -------------------------------------------------------------------------------------------

    def _look(self, key: Any) -> None:
        if key in self.own:
            if key not in self._images and key in self._before:
                self._images[key] = SavedState(self._before[key])
        else:
            self._seen.add(key)

    def _look_at_all(self) -> None:
        self._all = True
        for key in self.own:
            self._look(key)

    def __getitem__(self, key: Any) -> Any:
        record = super().__getitem__(key)
        self._look(key)
        return record

    def get(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            return default
        return self[key]

    def values(self) -> ValuesView[Any]:  # type: ignore[override]  # dict's own view type cannot be named
        self._look_at_all()
        return super().values()

    def items(self) -> ItemsView[Any, Any]:  # type: ignore[override]
        self._look_at_all()
        return super().items()

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__()  # defined, so that dict(table) and {**table} ask for items and do not take them

    def __setitem__(self, key: Any, record: Any) -> None:
        self._shaped = True
        super().__setitem__(key, record)

    def __delitem__(self, key: Any) -> None:
        self._shaped = True
        super().__delitem__(key)

    def pop(self, key: Any, *default: Any) -> Any:
        self._shaped = True
        if key in self:
            self._look(key)
        return super().pop(key, *default)

    def popitem(self) -> tuple[Any, Any]:
        key = next(reversed(self))
        return key, self.pop(key)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *args: Any, **kwargs: Any) -> None:
        self._shaped = True
        super().update(*args, **kwargs)

    def __ior__(self, other: Any) -> TrackedTable:
        self.update(other)
        return self

    def clear(self) -> None:
        self._look_at_all()
        self._shaped = True
        super().clear()

    def copy(self) -> dict[Any, Any]:
        return dict(self.items())

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return copy.deepcopy(self.copy(), memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.copy(),)
