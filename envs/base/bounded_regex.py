"""Regular expressions of JSON Schemas, searched in bounded time: no text can make one go on for ever.

Python's own search tries one way after the other, and for a pattern like `(a+)+$` there are 2**n ways through n
characters. Here all ways are followed at once, character by character, so n characters take at most n times the
pattern's size steps (more only inside look-arounds), and every search pays for its steps. What a pattern means is what
Python's `re` says. Back references, atomic groups and possessive repeats are refused: they depend on the way taken.
"""

from __future__ import annotations

import importlib
import random
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError

MOST_SIZE = 5000
"""Of a pattern, in instructions; a{1,20} counts its a twenty times."""
_CHARACTERS_REMEMBERED = 4096
_TRIES, _STEPS_OF_WALK = 100, 400
_parser: Any = importlib.import_module("re._parser")
"""Private, and the same in all Pythons that are supported (see the tests): only it reads exactly what `re` reads."""
_WHAT_COMPILES = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.ASCII | re.UNICODE
_ALPHABETS = re.ASCII | re.UNICODE | re.LOCALE
_ANCHORS = {
    "AT_BEGINNING": "^",
    "AT_BEGINNING_STRING": r"\A",
    "AT_BOUNDARY": r"\b",
    "AT_NON_BOUNDARY": r"\B",
    "AT_END": "$",
    "AT_END_STRING": r"\Z",
}
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_REFUSED = {
    "GROUPREF": "a back reference",
    "GROUPREF_EXISTS": "a back reference",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}
_CHARACTER, _SPLIT, _JUMP, _ANCHOR, _LOOK, _FOUND = range(6)
_Instruction = tuple[int, Any, Any]


class TooMuchWork(Exception):
    """A check would take more steps than it has."""


class Steps:
    """The work that one check may still do."""

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, count: int) -> None:
        """Use some up. Raises TooMuchWork."""
        self.left -= count
        if self.left < 0:
            raise TooMuchWork


class _Fitting(dict[str, bool]):
    """Character -> whether it fits, found out when it is first asked."""

    def __init__(self, source: str, flags: int) -> None:
        super().__init__()
        self._fits = re.compile(source, flags).fullmatch

    def __missing__(self, character: str) -> bool:
        fits = self._fits(character) is not None
        if len(self) < _CHARACTERS_REMEMBERED:
            self[character] = fits
        return fits


class _Look(NamedTuple):
    """A look-around: what must be, or may not be, ahead of a place or behind it."""

    code: Sequence[_Instruction]
    back: int
    wanted: bool


class Pattern:
    """A regular expression, ready to be searched for."""

    __slots__ = ("_code", "source")

    def __init__(self, source: str) -> None:
        """Raises ConfigError where the pattern is none, or cannot be searched for in bounded time."""
        self.source = source
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about what may mean something else in a later Python
                parsed = _parser.parse(source)
            self._code = _Writer([0]).whole(parsed, parsed.state.flags)
        except (re.error, OverflowError, RecursionError) as err:
            raise ConfigError(
                f"the pattern {source!r:.80} cannot be read: {err}; write it as Python's re does"
            ) from None
        except _NotFollowed as err:
            raise ConfigError(f"the pattern {source!r:.80} {err}") from None

    def search(self, text: str, steps: Steps) -> bool:
        """Whether it is found anywhere in the text. Raises TooMuchWork."""
        return _found(self._code, text, 0, steps, anchored=False)

    def example(self, rng: random.Random) -> str | None:
        """Some text that it is found in, None where chance does not hit on one."""
        alphabet = list(dict.fromkeys([*"abcxyz0123456789ABC -_.", *self.source]))
        for _ in range(_TRIES):
            text = self._walk(rng, alphabet)
            if text is not None and self.search(text, Steps(_STEPS_OF_WALK * MOST_SIZE)):
                return text
        return None

    def _walk(self, rng: random.Random, alphabet: Sequence[str]) -> str | None:
        text, place = "", 0
        for _ in range(_STEPS_OF_WALK):
            kind, one, other = self._code[place]
            place += 1
            if kind == _FOUND:
                return text
            if kind == _SPLIT:
                place = rng.choice((one, other))
            elif kind == _JUMP:
                place = one
            elif kind == _CHARACTER:
                fitting = [character for character in alphabet if one[character]]
                if not fitting:
                    return None
                text += rng.choice(fitting)
        return None


@lru_cache(maxsize=1024)
def pattern(source: str) -> Pattern:
    """The Pattern of a source, made once."""
    return Pattern(source)


def _found(code: Sequence[_Instruction], text: str, start: int, steps: Steps, *, anchored: bool) -> bool:
    """Whether the code matches at `start`, or without `anchored` anywhere after it."""
    alive = [0]
    for at in range(start, len(text) + 1):
        following: list[int] = [] if anchored else [0]
        if _advance(code, text, at, alive, following, steps):
            return True
        if not following:
            return False
        alive = following
    return False


