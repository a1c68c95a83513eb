"""Arguments made up by chance: values that fit a tool's JSON schema.

A simple schema is filled in as it stands. Any other is first made simple: references followed, one alternative chosen,
patterns and formats replaced by texts that have them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.base.json_schema import Checker

_TRIES = 10_000
"""Texts that are tried for a pattern."""
_DEEP = 4
"""Levels after which what is optional is left out, so that schemas which hold themselves come to an end."""
_OF_FORMAT = {
    "date": "2026-11-01",
    "date-time": "2026-11-01T09:30:00Z",
    "time": "09:30:00Z",
    "email": "nobody@example.com",
    "ipv4": "192.0.2.7",
    "ipv6": "2001:db8::7",
    "uri": "https://example.com/",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
}


def random_value(schema: Mapping[str, Any], rng: random.Random) -> Any:
    """Something that fits; small numbers and short texts, so that what they ask for is soon done.

    Negations and conditions are ignored where the schema is not simple; what must fit has to be checked.
    """
    return _simple(schema if _is_simple(schema) else _Simplifier(schema, rng).whole(schema, 0), rng)


def _simple(schema: Mapping[str, Any], rng: random.Random) -> Any:
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type", "string")
    return _MAKERS[kind if isinstance(kind, str) else kind[0]](schema, rng)


def _object(schema: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    parts, required = schema.get("properties", {}), schema.get("required", ())
    return {name: _simple(parts[name], rng) for name in parts if name in required or rng.random() < 0.5}


def _array(schema: Mapping[str, Any], rng: random.Random) -> list[Any]:
    return [_simple(schema.get("items", {}), rng) for _ in range(min(2, schema.get("maxItems", 2)))]


def _integer(schema: Mapping[str, Any], rng: random.Random) -> int:
    low = math.ceil(schema.get("minimum", 0))
    return rng.randint(low, min(low + 9, math.floor(schema.get("maximum", low + 9))))


def _number(schema: Mapping[str, Any], rng: random.Random) -> float:
    low = float(schema.get("minimum", 0.0))
    return low + rng.random() * min(1.0, float(schema.get("maximum", low + 1.0)) - low)


def _string(schema: Mapping[str, Any], rng: random.Random) -> str:
    return " ".join(rng.choices(("river", "7", "größe", "of"), k=3))[: schema.get("maxLength", 20)]


_MAKERS: Mapping[str, Callable[[Mapping[str, Any], random.Random], Any]] = {
    "object": _object,
    "array": _array,
    "integer": _integer,
    "number": _number,
    "string": _string,
    "boolean": lambda _schema, rng: rng.random() < 0.5,
    "null": lambda _schema, _rng: None,
}


# -- any schema made simple --------------------------------------------------------------------------------------------


_PLAIN = frozenset(
    "type enum properties required additionalProperties items minimum maximum maxLength maxItems"
    " description default title".split()
)


def _is_simple(schema: Any) -> bool:
    """Whether values can be made of it as it stands."""
    if not isinstance(schema, Mapping) or not _PLAIN.issuperset(schema):
        return False
    parts = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return not isinstance(schema.get("additionalProperties"), Mapping) and all(map(_is_simple, parts))


def _with_pattern(source: str, rng: random.Random) -> str:
    """Some text that the pattern is found in, "" where chance does not hit on one."""
    checker = Checker({"properties": {"text": {"pattern": source}}})
    start = source.removeprefix("^")
    plain = start[: next((at for at, sign in enumerate(start) if not (sign.isalnum() or sign in " _-")), len(start))]
    for _ in range(_TRIES):
        kinds = rng.choices(("0123456789", "abcxyz", "ABC", "-", " "), (8, 8, 2, 2, 1), k=rng.randint(1, 3))
        text = plain * rng.randint(0, 1) + "".join(
            "".join(rng.choices(kind, k=rng.randint(1, 5 if kind.isalnum() else 1))) for kind in kinds
        )
        try:
            checker.check({"text": text}, "")
        except ToolError:
            continue
        return text
    return ""


class _Simplifier:
    """One schema, of which a simple one is made whose values mostly fit it."""

    def __init__(self, root: Mapping[str, Any], rng: random.Random) -> None:
        self._root = root
        self._rng = rng

    def whole(self, schema: Any, depth: int) -> dict[str, Any]:
        if not isinstance(schema, Mapping):
            return {}
        merged = self._merged(schema, depth)
        if "const" in merged:
            return {"enum": [merged["const"]]}
        if "enum" in merged:
            return {"enum": list(merged["enum"])}
        kind = merged.get("type", "object" if "properties" in merged else "string")
        if not isinstance(kind, str):
            kind = self._rng.choice(kind)
        make = {"object": self._object, "array": self._array, "string": self._string}.get(kind)
        if make is not None:
            return make(merged, depth)
        return self._number(merged, kind) if kind in ("integer", "number") else {"type": kind}

    def _merged(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """References followed, one alternative chosen, all parts put together."""
        made = dict(schema)
        joined = [self._target(made.pop("$ref"))] if "$ref" in made else []
        joined += made.pop("allOf", ())
        for keyword in ("anyOf", "oneOf"):
            if choices := made.pop(keyword, ()):
                short = [part for part in choices if "$ref" not in part] if depth > _DEEP else []
                joined.append(self._rng.choice(short or choices))
        for part in joined:
            inner = self._merged(part, depth) if isinstance(part, Mapping) else {}
            properties = {**inner.get("properties", {}), **made.get("properties", {})}
            required = [*inner.get("required", ()), *made.get("required", ())]
            made = {**inner, **made}
            if properties or required:
                made.update(properties=properties, required=required)
        return made

    def _target(self, reference: str) -> Any:
        found: Any = self._root
        for step in unquote(reference).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found[int(step)] if isinstance(found, list) else found[step]
        return found

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = list(schema.get("required", ()))
        kept = {
            name: self.whole(part, depth + 1)
            for name, part in schema.get("properties", {}).items()
            if name in required or depth <= _DEEP
        }
        unnamed: dict[str, Any] = {name: {} for name in required if name not in kept}
        return {"type": "object", "properties": {**kept, **unnamed}, "required": required}

    def _array(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        items = schema.get("items", {})
        first = schema.get("prefixItems") or (items if isinstance(items, list) else ())
        if first:
            return {"enum": [[_simple(self.whole(part, depth + 1), self._rng) for part in first]]}
        least = schema.get("minItems", 0)
        if least == 0 and depth > _DEEP:
            return {"type": "array", "maxItems": 0}
        if least > 2 or schema.get("uniqueItems"):
            return {"enum": [[_simple(self.whole(items, depth + 1), self._rng) for _ in range(least)]]}
        made = {"type": "array", "items": self.whole(items, depth + 1)}
        return {**made, "maxItems": schema["maxItems"]} if "maxItems" in schema else made

    def _string(self, schema: Mapping[str, Any], _depth: int) -> dict[str, Any]:
        told = [*schema.get("examples", ()), *([schema["default"]] if "default" in schema else [])]
        texts = [text for text in told if isinstance(text, str)]
        if texts and ("pattern" in schema or "format" in schema):
            return {"enum": texts}
        if "pattern" in schema:
            return {"enum": [_with_pattern(schema["pattern"], self._rng)]}
        if schema.get("format") in _OF_FORMAT:
            return {"enum": [_OF_FORMAT[schema["format"]]]}
        if schema.get("minLength", 0) > 1:
            return {"enum": ["river" * (schema["minLength"] // 5) + "lakes"[: schema["minLength"] % 5]]}
        most = schema.get("maxLength")
        return {"type": "string"} if most is None else {"type": "string", "maxLength": most}

    def _number(self, schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
        low = self._bound(schema.get("minimum"), schema.get("exclusiveMinimum"), 1, kind)
        high = self._bound(schema.get("maximum"), schema.get("exclusiveMaximum"), -1, kind)
        if low is None and high is not None:
            low = high - 1
        if unit := schema.get("multipleOf"):
            return {"enum": [unit * math.ceil((low or 0) / unit)]}
        bounds = {"minimum": low, "maximum": high}
        return {"type": kind, **{name: bound for name, bound in bounds.items() if bound is not None}}

    @staticmethod
    def _bound(bound: float | None, strict: float | bool | None, inwards: int, kind: str) -> float | None:
        """The first number inside the bounds. Draft 4 says by true that the bound itself is strict."""
        if strict is True:
            bound, strict = None, bound
        if strict is None or strict is False:
            return bound
        return math.floor(strict * inwards + 1) * inwards if kind == "integer" else strict + 0.001 * inwards
