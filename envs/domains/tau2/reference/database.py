"""An episode's database over one that all episodes of a domain share, with calls as transactions."""

from __future__ import annotations

import json
from typing import Any

from toolorchestra.envs.domains.tau2.reference.change_tracking import SavedState, duplicate, remade
from toolorchestra.envs.domains.tau2.reference.tables import ABSENT, Lent, TrackedTable


class Master:
    """A database that nobody changes, and what is lent of it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        fields = model.__dict__
        self.tables = {name: Lent(value) for name, value in fields.items() if type(value) is dict}
        self.rest = {name: SavedState(value) for name, value in fields.items() if name not in self.tables}
        """Fields that are no tables are lent whole, and checked after every call."""
        self._texts: dict[tuple[str, Any], str] = {}

    def text(self, field: str, key: Any) -> str:
        """A record as text; "" where there is none."""
        if field in self.tables:
            record = self.tables[field].records.get(key, ABSENT)
        else:
            record = self.model.__dict__.get(field, ABSENT)
        if record is ABSENT:
            return ""
        if (field, key) not in self._texts:
            self._texts[field, key] = written(record)
        return self._texts[field, key]


class EpisodeRecords:
    """One episode's database; `model` is what its toolkit is given."""

    __slots__ = ("_before", "_images", "_own", "_tables", "master", "model")

    def __init__(self, master: Master) -> None:
        self.master = master
        self._tables = {name: TrackedTable(lent) for name, lent in master.tables.items()}
        self.model = remade(master.model, {**master.model.__dict__, **self._tables})
        self._own: set[str] = set()
        self._before: dict[str, Any] = {}
        self._images: dict[str, SavedState] = {}

    def begin(self) -> None:
        self._before = dict(self.model.__dict__)
        self._images = {name: SavedState(self._before[name]) for name in self._own}

    def keep(self, model: Any) -> None:
        """The call is good. `model` is the database that the toolkit has now, which may be another object. Raises
        TypeError where it cannot be kept; undo() has to follow then."""
        if type(model) is not type(self.model):
            raise TypeError(f"the toolkit's db must stay a {type(self.model).__name__}, got {type(model).__name__}")
        now = dict(model.__dict__)
        for name in self._tables:
            if not isinstance(now.get(name), dict):
                raise TypeError(f"db.{name} must stay a dict, got {type(now.get(name)).__name__}")
        for name, table in self._tables.items():
            if now[name] is not table:
                table.refill(now[name])
        changed = [(table, table.settle()) for table in self._tables.values()]
        whole = {name for name, seal in self._whole() if now.get(name) is not self._before[name] or seal.broken()}
        fields = {**now, **{name: duplicate(now.get(name)) for name in whole}, **self._tables}
        for table, keys in changed:
            table.commit(keys)
        self._restore_lent()
        self._own |= whole
        self._hold(fields)

    def undo(self) -> None:
        """As before the call."""
        for image in self._images.values():
            image.restore()
        for table in self._tables.values():
            table.undo()
        self._restore_lent()
        self._hold(self._before)

    def _whole(self) -> list[tuple[str, SavedState]]:
        """The fields that are no tables, with what they were before the call."""
        return [(name, self._images.get(name, seal)) for name, seal in self.master.rest.items()]

    def _restore_lent(self) -> None:
        for name, seal in self.master.rest.items():
            if name not in self._images and seal.broken():
                seal.restore()

    def _hold(self, fields: dict[str, Any]) -> None:
        held = self.model.__dict__
        held.clear()
        held.update(fields)

    def touched(self) -> dict[tuple[str, str], str]:
        """Every record that is not the shared one, as text; one that is gone is ""."""
        rows = {}
        for name, table in self._tables.items():
            for key in table.own:
                record = table.get_quietly(key)
                rows[name, key] = "" if record is ABSENT else written(record)
        for name in self._own:
            rows[name, ""] = written(self.model.__dict__[name])
        return rows


def written(value: Any) -> str:
    """A value as text; two are the same when the reference's hash of their database says so."""
    try:
        return json.dumps(value, sort_keys=True, default=_plain)
    except (ValueError, TypeError) as err:  # a number too long to print, or keys that cannot be sorted
        return f"unprintable: {err}"


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):  # as text it would depend on the order in which it was filled
        return sorted(value, key=str)
    return value.model_dump(warnings=False) if hasattr(type(value), "__pydantic_fields__") else str(value)
