"""The kinds of things that the fictional encyclopaedia describes, as frozen records that refer to each other by id."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class River:
    doc_id: str
    name: str
    length_km: int
    highland: str
    town_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Town:
    doc_id: str
    name: str
    river_id: str
    founded_year: int
    population: int
    native_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Person:
    doc_id: str
    name: str
    occupation: str
    birth_year: int
    birth_town_id: str
    death_year: int
    death_town_id: str
    teacher_id: str | None = None
    employer_id: str | None = None
    prize_id: str | None = None
    prize_year: int | None = None
    work_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Institution:
    doc_id: str
    name: str
    town_id: str
    founder_id: str
    opened_year: int
    holding_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    doc_id: str
    name: str
    kind: str
    creator_id: str
    completed_year: int
    price_crowns: int
    holder_id: str | None = None


@dataclass(frozen=True, slots=True)
class Prize:
    doc_id: str
    name: str
    institution_id: str
    first_year: int
    laureate_ids: tuple[str, ...] = ()


Entity = River | Town | Person | Institution | Work | Prize
