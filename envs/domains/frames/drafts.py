"""Questions in the making: how they name entities and ask about them; evidence, answer, decoys, checks of a draft."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from toolorchestra.envs.base.types import Answer, Question
from toolorchestra.envs.domains.frames.encyclopaedia import Encyclopaedia
from toolorchestra.envs.domains.frames.prose import WORDINGS, capitalised

Step = tuple[str, str]
"""A document id and the relation that is looked up in its passage."""

_MAKER_NOUNS: Mapping[str, str] = {
    "novel": "author",
    "symphony": "composer",
    "painting": "painter",
    "treatise": "author",
}


@dataclass(frozen=True, slots=True)
class Walk:
    """An entity as a question describes it, and what must be looked up to know which one it is."""

    phrase: str
    doc_id: str
    steps: tuple[Step, ...] = ()
    visited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ending:
    """What a question asks about the entity that a walk has led to: another entity or, without a target, a number."""

    text: str
    step: Step
    number: int = 0
    target_id: str | None = None


def kind_of(doc_id: str) -> str:
    return doc_id.partition("/")[0]


def named(book: Encyclopaedia, doc_id: str) -> Walk:
    """The walk that has not left its start: the entity is called by its name."""
    name = book.names[doc_id]
    phrase = f"the {name}" if kind_of(doc_id) == "prize" else name
    return Walk(phrase, doc_id, visited=(doc_id,))


def drawn(book: Encyclopaedia, rng: random.Random, kind: str) -> Walk:
    """A named entity of a kind."""
    return named(book, rng.choice(book.ids_by_kind[kind]))


def random_walk(book: Encyclopaedia, rng: random.Random, start: Walk, hops: int) -> Walk | None:
    """The start and so many random hops further; None where that leads to a dead end or in a circle."""
    walk = start
    for _ in range(hops):
        last_relation = walk.steps[-1][1] if walk.steps else ""
        # Not twice in a row: "the teacher of the teacher of the teacher of" is a tongue-twister, not a question.
        relations = [r for r in WORDINGS["hops"].get(kind_of(walk.doc_id), ()) if r != last_relation]
        further = hop(book, rng, walk, rng.choice(relations)) if relations else None
        if further is None:
            return None
        walk = further
    return walk


def hop(book: Encyclopaedia, rng: random.Random, walk: Walk, relation: str) -> Walk | None:
    targets = book.others(walk.doc_id, relation)
    if not targets or targets[0] in walk.visited:
        return None
    work = book.works.get(walk.doc_id)
    maker = _MAKER_NOUNS[work.kind] if work else ""
    phrase = rng.choice(WORDINGS["hops"][kind_of(walk.doc_id)][relation]).format(x=walk.phrase, maker=maker)
    return Walk(phrase, targets[0], (*walk.steps, (walk.doc_id, relation)), (*walk.visited, targets[0]))


def number_ending(book: Encyclopaedia, rng: random.Random, walk: Walk, *, dates_only: bool = False) -> Ending | None:
    """Asks for a number that stands in the last entity's passage."""
    questions = WORDINGS["numbers"].get(kind_of(walk.doc_id), {})
    allowed = WORDINGS["dates"].get(kind_of(walk.doc_id), ()) if dates_only else questions
    relations = [relation for relation in questions if relation in allowed]
    relation = rng.choice(relations) if relations else ""
    number = book.number(walk.doc_id, relation)
    if number is None:
        return None
    text = rng.choice(questions[relation]).format(x=walk.phrase)
    return Ending(capitalised(text), (walk.doc_id, relation), number=number)


def entity_ending(book: Encyclopaedia, rng: random.Random, walk: Walk) -> Ending | None:
    """Asks for an entity that is named in the last entity's passage and that the walk has not met."""
    questions = WORDINGS["entities"].get(kind_of(walk.doc_id), {})
    relation = rng.choice(list(questions)) if questions else ""
    targets = book.others(walk.doc_id, relation)
    if not targets or targets[0] in walk.visited:
        return None
    text = rng.choice(questions[relation]).format(x=walk.phrase)
    return Ending(capitalised(text), (walk.doc_id, relation), target_id=targets[0])


def any_ending(book: Encyclopaedia, rng: random.Random, walk: Walk) -> Ending | None:
    return number_ending(book, rng, walk) if rng.random() < 0.4 else entity_ending(book, rng, walk)


_MOST_ATTEMPTS = 400


