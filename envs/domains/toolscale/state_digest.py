"""Identity of states by content: two episodes ended in the same place when the same rows say the same things.

New rows are numbered by what they say without the ids that the episode made; where that is alike, by the rows that they
refer to and that refer to them. Not covered: more than MOST_TRIED rows that are alike in all of this while their
references form rings of several shapes.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.envs.domains.toolscale.database import Change, DatabaseSession
from toolorchestra.envs.domains.toolscale.sql_domain import Value

NEW = "\x00new"
MOST_TRIED = 8
"""Limit of rows tried: up to so many that nothing tells apart are each tried as the first of them; where no references
form a ring, the tries agree."""
Links = Sequence[Sequence[tuple[int, int]]]
"""References of each changed row to new rows and, with the column inverted, those to it: the column, the other."""


def digest(session: DatabaseSession) -> str:
    """A name for the difference from the seed rows; "unchanged" when there is none.

    Ids made during the episode count only as references: which of two bookings was made first does not matter.
    """
    changes = session.changes()
    if not changes:
        return "unchanged"
    tables = session.database.domain.tables
    made = {
        row: now[tables[name].columns.index(tables[name].key)]
        for row, (name, before, now) in enumerate(changes)
        if before is None and now is not None
    }
    ranks = _ranked(changes, made)
    order = sorted(made, key=ranks.__getitem__)
    lines = _lines(changes, {made[row]: f"{NEW}{place}" for place, row in enumerate(order)})
    return hashlib.blake2b("\n".join(sorted(lines)).encode(), digest_size=12).hexdigest()


def _lines(changes: Sequence[Change], fresh: Mapping[Value, str]) -> list[str]:
    lines = []
    for name, before, now in changes:
        after = now and [fresh.get(value, value) if isinstance(value, str) else value for value in now]
        lines.append(json.dumps([name, before and list(before), after]))
    return lines


def _ranked(changes: Sequence[Change], made: Mapping[int, Value]) -> list[int]:
    """Ranks of the changed rows by what they say. Equal ones are left only where either order says the same."""
    ranks = _dense(_lines(changes, dict.fromkeys(made.values(), NEW)))
    if len(set(ranks)) == len(ranks):
        return ranks
    links = _links(changes, made)
    ranks = _refined(ranks, links)
    while tied := _tied(ranks, links):
        tries = [
            _refined([2 * rank - (other == row) for other, rank in enumerate(ranks)], links)
            for row in (tied if len(tied) <= MOST_TRIED else tied[:1])
        ]
        ranks = min(tries, key=lambda tried: sorted(_lines(changes, {k: f"{NEW}{tried[r]}" for r, k in made.items()})))
    return ranks


def _dense(values: Sequence[Any]) -> list[int]:
    places = {value: place for place, value in enumerate(sorted(set(values)))}
    return [places[value] for value in values]


def _links(changes: Sequence[Change], made: Mapping[int, Value]) -> Links:
    owners: dict[Value, list[int]] = {}
    for row, key in made.items():
        owners.setdefault(key, []).append(row)
    links: list[list[tuple[int, int]]] = [[] for _ in changes]
    for row, (_, _, now) in enumerate(changes):
        for column, value in enumerate(now or ()):
            for other in owners.get(value, ()) if isinstance(value, str) else ():
                if other != row:
                    links[row].append((column, other))
                    links[other].append((~column, row))
    return links


def _refined(ranks: Sequence[int], links: Links) -> list[int]:
    """Equal ranks told apart by the ranks of the linked rows, until that tells no more apart."""
    while True:
        finer = _dense(
            [
                (rank, tuple(sorted((column, ranks[other]) for column, other in linked)))
                for rank, linked in zip(ranks, links, strict=True)
            ]
        )
        if len(set(finer)) == len(set(ranks)):
            return finer
        ranks = finer


def _tied(ranks: Sequence[int], links: Links) -> list[int]:
    """The first equal rows that are linked to equal ones: which of them comes first may show in the other's line."""
    count = Counter(ranks)
    tied = [
        row
        for row, linked in enumerate(links)
        if count[ranks[row]] > 1 and any(count[ranks[other]] > 1 for _, other in linked)
    ]
    first = min((ranks[row] for row in tied), default=0)
    return [row for row in tied if ranks[row] == first]