def _advance(
    code: Sequence[_Instruction], text: str, at: int, alive: list[int], following: list[int], steps: Steps
) -> bool:
    """Go on from all the places that are alive to those behind the next character. Whether the code has matched."""
    character = text[at : at + 1]
    reached: set[int] = set()
    while alive:
        place = alive.pop()
        if place in reached:
            continue
        reached.add(place)
        kind, one, other = code[place]
        if kind == _CHARACTER:
            if character and one[character]:
                following.append(place + 1)
        elif kind == _SPLIT:
            alive += (one, other)
        elif kind == _JUMP:
            alive.append(one)
        elif kind == _FOUND:
            return True
        elif one(text, at) if kind == _ANCHOR else _holds(one, text, at, steps):
            alive.append(place + 1)
    steps.take(len(reached))
    return False


def _holds(look: _Look, text: str, at: int, steps: Steps) -> bool:
    start = at - look.back
    return (start >= 0 and _found(look.code, text, start, steps, anchored=True)) is look.wanted


class _NotFollowed(Exception):
    """What cannot be searched for by following all ways at once."""


class _Writer:
    """Writes the instructions of a pattern. `size` counts them, with those of its look-arounds."""

    def __init__(self, size: list[int]) -> None:
        self._code: list[_Instruction] = []
        self._size = size

    def whole(self, nodes: Any, flags: int) -> Sequence[_Instruction]:
        """The instructions of a whole pattern."""
        self._sequence(nodes, flags)
        self._add(_FOUND)
        return tuple(self._code)

    def _add(self, kind: int, one: Any = None, other: Any = None) -> int:
        self._size[0] += 1
        if self._size[0] > MOST_SIZE:
            raise _NotFollowed(
                f"is larger than {MOST_SIZE} steps once its repeats are written out; say it by maxLength"
            )
        self._code.append((kind, one, other))
        return len(self._code) - 1

    def _sequence(self, nodes: Any, flags: int) -> None:
        for name, value in nodes:
            write = self._WRITERS.get(str(name))
            if write is None:
                what = _REFUSED.get(str(name), str(name))
                raise _NotFollowed(f"holds {what}, which cannot be searched for in bounded time; write it without")
            write(self, str(name), value, flags)

    def _character(self, name: str, value: Any, flags: int) -> None:
        if name == "IN":
            source = f"[{''.join(_class_part(str(kind), part) for kind, part in value)}]"
        elif name == "ANY":
            source = "."
        else:
            source = f"[{'^' * (name == 'NOT_LITERAL')}{re.escape(chr(value))}]"
        self._add(_CHARACTER, _Fitting(source, flags & _WHAT_COMPILES))

    def _anchor(self, _name: str, value: Any, flags: int) -> None:
        self._add(_ANCHOR, re.compile(_ANCHORS[str(value)], flags & _WHAT_COMPILES).match)

    def _look(self, name: str, value: Any, flags: int) -> None:
        direction, inner = value
        back = inner.getwidth()[0] if direction < 0 else 0
        self._add(_LOOK, _Look(_Writer(self._size).whole(inner, flags), back, name == "ASSERT"))

    def _nothing(self, _name: str, _value: Any, _flags: int) -> None:
        self._add(_LOOK, _Look(((_FOUND, None, None),), 0, False))

    def _group(self, _name: str, value: Any, flags: int) -> None:
        _, more, less, inner = value
        if more & _ALPHABETS:
            flags &= ~_ALPHABETS
        self._sequence(inner, (flags | more) & ~less)

    def _branch(self, _name: str, value: Any, flags: int) -> None:
        *others, last = value[1]
        ends = []
        for choice in others:
            split = self._add(_SPLIT)
            self._sequence(choice, flags)
            ends.append(self._add(_JUMP))
            self._code[split] = (_SPLIT, split + 1, len(self._code))
        self._sequence(last, flags)
        for end in ends:
            self._code[end] = (_JUMP, len(self._code), None)

    def _repeat(self, _name: str, value: Any, flags: int) -> None:
        least, most, inner = value
        for _ in range(least):
            before = len(self._code)
            self._sequence(inner, flags)
            if len(self._code) == before:  # nothing, however often
                return
        if most == _parser.MAXREPEAT:
            split = self._add(_SPLIT)
            self._sequence(inner, flags)
            self._add(_JUMP, split)
            self._code[split] = (_SPLIT, split + 1, len(self._code))
            return
        splits = []
        for _ in range(most - least):
            splits.append(self._add(_SPLIT))
            self._sequence(inner, flags)
        for split in splits:
            self._code[split] = (_SPLIT, split + 1, len(self._code))

    _WRITERS: Mapping[str, Callable[[_Writer, str, Any, int], None]] = {
        "LITERAL": _character,
        "NOT_LITERAL": _character,
        "ANY": _character,
        "IN": _character,
        "AT": _anchor,
        "ASSERT": _look,
        "ASSERT_NOT": _look,
        "FAILURE": _nothing,
        "SUBPATTERN": _group,
        "BRANCH": _branch,
        "MAX_REPEAT": _repeat,
        "MIN_REPEAT": _repeat,
    }


def _class_part(kind: str, value: Any) -> str:
    if kind == "NEGATE":
        return "^"
    if kind == "LITERAL":
        return re.escape(chr(value))
    if kind == "RANGE":
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    return _CATEGORIES[str(value)]
