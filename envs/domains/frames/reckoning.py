"""The question patterns whose answer is reckoned from numbers that were looked up: spans, counts and sums."""

from __future__ import annotations

import random

from toolorchestra.envs.base.types import Answer
from toolorchestra.envs.domains.frames.drafts import QuestionDraft, number_answer, number_decoys
from toolorchestra.envs.domains.frames.encyclopaedia import Encyclopaedia
from toolorchestra.envs.domains.frames.phrases import DATE_PHRASES, Step, Walk, hop, kind_of, named, random_walk

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
