"""Assistant turns made up by chance: valid ones, valid ones with something wrong, and hostile shapes of any size."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence

from toolorchestra.envs.base.actions import CLOSE, OPEN, THINK, UNTHINK, render_call
from toolorchestra.envs.base.marks import KNOWN

MOST_CHARACTERS = 20_000
"""Of a turn; hostile shapes have sizes of their own."""

_ONE = render_call("search", {"model": "search-1"})
CORPUS: Sequence[str] = (
    _ONE,
    f"{THINK}Let me see.{UNTHINK}\n{_ONE}",
    f"thought without a beginning{UNTHINK}{_ONE}",
    f"First this:\n{_ONE}\n{render_call('answer', {'model': 'answer-2', 'n': [1, 2.5, None, True]})}\nThen.",
    render_call("place", {"place": {"city": "größe 表 😀", "tags": ["<a>", "}{", '"', "\\"]}, "price": -1.5e-7}),
    f"{THINK}I might {_ONE}{UNTHINK}The answer is 42.",
    "Plain words: größe, π, 表, 😀.",
    f'{OPEN}\n {{"arguments": {{}}, "name": "done"}} \n{CLOSE}',
    f'{OPEN}{{"name": "a", "arguments": {{"a": 1, "a": 2}}}}{CLOSE}',
    f'{OPEN}{{"name": "a", "arguments": {{"a": "\\ud83d"}}}}{CLOSE}',
)
PIECES: Sequence[str] = (
    *KNOWN,
    *(OPEN, CLOSE, THINK, UNTHINK) * 4,
    *('{"name": ', '"arguments": ', "{", "}", "[", "]", '"', "\\", ",", ":", "\\u0000", "\\ud800", '{"name": "a"}'),
    *("null", "true", "NaN", "-Infinity", "1e999", "-0", "1e-999", "9" * 400, "9" * 5000, "0x1", "1_000", "01", "'"),
    *("\x00", "\x1b[31m", "\ud800", "\udfff", "\ufeff", "\u202e", "\u2028", "\x85", "\r", "\n", "\t", " "),
    *("é", "\U0010ffff", "<|im_end|>", "<|im_start|>system\n", "answer", "submit", "DROP TABLE", "../../etc/passwd"),
    *("%s%n", "{0.__class__}"),
)  # fmt: skip


def _with(value: str) -> str:
    """A call with one argument, whose JSON is given."""
    return f'{OPEN}{{"name": "a", "arguments": {{"a": {value}}}}}{CLOSE}'


SHAPES: Mapping[str, Callable[[int], str]] = {
    "open tags": lambda size: OPEN * (size // len(OPEN)),
    "close tags": lambda size: CLOSE * (size // len(CLOSE)),
    "thoughts": lambda size: (THINK + UNTHINK) * (size // 15),
    "thoughts that only end": lambda size: UNTHINK * (size // 8),
    "calls": lambda size: _ONE * (size // len(_ONE)),
    "calls thought of": lambda size: (_ONE + UNTHINK) * (size // (len(_ONE) + 8)),
    "blanks": lambda size: OPEN + " " * size + CLOSE,
    "blanks and words": lambda size: " \n" * (size // 2) + "word",
    "arrays": lambda size: _with("[" * (size // 2) + "]" * (size // 2)),
    "objects": lambda size: _with('{"a":' * (size // 6) + "1" + "}" * (size // 6)),
    "unclosed": lambda size: _with('{"a":[' * (size // 6))[: -len(CLOSE) - 2],
    "a long text": lambda size: render_call("a", {"a": "x" * size}),
    "quotes": lambda size: _with('"' + '\\"' * (size // 2) + '"'),
    "escapes": lambda size: _with('"' + "\\ud83d" * (size // 6) + '"'),
    "a long number": lambda size: _with("9" * size),
    "many keys": lambda size: render_call("a", {f"k{number}": number for number in range(size // 14)}),
    "one key often": lambda size: _with('{"a": 1' + ', "a": 1' * (size // 8) + "}"),
    "a long list": lambda size: render_call("a", {"a": [0] * (size // 3)}),
    "half surrogates": lambda size: "\ud800" * size,
    "wide text": lambda size: "表😀é" * (size // 3),
}


class Turns:
    """Endless turns; the same seed gives the same."""

    def __init__(self, seed: int | str) -> None:
        self._rng = random.Random(seed)
        self._shapes = tuple(SHAPES.values())
        self._mutations = (self._cut, self._insert, self._repeat, self._drop, self._swap, self._letter, self._splice)

    def next(self, valid: str = "") -> str:
        """One turn, made of a valid one where that is given: about one in four stays as it is."""
        rng = self._rng
        if rng.random() < 0.03:
            return rng.choice(self._shapes)(rng.choice((10, 200, 3000)))
        text = valid or rng.choice(CORPUS)
        for _ in range(rng.choice((0, 1, 1, 2, 3, 6, 0, 1))):
            text = rng.choice(self._mutations)(text)[:MOST_CHARACTERS]
        return text

    def _span(self, text: str) -> tuple[int, int]:
        start = self._rng.randint(0, len(text))
        return start, min(len(text), start + self._rng.choice((1, 2, 5, 20, 200)))

    def _cut(self, text: str) -> str:
        at = self._rng.randint(0, len(text))
        return text[:at] if self._rng.random() < 0.5 else text[at:]

    def _insert(self, text: str) -> str:
        at = self._rng.randint(0, len(text))
        return text[:at] + self._rng.choice(PIECES) + text[at:]

    def _repeat(self, text: str) -> str:
        start, end = self._span(text)
        return text[:end] + text[start:end] * self._rng.choice((1, 2, 17, 150)) + text[end:]

    def _drop(self, text: str) -> str:
        start, end = self._span(text)
        return text[:start] + text[end:]

    def _swap(self, text: str) -> str:
        (start, middle), end = self._span(text), self._rng.randint(0, len(text))
        return text[:start] + text[middle : max(middle, end)] + text[start:middle] + text[max(middle, end) :]

    def _letter(self, text: str) -> str:
        at = self._rng.randint(0, len(text))
        code = self._rng.choice((0x20, 0x80, 0x300, 0x10000, sys.maxunicode))
        return text[:at] + chr(self._rng.randrange(code + 1)) + text[at + 1 :]

    def _splice(self, text: str) -> str:
        other = self._rng.choice(CORPUS)
        return text[: self._rng.randint(0, len(text))] + other[self._rng.randint(0, len(other)) :]
