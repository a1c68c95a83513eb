"""Owns the questions on number theory and linear algebra."""

from __future__ import annotations

import random
from typing import Final

from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.hle.subjects_form import SubjectDraft, integer, pose

Matrix = list[list[int]]


def number_theory(rng: random.Random, level: int) -> Question:
    """Residues, inverses and systems of congruences."""
    return pose(rng, "number theory", "math", level, _NUMBER_THEORY)


def linear_algebra(rng: random.Random, level: int) -> Question:
    """Determinants, powers and linear systems of integer matrices."""
    return pose(rng, "linear algebra", "math", level, _LINEAR_ALGEBRA)


def _primes(low: int, high: int) -> tuple[int, ...]:
    return tuple(n for n in range(low, high) if all(n % d for d in range(2, int(n**0.5) + 1)))


_PRIMES: Final = _primes(211, 1_000)
_LARGE_PRIMES: Final = _primes(1_000, 5_000)


def _product_residue(rng: random.Random) -> SubjectDraft:
    a, b, p = rng.randint(100, 999), rng.randint(100, 999), rng.choice(_PRIMES)
    body = rng.choice(
        (
            f"What remainder does the product {a} × {b} leave on division by the prime {p}? Answer with an integer.",
            f"Multiply {a} by {b} and reduce the result modulo {p}, to an integer from 0 upwards. Give that integer.",
        )
    )
    return integer(body, a * b % p, ((a * b + 1) % p, (a + b) % p, a * b % (p - 1)))


def _power_residue(rng: random.Random) -> SubjectDraft:
    a, e, p = rng.randint(12, 99), rng.randint(11, 40), rng.choice(_PRIMES)
    body = rng.choice(
        (
            f"What is the remainder of {a}^{e} on division by the prime {p}? Answer with an integer.",
            f"Reduce {a} to the power {e} modulo {p}, to an integer from 0 upwards. Give that integer.",
        )
    )
    return integer(body, pow(a, e, p), (pow(a, e - 1, p), pow(a, e + 1, p), a * e % p))


def _quotient_residue(rng: random.Random) -> SubjectDraft:
    p = rng.choice(_LARGE_PRIMES)
    a, e, b = rng.randint(100, 999), rng.randint(40, 400), rng.randint(100, 999)
    power, inverse = pow(a, e, p), pow(b, -1, p)
    body = rng.choice(
        (
            f"Work modulo the prime p = {p}. Let y be the residue of {a}^{e}. Which non-negative integer x below p "
            f"solves {b}·x ≡ y? Answer with the integer x.",
            f"Let p = {p}, a prime. Find the non-negative integer x below p for which {a}^{e} - {b}·x is divisible by "
            "p. Answer with that integer.",
        )
    )
    return integer(body, power * inverse % p, (power * b % p, power, inverse))


def _two_congruences(rng: random.Random) -> SubjectDraft:
    p, q = rng.sample(_PRIMES, 2)
    a, e, b, c = rng.randint(12, 99), rng.randint(20, 90), rng.randint(12, 199), rng.randint(12, 199)
    first, second = pow(a, e, p), c * pow(b, -1, q) % q
    system = f"x ≡ {a}^{e} (mod {p}) and {b}·x ≡ {c} (mod {q})"
    body = rng.choice(
        (
            f"Find the smallest non-negative integer x with {system}. Answer with that integer.",
            f"Two conditions bind a non-negative integer x: {system}. "
            "What is the least x that meets both? Answer with an integer.",
        )
    )
    wrong = (_smallest((first, c % q), (p, q)), _smallest((pow(a, e + 1, p), second), (p, q)), first * second)
    return integer(body, _smallest((first, second), (p, q)), wrong)


