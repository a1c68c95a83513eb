"""Readers of command lines' options, for argparse's `type` and for lists of NAME=VALUE."""

from __future__ import annotations

import json
import math
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError


def count(text: str) -> int:
    """How many, one at least."""
    return _whole(text, 1)


def count_or_none(text: str) -> int:
    """How many, none as well."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise ArgumentTypeError(f"a whole number from {least} up expected, got {text!r}")
    return number


def dollars(text: str) -> float:
    """A cap: a positive, finite number of dollars."""
    try:
        usd = float(text)
    except ValueError:
        usd = 0.0
    if not 0 < usd < math.inf:
        raise ArgumentTypeError(f"a number of dollars above 0 expected, got {text!r}; leave it out to set no cap")
    return usd


def folder(text: str) -> Path:
    """A place where a folder is or can be made."""
    path = Path(text)
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            raise ArgumentTypeError(f"a folder expected, but {place} is a file; name another")
    return path


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """`a=1 b=2` as a mapping."""
    made = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not (name and equals):
            raise ConfigError(f"{option} takes NAME=VALUE, got {item!r}")
        made[name] = value
    return made


def value(text: str) -> Any:
    """A setting's value: JSON, or Python's own words for JSON's, or else the text as it stands."""
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except ValueError:
        return text
