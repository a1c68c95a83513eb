"""Identity of states by content: two episodes ended in the same place when the same rows say the same things."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from toolorchestra.envs.sqldomain.database import Session
from toolorchestra.envs.sqldomain.domain import Value

NEW = "\x00new"


def digest(session: Session) -> str:
    """A name for the difference from the seed rows; "unchanged" when there is none.

    Ids made during the episode count only as references: which of two bookings was made first does not matter.
    """
    changes = session.changes()
    if not changes:
        return "unchanged"
    tables = session.database.domain.tables
    fresh: dict[Value, str] = {}
    inserted = []
    for name, before, now in changes:
        if before is None and now is not None:
            key = now[tables[name].columns.index(tables[name].key)]
            inserted.append((name, key, now))
            fresh[key] = NEW
    order = sorted(inserted, key=lambda row: _text(row[0], None, row[2], fresh))
    fresh.update({key: f"{NEW}{place}" for place, (_, key, _) in enumerate(order)})
    lines = sorted(_text(name, before, now, fresh) for name, before, now in changes)
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=12).hexdigest()


def _text(name: str, before: Iterable[Value] | None, now: Iterable[Value] | None, fresh: Mapping[Value, str]) -> str:
    after = None if now is None else [fresh.get(value, value) if isinstance(value, str) else value for value in now]
    return json.dumps([name, None if before is None else list(before), after])
