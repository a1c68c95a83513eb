"""The questions on code tracing, graph algorithms and logic."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain, combinations, permutations
from typing import Final, NamedTuple

from toolorchestra.envs.domains.hle.subjects_form import Drafter, SubjectDraft, integer, string

Edges = dict[tuple[str, str], int]

_MODULI: Final = (521, 607, 701, 809, 907, 997)
_FAR: Final = 10**9


def _traced(rng: random.Random, program: Callable[[object], str], shown: int, *others: int) -> SubjectDraft:
    """A tracing question about a program with one number in it. Its decoys are what it prints with other numbers."""
    texts = (
        "What does this Python program print? Answer with the integer.",
        "Trace the following Python program and give the integer that it prints.",
    )
    code, printed = compile(program("number"), "", "exec"), list[int]()
    for number in (shown, *(others or (shown - 1, shown + 1))):
        exec(code, {"print": printed.append, "number": number})
    body = f"{rng.choice(texts)}\n```python\n{program(shown)}\n```"
    return integer(body, printed[0], (*printed[1:], printed[0] + 1))


def _one_line(rng: random.Random) -> SubjectDraft:
    x, a, b, p = rng.randint(100, 999), rng.randint(12, 99), rng.randint(100, 999), rng.choice(_MODULI)
    return _traced(rng, lambda added: f"x = {x}\nx = (x * {a} + {added}) % {p}\nprint(x)", b, 0, 2 * b)


def _plain_loop(rng: random.Random) -> SubjectDraft:
    x, a, rounds, p = rng.randint(100, 999), rng.randint(12, 99), rng.randint(3, 4), rng.choice(_MODULI)

    def program(end: object) -> str:
        return f"""\
x = {x}
for i in range(1, {end}):
    x = (x * {a} + i) % {p}
print(x)"""

    return _traced(rng, program, rounds + 1)


def _branching_loop(rng: random.Random) -> SubjectDraft:
    x, y, a, b = rng.randint(100, 999), rng.randint(100, 999), rng.randint(12, 99), rng.randint(12, 99)
    p, parts, rounds = rng.choice(_MODULI), rng.randint(2, 4), rng.randint(6, 8)

    def program(rounds: object) -> str:
        return f"""\
x, y = {x}, {y}
for i in range({rounds}):
    if x % {parts} == 0:
        x, y = y + i, x
    else:
        x = (x * {a} + y) % {p}
        y = (y ^ x) + {b}
print(x + y)"""

    return _traced(rng, program, rounds)


def _queue_loop(rng: random.Random) -> SubjectDraft:
    start = [rng.randint(10, 99) for _ in range(5)]
    a, b, p, rounds = rng.randint(3, 19), rng.randint(12, 99), rng.choice(_MODULI), rng.randint(11, 15)

    def program(rounds: object) -> str:
        return f"""\
q = {start}
for i in range({rounds}):
    head = q.pop(0)
    if head > q[i % 4]:
        q.append((head * {a} + q[0]) % {p})
    else:
        q.insert(1, head + {b})
print(q[0] + 2 * q[2] + 3 * q[4])"""

    return _traced(rng, program, rounds)


def _permuting_loop(rng: random.Random) -> SubjectDraft:
    start = [rng.randint(10, 99) for _ in range(6)]
    a, b, p, rounds = rng.randint(3, 19), rng.randint(12, 99), rng.choice(_MODULI), rng.randint(22, 30)
    shift = rng.randint(1, 5)

    def program(rounds: object) -> str:
        return f"""\
v = {start}
for i in range({rounds}):
    k, j = i % 6, v[i % 6] % 6
    if v[j] % 2 == 0:
        v[k], v[j] = v[j] + 1, (v[k] * {a} + i) % {p}
    else:
        v[j] = (v[j] ^ v[(i + {shift}) % 6]) + {b}
    if i % 7 == 6:
        v = v[::-1]