@dataclass(frozen=True, slots=True)
class QuestionDraft:
    """A question of a pattern before it is checked; the steps are its evidence, in the order of looking up."""

    text: str
    steps: tuple[Step, ...]
    answer: Answer
    decoys: tuple[str, ...]
    computable: bool = False


DraftMaker = Callable[[Encyclopaedia, random.Random], QuestionDraft | None]
"""Draws a draft; None where the dice led to no question, and the next draw may."""


def question(pattern: str, make: DraftMaker, book: Encyclopaedia, rng: random.Random) -> Question:
    """The first drawn draft that has two to five facts and does not give its answer away."""
    for _ in range(_MOST_ATTEMPTS):
        draft = make(book, rng)
        if draft is None or not _is_fair(draft):
            continue
        facts = tuple(book.fact(*step) for step in draft.steps)
        return Question(
            text=f"Subject: encyclopaedia. Pattern: {pattern}.\n{draft.text}",
            answer=draft.answer,
            subject=pattern,
            family="knowledge",
            difficulty=min(4.0, 1.0 + 0.5 * (len(facts) - 1)),
            facts=facts,
            computable=draft.computable,
            decoys=draft.decoys,
        )
    raise RuntimeError(
        f"pattern {pattern!r}: expected a question within {_MOST_ATTEMPTS} draws, got none; "
        "the encyclopaedia holds too few entities that fit it: enlarge it or widen the pattern"
    )


def closing(
    book: Encyclopaedia, rng: random.Random, text: str, steps: tuple[Step, ...], ending: Ending
) -> QuestionDraft:
    """The draft that ends with asking for a number or for an entity."""
    all_steps = steps if ending.step in steps else (*steps, ending.step)
    if ending.target_id is not None:
        name = book.names[ending.target_id]
        answer = Answer(name, kind="text", aliases=(name.removeprefix("The "),) if name.startswith("The ") else ())
        decoys = _entity_decoys(book, rng, ending.target_id, all_steps)
    else:
        unit = "inhabitants" if ending.step[1] == "population" else ""
        answer = number_answer(ending.number, unit)
        seen = [n for step in all_steps if _same_unit(step[1], ending) and (n := book.number(*step))]
        decoys = number_decoys(rng, ending.number, seen)
    return QuestionDraft(text, all_steps, answer, decoys)


def number_answer(value: int, unit: str = "") -> Answer:
    return Answer(str(value), kind="number", tolerance=0.0, unit=unit)


def _entity_decoys(book: Encyclopaedia, rng: random.Random, doc_id: str, steps: tuple[Step, ...]) -> tuple[str, ...]:
    """Three other names of the same kind: first those that the evidence mentions, then any."""
    kind = kind_of(doc_id)
    mentioned = [i for step in steps for i in (step[0], *book.others(*step))]
    nearby = sorted({i for i in mentioned if kind_of(i) == kind and i != doc_id})
    chosen = rng.sample(nearby, min(3, len(nearby)))
    while len(chosen) < 3:
        other = rng.choice(book.ids_by_kind[kind])
        if other != doc_id and other not in chosen:
            chosen.append(other)
    return tuple(book.names[i] for i in chosen)


def number_decoys(rng: random.Random, value: int, seen: Sequence[int]) -> tuple[str, ...]:
    """Three other numbers: up to two of those seen with the evidence, then near misses."""
    others = sorted({n for n in seen if n != value})
    chosen = rng.sample(others, min(2, len(others)))
    # Populations are missed by hundreds, years and spans by tens.
    most = 40 if value < 3000 else value // 20
    while len(chosen) < 3:
        near = value + rng.choice((-1, 1)) * rng.randint(1, most)
        if near > 0 and near != value and near not in chosen:
            chosen.append(near)
    return tuple(str(n) for n in chosen)


def _same_unit(relation: str, ending: Ending) -> bool:
    # Towns are centuries older than everybody: their dates and other dates are no decoys for each other.
    apart = ("population", "price", "founding")
    return relation == ending.step[1] or (relation not in apart and ending.step[1] not in apart)


def _is_fair(draft: QuestionDraft) -> bool:
    if not 2 <= len(draft.steps) <= 5 or len(set(draft.steps)) != len(draft.steps):
        return False
    text = draft.text.casefold()
    # A composite answer is also given away by a part of it.
    telling = (draft.answer.text, *draft.answer.aliases, *re.findall(r"\d{3,}", draft.answer.text))
    return not any(part.casefold() in text for part in telling)
