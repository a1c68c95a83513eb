"""SQL functions with bounds of their own, put in the place of SQLite's.

SQLite cannot be stopped inside a function: `printf('%.2000000000c', 'x')` counts to two billion, and `instr` of two
long texts compares every part of the one with the other. `date('now')` reads the clock of the machine, and so does the
word when it is put together or comes from a row. Each function here checks its arguments first, and then asks SQLite's
own on a connection that holds nothing else, so the results are SQLite's. Results are kept, since seed rows repeat.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any

MOST_LENGTH = 100_000
"""Limit of a text that SQL works on, in bytes. A tool shows 20,000 characters at most."""
MOST_WIDTH = 200
"""Limit of a width or precision in a format."""
MOST_FORMAT = 2_000
MOST_SEARCHED = 1_000
"""Limit of what is looked for in a text, or trimmed from it."""
MOST_PATTERN = 500
"""Limit of what LIKE compares a text with."""
MOST_COMPARED = 1_000_000
"""Characters of a text times those of its pattern: LIKE compares every place of the one with all of the other."""
KEPT_RESULTS = 8_192
FAILED = "user-defined function raised exception"
"""What SQLite says of any function here that refuses; `told` knows why."""
_DATES = ("date", "time", "datetime", "julianday", "strftime")
_CLOCKS = ("current_date", "current_time", "current_timestamp")
_OF_THE_MACHINE = frozenset({"now", "subsec", "subsecond", "localtime", "utc"})
_CONVERSION = re.compile(r"%[-+ 0#,!]*(\*|\d*)(?:\.(\*|\d*))?")
_local = threading.local()


class FunctionRefused(ValueError):
    """A function may not do what a statement asks of it."""


def bound(connection: sqlite3.Connection) -> None:
    """Put these functions in the place of SQLite's on a connection."""
    for name, work in _FUNCTIONS.items():
        connection.create_function(name, -1, work, deterministic=True)


def told(err: Exception) -> str:
    """An error's text: the reason, where a function of this thread's refused."""
    return getattr(_local, "why", "") or str(err) if FAILED in str(err) else str(err)


def _refused(why: str) -> FunctionRefused:
    _local.why = why
    return FunctionRefused(why)


@lru_cache(maxsize=KEPT_RESULTS, typed=True)
def _of_sqlite(name: str, *values: Any) -> Any:
    connection = getattr(_local, "connection", None)
    if connection is None:
        connection = _local.connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_LENGTH)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MOST_PATTERN)
    try:
        return connection.execute(f"SELECT {name}({', '.join('?' * len(values))})", values).fetchone()[0]
    except sqlite3.Error as err:
        raise _refused(f"{name}(): {err}") from None


def _short(name: str, values: tuple[Any, ...], most: int) -> None:
    for value in values:
        if isinstance(value, str | bytes) and len(value) > most:
            raise _refused(f"{name}() takes texts of at most {most} characters, got {len(value)}")


def _dated(name: str) -> Callable[..., Any]:
    first = 1 if name == "strftime" else 0

    @lru_cache(maxsize=KEPT_RESULTS, typed=True)
    def dated(*values: Any) -> Any:
        if len(values) <= first:
            raise _refused(f"{name}() without a time reads the clock of the machine; use :now or :today")
        for value in values[first:]:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            if isinstance(text, str) and text.split("\0")[0].strip().lower() in _OF_THE_MACHINE:
                raise _refused(f"{name}(...) with {text!r:.20} reads the clock or time zone of the machine; use :now")
        _short(name, values, MOST_SEARCHED)
        return _uncached(name, values)

    return dated


def _refusing(why: str) -> Callable[..., Any]:
    def refusing(*_: Any) -> Any:
        raise _refused(why)

    return refusing


def _formatted(*values: Any) -> Any:
    if values and isinstance(values[0], str | bytes):
        form = values[0].decode("utf-8", "replace") if isinstance(values[0], bytes) else values[0]
        if len(form) > MOST_FORMAT:
            raise _refused(f"printf() takes a format of at most {MOST_FORMAT} characters, got {len(form)}")
        for width, precision in _CONVERSION.findall(form):
            if any(number == "*" or (number and int(number[:9]) > MOST_WIDTH) for number in (width, precision)):
                raise _refused(f"printf() takes widths and precisions up to {MOST_WIDTH}, got {form!r:.60}")
    return _of_sqlite("printf", *values) if all(_is_small(value) for value in values) else _uncached("printf", values)


def _is_small(value: Any) -> bool:
    return not isinstance(value, str | bytes) or len(value) <= MOST_SEARCHED


def _uncached(name: str, values: tuple[Any, ...]) -> Any:
    return _of_sqlite.__wrapped__(name, *values)


def _found(text: Any, part: Any) -> Any:
    if isinstance(text, str) and isinstance(part, str):
        return text.find(part) + 1
    _short("instr", (text, part), MOST_SEARCHED)
    return _of_sqlite("instr", text, part)


def _replaced(text: Any, part: Any, other: Any) -> Any:
    if not (isinstance(text, str) and isinstance(part, str) and isinstance(other, str)):
        _short("replace", (text, part, other), MOST_SEARCHED)
        return _of_sqlite("replace", text, part, other)
    if not part:
        return text
    if len(text) + text.count(part) * (len(other) - len(part)) > MOST_LENGTH:
        raise _refused(f"replace() makes a text of more than {MOST_LENGTH} characters")
    return text.replace(part, other)


def _alike(*values: Any) -> Any:
    """LIKE: the pattern comes first."""
    sizes = [len(value) for value in values[:2] if isinstance(value, str | bytes)]
    if len(sizes) == 2 and sizes[0] * sizes[1] > MOST_COMPARED:
        raise _refused(f"like() takes texts whose lengths give at most {MOST_COMPARED} when multiplied, got {sizes}")
    return _of_sqlite("like", *values) if all(map(_is_small, values)) else _uncached("like", values)


def _trimmed(name: str) -> Callable[..., Any]:
    def trimmed(*values: Any) -> Any:
        _short(name, values[1:], MOST_SEARCHED)
        return _of_sqlite(name, *values) if all(map(_is_small, values)) else _uncached(name, values)

    return trimmed


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _dated(name) for name in _DATES},
    **{name: _refusing(f"{name} reads the clock of the machine; use :now or :today") for name in _CLOCKS},
    **{name: _trimmed(name) for name in ("trim", "ltrim", "rtrim")},
    "random": _refusing("random() gives something else each time, which would break replays"),
    "randomblob": _refusing("randomblob() gives something else each time, which would break replays"),
    "printf": _formatted,
    "format": _formatted,
    "instr": _found,
    "like": _alike,
    "replace": _replaced,
}
