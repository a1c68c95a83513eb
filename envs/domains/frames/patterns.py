"""The reasoning patterns of the encyclopaedia's questions, by name: those that follow a path, those that select an
entity among others, and those whose answer is reckoned from numbers that were looked up."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from toolorchestra.envs.base.types import Answer, Question
from toolorchestra.envs.domains.frames.drafts import (
    DATE_PHRASES,
    DraftMaker,
    QuestionDraft,
    Step,
    Walk,
    any_ending,
    closing,
    entity_answer,
    entity_decoys,
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
    """Ask which of two entities comes first by a looked-up number; asks for its name or for a further property."""
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


_SPAN_WORDINGS = (
    "How many years lie between {a} and {b}? Answer with a number of years.",
    "By how many years are these two events apart: {a}, and {b}?",
    "Find the year of {a} and the year of {b}. What is the difference between the two, in years?",
    "Count the years from the earlier to the later of these events: {a}; {b}.",
)
_COUNT_WORDINGS = (
    "How many of {things} were completed {side} {year}, and in which year was the {extreme} of them completed? "
    "Answer with the count and the year, as two numbers with a semicolon between them.",
    "Take {things}. Give the number of those completed {side} {year} and the year of completion of the {extreme} "
    "one, in the form: count; year.",
    "Of {things}, count those with a year of completion {side} {year}, and find the {extreme} such year. "
    "Write the count, a semicolon, and the year.",
)
_SUM_WORDINGS = (
    "What is the sum of the populations of {towns}?",
    "How many inhabitants do {towns} have together?",
    "Add up the populations of {towns}. Answer with the total number of inhabitants.",
)


def date_arithmetic(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    """The years between two dates, each of a named entity or of one that must be found first."""
    dates = [_date(book, rng) for _ in range(2)]
    (phrase_a, steps_a, year_a), (phrase_b, steps_b, year_b) = dates
    span_years = abs(year_a - year_b)
    if span_years == 0:
        return None
    steps = (*steps_a, *steps_b)
    return QuestionDraft(
        rng.choice(_SPAN_WORDINGS).format(a=phrase_a, b=phrase_b),
        steps,
        number_answer(span_years, "years"),
        _span_decoys(rng, span_years),
        computable=True,
    )


def count_and_extreme(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    """How many works of a person or a collection lie on one side of a year, and the farthest year: no count alone."""
    relation, kind = rng.choice((("works", "person"), ("holdings", "institution")))
    owner = named(book, rng.choice(book.ids_by_kind[kind]))
    work_ids = book.others(owner.doc_id, relation)
    years = [book.works[i].completed_year for i in work_ids]
    if not 2 <= len(years) <= 4 or len(set(years)) < len(years):
        return None
    # Both sides: the latest of several works alone would make late years a good guess.
    side, extreme = rng.choice((("after", "latest"), ("before", "earliest")))
    years.sort(reverse=side == "after")
    count = rng.randint(1, len(years))
    things = f"the surviving works of {owner.phrase}" if kind == "person" else f"the works held by {owner.phrase}"
    text = rng.choice(_COUNT_WORDINGS).format(
        things=things, side=side, extreme=extreme, year=_year_beyond(rng, years, count)
    )
    answer = Answer(f"{count}; {years[0]}", kind="exact", aliases=(f"{count};{years[0]}", f"{count}, {years[0]}"))
    other_count = count - 1 if count > 1 else count + 1
    decoys = (f"{other_count}; {years[0]}", f"{count}; {rng.choice(years[1:])}", f"{count + 2}; {years[0]}")
    steps = ((owner.doc_id, relation), *((work_id, "completion") for work_id in work_ids))
    return QuestionDraft(text, steps, answer, decoys, computable=True)


def population_sum(book: Encyclopaedia, rng: random.Random) -> QuestionDraft | None:
    """The inhabitants of two or three towns together, some of which must be found first."""
    walks = [_town(book, rng) for _ in range(rng.choice((2, 2, 3)))]
    towns = [walk for walk in walks if walk is not None]
    ids = [walk.doc_id for walk in towns]
    if len(towns) < len(walks) or len(set(ids)) < len(ids) or not any(walk.steps for walk in towns):
        return None
    steps: tuple[Step, ...] = ()
    for walk in towns:
        steps = (*steps, *walk.steps, (walk.doc_id, "population"))
    populations = [book.towns[i].population for i in ids]
    total = sum(populations)
    phrases = [walk.phrase for walk in towns]
    listed = f"{', '.join(phrases[:-1])} and {phrases[-1]}"
    return QuestionDraft(
        rng.choice(_SUM_WORDINGS).format(towns=listed),
        steps,
        number_answer(total, "inhabitants"),
        number_decoys(rng, total, [total - n for n in populations]),
        computable=True,
    )


def _date(book: Encyclopaedia, rng: random.Random) -> tuple[str, tuple[Step, ...], int]:
    """A phrase for a date, the steps to it, and its year."""
    while True:
        start = named(
            book, rng.choice(book.ids_by_kind[rng.choice(("work", "person", "institution", "prize", "town"))])
        )
        walk = random_walk(book, rng, start, rng.choice((0, 1)))
        relations = [r for kind, r in DATE_PHRASES if walk and kind == kind_of(walk.doc_id)]
        if walk is None or not relations:
            continue
        relation = rng.choice(relations)
        year = book.number(walk.doc_id, relation)
        if year is not None:
            phrase = DATE_PHRASES[kind_of(walk.doc_id), relation].format(x=walk.phrase)
            return phrase, (*walk.steps, (walk.doc_id, relation)), year


def _town(book: Encyclopaedia, rng: random.Random) -> Walk | None:
    """A town by name, or as the town of a named person or institution."""
    kind, relation = rng.choice((("town", ""), ("person", "birth"), ("person", "death"), ("institution", "location")))
    start = named(book, rng.choice(book.ids_by_kind[kind]))
    return hop(book, rng, start, relation) if relation else start


def _year_beyond(rng: random.Random, years: list[int], count: int) -> int:
    """A year that the first `count` of the sorted years lie beyond, and the others do not."""
    inner = years[count - 1]
    toward_rest = -1 if years[0] > years[-1] else 1
    gap_years = abs(years[count] - inner) if count < len(years) else 12
    return inner + toward_rest * rng.randint(1, gap_years)


def _span_decoys(rng: random.Random, span_years: int) -> tuple[str, ...]:
    # Off by one, by a decade or by a century: the slips of a subtraction done in the head.
    slips = [n for n in (-100, -10, -1, 1, 10, 100) if span_years + n > 0]
    return tuple(str(span_years + n) for n in rng.sample(slips, 3))


# Prizes and institutions are few: started from often, they would lead to the same answers again and again.
_START_WEIGHTS = {"work": 9, "person": 7, "institution": 3, "prize": 1}


def _path(book: Encyclopaedia, rng: random.Random, *, hops: int, asks: str) -> QuestionDraft | None:
    kind = rng.choices(list(_START_WEIGHTS), list(_START_WEIGHTS.values()))[0]
    walk = random_walk(book, rng, named(book, rng.choice(book.ids_by_kind[kind])), hops)
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
