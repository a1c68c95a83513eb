"""The encyclopaedia's questions: right, unique, answerable by search, and not guessable."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.frames.encyclopaedia import Encyclopaedia, build
from toolorchestra.envs.domains.frames.patterns import PATTERNS

DRAWS = 60


@pytest.fixture(scope="module")
def book() -> Encyclopaedia:
    return build(0)


def draw(book: Encyclopaedia, pattern: str, count: int = DRAWS, seed: int = 11) -> list[Question]:
    rng = random.Random(seed)
    return [PATTERNS[pattern](book, rng) for _ in range(count)]


def body(question: Question) -> str:
    return question.text.split("\n", 1)[1]


every_pattern = pytest.mark.parametrize("pattern", sorted(PATTERNS))


def test_encyclopaedia_has_one_passage_an_entity(book: Encyclopaedia) -> None:
    assert len(book.passages) >= 3000
    assert len({p.title for p in book.passages}) == len({p.doc_id for p in book.passages}) == len(book.passages)
    for passage in book.passages:
        assert 3 <= len(re.findall(r"\.(?: |$)", passage.text)) <= 6, passage
        assert book.names[passage.doc_id] == passage.title


def test_every_sentence_stands_in_its_passage_and_names_its_subject(book: Encyclopaedia) -> None:
    texts = {p.doc_id: p.text for p in book.passages}
    assert len(set(book.sentences.values())) == len(book.sentences)
    for (doc_id, _), sentence in book.sentences.items():
        assert sentence in texts[doc_id]
        assert book.names[doc_id] in sentence


def test_another_seed_is_another_encyclopaedia_and_the_same_seed_the_same(book: Encyclopaedia) -> None:
    assert build.__wrapped__(0).passages == book.passages
    people = {p.title for p in book.passages if p.doc_id.startswith("person/")}
    assert not people & set(build.__wrapped__(1).names.values())


@every_pattern
def test_same_generator_state_gives_the_same_questions_and_a_guesser_is_seldom_right(
    book: Encyclopaedia, pattern: str
) -> None:
    questions = draw(book, pattern, 300)
    assert questions[:20] == draw(book, pattern, 20) != draw(book, pattern, 20, seed=12)
    assert len({question.text for question in questions}) >= 285
    assert max(Counter(question.answer.text for question in questions).values()) < 0.03 * 300


@every_pattern
def test_answer_is_neither_told_nor_among_the_decoys(book: Encyclopaedia, pattern: str) -> None:
    for question in draw(book, pattern):
        right = {question.answer.text, *question.answer.aliases}
        assert not any(text.casefold() in question.text.casefold() for text in right)
        assert len(set(question.decoys)) == 3
        assert not right & set(question.decoys)
        assert all(decoy.isdigit() == question.answer.text.isdigit() for decoy in question.decoys)


@every_pattern
def test_facts_stand_in_one_passage_and_can_be_looked_up_in_order(book: Encyclopaedia, pattern: str) -> None:
    for question in draw(book, pattern, 15):
        assert len(set(question.facts)) == len(question.facts)
        known = question.text
        for fact in question.facts:
            (home,) = [p for p in book.passages if fact.sentence in p.text]
            assert home.title in fact.query
            assert home.title in known, f"{fact.query!r} uses a name that was not met before"
            # What the query says besides that name are words for the relation, which need no looking up.
            assert fact.query.replace(home.title, "").islower()
            known += "\n" + fact.sentence


def test_search_finds_the_evidence(book: Encyclopaedia) -> None:
    bm25s = pytest.importorskip("bm25s")

    def tokens(texts: list[str]) -> object:
        return bm25s.tokenize(texts, stopwords="en", lower=True, show_progress=False)

    index = bm25s.BM25()
    index.index(tokens([p.text for p in book.passages]), show_progress=False)
    facts = [fact for pattern in PATTERNS for q in draw(book, pattern) for fact in q.facts]
    found, _ = index.retrieve(tokens([fact.query for fact in facts]), k=5, show_progress=False)
    hits = [any(fact.sentence in book.passages[i].text for i in row) for fact, row in zip(facts, found, strict=True)]
    assert sum(hits) / len(hits) >= 0.98


class Solver:
    """Answers from the entities' own fields, by scanning them; shares no code with the patterns."""

    def __init__(self, book: Encyclopaedia) -> None:
        self.book = book
        tables = (book.rivers, book.towns, book.people, book.institutions, book.works, book.prizes)
        self.by_name: dict[str, Any] = {entity.name: entity for table in tables for entity in table.values()}
        self.by_id = {entity.doc_id: entity for entity in self.by_name.values()}

    def entity(self, phrase: str) -> Any:
        hops = {
            r"the (?:author|composer|painter|creator) of ": "creator_id",
            r"the institution that (?:holds|keeps) ": "holder_id",
            r"the teacher of |the person who taught ": "teacher_id",
            r"the institution that employed |the employer of ": "employer_id",
            r"the birthplace of |the native town of ": "birth_town_id",
            r"the town that saw the death of |the place of death of ": "death_town_id",
            r"the founder of |the person who founded ": "founder_id",
            r"the home town of |the town that houses ": "town_id",
            r"the institution that awards |the institution behind ": "institution_id",
        }
        for pattern, field in hops.items():
            if match := re.match(pattern, phrase):
                return self.by_id[getattr(self.entity(phrase[match.end() :]), field)]
        return self.by_name[phrase.removeprefix("the ")]

    def population_sum(self, text: str) -> str:
        match = re.search(r"(?:populations of |inhabitants do )(.+?)(?: have together)?[?.]", text)
        assert match, text
        return str(sum(self.entity(phrase).population for phrase in re.split(r", | and ", match[1])))


def test_independent_solver_reckons_the_same_sums_and_walks_to_the_same_births(book: Encyclopaedia) -> None:
    solver, solved = Solver(book), 0
    for question in draw(book, "population_sum"):
        assert solver.population_sum(body(question)) == question.answer.text, question
    for question in draw(book, "chain_of_four", 300):
        if match := re.match(r"(?:In which town was |In what year was )(.+) born\?", body(question)):
            person = solver.entity(match[1])
            town = book.towns[person.birth_town_id].name
            assert question.answer.text in (town, str(person.birth_year)), question
            solved += 1
    assert solved >= 5
