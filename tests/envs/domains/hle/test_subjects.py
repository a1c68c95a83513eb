"""Owns the checks of the HLE-like subjects and their handbook."""

from __future__ import annotations

import ast
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise, permutations

import pytest

from toolorchestra.envs.base.types import Passage, Question
from toolorchestra.envs.domains.hle.handbook import contents, handbook
from toolorchestra.envs.domains.hle.source import SUBJECTS
from toolorchestra.envs.domains.hle.subjects_form import LEVELS

SEEDS = range(60)
EVERY_CASE = [(subject, level) for subject in SUBJECTS for level in LEVELS]
FACTS_PER_LEVEL = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
NEEDS_HANDBOOK = ("physics", "chemistry", "calendar astronomy")


def draw(subject: str, level: int, seeds: range = SEEDS) -> list[Question]:
    return [SUBJECTS[subject](random.Random(seed), level) for seed in seeds]


def body(question: Question) -> str:
    return question.text.split("\n", 1)[1]


def integers(question: Question) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", body(question))]


def numbers(text: str) -> set[float]:
    return {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)}


def modal_share(questions: list[Question]) -> float:
    """Share of the questions that the best single guess answers, tolerance included."""
    tolerance = questions[0].answer.tolerance
    if not tolerance:
        return max(Counter(question.answer.text for question in questions).values()) / len(questions)
    values = [float(question.answer.text) for question in questions]
    hits = (sum(abs(guess - value) <= tolerance * abs(value) for value in values) for guess in values)
    return max(hits) / len(values)


@pytest.mark.parametrize(("subject", "level"), EVERY_CASE)
def test_form(subject: str, level: int) -> None:
    for question in draw(subject, level):
        assert question.text.startswith(f"Subject: {subject}. Level {level} of 5.\n")
        assert len(question.text) < 800
        assert question.subject == subject
        assert question.difficulty == float(level)
        assert question.computable == (question.family != "logic")
        assert question.answer.kind in {"number", "exact"}
        assert "e" not in question.answer.text


@pytest.mark.parametrize(("subject", "level"), EVERY_CASE)
def test_deterministic_and_varied(subject: str, level: int) -> None:
    questions = draw(subject, level)
    assert questions == draw(subject, level)
    assert len({question.text for question in questions}) >= len(questions) - 2
    assert len({body(question)[:8] for question in questions}) >= 2


@pytest.mark.parametrize(("subject", "level"), EVERY_CASE)
def test_decoys_are_wrong(subject: str, level: int) -> None:
    for question in draw(subject, level):
        answer = question.answer
        assert len({answer.text, *question.decoys}) == 4
        if answer.kind == "number":
            right = float(answer.text)
            assert answer.tolerance or abs(right) < 2**53
            assert all(abs(float(decoy) - right) > 2 * answer.tolerance * abs(right) for decoy in question.decoys)


@pytest.mark.parametrize(("subject", "level"), EVERY_CASE)
def test_not_guessable(subject: str, level: int) -> None:
    assert modal_share(draw(subject, level)) < 0.10
    assert modal_share(draw(subject, level, range(1_000, 1_300))) < 0.03


@pytest.mark.parametrize(("subject", "level"), EVERY_CASE)
def test_facts(subject: str, level: int) -> None:
    passages = [passage.text for passage in handbook()]
    for question in draw(subject, level):
        assert len(question.facts) == (FACTS_PER_LEVEL[level] if subject in NEEDS_HANDBOOK else 0)
        known = body(question)
        for fact in question.facts:
            assert any(fact.sentence in text for text in passages)
            assert fact.sentence not in question.text
            assert not numbers(fact.sentence) & numbers(body(question))
            assert fact.query.split()[0] in known
            known += fact.sentence


@pytest.mark.parametrize("subject", NEEDS_HANDBOOK)
def test_queries_find_their_passages(subject: str) -> None:
    rank = bm25(handbook())
    for level in LEVELS:
        for fact in {fact for question in draw(subject, level) for fact in question.facts}:
            assert fact.sentence in rank(fact.query).text


