"""A copy of a record shares nothing with it that can change."""

from __future__ import annotations

import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, PrivateAttr

from toolorchestra.envs.domains.tau2.domain import clone, written


class Card(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str
    day: datetime.date
    tags: set[str]
    parts: tuple[list[int], ...] = ()
    inner: dict[str, Any] = {}
    _seen: list[int] = PrivateAttr(default_factory=list)


def made() -> Card:
    day = datetime.date(2025, 1, 2)
    card = Card.model_validate({"name": "a", "day": day, "tags": {"x"}, "parts": ([1],), "more": [1]})
    card._seen.append(1)
    return card


def test_nothing_that_can_change_is_shared() -> None:
    card = made()
    copied: Any = clone(card)
    assert copied == card
    assert written(copied) == written(card)
    assert copied.day is card.day
    copied.tags.add("y")
    copied.parts[0].append(2)
    copied.inner = {"set": 1}
    copied.more.append(2)
    copied._seen.append(2)
    assert card == made()
    assert card.model_fields_set == made().model_fields_set != copied.model_fields_set


def test_a_set_is_written_in_one_order() -> None:
    texts = {written(Card(name="a", day=datetime.date(2025, 1, 2), tags=set(tags))) for tags in ("abcdef", "fedcba")}
    assert len(texts) == 1
    assert '["a", "b", "c", "d", "e", "f"]' in texts.pop()