def _three_congruences(rng: random.Random) -> SubjectDraft:
    p, q, s = rng.sample(_PRIMES, 3)
    r = rng.choice(_LARGE_PRIMES)
    a, e, b, c = rng.randint(12, 99), rng.randint(20, 90), rng.randint(12, 199), rng.randint(12, 199)
    f, d, k = rng.randint(12, 199), rng.randint(12, 99), rng.randint(300, 900)
    moduli = (p, q, s)
    residues = (pow(a, e, p), c * pow(b, -1, q) % q, pow(f, 2, s))
    system = f"x ≡ {a}^{e} (mod {p}), {b}·x ≡ {c} (mod {q}) and x ≡ {f}^2 (mod {s})"
    body = rng.choice(
        (
            f"Let x be the smallest non-negative integer with {system}. "
            f"What is the remainder of x^{k} + {d}·x on division by {r}? Answer with an integer.",
            f"The non-negative integer x is the least that satisfies {system}. "
            f"Give the least non-negative residue of x^{k} + {d}·x modulo {r} as an integer.",
        )
    )

    def outcome(x: int) -> int:
        return (pow(x, k, r) + d * x) % r

    x = _smallest(residues, moduli)
    wrong = (outcome(x + 1), pow(x, k, r), outcome(_smallest((residues[0], c % q, residues[2]), moduli)))
    return integer(body, outcome(x), wrong)


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
    body = rng.choice(
        (
            f"What is the determinant of the matrix {matrix} (listed row by row)? Answer with an integer.",
            f"A linear map has the matrix {matrix}, given row by row. Compute its determinant, an integer.",
        )
    )
    diagonal, anti = 1, 1
    for index, row in enumerate(matrix):
        diagonal, anti = diagonal * row[index], anti * row[-1 - index]
    return integer(body, value, (diagonal + anti, -value, diagonal))


def _small_determinant(rng: random.Random) -> SubjectDraft:
    return _determinant_draft(rng, _matrix(rng, 2, 11, 99))


def _cubic_determinant(rng: random.Random) -> SubjectDraft:
    return _determinant_draft(rng, _matrix(rng, 3, -12, 12))


def _trace_of_cube(rng: random.Random) -> SubjectDraft:
    matrix = _matrix(rng, 3, -9, 9)
    square = _times(matrix, matrix)
    traces = [sum(m[index][index] for index in range(3)) for m in (matrix, square, _times(square, matrix))]
    body = rng.choice(
        (
            f"Let A = {matrix}, listed row by row. What is the trace of A·A·A? Answer with an integer.",
            f"The rows of a matrix A are {matrix}. Sum the diagonal entries of its third matrix power; give an "
            "integer.",
        )
    )
    return integer(body, traces[2], (traces[1], traces[0] ** 3, traces[0] * traces[1]))


def _solve_system(rng: random.Random) -> SubjectDraft:
    matrix = _matrix(rng, 4, -9, 9)
    while _determinant(matrix) == 0:
        matrix = _matrix(rng, 4, -9, 9)
    solution = [rng.randint(-25, 25) for _ in range(4)]
    weights = [rng.randint(3, 19) for _ in range(4)]
    (value,) = _apply([weights], solution)
    body = rng.choice(
        (
            f"The system A·x = b has one solution x, where A = {matrix} (row by row) and b = "
            f"{_apply(matrix, solution)}. What is the dot product of x with {weights}? Answer with an integer.",
            f"Solve A·x = b with the rows of A being {matrix} and b = {_apply(matrix, solution)}, "
            f"and give the dot product of the solution with {weights} as an integer.",
        )
    )
    swapped = weights[1:] + weights[:1]
    (misplaced,) = _apply([swapped], solution)
    return integer(body, value, (misplaced, sum(solution), -value))


def _power_of_matrix(rng: random.Random) -> SubjectDraft:
    matrix, p = _matrix(rng, 4, 1, 19), rng.choice(_LARGE_PRIMES)
    vector, k, row = [rng.randint(1, 30) for _ in range(4)], rng.randint(15, 40), rng.randint(1, 4)
    body = rng.choice(
        (
            f"Let A = {matrix} (row by row), v = {vector} a column and w = A^{k}·v. "
            f"What is entry {row} of w (counting from 1) modulo {p}? Answer with an integer from 0 upwards.",
            f"Apply the matrix with rows {matrix} to the column {vector}, {k} times in all. "
            f"Take component {row} (counting from 1) of the result modulo {p}. Answer with a non-negative integer.",
        )
    )
    runs = [vector]
    for _ in range(k + 1):
        runs.append([entry % p for entry in _apply(matrix, runs[-1])])
    return integer(body, runs[k][row - 1], (runs[k - 1][row - 1], runs[k + 1][row - 1], runs[k][row % 4]))


_NUMBER_THEORY: Final = (_product_residue, _power_residue, _quotient_residue, _two_congruences, _three_congruences)
_LINEAR_ALGEBRA: Final = (_small_determinant, _cubic_determinant, _trace_of_cube, _solve_system, _power_of_matrix)