def bm25(passages: tuple[Passage, ...]) -> Callable[[str], Passage]:
    """A retriever that gives the best passage by Okapi BM25."""

    def words(text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())

    bags = [Counter(words(f"{passage.title} {passage.text}")) for passage in passages]
    mean = sum(bag.total() for bag in bags) / len(bags)
    seen = Counter(word for bag in bags for word in bag)

    def score(bag: Counter[str], query: str) -> float:
        norm = 1.5 * (0.25 + 0.75 * bag.total() / mean)
        idf = {word: math.log(1 + (len(bags) - seen[word] + 0.5) / (seen[word] + 0.5)) for word in words(query)}
        return sum(idf[word] * 2.5 * bag[word] / (bag[word] + norm) for word in idf)

    return lambda query: max(zip(passages, bags, strict=True), key=lambda pair: score(pair[1], query))[0]


def test_handbook() -> None:
    passages, book = handbook(), contents()
    assert len(passages) >= 300
    for field in ("doc_id", "title", "text"):
        assert len({getattr(passage, field) for passage in passages}) == len(passages)
    kinds = (book.elements, book.solids, book.liquids, book.calendars, book.planets, book.moons)
    names = [entity.name for kind in kinds for entity in kind]
    assert len(set(map(str.lower, names))) == len(names) == len(passages)
    assert all(2 <= len(re.findall(r"\.(?: |$)", passage.text)) <= 4 for passage in passages)


def test_level_out_of_range() -> None:
    with pytest.raises(ValueError, match="level"):
        SUBJECTS["logic"](random.Random(0), 6)


