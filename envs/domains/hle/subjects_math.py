"""The questions on number theory, linear algebra, combinatorics and probability."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations
from math import comb, lcm
from typing import Final, NamedTuple

from toolorchestra.envs.domains.hle.subjects_form import SubjectDraft, fraction, integer

Matrix = list[list[int]]


def _primes(low: int, high: int) -> tuple[int, ...]:
    return tuple(n for n in range(low, high) if all(n % d for d in range(2, int(n**0.5) + 1)))


_PRIMES: Final = _primes(211, 1_000)
_LARGE_PRIMES: Final = _primes(1_000, 5_000)


def _product_residue(rng: random.Random) -> SubjectDraft:
    a, b, p = rng.randint(100, 999), rng.randint(100, 999), rng.choice(_PRIMES)
    texts = (
        f"What remainder does the product {a} × {b} leave on division by the prime {p}? Answer with an integer.",
        f"Multiply {a} by {b} and reduce the result modulo {p}, to an integer from 0 upwards. Give that integer.",
    )
    return integer(rng.choice(texts), a * b % p, ((a * b + 1) % p, (a + b) % p, a * b % (p - 1)))


def _power_residue(rng: random.Random) -> SubjectDraft:
    a, e, p = rng.randint(12, 99), rng.randint(11, 40), rng.choice(_PRIMES)
    texts = (
        f"What is the remainder of {a}^{e} on division by the prime {p}? Answer with an integer.",
        f"Reduce {a} to the power {e} modulo {p}, to an integer from 0 upwards. Give that integer.",
    )
    return integer(rng.choice(texts), pow(a, e, p), (pow(a, e - 1, p), pow(a, e + 1, p), a * e % p))


def _quotient_residue(rng: random.Random) -> SubjectDraft:
    p = rng.choice(_LARGE_PRIMES)
    a, e, b = rng.randint(100, 999), rng.randint(40, 400), rng.randint(100, 999)
    power, inverse = pow(a, e, p), pow(b, -1, p)
    texts = (
        f"Work modulo the prime p = {p}. Let y be the residue of {a}^{e}. Which non-negative integer x below p "
        f"solves {b}·x ≡ y? Answer with the integer x.",
        f"Let p = {p}, a prime. Find the non-negative integer x below p for which {a}^{e} - {b}·x is divisible by "
        "p. Answer with that integer.",
    )
    return integer(rng.choice(texts), power * inverse % p, (power * b % p, power, inverse))


def _two_congruences(rng: random.Random) -> SubjectDraft:
    p, q = rng.sample(_PRIMES, 2)
    a, e, b, c = rng.randint(12, 99), rng.randint(20, 90), rng.randint(12, 199), rng.randint(12, 199)
    first, second = pow(a, e, p), c * pow(b, -1, q) % q
    system = f"x ≡ {a}^{e} (mod {p}) and {b}·x ≡ {c} (mod {q})"
    texts = (
        f"Find the smallest non-negative integer x with {system}. Answer with that integer.",
        f"Two conditions bind a non-negative integer x: {system}. "
        "What is the least x that meets both? Answer with an integer.",
    )
    wrong = (_smallest((first, c % q), (p, q)), _smallest((pow(a, e + 1, p), second), (p, q)), first * second)
    return integer(rng.choice(texts), _smallest((first, second), (p, q)), wrong)


def _three_congruences(rng: random.Random) -> SubjectDraft:
    p, q, s = rng.sample(_PRIMES, 3)
    r = rng.choice(_LARGE_PRIMES)
    a, e, b, c = rng.randint(12, 99), rng.randint(20, 90), rng.randint(12, 199), rng.randint(12, 199)
    f, d, k = rng.randint(12, 199), rng.randint(12, 99), rng.randint(300, 900)
    moduli = (p, q, s)
    residues = (pow(a, e, p), c * pow(b, -1, q) % q, pow(f, 2, s))
    system = f"x ≡ {a}^{e} (mod {p}), {b}·x ≡ {c} (mod {q}) and x ≡ {f}^2 (mod {s})"
    texts = (
        f"Let x be the smallest non-negative integer with {system}. "
        f"What is the remainder of x^{k} + {d}·x on division by {r}? Answer with an integer.",
        f"The non-negative integer x is the least that satisfies {system}. "
        f"Give the least non-negative residue of x^{k} + {d}·x modulo {r} as an integer.",
    )

    def outcome(x: int) -> int:
        return (pow(x, k, r) + d * x) % r

    x = _smallest(residues, moduli)
    wrong = (outcome(x + 1), pow(x, k, r), outcome(_smallest((residues[0], c % q, residues[2]), moduli)))
    return integer(rng.choice(texts), outcome(x), wrong)


def _smallest(residues: tuple[int, ...], moduli: tuple[int, ...]) -> int:
    """The least non-negative x with these residues modulo distinct primes."""
    x, product = 0, 1
    for residue, modulus in zip(residues, moduli, strict=True):
        x += product * ((residue - x) * pow(product, -1, modulus) % modulus)
        product *= modulus
    return x


def _matrix(rng: random.Random, size: int, low: int, high: int) -> Matrix:
    return [[rng.randint(low, high) for _ in range(size)] for _ in range(size)]


def _determinant(matrix: Matrix) -> int:
    if not matrix:
        return 1
    head, *rest = matrix
    minors = ([row[:column] + row[column + 1 :] for row in rest] for column in range(len(head)))
    return sum((-1) ** column * head[column] * _determinant(minor) for column, minor in enumerate(minors))


def _times(left: Matrix, right: Matrix) -> Matrix:
    columns = list(zip(*right, strict=True))
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in left]


def _apply(matrix: Matrix, vector: list[int]) -> list[int]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def _determinant_draft(rng: random.Random, matrix: Matrix) -> SubjectDraft:
    value = _determinant(matrix)
    texts = (
        f"What is the determinant of the matrix {matrix} (listed row by row)? Answer with an integer.",
        f"A linear map has the matrix {matrix}, given row by row. Compute its determinant, an integer.",
    )
    diagonal, anti = 1, 1
    for index, row in enumerate(matrix):
        diagonal, anti = diagonal * row[index], anti * row[-1 - index]
    return integer(rng.choice(texts), value, (diagonal + anti, -value, diagonal))


def _small_determinant(rng: random.Random) -> SubjectDraft:
    return _determinant_draft(rng, _matrix(rng, 2, 11, 99))


def _cubic_determinant(rng: random.Random) -> SubjectDraft:
    return _determinant_draft(rng, _matrix(rng, 3, -12, 12))


def _trace_of_cube(rng: random.Random) -> SubjectDraft:
    matrix = _matrix(rng, 3, -9, 9)
    square = _times(matrix, matrix)
    traces = [sum(m[index][index] for index in range(3)) for m in (matrix, square, _times(square, matrix))]
    texts = (
        f"Let A = {matrix}, listed row by row. What is the trace of A·A·A? Answer with an integer.",
        f"The rows of a matrix A are {matrix}. Sum the diagonal entries of its third matrix power; give an integer.",
    )
    return integer(rng.choice(texts), traces[2], (traces[1], traces[0] ** 3, traces[0] * traces[1]))


def _solve_system(rng: random.Random) -> SubjectDraft:
    matrix = _matrix(rng, 4, -9, 9)
    while _determinant(matrix) == 0:
        matrix = _matrix(rng, 4, -9, 9)
    solution = [rng.randint(-25, 25) for _ in range(4)]
    weights = [rng.randint(3, 19) for _ in range(4)]
    (value,) = _apply([weights], solution)
    texts = (
        f"The system A·x = b has one solution x, where A = {matrix} (row by row) and b = "
        f"{_apply(matrix, solution)}. What is the dot product of x with {weights}? Answer with an integer.",
        f"Solve A·x = b with the rows of A being {matrix} and b = {_apply(matrix, solution)}, "
        f"and give the dot product of the solution with {weights} as an integer.",
    )
    swapped = weights[1:] + weights[:1]
    (misplaced,) = _apply([swapped], solution)
    return integer(rng.choice(texts), value, (misplaced, sum(solution), -value))


def _power_of_matrix(rng: random.Random) -> SubjectDraft:
    matrix, p = _matrix(rng, 4, 1, 19), rng.choice(_LARGE_PRIMES)
    vector, k, row = [rng.randint(1, 30) for _ in range(4)], rng.randint(15, 40), rng.randint(1, 4)
    texts = (
        f"Let A = {matrix} (row by row), v = {vector} a column and w = A^{k}·v. "
        f"What is entry {row} of w (counting from 1) modulo {p}? Answer with an integer from 0 upwards.",
        f"Apply the matrix with rows {matrix} to the column {vector}, {k} times in all. "
        f"Take component {row} (counting from 1) of the result modulo {p}. Answer with a non-negative integer.",
    )
    runs = [vector]
    for _ in range(k + 1):
        runs.append([entry % p for entry in _apply(matrix, runs[-1])])
    return integer(rng.choice(texts), runs[k][row - 1], (runs[k - 1][row - 1], runs[k + 1][row - 1], runs[k][row % 4]))


NUMBER_THEORY: Final = (_product_residue, _power_residue, _quotient_residue, _two_congruences, _three_congruences)
LINEAR_ALGEBRA: Final = (_small_determinant, _cubic_determinant, _trace_of_cube, _solve_system, _power_of_matrix)


def _two_committees(rng: random.Random) -> SubjectDraft:
    n, m, k, j = rng.randint(11, 40), rng.randint(11, 40), rng.randint(2, 6), rng.randint(2, 6)
    texts = (
        f"A club has {n} sailors and {m} pilots. In how many ways can it choose a crew of {k} sailors and {j} "
        "pilots? Answer with an integer.",
        f"One shelf holds {n} different novels and another {m} different atlases. How many different parcels "
        f"contain exactly {k} of the novels and {j} of the atlases? Answer with an integer.",
    )
    return integer(
        rng.choice(texts),
        comb(n, k) * comb(m, j),
        (comb(n, k) + comb(m, j), comb(n + m, k + j), comb(n, j) * comb(m, k)),
    )


def _arrangements(rng: random.Random) -> SubjectDraft:
    # Small enough for every answer to stay below 2**53, so that a float holds it and its decoys exactly.
    k, m, n = rng.randint(4, 13), rng.randint(4, 13), rng.randint(2, 8)
    first, second, lonely = rng.sample("BDFGKLMNPRSTVZ", 3)
    listed = f"{k} times {first}, {m} times {second} and {n} times {lonely}"
    texts = (
        f"How many different strings use exactly these letters: {listed}, and have no two {lonely} side by side? "
        "Answer with an integer.",
        f"Tiles are laid in one row: {listed}, all of them. Tiles with the same letter look alike, and no {lonely} "
        f"may lie next to another {lonely}. How many different rows are there? Answer with an integer.",
    )
    value = comb(k + m, k) * comb(k + m + 1, n)
    free = comb(k + m, k) * comb(k + m + n, n)
    return integer(rng.choice(texts), value, (free, free - value, comb(k + m, k) * comb(k + m, n)))


def _multiples(rng: random.Random) -> SubjectDraft:
    limit, divisors = rng.randint(2_000, 9_999), sorted(rng.sample(range(4, 23), 3))
    a, b, c = divisors
    texts = (
        f"How many integers from 1 to {limit}, both included, are divisible by at least one of {a}, {b} and {c}? "
        "Answer with an integer.",
        f"Of the integers from 1 up to and including {limit}, strike out every multiple of {a}, of {b} and of {c}. "
        "How many integers are struck out? Answer with an integer.",
    )
    singles = sum(limit // d for d in divisors)
    pairs = sum(limit // lcm(d, e) for d, e in combinations(divisors, 2))
    value = singles - pairs + limit // lcm(*divisors)
    return integer(rng.choice(texts), value, (singles - pairs, limit - value, singles))


def _blocked_paths(rng: random.Random) -> SubjectDraft:
    east, north = rng.randint(7, 13), rng.randint(7, 13)
    corners = [(x, y) for x in range(1, east) for y in range(1, north)]
    first, second = rng.sample(corners, 2)
    texts = (
        f"A walker goes from (0, 0) to ({east}, {north}) by unit steps east (x grows) or north (y grows), "
        f"never touching the points {first} and {second}. How many routes are there? Answer with an integer.",
        f"Count the monotone lattice paths from (0, 0) to ({east}, {north}), each step adding 1 to one coordinate, "
        f"which avoid both {first} and {second}. Answer with an integer.",
    )

    def routes(blocked: frozenset[tuple[int, int]]) -> int:
        row = [0] * (east + 1)
        for y in range(north + 1):
            for x in range(east + 1):
                below = 1 if (x, y) == (0, 0) else row[x]
                row[x] = 0 if (x, y) in blocked else below + (row[x - 1] if x else 0)
        return row[east]

    wrong = (routes(frozenset()), routes(frozenset((first,))), routes(frozenset((second,))))
    return integer(rng.choice(texts), routes(frozenset((first, second))), wrong)


def _restricted_words(rng: random.Random) -> SubjectDraft:
    length, size = rng.randint(11, 18), rng.randint(4, 5)
    letters = "ABCDE"[:size]
    head, tail = rng.sample(letters, 2)
    most = rng.randint(2, 4)
    modulus = rng.randint(10_000, 99_999)
    texts = (
        f"How many strings of length {length} over the letters {', '.join(letters)} have no two equal letters side "
        f"by side, never contain {head}{tail} as a block, and contain {head} at most {most} times? "
        f"Answer with that count modulo {modulus}, a non-negative integer.",
        f"A word has {length} letters from {', '.join(letters)}. Equal neighbours are forbidden, {tail} may not "
        f"directly follow {head}, and {head} occurs no more than {most} times. How many such words are there, "
        f"modulo {modulus}? Answer with a non-negative integer.",
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
        rng.choice(texts),
        words(length, most),
        (words(length, most + 1), words(length - 1, most), words(length, most - 1)),
    )


class _Urn(NamedTuple):
    red: int
    blue: int

    def chance(self, red: int, drawn: int) -> Fraction:
        """Chance of exactly `red` red balls among `drawn` balls drawn without replacement."""
        return Fraction(comb(self.red, red) * comb(self.blue, drawn - red), comb(self.red + self.blue, drawn))

    def plus(self, red: int, blue: int) -> _Urn:
        return _Urn(self.red + red, self.blue + blue)


def _urn(rng: random.Random, low: int, high: int) -> _Urn:
    return _Urn(rng.randint(low, high), rng.randint(low, high))


def _both_red(rng: random.Random) -> SubjectDraft:
    urn = _urn(rng, 5, 90)
    texts = (
        f"An urn holds {urn.red} red and {urn.blue} blue balls. Two balls are drawn without replacement. "
        "What is the probability that both are red?",
        f"Among the cards in a box, {urn.red} are red and {urn.blue} are blue. Two are taken out together at "
        "random. How likely is it that neither is blue?",
    )
    size = urn.red + urn.blue
    share = Fraction(urn.red, size)
    wrong = (share**2, share * Fraction(urn.blue, size - 1), share)
    return fraction(rng.choice(texts), urn.chance(2, 2), wrong)


def _two_of_four(rng: random.Random) -> SubjectDraft:
    urn = _urn(rng, 6, 70)
    texts = (
        f"An urn holds {urn.red} red and {urn.blue} blue balls. Four balls are drawn without replacement. "
        "What is the probability that exactly two of them are red?",
        f"A crate has {urn.red} red and {urn.blue} blue lamps. Four lamps are picked at random, all at once. "
        "How likely are exactly two red ones?",
    )
    share = Fraction(urn.red, urn.red + urn.blue)
    value = urn.chance(2, 4)
    return fraction(rng.choice(texts), value, (6 * share**2 * (1 - share) ** 2, value / 6, urn.chance(2, 3)))


def _posterior(rng: random.Random) -> SubjectDraft:
    share, first, second = rng.randint(11, 89), rng.randint(2, 60), rng.randint(2, 60)
    texts = (
        f"Machine A makes {share} % of all parts and machine B the rest. Of the parts from A, {first} in 1000 are "
        f"faulty, of those from B {second} in 1000. A part is faulty. What is the probability that A made it?",
        f"Spring water feeds a town on {share} % of days, river water on the others. A probe rings with probability "
        f"{first}/1000 on a spring day and {second}/1000 on a river day. It rang. How likely was it a spring day?",
    )
    both = share * first + (100 - share) * second
    wrong = (Fraction(first, first + second), Fraction(share, 100), Fraction(both, 100_000))
    return fraction(rng.choice(texts), Fraction(share * first, both), wrong)


def _moved(source: _Urn, target: _Urn, moved: int, draw: tuple[int, int]) -> list[Fraction]:
    """Give for each number of red balls among the moved: the chance of that and then of the draw (red, drawn)."""
    return [
        source.chance(red, moved) * target.plus(red, moved - red).chance(*draw)
        for red in range(moved + 1)
        if red <= source.red and moved - red <= source.blue
    ]


def _one_moved(rng: random.Random) -> SubjectDraft:
    source, target = _urn(rng, 4, 15), _urn(rng, 4, 15)
    texts = (
        f"Urn A holds {source.red} red and {source.blue} blue balls, urn B {target.red} red and {target.blue} "
        "blue. One ball drawn from A is put into B, unseen; then three balls are drawn from B without replacement. "
        "What is the probability that exactly two of these three are red?",
        f"Bag A has {source.red} red and {source.blue} blue beads, bag B {target.red} red and {target.blue} blue. "
        "A random bead goes from A to B; then three beads are taken from B at once. "
        "How likely are exactly two red among the three?",
    )
    value = sum(_moved(source, target, 1, (2, 3)), Fraction())
    wrong = (target.chance(2, 3), sum(_moved(source, target, 1, (1, 3)), Fraction()), value / 3)
    return fraction(rng.choice(texts), value, wrong)


def _two_moved(rng: random.Random) -> SubjectDraft:
    source, target = _urn(rng, 4, 15), _urn(rng, 4, 15)
    texts = (
        f"Urn A holds {source.red} red and {source.blue} blue balls, urn B {target.red} red and {target.blue} "
        "blue. Two balls drawn from A are put into B, unseen; then four balls are drawn from B without "
        "replacement. Exactly three of the four are red. What is the probability that both moved balls were red?",
        f"Bag A has {source.red} red and {source.blue} blue beads, bag B {target.red} red and {target.blue} blue. "
        "Two random beads go from A to B; then four beads are taken from B at once, and exactly three prove red. "
        "Given that, how likely is it that the two beads moved were both red?",
    )
    branches = _moved(source, target, 2, (3, 4))
    total = sum(branches, Fraction())
    wrong = (source.chance(2, 2), branches[2], branches[1] / total)
    return fraction(rng.choice(texts), branches[2] / total, wrong)


COMBINATORICS: Final = (_two_committees, _arrangements, _multiples, _blocked_paths, _restricted_words)
PROBABILITY: Final = (_both_red, _two_of_four, _posterior, _one_moved, _two_moved)
