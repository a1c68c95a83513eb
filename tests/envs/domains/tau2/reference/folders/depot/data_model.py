"""What the depot knows."""

from datetime import datetime
from enum import Enum
from typing import Literal

from pydantic import BaseModel, Field
from tau2.environment.db import DB


class Grade(str, Enum):  # noqa: UP042 - as the reference's own
    """How worn an item is."""

    NEW = "new"
    USED = "used"


class Item(BaseModel):
    """A thing that can be rented."""

    item_id: str
    name: str
    status: Literal["in", "out"]
    grade: Grade
    usd_per_day: float
    bought_at: datetime


class Member(BaseModel):
    """Who may rent."""

    member_id: str
    email: str
    balance_usd: float
    notes: list[str] = Field(default_factory=list)
    tags: set[str] = Field(default_factory=set)


class Rental(BaseModel):
    """One item, out with one member."""

    rental_id: str
    member_id: str
    item_id: str
    started_at: datetime
    due_on: str
    locker: int
    open: bool = True


class DepotDB(DB):
    """The depot's database. `hours` and `holidays` are no tables."""

    items: dict[str, Item]
    members: dict[str, Member]
    rentals: dict[str, Rental]
    holidays: list[str]
    hours: dict[str, str]
    fee_usd: float