print(sum(n * x for n, x in enumerate(v, 1)) % 9973)"""

    return _traced(rng, program, rounds)


def _graph(rng: random.Random, nodes: str, edges: int) -> Edges:
    """A connected undirected graph, each edge once with its ends in alphabetic order."""
    order = rng.sample(nodes, len(nodes))
    pairs = {tuple(sorted((order[i], rng.choice(order[:i])))) for i in range(1, len(order))}
    others = [pair for pair in combinations(nodes, 2) if pair not in pairs]
    chosen = sorted([(a, b) for a, b in pairs] + rng.sample(others, edges - len(pairs)))
    return {(a, b): rng.randint(101, 999) for a, b in chosen}


def _listed(edges: Edges, join: str = "-") -> str:
    return ", ".join(f"{a}{join}{b} {weight}" for (a, b), weight in edges.items())


def _distances(edges: Edges, start: str) -> dict[str, int]:
    """Bellman and Ford over undirected edges."""
    reach = dict.fromkeys({node for pair in edges for node in pair}, _FAR)
    reach[start] = 0
    for _ in reach:
        for (a, b), weight in edges.items():
            reach[a] = min(reach[a], reach[b] + weight)
            reach[b] = min(reach[b], reach[a] + weight)
    return reach


def _shortest_path(rng: random.Random) -> SubjectDraft:
    # Without the direct road, whose length would be a good guess.
    edges = {(a, b): rng.randint(101, 999) for a, b in combinations("ABCD", 2) if (a, b) != ("A", "D")}
    texts = (
        f"Two-way roads join four towns, with lengths in km: {_listed(edges)}. How many km long is the shortest "
        "way from A to D? Answer with an integer.",
        f"An undirected graph has the weighted edges {_listed(edges)}. What is the distance from A to D, the least "
        "total weight of a path? Answer with an integer.",
    )
    value, weights = _distances(edges, "A")["D"], list(edges.values())
    return integer(rng.choice(texts), value, (value + min(weights), weights[0] + weights[-1], max(weights)))


def _spanning_tree(rng: random.Random) -> SubjectDraft:
    edges = _graph(rng, "ABCDEF", 9)
    texts = (
        f"Cables may be laid between six huts at these costs: {_listed(edges)}. What is the least total cost of a "
        "net that links all huts? Answer with an integer.",
        f"An undirected graph has the weighted edges {_listed(edges)}. What is the total weight of its minimum "
        "spanning tree? Answer with an integer.",
    )
    group = {node: node for node in "ABCDEF"}
    value = 0
    for (a, b), weight in sorted(edges.items(), key=lambda item: item[1]):
        if group[a] != group[b]:
            value += weight
            old, new = group[a], group[b]
            group = {node: new if name == old else name for node, name in group.items()}
    cheapest = sorted(edges.values())
    return integer(
        rng.choice(texts), value, (sum(cheapest[:5]), sum(cheapest[:6]), sum(_distances(edges, "A").values()))
    )


def _maximum_flow(rng: random.Random) -> SubjectDraft:
    edges = _graph(rng, "ABCDEF", 11)
    texts = (
        f"One-way pipes, with capacities in litres a second: {_listed(edges, '>')}. "
        "How many litres a second can at most flow from A to F? Answer with an integer.",
        f"A directed network has the arcs and capacities {_listed(edges, '>')}. "
        "What is the value of a maximum flow from A to F? Answer with an integer.",
    )
    inner = [set(kept) for size in range(5) for kept in combinations("BCDE", size)]
    cuts = [sum(w for (a, b), w in edges.items() if a in {"A", *s} and b not in {"A", *s}) for s in inner]
    source, sink = (sum(w for pair, w in edges.items() if node in pair) for node in "AF")
    return integer(rng.choice(texts), min(cuts), (source, sink, sorted(cuts)[1]))


def _distance_sum(rng: random.Random) -> SubjectDraft:
    edges = _graph(rng, "ABCDEFGH", 14)
    texts = (
        f"Two-way roads, with lengths in km: {_listed(edges)}. Add up the lengths of the shortest ways from A to "
        "each of the seven other towns. How many km is that? Answer with an integer.",
        f"In the undirected graph with weighted edges {_listed(edges)}, what is the sum of the distances (least "
        "total weights) from A to all other nodes? Answer with an integer.",
    )
    reach = _distances(edges, "A")
    direct = sum(weight for pair, weight in edges.items() if "A" in pair)
    return integer(
        rng.choice(texts), sum(reach.values()), (sum(_distances(edges, "B").values()), direct, max(reach.values()))
    )


def _visiting_route(rng: random.Random) -> SubjectDraft:
    edges = _graph(rng, "ABCDEFGHI", 16)
    stops = sorted(rng.sample("BCDEFGH", 3))
    listed = f"{stops[0]}, {stops[1]} and {stops[2]}"
    texts = (
        f"Two-way roads, with lengths in km: {_listed(edges)}. A carrier goes from A to I and must call at {listed}, "
        "in any order; roads may be used again. How many km is the shortest trip? Answer with an integer.",
        f"In the undirected graph with weighted edges {_listed(edges)}, what is the least total weight of a walk "
        f"from A to I which visits {listed} in any order (repeats allowed)? Answer with an integer.",
    )
    reach = {node: _distances(edges, node) for node in ("A", *stops)}
    trips = [reach["A"][a] + reach[a][b] + reach[b][c] + reach[c]["I"] for a, b, c in permutations(stops)]
    return integer(rng.choice(texts), min(trips), (trips[0], reach["A"]["I"], max(trips)))


CODE_TRACING: Final = (_one_line, _plain_loop, _branching_loop, _queue_loop, _permuting_loop)
GRAPH_ALGORITHMS: Final = (_shortest_path, _spanning_tree, _maximum_flow, _distance_sum, _visiting_route)


Places = tuple[int, ...]
"""The place of each item, counted from 0 at the left."""


class _Clue(NamedTuple):
    text: str
    holds: Callable[[Places], bool]


ClueMaker = Callable[[random.Random, Places], _Clue]

_MOST_TRIES: Final = 60
_LETTERS: Final = "ABCDEFG"


@lru_cache(maxsize=4)
def _all_places(size: int) -> tuple[Places, ...]:
    return tuple(permutations(range(size)))


def _pair(rng: random.Random, truth: Places) -> tuple[int, int]:
    """Two items, the first of them further left."""
    a, b = rng.sample(range(len(truth)), 2)
    return (a, b) if truth[a] < truth[b] else (b, a)


def _fixed(rng: random.Random, truth: Places) -> _Clue:
    return _place_of(rng.randrange(len(truth)), truth)


def _place_of(item: int, truth: Places) -> _Clue:
    place = truth[item]
    return _Clue(f"{_LETTERS[item]} is in place {place + 1}", lambda p: p[item] == place)


def _before(rng: random.Random, truth: Places) -> _Clue:
    a, b = _pair(rng, truth)
    return _Clue(f"{_LETTERS[a]} is somewhere left of {_LETTERS[b]}", lambda p: p[a] < p[b])


def _beside(rng: random.Random, truth: Places) -> _Clue:
    a = rng.randrange(len(truth))
    b = rng.choice([other for other in range(len(truth)) if abs(truth[other] - truth[a]) == 1])
    return _Clue(f"{_LETTERS[a]} and {_LETTERS[b]} are neighbours", lambda p: abs(p[a] - p[b]) == 1)


def _gap(rng: random.Random, truth: Places) -> _Clue:
    a, b = _pair(rng, truth)
    steps = truth[b] - truth[a]
    text = f"{steps - 1} of the others are between {_LETTERS[a]} and {_LETTERS[b]}"
    return _Clue(text, lambda p: abs(p[a] - p[b]) == steps)


def _apart(rng: random.Random, truth: Places) -> _Clue:
    a, b = _pair(rng, truth)
    if truth[b] - truth[a] == 1:
        return _beside(rng, truth)
    return _Clue(f"{_LETTERS[a]} and {_LETTERS[b]} are not neighbours", lambda p: abs(p[a] - p[b]) != 1)


def _agreement(rng: random.Random, truth: Places) -> _Clue:
    """Either both comparisons hold or neither does."""
    a, b, c, d = rng.sample(range(len(truth)), 4)
    if (truth[a] < truth[b]) != (truth[c] < truth[d]):
        c, d = d, c
    left, right = f"{_LETTERS[a]} is left of {_LETTERS[b]}", f"{_LETTERS[c]} is left of {_LETTERS[d]}"
    return _Clue(f"{left} exactly if {right}", lambda p: (p[a] < p[b]) == (p[c] < p[d]))


def _middle(rng: random.Random, truth: Places) -> _Clue:
    a, b, c = sorted(rng.sample(range(len(truth)), 3), key=lambda item: truth[item])
    text = f"{_LETTERS[b]} is somewhere between {_LETTERS[min(a, c)]} and {_LETTERS[max(a, c)]}"
    return _Clue(text, lambda p: p[a] < p[b] < p[c] or p[c] < p[b] < p[a])


def _ordering(rng: random.Random, size: int, makers: Sequence[ClueMaker]) -> SubjectDraft:
    """Add true clues that rule something out, until brute force over all orderings leaves one."""
    truth = rng.choice(_all_places(size))
    left: Sequence[Places] = _all_places(size)
    clues: list[str] = []
    tries = (makers[index % len(makers)](rng, truth) for index in range(_MOST_TRIES))
    # The places of all items decide every ordering, so the search below always ends with one.
    for clue in chain(tries, (_place_of(item, truth) for item in range(size))):
        kept = [places for places in left if clue.holds(places)]
        if len(kept) < len(left):
            left, clues = kept, [*clues, clue.text]
        if len(left) == 1:
            break
    rng.shuffle(clues)
    items, told = ", ".join(_LETTERS[:size]), "; ".join(clues)
    texts = (
        f"{size} books, {items}, stand on a shelf. The places are numbered from 1 at the left.",
        f"Runners {items} stand in a row of {size}, in places that count from 1 at the left.",
    )
    ask = "Answer with all the letters from left to right, in the form B, A, ..."
    body = f"{rng.choice(texts)} It is known that: {told}. {ask}"
    row = [_LETTERS[item] for item in sorted(range(size), key=lambda item: truth[item])]
    swapped = ([*row[:k], row[k + 1], row[k], *row[k + 2 :]] for k in rng.sample(range(size - 1), 3))
    return string(body, ", ".join(row), map(", ".join, swapped))


def _drafter(size: int, *makers: ClueMaker) -> Drafter:
    return lambda rng: _ordering(rng, size, makers)


LOGIC: Final = (
    _drafter(6, _fixed),
    _drafter(6, _fixed, _before, _fixed, _beside),
    _drafter(6, _gap, _before, _beside),
    _drafter(7, _gap, _middle, _beside, _before, _apart),
    _drafter(7, _agreement, _gap, _middle, _agreement, _apart),
)
