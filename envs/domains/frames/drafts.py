"""Turns a drafted question into a Question: its evidence, its answer, its decoys, and the checks it must pass."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolorchestra.envs.base.types import Answer, Question
from toolorchestra.envs.domains.frames.encyclopaedia import Encyclopaedia
from toolorchestra.envs.domains.frames.phrases import Ending, Step, kind_of

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
        answer = entity_answer(book, ending.target_id)
        decoys = entity_decoys(book, rng, ending.target_id, all_steps)
    else:
        unit = "inhabitants" if ending.step[1] == "population" else ""
        answer = number_answer(ending.number, unit)
        seen = [
            n for doc_id, relation in all_steps if (n := book.number(doc_id, relation)) and _same_unit(relation, ending)
        ]
        decoys = number_decoys(rng, ending.number, seen)
    return QuestionDraft(text, all_steps, answer, decoys)


def number_answer(value: int, unit: str = "") -> Answer:
    return Answer(str(value), kind="number", tolerance=0.0, unit=unit)


def entity_answer(book: Encyclopaedia, doc_id: str) -> Answer:
    name = book.names[doc_id]
    aliases = (name.removeprefix("The "),) if name.startswith("The ") else ()
    return Answer(name, kind="text", aliases=aliases)


def entity_decoys(book: Encyclopaedia, rng: random.Random, doc_id: str, steps: tuple[Step, ...]) -> tuple[str, ...]:
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
    told = any(t.casefold() in text for t in (draft.answer.text, *draft.answer.aliases))
    # A composite answer is also given away by a part of it.
    parts = re.findall(r"\d{3,}", draft.answer.text)
    return not told and not any(part in text for part in parts)
