"""The formats that a tool's text arguments have. What does not fit never reaches the database."""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from toolorchestra.envs.base.errors import ToolError

MOST_TEXT = 200
MOST_NUMBER = 10**12


def is_moment(text: str) -> bool:
    """Whether a text is a date, or a date and a time, that there is."""
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _moment(pattern: str, before: str = "") -> Callable[[str], bool]:
    shape = _like(pattern)
    return lambda text: shape(text) and is_moment(before + text)


def _like(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


_WORDS = re.compile(r"[^\W_](?:[\w .,&/:?!#+-]|(?<=\w)'(?=\w))*")


def _plain(text: str) -> bool:
    """Words and numbers with plain punctuation, without look-alikes, invisible characters or comment marks."""
    if len(text) > MOST_TEXT or "--" in text or "/*" in text or not _WORDS.fullmatch(text):
        return False
    return text.isascii() or (text.isprintable() and unicodedata.is_normalized("NFKC", text))


FORMATS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "id": (_like(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"), "an id of letters, digits, '.', '_' and '-'"),
    "date": (_moment(r"\d{4}-\d{2}-\d{2}"), "a date written YYYY-MM-DD"),
    "time": (_moment(r"\d{2}:\d{2}", "2000-01-01 "), "a time written HH:MM"),
    "datetime": (_moment(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}"), "a time written YYYY-MM-DD HH:MM"),
    "email": (_like(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,100}"), "an e-mail address"),
    "phone": (_like(r"\+?[0-9][0-9 -]{4,20}"), "a phone number of digits, spaces and '-'"),
    "code": (_like(r"[A-Za-z0-9]{1,40}"), "a code of letters and digits"),
    "text": (_plain, f"plain words of at most {MOST_TEXT} characters, without quotes, brackets and the like"),
}
"""Format -> its test, and the words for it in errors. Every string parameter without an enum has one."""


def check_formats(formats: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
    """Raise ToolError naming the first argument that is not in its format, or a number past all reason."""
    for name, value in arguments.items():
        if type(value) is str:
            kind = formats.get(name)
            if kind is not None and not FORMATS[kind][0](value):
                raise ToolError(f"{name} must be {FORMATS[kind][1]}, got {value!r:.60}")
        elif value is not None and not -MOST_NUMBER <= value <= MOST_NUMBER:
            raise ToolError(f"{name} must be between -{MOST_NUMBER} and {MOST_NUMBER}, got {value!r:.60}")
