"""The reasoning patterns of the encyclopaedia's questions, by name: those that follow a path, those that select an
entity among others, and those whose answer is reckoned from numbers that were looked up."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from toolorchestra.envs.base.types import Answer, Question
from toolorchestra.envs.domains.frames.drafts import (
    DraftMaker,
    Ending,
    QuestionDraft,
    Step,
    Walk,
    any_ending,
    closing,
    drawn,
    entity_ending,
    hop,
    kind_of,
    named,
    number_answer,
    number_decoys,
    number_ending,
    question,
    random_walk,
)
from toolorchestra.envs.domains.frames.encyclopaedia import Encyclopaedia
from toolorchestra.envs.domains.frames.prose import WORDINGS


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
_WAYS_TO: Mapping[str, Sequence[tuple[str, str]]] = {
    "person": (("person", ""), ("work", "creator"), ("institution", "founder")),
    "institution": (("institution", ""), ("work", "holder"), ("person", "employer")),
    "town": (("town", ""), ("person", "birth"), ("institution", "location")),
    "work": (("work", ""),),
}
"""The kinds of named entities with the relations that lead to a kind; "" for its own name."""
_WAYS_TO_A_TOWN = (("town", ""), ("person", "birth"), ("person", "death"), ("institution", "location"))
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


def comparison(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    """Ask which of two entities comes first by a looked-up number; asks for its name or for a further property."""
    criterion = rng.choice(_CRITERIA)
    a, b = (_described(book, rng, _WAYS_TO[criterion.kind]) for _ in range(2))
    if a is None or b is None or set(a.visited) & set(b.visited):
        return None
    chosen = _chosen(book, rng, criterion, (a.doc_id, b.doc_id))
    if chosen is None:
        return None
    winner_id, called = chosen
    steps = tuple(step for walk in (a, b) for step in (*walk.steps, (walk.doc_id, criterion.relation)))
    lead = rng.choice(WORDINGS["pair"]).format(a=a.phrase, b=b.phrase, plural=_PLURALS[criterion.kind])
    which = f"the {criterion.kind} {called}"
    ending: Ending | None
    if a.steps and b.steps and rng.random() < 0.4:
        ending = Ending(rng.choice(WORDINGS["name"]).format(x=which), steps[-1], target_id=winner_id)
    else:
        ending = any_ending(book, rng, Walk(which, winner_id, visited=(*a.visited, *b.visited)))
        if ending is None or (ending.step[1] == criterion.relation and ending.target_id is None):
            return None
    return closing(book, rng, f"{lead} {ending.text}", steps, ending)


def superlative(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    """The extreme member of a list in a passage, and a property of that member."""
    owner_kind, relation = rng.choices(list(_MEMBER_LISTS), (5, 5, 2))[0]
    owner = drawn(book, rng, owner_kind)
    members = book.others(owner.doc_id, relation)
    if not 2 <= len(members) <= 4:
        return None
    criterion = rng.choice([c for c in _SUPERLATIVES if c.kind == kind_of(members[0])])
    chosen = _chosen(book, rng, criterion, members)
    if chosen is None:
        return None
    winner_id, which = chosen
    listed = _MEMBER_LISTS[owner_kind, relation].format(x=owner.phrase)
    lead = rng.choice(WORDINGS["superlative"]).format(members=listed, which=which)
    steps: tuple[Step, ...] = ((owner.doc_id, relation), *((member, criterion.relation) for member in members))
    ending: Ending | None
    if rng.random() < 0.3:
        ending = Ending(f"What is the name of this {criterion.kind}?", steps[-1], target_id=winner_id)
    else:
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
    lead = rng.choice(WORDINGS["intersection"]).format(town=town.phrase, prize=prize.phrase)
    person = Walk(
        "this person", person_id, ((town_id, "natives"), (prize_id, "laureates")), (town_id, prize_id, person_id)
    )
    walk = random_walk(book, rng, person, rng.choice((0, 0, 1, 1, 2)))
    if walk is None:
        return None
    ending = any_ending(book, rng, walk)
    return closing(book, rng, f"{lead} {ending.text}", walk.steps, ending) if ending else None


def _described(book: Encyclopaedia, rng: random.Random, ways: Sequence[tuple[str, str]]) -> Walk | None:
    """An entity that is called by its name, or as what a named entity leads to by a relation."""
    kind, relation = rng.choice(ways)
    start = drawn(book, rng, kind)
    return hop(book, rng, start, relation) if relation else start


def _chosen(
    book: Encyclopaedia, rng: random.Random, criterion: _Criterion, ids: Sequence[str]
) -> tuple[str, str] | None:
    """The id with the largest or the smallest number, and what it is called; None where two share it."""
    wants_most = rng.random() < 0.5
    numbers = {doc_id: book.number(doc_id, criterion.relation) or 0 for doc_id in ids}
    first, second, *_ = sorted(numbers, key=lambda doc_id: numbers[doc_id], reverse=wants_most)
    called = criterion.most if wants_most else criterion.least
    return (first, called) if numbers[first] != numbers[second] else None


def date_arithmetic(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    """The years between two dates, each of a named entity or of one that must be found first."""
    (phrase_a, steps_a, year_a), (phrase_b, steps_b, year_b) = (_date(book, rng) for _ in range(2))
    span_years = abs(year_a - year_b)
    if span_years == 0:
        return None
    text = rng.choice(WORDINGS["span"]).format(a=phrase_a, b=phrase_b)
    # Off by one, by a decade or by a century: the slips of a subtraction done in the head.
    slips = [span_years + n for n in (-100, -10, -1, 1, 10, 100) if span_years + n > 0]
    decoys = tuple(map(str, rng.sample(slips, 3)))
    answer = number_answer(span_years, "years")
    return QuestionDraft(text, (*steps_a, *steps_b), answer, decoys, computable=True)


def count_and_extreme(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    """How many works of a person or a collection lie on one side of a year, and the farthest year: no count alone."""
    relation, kind = rng.choice((("works", "person"), ("holdings", "institution")))
    owner = drawn(book, rng, kind)
    work_ids = book.others(owner.doc_id, relation)
    years = [book.works[i].completed_year for i in work_ids]
    if not 2 <= len(years) <= 4 or len(set(years)) < len(years):
        return None
    # Both sides: the latest of several works alone would make late years a good guess.
    side, extreme = rng.choice((("after", "latest"), ("before", "earliest")))
    years.sort(reverse=side == "after")
    count = rng.randint(1, len(years))
    things = _MEMBER_LISTS[kind, relation].format(x=owner.phrase)
    wording, year = rng.choice(WORDINGS["count"]), _year_beyond(rng, years, count)
    text = wording.format(things=things, side=side, extreme=extreme, year=year)
    answer = Answer(f"{count}; {years[0]}", kind="exact", aliases=(f"{count};{years[0]}", f"{count}, {years[0]}"))
    other_count = count - 1 if count > 1 else count + 1
    decoys = (f"{other_count}; {years[0]}", f"{count}; {rng.choice(years[1:])}", f"{count + 2}; {years[0]}")
    steps = ((owner.doc_id, relation), *((work_id, "completion") for work_id in work_ids))
    return QuestionDraft(text, steps, answer, decoys, computable=True)


def population_sum(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    """The inhabitants of two or three towns together, some of which must be found first."""
    walks = [_described(book, rng, _WAYS_TO_A_TOWN) for _ in range(rng.choice((2, 2, 3)))]
    towns = [walk for walk in walks if walk is not None]
    ids = [walk.doc_id for walk in towns]
    if len(towns) < len(walks) or len(set(ids)) < len(ids) or not any(walk.steps for walk in towns):
        return None
    steps = tuple(step for walk in towns for step in (*walk.steps, (walk.doc_id, "population")))
    populations = [book.towns[i].population for i in ids]
    total = sum(populations)
    phrases = [walk.phrase for walk in towns]
    listed = f"{', '.join(phrases[:-1])} and {phrases[-1]}"
    return QuestionDraft(
        rng.choice(WORDINGS["sum"]).format(towns=listed),
        steps,
        number_answer(total, "inhabitants"),
        number_decoys(rng, total, [total - n for n in populations]),
        computable=True,
    )


def _date(book: Encyclopaedia, rng: random.Random) -> tuple[str, tuple[Step, ...], int]:
    """A phrase for a date, the steps to it, and its year."""
    while True:
        start = drawn(book, rng, rng.choice(("work", "person", "institution", "prize", "town")))
        walk = random_walk(book, rng, start, rng.choice((0, 1)))
        phrases = WORDINGS["dates"].get(kind_of(walk.doc_id)) if walk else None
        if walk is None or not phrases:
            continue
        relation = rng.choice(list(phrases))
        year = book.number(walk.doc_id, relation)
        if year is not None:
            phrase = phrases[relation].format(x=walk.phrase)
            return phrase, (*walk.steps, (walk.doc_id, relation)), year


def _year_beyond(rng: random.Random, years: list[int], count: int) -> int:
    """A year that the first `count` of the sorted years lie beyond, and the others do not."""
    inner = years[count - 1]
    toward_rest = -1 if years[0] > years[-1] else 1
    gap_years = abs(years[count] - inner) if count < len(years) else 12
    return inner + toward_rest * rng.randint(1, gap_years)


# Prizes and institutions are few: started from often, they would lead to the same answers again and again.
_START_WEIGHTS = {"work": 9, "person": 7, "institution": 3, "prize": 1}


def _path(book: Encyclopaedia, rng: random.Random, *, hops: int, asks: str) -> QuestionDraft | None:
    kind = rng.choices(list(_START_WEIGHTS), list(_START_WEIGHTS.values()))[0]
    walk = random_walk(book, rng, drawn(book, rng, kind), hops)
    if walk is None:
        return None
    if asks == "date":
        ending = number_ending(book, rng, walk, dates_only=True)
    elif asks == "name":
        ending = entity_ending(book, rng, walk)
    else:
        ending = any_ending(book, rng, walk)
    return closing(book, rng, ending.text, walk.steps, ending) if ending else None


def _bridge_name(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    return _path(book, rng, hops=rng.choice((1, 2)), asks="name")


_MAKERS: Mapping[str, DraftMaker] = {
    "bridge_date": partial(_path, hops=1, asks="date"),
    "bridge_name": _bridge_name,
    "chain_of_four": partial(_path, hops=3, asks="any"),
    "chain_of_five": partial(_path, hops=4, asks="any"),
    "date_arithmetic": date_arithmetic,
    "comparison": comparison,
    "count": count_and_extreme,
    "intersection": intersection,
    "superlative": superlative,
    "population_sum": population_sum,
}

PATTERNS: Mapping[str, Callable[[Encyclopaedia, random.Random], Question]] = MappingProxyType(
    {name: partial(question, name, make) for name, make in _MAKERS.items()}
)
"""Draws a question of the pattern. The same encyclopaedia and generator state give the same question."""
