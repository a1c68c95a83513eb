"""Owns the questions on combinatorics and probability."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations
from math import comb, lcm
from typing import Final, NamedTuple

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.hle.subjects_form import SubjectDraft, fraction, integer, pose

_LOWEST_TERMS = "Answer with a fraction in lowest terms, such as 7/36."


def combinatorics(rng: random.Random, level: int) -> Question:
    """Counts of selections, arrangements, paths and words."""
    return pose(rng, "combinatorics", "math", level, _COMBINATORICS)


def probability(rng: random.Random, level: int) -> Question:
    """Exact probabilities of draws, with and without conditions."""
    return pose(rng, "probability", "math", level, _PROBABILITY)


def _two_committees(rng: random.Random) -> SubjectDraft:
    n, m, k, j = rng.randint(11, 40), rng.randint(11, 40), rng.randint(2, 6), rng.randint(2, 6)
    body = rng.choice(
        (
            f"A club has {n} sailors and {m} pilots. In how many ways can it choose a crew of {k} sailors and {j} "
            "pilots? Answer with an integer.",
            f"One shelf holds {n} different novels and another {m} different atlases. How many different parcels "
            f"contain exactly {k} of the novels and {j} of the atlases? Answer with an integer.",
        )
    )
    return integer(
        body, comb(n, k) * comb(m, j), (comb(n, k) + comb(m, j), comb(n + m, k + j), comb(n, j) * comb(m, k))
    )


def _arrangements(rng: random.Random) -> SubjectDraft:
    # Small enough for every answer to stay below 2**53, so that a float holds it and its decoys exactly.
    k, m, n = rng.randint(4, 13), rng.randint(4, 13), rng.randint(2, 8)
    first, second, lonely = rng.sample("BDFGKLMNPRSTVZ", 3)
    listed = f"{k} times {first}, {m} times {second} and {n} times {lonely}"
    body = rng.choice(
        (
            f"How many different strings use exactly these letters: {listed}, and have no two {lonely} side by side? "
            "Answer with an integer.",
            f"Tiles are laid in one row: {listed}, all of them. Tiles with the same letter look alike, and no {lonely} "
            f"may lie next to another {lonely}. How many different rows are there? Answer with an integer.",
        )
    )
    value = comb(k + m, k) * comb(k + m + 1, n)
    free = comb(k + m, k) * comb(k + m + n, n)
    return integer(body, value, (free, free - value, comb(k + m, k) * comb(k + m, n)))


def _multiples(rng: random.Random) -> SubjectDraft:
    limit, divisors = rng.randint(2_000, 9_999), sorted(rng.sample(range(4, 23), 3))
    a, b, c = divisors
    body = rng.choice(
        (
            f"How many integers from 1 to {limit}, both included, are divisible by at least one of {a}, {b} and {c}? "
            "Answer with an integer.",
            f"Of the integers from 1 up to and including {limit}, strike out every multiple of {a}, of {b} and of {c}. "
            "How many integers are struck out? Answer with an integer.",
        )
    )
    singles = sum(limit // d for d in divisors)
    pairs = sum(limit // lcm(d, e) for d, e in combinations(divisors, 2))
    value = singles - pairs + limit // lcm(*divisors)
    return integer(body, value, (singles - pairs, limit - value, singles))


def _blocked_paths(rng: random.Random) -> SubjectDraft:
    east, north = rng.randint(7, 13), rng.randint(7, 13)
    corners = [(x, y) for x in range(1, east) for y in range(1, north)]
    first, second = rng.sample(corners, 2)
    body = rng.choice(
        (
            f"A walker goes from (0, 0) to ({east}, {north}) by unit steps east (x grows) or north (y grows), "
            f"never touching the points {first} and {second}. How many routes are there? Answer with an integer.",
            f"Count the monotone lattice paths from (0, 0) to ({east}, {north}), each step adding 1 to one coordinate, "
            f"which avoid both {first} and {second}. Answer with an integer.",
        )
    )

    def routes(blocked: frozenset[tuple[int, int]]) -> int:
        row = [0] * (east + 1)
        for y in range(north + 1):
            for x in range(east + 1):
                below = 1 if (x, y) == (0, 0) else row[x]
                row[x] = 0 if (x, y) in blocked else below + (row[x - 1] if x else 0)
        return row[east]

    wrong = (routes(frozenset()), routes(frozenset((first,))), routes(frozenset((second,))))
    return integer(body, routes(frozenset((first, second))), wrong)


def _restricted_words(rng: random.Random) -> SubjectDraft:
    length, size = rng.randint(11, 18), rng.randint(4, 5)
    letters = "ABCDE"[:size]
    head, tail = rng.sample(letters, 2)
    most = rng.randint(2, 4)
    modulus = rng.randint(10_000, 99_999)
    body = rng.choice(
        (
            f"How many strings of length {length} over the letters {', '.join(letters)} have no two equal letters side "
            f"by side, never contain {head}{tail} as a block, and contain {head} at most {most} times? "
            f"Answer with that count modulo {modulus}, a non-negative integer.",
            f"A word has {length} letters from {', '.join(letters)}. Equal neighbours are forbidden, {tail} may not "
            f"directly follow {head}, and {head} occurs no more than {most} times. How many such words are there, "
            f"modulo {modulus}? Answer with a non-negative integer.",
        )
    )

    def words(letters_used: int, cap: int) -> int:
        ways = {(letter, int(letter == head)): 1 for letter in letters}
        for _ in range(letters_used - 1):
            grown: dict[tuple[str, int], int] = {}
            for (last, used), number in ways.items():
                for letter in letters:
                    state = (letter, used + (letter == head))
                    if letter != last and (last, letter) != (head, tail) and state[1] <= cap:
                        grown[state] = grown.get(state, 0) + number
            ways = grown
        return sum(ways.values()) % modulus

    return integer(
        body, words(length, most), (words(length, most + 1), words(length - 1, most), words(length, most - 1))
    )


class _Urn(NamedTuple):
    red: int
    blue: int

    def chance(self, red: int, drawn: int) -> Fraction:
        """Of exactly `red` red balls among `drawn` balls drawn without replacement."""
        return Fraction(comb(self.red, red) * comb(self.blue, drawn - red), comb(self.red + self.blue, drawn))

    def plus(self, red: int, blue: int) -> _Urn:
        return _Urn(self.red + red, self.blue + blue)


def _urn(rng: random.Random, low: int, high: int) -> _Urn:
    return _Urn(rng.randint(low, high), rng.randint(low, high))


def _both_red(rng: random.Random) -> SubjectDraft:
    urn = _urn(rng, 5, 90)
    body = rng.choice(
        (
            f"An urn holds {urn.red} red and {urn.blue} blue balls. Two balls are drawn without replacement. "
            "What is the probability that both are red?",
            f"Among the cards in a box, {urn.red} are red and {urn.blue} are blue. Two are taken out together at "
            "random. How likely is it that neither is blue?",
        )
    )
    size = urn.red + urn.blue
    share = Fraction(urn.red, size)
    wrong = (share**2, share * Fraction(urn.blue, size - 1), share)
    return fraction(f"{body} {_LOWEST_TERMS}", urn.chance(2, 2), wrong)


def _two_of_four(rng: random.Random) -> SubjectDraft:
    urn = _urn(rng, 6, 70)
    body = rng.choice(
        (
            f"An urn holds {urn.red} red and {urn.blue} blue balls. Four balls are drawn without replacement. "
            "What is the probability that exactly two of them are red?",
            f"A crate has {urn.red} red and {urn.blue} blue lamps. Four lamps are picked at random, all at once. "
            "How likely are exactly two red ones?",
        )
    )
    share = Fraction(urn.red, urn.red + urn.blue)
    value = urn.chance(2, 4)
    return fraction(f"{body} {_LOWEST_TERMS}", value, (6 * share**2 * (1 - share) ** 2, value / 6, urn.chance(2, 3)))


def _posterior(rng: random.Random) -> SubjectDraft:
    share, first, second = rng.randint(11, 89), rng.randint(2, 60), rng.randint(2, 60)
    body = rng.choice(
        (
            f"Machine A makes {share} % of all parts and machine B the rest. Of the parts from A, {first} in 1000 are "
            f"faulty, of those from B {second} in 1000. A part is faulty. What is the probability that A made it?",
            f"Spring water feeds a town on {share} % of days, river water on the others. A probe rings with "
            f"probability {first}/1000 on a spring day and {second}/1000 on a river day. It rang. How likely was it a "
            "spring day?",
        )
    )
    both = share * first + (100 - share) * second
    wrong = (Fraction(first, first + second), Fraction(share, 100), Fraction(both, 100_000))
    return fraction(f"{body} {_LOWEST_TERMS}", Fraction(share * first, both), wrong)


def _moved(source: _Urn, target: _Urn, moved: int, draw: tuple[int, int]) -> list[Fraction]:
    """For each number of red balls among the moved: the chance of that and then of the draw (red, drawn)."""
    return [
        source.chance(red, moved) * target.plus(red, moved - red).chance(*draw)
        for red in range(moved + 1)
        if red <= source.red and moved - red <= source.blue
    ]


def _one_moved(rng: random.Random) -> SubjectDraft:
    source, target = _urn(rng, 4, 15), _urn(rng, 4, 15)
    body = rng.choice(
        (
            f"Urn A holds {source.red} red and {source.blue} blue balls, urn B {target.red} red and {target.blue} "
            "blue. One ball drawn from A is put into B, unseen; then three balls are drawn from B without replacement. "
            "What is the probability that exactly two of these three are red?",
            f"Bag A has {source.red} red and {source.blue} blue beads, bag B {target.red} red and {target.blue} blue. "
            "A random bead goes from A to B; then three beads are taken from B at once. "
            "How likely are exactly two red among the three?",
        )
    )
    value = sum(_moved(source, target, 1, (2, 3)), Fraction())
    wrong = (target.chance(2, 3), sum(_moved(source, target, 1, (1, 3)), Fraction()), value / 3)
    return fraction(f"{body} {_LOWEST_TERMS}", value, wrong)


def _two_moved(rng: random.Random) -> SubjectDraft:
    source, target = _urn(rng, 4, 15), _urn(rng, 4, 15)
    body = rng.choice(
        (
            f"Urn A holds {source.red} red and {source.blue} blue balls, urn B {target.red} red and {target.blue} "
            "blue. Two balls drawn from A are put into B, unseen; then four balls are drawn from B without "
            "replacement. Exactly three of the four are red. What is the probability that both moved balls were red?",
            f"Bag A has {source.red} red and {source.blue} blue beads, bag B {target.red} red and {target.blue} blue. "
            "Two random beads go from A to B; then four beads are taken from B at once, and exactly three prove red. "
            "Given that, how likely is it that the two beads moved were both red?",
        )
    )
    branches = _moved(source, target, 2, (3, 4))
    total = sum(branches, Fraction())
    wrong = (source.chance(2, 2), branches[2], branches[1] / total)
    return fraction(f"{body} {_LOWEST_TERMS}", branches[2] / total, wrong)


_COMBINATORICS: Final = (_two_committees, _arrangements, _multiples, _blocked_paths, _restricted_words)
_PROBABILITY: Final = (_both_red, _two_of_four, _posterior, _one_moved, _two_moved)