def test_number_theory_by_scanning() -> None:
    for question in draw("number theory", 1):
        a, b, p = integers(question)[:3]
        assert int(question.answer.text) == (a * b) - (a * b // p) * p
    for question in draw("number theory", 2):
        a, e, p = integers(question)[:3]
        assert (a**e - int(question.answer.text)) % p == 0
    for question in draw("number theory", 3):
        p, a, e, b = integers(question)[:4]
        power = a**e
        assert [x for x in range(p) if (power - b * x) % p == 0] == [int(question.answer.text)]
    for question in draw("number theory", 4):
        a, e, p, b, c, q = integers(question)[:6]
        assert next(x for x in range(a**e % p, p * q, p) if (b * x - c) % q == 0) == int(question.answer.text)
    for question in draw("number theory", 5):
        a, e, p, b, c, q, f, _, s, k, d, r = integers(question)[:12]
        start = next(x for x in range(a**e % p, p * q, p) if (b * x - c) % q == 0)
        x = next(x for x in range(start, p * q * s, p * q) if (x - f * f) % s == 0)
        assert (x**k + d * x - int(question.answer.text)) % r == 0


def test_combinatorics_by_counting() -> None:
    for question in draw("combinatorics", 2):
        assert rows_without_neighbours(*integers(question)[:3], False) == int(question.answer.text)
    for question in draw("combinatorics", 3):
        limit, *divisors = integers(question)[1:5]
        assert sum(any(n % d == 0 for d in divisors) for n in range(1, limit + 1)) == int(question.answer.text)
    for question in draw("combinatorics", 4):
        pairs = [(int(x), int(y)) for x, y in re.findall(r"\((\d+), (\d+)\)", question.text)]

        @cache
        def routes(x: int, y: int, blocked: tuple[tuple[int, int], ...]) -> int:
            if min(x, y) < 0 or (x, y) in blocked:
                return 0
            return 1 if x == y == 0 else routes(x - 1, y, blocked) + routes(x, y - 1, blocked)

        assert routes(*pairs[1], tuple(pairs[2:])) == int(question.answer.text)


@cache
def rows_without_neighbours(k: int, m: int, n: int, last_is_n: bool) -> int:
    if min(k, m, n) < 0:
        return 0
    if k == m == n == 0:
        return 1
    others = rows_without_neighbours(k - 1, m, n, False) + rows_without_neighbours(k, m - 1, n, False)
    return others if last_is_n else others + rows_without_neighbours(k, m, n - 1, True)


def row_reduced(rows: list[list[Fraction]]) -> tuple[list[list[Fraction]], Fraction]:
    """Gauss and Jordan; also the determinant of the square part on the left."""
    rows, determinant = [list(row) for row in rows], Fraction(1)
    for pivot in range(len(rows)):
        best = max(range(pivot, len(rows)), key=lambda index: abs(rows[index][pivot]))
        if rows[best][pivot] == 0:
            return rows, Fraction(0)
        if best != pivot:
            rows[pivot], rows[best] = rows[best], rows[pivot]
            determinant = -determinant
        determinant *= rows[pivot][pivot]
        rows[pivot] = [entry / rows[pivot][pivot] for entry in rows[pivot]]
        for index, row in enumerate(rows):
            if index != pivot:
                rows[index] = [a - row[pivot] * b for a, b in zip(row, rows[pivot], strict=True)]
    return rows, determinant


def test_linear_algebra_by_elimination() -> None:
    def lists(question: Question) -> list[list[Fraction]]:
        return [list(map(Fraction, ast.literal_eval(row))) for row in re.findall(r"\[[^\[\]]+\]", question.text)]

    for question in (*draw("linear algebra", 1), *draw("linear algebra", 2)):
        assert row_reduced(lists(question))[1] == int(question.answer.text)
    for question in draw("linear algebra", 3):
        a = lists(question)
        indices = [(i, j, k) for i in range(3) for j in range(3) for k in range(3)]
        assert sum(a[i][j] * a[j][k] * a[k][i] for i, j, k in indices) == int(question.answer.text)
    for question in draw("linear algebra", 4):
        *matrix, right, weights = lists(question)
        reduced, _ = row_reduced([[*row, b] for row, b in zip(matrix, right, strict=True)])
        assert sum(w * row[-1] for w, row in zip(weights, reduced, strict=True)) == int(question.answer.text)


def draws(urn: tuple[int, int], balls: int) -> Iterator[tuple[int, Fraction]]:
    """Ball by ball: every sequence of draws as its number of red balls and its chance."""
    if not balls:
        yield 0, Fraction(1)
        return
    for colour in (0, 1):
        if urn[colour]:
            rest = (urn[0] - (colour == 0), urn[1] - (colour == 1))
            for red, chance in draws(rest, balls - 1):
                yield red + (colour == 0), chance * Fraction(urn[colour], sum(urn))


@pytest.mark.parametrize(("level", "drawn", "red"), [(1, 2, 2), (2, 4, 2)])
def test_probability_ball_by_ball(level: int, drawn: int, red: int) -> None:
    for question in draw("probability", level):
        a, b = integers(question)[:2]
        assert str(sum(chance for got, chance in draws((a, b), drawn) if got == red)) == question.answer.text


@pytest.mark.parametrize(("level", "moved", "drawn", "red"), [(4, 1, 3, 2), (5, 2, 4, 3)])
def test_probability_of_transfers(level: int, moved: int, drawn: int, red: int) -> None:
    for question in draw("probability", level):
        a, b, c, d = integers(question)[:4]
        joint: Counter[int] = Counter()
        for shifted, first in draws((a, b), moved):
            for got, second in draws((c + shifted, d + moved - shifted), drawn):
                joint[shifted] += first * second if got == red else 0  # type: ignore[assignment]
        total = sum(joint.values())
        assert str(total if level == 4 else joint[2] / Fraction(total)) == question.answer.text


@pytest.mark.parametrize("level", LEVELS)
def test_programs_print_their_answers(level: int) -> None:
    for question in draw("code tracing", level):
        printed: list[int] = []
        program = question.text.split("```python\n")[1].split("```")[0]
        exec(program, {"print": printed.append})
        assert printed == [int(question.answer.text)]


def edges_of(question: Question) -> dict[tuple[str, str], int]:
    return {(a, b): int(weight) for a, b, weight in re.findall(r"([A-I])[->]([A-I]) (\d+)", question.text)}


def all_distances(question: Question) -> dict[tuple[str, str], int]:
    """Floyd and Warshall."""
    edges = edges_of(question)
    nodes = sorted({node for pair in edges for node in pair})
    reach = {(a, b): 0 if a == b else edges.get((a, b), edges.get((b, a), 10**9)) for a in nodes for b in nodes}
    for k in nodes:
        for a in nodes:
            for b in nodes:
                reach[a, b] = min(reach[a, b], reach[a, k] + reach[k, b])
    return reach


def test_graph_distances() -> None:
    for question in draw("graph algorithms", 1):
        assert all_distances(question)["A", "D"] == int(question.answer.text)
    for question in draw("graph algorithms", 4):
        assert sum(d for (a, _), d in all_distances(question).items() if a == "A") == int(question.answer.text)
    for question in draw("graph algorithms", 5):
        reach = all_distances(question)
        stops = re.findall(r"\b[B-H]\b", re.search(r"[B-H], [B-H] and [B-H]", question.text)[0])  # type: ignore[index]
        routes = (("A", *order, "I") for order in permutations(stops))
        best = min(sum(reach[leg] for leg in pairwise(route)) for route in routes)
        assert best == int(question.answer.text)


def test_spanning_trees_by_brute_force() -> None:
    def links_all(chosen: tuple[tuple[str, str], ...]) -> bool:
        reached = {"A"}
        for _ in chosen:
            reached |= {node for pair in chosen if reached & set(pair) for node in pair}
        return len(reached) == 6

    for question in draw("graph algorithms", 2):
        edges = edges_of(question)
        trees = (tree for tree in combinations(edges, 5) if links_all(tree))
        assert min(sum(edges[pair] for pair in tree) for tree in trees) == int(question.answer.text)


def test_flows_by_augmenting_paths() -> None:
    for question in draw("graph algorithms", 3):
        spare = Counter(edges_of(question))
        flow = 0
        while path := augmenting_path(spare):
            amount = min(spare[leg] for leg in path)
            for a, b in path:
                spare[a, b] -= amount
                spare[b, a] += amount
            flow += amount
        assert flow == int(question.answer.text)


def augmenting_path(spare: Counter[tuple[str, str]]) -> list[tuple[str, str]]:
    paths: dict[str, list[tuple[str, str]]] = {"A": []}
    queue = ["A"]
    for node in queue:
        for other in "BCDEF":
            if spare[node, other] > 0 and other not in paths:
                paths[other] = [*paths[node], (node, other)]
                queue.append(other)
    return paths.get("F", [])


@pytest.mark.parametrize("level", LEVELS)
def test_clues_leave_one_ordering(level: int) -> None:
    for question in draw("logic", level, range(15)):
        clues = question.text.split("known that: ")[1].split(". Answer")[0].split("; ")
        letters = sorted(question.answer.text.split(", "))
        fits = [row for row in permutations(letters) if all(satisfied(clue, "".join(row)) for clue in clues)]
        assert [", ".join(row) for row in fits] == [question.answer.text]


def satisfied(clue: str, row: str) -> bool:
    names: list[str] = re.findall(r"\b[A-G]\b", clue)
    places: list[int] = [row.index(name) for name in names]
    number = [int(digits) for digits in re.findall(r"\d", clue)]
    if "exactly if" in clue:
        left, right = clue.split(" exactly if ")
        return satisfied(left, row) == satisfied(right, row)
    if "in place" in clue:
        return row[number[0] - 1] == names[0]
    if "left of" in clue:
        return places[0] < places[1]
    if "somewhere between" in clue:
        return sorted(places)[1] == places[0]
    if "between" in clue:
        return abs(places[0] - places[1]) - 1 == number[0]
    return (names[0] + names[1] in row or names[1] + names[0] in row) != ("not" in clue)


def months_of(sentence: str) -> list[int]:
    return [int(days) for days in re.findall(r"\d+", sentence)]


def test_calendar_by_walking_day_by_day() -> None:
    for question in draw("calendar astronomy", 1):
        _, day, month = integers(question)[:3]
        dates = [(m, d) for m, days in enumerate(months_of(question.facts[0].sentence), 1) for d in range(1, days + 1)]
        assert dates.index((month, day)) + 1 == int(question.answer.text)
    for question in draw("calendar astronomy", 5):
        codes = [
            100 * m + d for m, days in enumerate(months_of(question.facts[1].sentence), 1) for d in range(1, days + 1)
        ]
        day, month, _, cycles = integers(question)[:4]
        period = Fraction(re.findall(r"\d+\.\d+", question.facts[2].sentence)[0])
        place = codes.index(100 * month + day)
        for _ in range(math.floor(cycles * period)):
            place = place + 1 if place + 1 < len(codes) else 0
        assert codes[place] == int(question.answer.text)


def test_chemistry_from_the_stated_masses() -> None:
    for question in draw("chemistry", 3):
        first, second = (Fraction(re.findall(r"\d+\.\d+", fact.sentence)[0]) for fact in question.facts)
        n, m, grams = integers(question)[:3]
        expected = float(grams / (n * first + m * second) * n * first)
        assert float(question.answer.text) == pytest.approx(expected, rel=5e-4)
