"""What the encyclopaedia states: the kinds of entities, as frozen records that refer to each other by id, and the
sentences and search words about each."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
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


WORK_KIND_OF_OCCUPATION: Mapping[str, str] = {
    "novelist": "novel",
    "composer": "symphony",
    "painter": "painting",
    "philosopher": "treatise",
}
OTHER_OCCUPATIONS = ("astronomer", "physician", "botanist", "jurist", "engineer", "explorer", "geographer", "chemist")

_LIST_SENTENCES = {
    "natives": (
        "The recorded natives of {name} are {others}.",
        "In the registers of {name}, the following people appear as natives: {others}.",
    ),
    "towns": (
        "The towns on the river {name} are {others}.",
        "On its way the river {name} passes the towns of {others}.",
    ),
    "works": (
        "The surviving works of {name} are {others}.",
        "The catalogue of works by {name} consists of {others}.",
        "The works that {name} left behind are {others}.",
    ),
    "holdings": (
        "The collection of {name} consists of {others}.",
        "The works held in the collection of {name} are {others}.",
    ),
    "laureates": (
        "The laureates of the {name} are {others}.",
        "So far the {name} has had these laureates: {others}.",
    ),
}
_LINK_SENTENCES = {
    "river": ("{name} stands on the river {others}.", "The river {others} flows through {name}."),
    "teacher": (
        "{name} was taught by {others}.",
        "{name} studied under {others}, who was the only teacher of {name}.",
        "The teacher of {name} was {others}.",
    ),
    "employer": (
        "{name} worked as {noun} at {others}.",
        "{name}, {noun}, spent a whole working life at {others}.",
        "For decades {others} employed {name} as {noun}.",
    ),
    "creator": (
        "{name} is {noun} by {others}.",
        "{others} is the creator of {name}, {noun}.",
        "Scholars agree that {name}, {noun}, was created by {others}.",
    ),
    "holder": (
        "{name} is held in the collection of {others}.",
        "Today {others} keeps {name}.",
        "Visitors can see {name} at {others}.",
    ),
    "founder": (
        "{name} was founded by {others}.",
        "The founder of {name} was {others}.",
        "{others} was the founder of {name}.",
    ),
    "location": (
        "{name} is located in {others}.",
        "The buildings of {name} stand in the town of {others}.",
        "The town of {others} is the home of {name}.",
    ),
    "awarding": (
        "The {name} is awarded by {others}.",
        "The jury of the {name} is appointed by {others}, which awards it.",
    ),
}
_NUMBER_SENTENCES = {
    "birth": (
        "{name} was born in {others} in {number}.",
        "In {number}, {name} was born in the town of {others}.",
        "{name}, {noun}, was born at {others} in the year {number}.",
    ),
    "death": (
        "{name} died in {others} in {number}.",
        "In {number}, {name} died in the town of {others}.",
        "The death of {name} occurred at {others} in {number}.",
    ),
    "honour": ("{name} received the {others} in {number}.", "In {number}, {name} was awarded the {others}."),
    "founding": (
        "{name} was founded in {number}.",
        "The founding charter of {name} dates from {number}.",
        "Settlers founded {name} in the year {number}.",
    ),
    "population": (
        "{name} has a population of {number}.",
        "The population of {name} is {number} inhabitants.",
        "At the last census {name} had a population of {number}.",
    ),
    "length": (
        "The river {name} is {number} kilometres long.",
        "The length of the river {name} is {number} kilometres.",
    ),
    "completion": (
        "{name} was completed in {number}.",
        "The year of completion of {name} is {number}.",
        "Work on {name} was completed in the year {number}.",
    ),
    "price": (
        "{name} was sold for a price of {number} crowns.",
        "At its only auction {name} fetched a price of {number} crowns.",
    ),
    "opening": (
        "{name} opened in {number}.",
        "{name} opened its doors in the year {number}.",
        "The official opening of {name} took place in {number}.",
    ),
    "first_award": ("The {name} was first awarded in {number}.", "The first award of the {name} was made in {number}."),
}
_COLOUR_SENTENCES: Mapping[str, tuple[str, ...]] = {
    "person": (
        "Many letters of {name} survive.",
        "A portrait of {name} is lost.",
        "{name} is said to have travelled widely.",
    ),
    "town": (
        "Travellers know {name} for its covered market.",
        "{name} is proud of its glassblowers and of its autumn fair.",
        "Much of {name} was rebuilt in brick after a fire.",
        "The old walls of {name} are still standing.",
    ),
    "river": (
        "In spring the river {name} often floods its lower meadows.",
        "Barges carry timber and salt down the river {name}.",
        "Anglers value the river {name} for its trout.",
    ),
    "work": (
        "Critics have praised {name} for its restraint.",
        "{name} was coldly received at first and is admired today.",
        "Several copies of {name} by other hands are known.",
        "{name} has been the subject of three monographs.",
    ),
    "institution": (
        "{name} is governed by a council of seven.",
        "Admission to {name} is free on feast days.",
        "{name} publishes a yearbook.",
    ),
    "prize": (
        "The {name} consists of a purse and a certificate.",
        "Nobody may receive the {name} twice.",
        "The {name} is presented at a public dinner.",
    ),
}
_SOURCE_SENTENCES = (
    "The river {name} rises in the {highland} Hills.",
    "The springs of the river {name} lie in the {highland} Hills.",
)
_SENTENCES: Mapping[str, tuple[str, ...]] = {**_LIST_SENTENCES, **_LINK_SENTENCES, **_NUMBER_SENTENCES}
SEARCH_WORDS: Mapping[str, str] = {
    **{relation: relation for relation in _SENTENCES},
    "natives": "recorded natives",
    "towns": "towns on the river",
    "works": "surviving works",
    "holdings": "works in the collection",
    "creator": "created by",
    "holder": "held in the collection of",
    "location": "located in town",
    "awarding": "awarded by",
    "birth": "born",
    "death": "died",
    "honour": "received awarded",
    "founding": "founded year",
    "completion": "completed year",
    "price": "sold price crowns",
    "opening": "opened year",
    "first_award": "first awarded",
}


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
    template = rng.choice(_SENTENCES[statement.relation])
    others = _enumerate([names[other] for other in statement.other_ids])
    return _capitalised(template.format(name=entity.name, others=others, number=statement.number, noun=_noun(entity)))


def colour(entity: Entity, rng: random.Random) -> tuple[str, ...]:
    """Sentences that no question is about."""
    lines: list[str] = []
    if isinstance(entity, River):
        lines.append(rng.choice(_SOURCE_SENTENCES).format(name=entity.name, highland=entity.highland))
    choices = _COLOUR_SENTENCES.get(entity.doc_id.partition("/")[0])
    if choices:
        lines.append(rng.choice(choices).format(name=entity.name))
    return tuple(lines)


def _optional(doc_id: str | None) -> tuple[str, ...]:
    return () if doc_id is None else (doc_id,)


def _noun(entity: Entity) -> str:
    word = entity.occupation if isinstance(entity, Person) else entity.kind if isinstance(entity, Work) else ""
    return f"{'an' if word[:1] in tuple('aeiou') else 'a'} {word}"


def _enumerate(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
