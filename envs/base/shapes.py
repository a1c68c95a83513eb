"""What users write in files and options, read into dataclasses by pydantic; what is wrong is said in our own words.

pydantic is imported when the first of it is read. Packaged files are made without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from types import GenericAlias, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.secrets import Address

T = TypeVar("T")
Steps = tuple[str | int, ...]
"""Keys and places that lead to a value."""
# Strict JSON alone makes tuples of lists and dataclasses of keys with values, and no number of "3" and true.
_CONFIG: Any = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
_KEYS = "keys with values"
_EXPECTED: Mapping[str, str] = {
    "int_type": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "finite_number": "a finite number", "string_type": "a text", "bool_type": "true or false", "tuple_type": "a list",
    "dict_type": _KEYS, "dataclass_type": _KEYS, "arguments_type": _KEYS, "named_tuple_type": _KEYS,
}  # fmt: skip
_UNKNOWN, _MISSING = ("unexpected_keyword_argument", "extra_forbidden"), ("missing", "missing_argument")


def read(shape: type[T], data: object, where: str, error: type[ConfigError] = ConfigError, **given: Any) -> T:
    """The dataclass or named tuple that parsed JSON, TOML or options describe. `given` are fields that the data may not
    say. Raises the error, which says where, what was expected, what came, and which key may be meant."""
    from pydantic import ValidationError

    known = [key for key in _known(shape, ()) if key not in given]
    if isinstance(data, Mapping):
        if clash := [key for key in given if key in data]:
            raise error(f"{where}: {no_such('key', clash[0], known)}")
        data = {**data, **given}
    text = json.dumps([data], default=_plain)
    try:
        kind: Any = shape
        made: tuple[T] = _adapter(kind).validate_json(text)
    except ValidationError as err:
        seen = _told(shape, json.loads(text)[0], err.errors(include_url=False), known)
        raise error(f"{where}: {seen}") from None
    return made[0]


@cache
def _adapter(shape: Any) -> Any:
    from pydantic import TypeAdapter

    kind: Any = GenericAlias(tuple, (shape,))  # a dataclass alone would not take the configuration
    return TypeAdapter(kind, config=_CONFIG)


def _plain(value: object) -> object:
    """Decimals, dates and other kinds of mapping as JSON has them."""
    return dict(value) if isinstance(value, Mapping) else str(value)


def _told(shape: Any, data: Any, errors: Sequence[Mapping[str, Any]], known: Sequence[str]) -> str:
    """One error in a sentence: an unknown key, for which another may be missing; else the first. A union has several,
    of which those count that got furthest."""
    found = [(_steps(data, err), err) for err in sorted(errors, key=lambda err: err["type"] not in _UNKNOWN)]
    steps = max((s for s, _ in found if s[: len(found[0][0])] == found[0][0]), key=len)
    alike = [err for s, err in found if s == steps]
    kind, value = alike[0]["type"], alike[0]["input"]
    if kind == "json_invalid":
        return f"it cannot be read: {alike[0]['ctx']['error']}"
    at, above = _lead(steps), _lead(steps[:-1])
    here, beside = (_known(shape, s) if s else known for s in (steps, steps[:-1]))
    if kind in _UNKNOWN:
        return f"{above}{no_such('key', steps[-1], beside)}"
    if kind in _MISSING:
        return f"{above}{steps[-1]} is missing; the keys are {', '.join(beside)}"
    if kind == "literal_error":
        valid = re.findall(r"'(.*?)'", alike[0]["ctx"]["expected"])
        return f"{above}{no_such('key' if alike[0]['loc'][-1] == '[key]' else str(steps[-1]), value, valid)}"
    if kind == "value_error":
        return f"{at}{alike[0]['ctx']['error']}"
    expected = " or ".join(dict.fromkeys(_EXPECTED.get(err["type"], err["msg"]) for err in alike))
    if _KEYS not in expected:
        return f"{at}{expected} expected, got {_shown(value)}"
    names = f" ({', '.join(here)})" if here else ""  # a text is not shown: in place of a table it may hold a login
    return f"{at}{expected}{names} expected, got {'a text' if isinstance(value, str) else _shown(value)}"


def _steps(data: Any, err: Mapping[str, Any]) -> Steps:
    """The way to an error in the data. pydantic's own also names the members of unions."""
    steps: list[str | int] = []
    for step in err["loc"][1:]:
        if (isinstance(data, dict) and step in data) or (isinstance(data, list) and isinstance(step, int)):
            data = data[step]
            steps.append(step)
    return (*steps, err["loc"][-1]) if err["type"] in _MISSING else tuple(steps)


def _lead(steps: Steps) -> str:
    spelled = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
    return f"{spelled}: " if steps else ""


def _known(shape: Any, steps: Steps) -> list[str]:
    """The keys that may stand at the end of a way into a shape."""
    inner = [one for one in get_args(shape) if one is not ...]
    if get_origin(shape) in (Union, UnionType):
        return [key for one in inner for key in _known(one, steps)]
    if get_origin(shape) is None and hasattr(shape, "__annotations__"):
        hints = _hints(shape)
        return _known(hints.get(str(steps[0])), steps[1:]) if steps else list(hints)
    return _known(inner[-1], steps[1:]) if steps and inner else []


@cache
def _hints(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape)


def _shown(value: object) -> str:
    """What came, on one line and without a login."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else _KEYS
    shown = Address.of(value).shown if isinstance(value, str) and "://" in value else value
    return f"{shown!r:.60}"
