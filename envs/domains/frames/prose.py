"""What the encyclopaedia states: the kinds of entities, as frozen records that refer to each other by id, and the
sentences and search words about each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any


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


WORK_KIND_OF_OCCUPATION: Mapping[str, str] = {
    "novelist": "novel",
    "composer": "symphony",
    "painter": "painting",
    "philosopher": "treatise",
}
OTHER_OCCUPATIONS = ("astronomer", "physician", "botanist", "jurist", "engineer", "explorer", "geographer", "chemist")

WORDINGS: Mapping[str, Any] = json.loads(
    (resources.files("toolorchestra.envs") / "data" / "frames.json").read_text(encoding="utf-8")
)
"""The words of the encyclopaedia and of its questions: sentences and searches by relation, questions by the kind of
entity and the relation that they ask about."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing stated about an entity: a relation to other entities (by id), a number, or both."""

    relation: str
    other_ids: tuple[str, ...] = ()
    number: int | None = None


def statements(entity: Entity) -> tuple[Statement, ...]:
    """Everything that the entity's passage states, in the passage's order."""
    return tuple(s for s in _all_statements(entity) if s.other_ids or s.number is not None)


def _all_statements(entity: Entity) -> Iterator[Statement]:
    match entity:
        case Town():
            yield Statement("river", (entity.river_id,))
            yield Statement("founding", (), entity.founded_year)
            yield Statement("population", (), entity.population)
            yield Statement("natives", entity.native_ids)
        case River():
            yield Statement("length", (), entity.length_km)
            yield Statement("towns", entity.town_ids)
        case Person():
            yield Statement("birth", (entity.birth_town_id,), entity.birth_year)
            yield Statement("teacher", _optional(entity.teacher_id))
            yield Statement("employer", _optional(entity.employer_id))
            yield Statement("honour", _optional(entity.prize_id), entity.prize_year)
            yield Statement("works", entity.work_ids)
            yield Statement("death", (entity.death_town_id,), entity.death_year)
        case Work():
            yield Statement("creator", (entity.creator_id,))
            yield Statement("completion", (), entity.completed_year)
            yield Statement("price", (), entity.price_crowns)
            yield Statement("holder", _optional(entity.holder_id))
        case Institution():
            yield Statement("founder", (entity.founder_id,))
            yield Statement("location", (entity.town_id,))
            yield Statement("opening", (), entity.opened_year)
            yield Statement("holdings", entity.holding_ids)
        case Prize():
            yield Statement("first_award", (), entity.first_year)
            yield Statement("awarding", (entity.institution_id,))
            yield Statement("laureates", entity.laureate_ids)


def sentence(entity: Entity, statement: Statement, names: Mapping[str, str], rng: random.Random) -> str:
    """The statement as a sentence that names its subject, so that it is evidence on its own."""
    template = rng.choice(WORDINGS["sentences"][statement.relation])
    others = _enumerate([names[other] for other in statement.other_ids])
    return capitalised(template.format(name=entity.name, others=others, number=statement.number, noun=_noun(entity)))


def colour(entity: Entity, rng: random.Random) -> tuple[str, ...]:
    """Sentences that no question is about."""
    lines: list[str] = []
    if isinstance(entity, River):
        lines.append(rng.choice(WORDINGS["source"]).format(name=entity.name, highland=entity.highland))
    lines.append(rng.choice(WORDINGS["colour"][entity.doc_id.partition("/")[0]]).format(name=entity.name))
    return tuple(lines)


def _optional(doc_id: str | None) -> tuple[str, ...]:
    return () if doc_id is None else (doc_id,)


def _noun(entity: Entity) -> str:
    word = entity.occupation if isinstance(entity, Person) else entity.kind if isinstance(entity, Work) else ""
    return f"{'an' if word[:1] in tuple('aeiou') else 'a'} {word}"


def _enumerate(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
