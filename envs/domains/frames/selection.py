"""The question patterns that first select an entity among others: by comparing two, by a superlative, by two lists."""

from __future__ import annotations

import random
from typing import NamedTuple

from toolorchestra.envs.domains.frames.drafts import QuestionDraft, closing, entity_answer, entity_decoys
from toolorchestra.envs.domains.frames.encyclopaedia import Encyclopaedia
from toolorchestra.envs.domains.frames.phrases import Step, Walk, any_ending, hop, kind_of, named, random_walk


class _Criterion(NamedTuple):
    """A number by which entities of a kind are compared, and what the ones with the least and the most are called."""

    kind: str
    relation: str
    least: str
    most: str


_CRITERIA = (
    _Criterion("person", "birth", "born first", "born last"),
    _Criterion("person", "death", "who died first", "who died last"),
    _Criterion("institution", "opening", "that opened first", "that opened last"),
    _Criterion("town", "population", "with the smaller population", "with the larger population"),
    _Criterion("town", "founding", "that was founded first", "that was founded last"),
    _Criterion("work", "completion", "that was completed first", "that was completed last"),
    _Criterion("work", "price", "that was sold for the lower price", "that was sold for the higher price"),
)
_PAIR_WORDINGS = ("Consider {a} and {b}.", "Compare {a} with {b}.", "Here are two {plural} to look up: {a}, and {b}.")
_NAME_WORDINGS = (
    "What is the name of {x}?",
    "Name {x}.",
    "Look up both, and give the full name of {x}.",
)
_PLURALS = {"person": "people", "institution": "institutions", "town": "towns", "work": "works"}

_MEMBER_LISTS = {
    ("person", "works"): "the surviving works of {x}",
    ("institution", "holdings"): "the works held by {x}",
    ("river", "towns"): "the towns on the river {x}",
}
_SUPERLATIVES = (
    _Criterion("work", "completion", "the earliest completed one", "the latest completed one"),
    _Criterion("work", "price", "the one sold for the lowest price", "the one sold for the highest price"),
    _Criterion("town", "population", "the one with the smallest population", "the one with the largest population"),
    _Criterion("town", "founding", "the one that was founded earliest", "the one that was founded latest"),
)
_SUPERLATIVE_WORDINGS = (
    "Among {members}, find {which}.",
    "Of all {members}, choose {which}.",
    "Look at {members} and pick {which}.",
)
_INTERSECTION_WORDINGS = (
    "Exactly one person is both a recorded native of {town} and a laureate of {prize}.",
    "One laureate of {prize} was born in {town}.",
    "Among the recorded natives of {town} there is one laureate of {prize}.",
)


def comparison(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    """Which of two entities comes first by a looked-up number; asks for its name or for a further property."""
    criterion = rng.choice(_CRITERIA)
    pair = [_described(book, rng, criterion.kind) for _ in range(2)]
    a, b = pair
    if a is None or b is None or set(a.visited) & set(b.visited):
        return None
    numbers = {walk.doc_id: book.number(walk.doc_id, criterion.relation) or 0 for walk in (a, b)}
    steps: tuple[Step, ...] = ()
    for walk in (a, b):
        steps = (*steps, *walk.steps, (walk.doc_id, criterion.relation))
    wants_most = rng.random() < 0.5
    winner_id = _extreme(numbers, wants_most=wants_most)
    if winner_id is None:
        return None
    lead = rng.choice(_PAIR_WORDINGS).format(a=a.phrase, b=b.phrase, plural=_PLURALS[criterion.kind])
    which = f"the {criterion.kind} {criterion.most if wants_most else criterion.least}"
    if a.steps and b.steps and rng.random() < 0.4:
        text = f"{lead} {rng.choice(_NAME_WORDINGS).format(x=which)}"
        return QuestionDraft(text, steps, entity_answer(book, winner_id), entity_decoys(book, rng, winner_id, steps))
    ending = any_ending(book, rng, Walk(which, winner_id, visited=(*a.visited, *b.visited)))
    if ending is None or (ending.step[1] == criterion.relation and ending.target_id is None):
        return None
    return closing(book, rng, f"{lead} {ending.text}", steps, ending)


def superlative(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    """The extreme member of a list in a passage, and a property of that member."""
    owner_kind, relation = rng.choices(list(_MEMBER_LISTS), (5, 5, 2))[0]
    owner = named(book, rng.choice(book.ids_by_kind[owner_kind]))
    members = book.others(owner.doc_id, relation)
    if not 2 <= len(members) <= 4:
        return None
    criterion = rng.choice([c for c in _SUPERLATIVES if c.kind == kind_of(members[0])])
    numbers = {member: book.number(member, criterion.relation) or 0 for member in members}
    wants_most = rng.random() < 0.5
    winner_id = _extreme(numbers, wants_most=wants_most)
    if winner_id is None:
        return None
    lead = rng.choice(_SUPERLATIVE_WORDINGS).format(
        members=_MEMBER_LISTS[owner_kind, relation].format(x=owner.phrase),
        which=criterion.most if wants_most else criterion.least,
    )
    steps: tuple[Step, ...] = ((owner.doc_id, relation), *((member, criterion.relation) for member in members))
    if rng.random() < 0.3:
        text = f"{lead} What is the name of this {criterion.kind}?"
        return QuestionDraft(text, steps, entity_answer(book, winner_id), entity_decoys(book, rng, winner_id, steps))
    ending = any_ending(book, rng, Walk(f"this {criterion.kind}", winner_id, visited=(owner.doc_id, *members)))
    if ending is None or ending.step[1] == criterion.relation:
        return None
    return closing(book, rng, f"{lead} {ending.text}", steps, ending)


def intersection(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    """The one person on a town's list of natives and on a prize's list of laureates, and something further on."""
    prize_id = rng.choice(book.ids_by_kind["prize"])
    laureate_ids = book.prizes[prize_id].laureate_ids
    person_id = rng.choice(laureate_ids)
    town_id = book.people[person_id].birth_town_id
    if set(book.towns[town_id].native_ids) & set(laureate_ids) != {person_id}:
        return None
    town, prize = named(book, town_id), named(book, prize_id)
    lead = rng.choice(_INTERSECTION_WORDINGS).format(town=town.phrase, prize=prize.phrase)
    person = Walk(
        "this person", person_id, ((town_id, "natives"), (prize_id, "laureates")), (town_id, prize_id, person_id)
    )
    walk = random_walk(book, rng, person, rng.choice((0, 0, 1, 1, 2)))
    if walk is None:
        return None
    ending = any_ending(book, rng, walk)
    return closing(book, rng, f"{lead} {ending.text}", walk.steps, ending) if ending else None


def _described(book: Encyclopaedia, rng: random.Random, kind: str) -> Walk | None:
    """An entity of the kind, called by its name or as what a named entity leads to."""
    leading = [("work", "creator"), ("institution", "founder")] if kind == "person" else []
    if kind == "institution":
        leading = [("work", "holder"), ("person", "employer")]
    if kind == "town":
        leading = [("person", "birth"), ("institution", "location")]
    start_kind, relation = rng.choice([(kind, ""), *leading])
    start = named(book, rng.choice(book.ids_by_kind[start_kind]))
    return hop(book, rng, start, relation) if relation else start


def _extreme(numbers: dict[str, int], *, wants_most: bool) -> str | None:
    """The id with the largest or the smallest number; None where two share it."""
    ranked = sorted(numbers.items(), key=lambda item: item[1], reverse=wants_most)
    return ranked[0][0] if ranked[0][1] != ranked[1][1] else None
