"""Arguments made up by chance: values that fit a tool's JSON schema."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
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

    Negations and conditions are ignored; what must fit has to be checked.
    """
    return _ValueMaker(schema, rng).value(schema, 0)


class _ValueMaker:
    """Makes values of one schema. References are followed, and of alternatives one is chosen."""

    def __init__(self, root: Mapping[str, Any], rng: random.Random) -> None:
        self._root = root
        self._rng = rng

    def value(self, schema: Any, depth: int) -> Any:
        """Something that fits a part of the schema, so many levels down."""
        merged = self._merged(schema, depth) if isinstance(schema, Mapping) else {}
        if "const" in merged:
            return merged["const"]
        if "enum" in merged:
            return self._rng.choice(merged["enum"])
        kind = merged.get("type", "object" if "properties" in merged else "string")
        if not isinstance(kind, str):
            kind = kind[0]
        if kind == "object":
            return self._object(merged, depth)
        if kind == "array":
            return self._array(merged, depth)
        if kind in ("integer", "number"):
            return self._number(merged, kind)
        if kind == "boolean":
            return self._rng.random() < 0.5
        return None if kind == "null" else self._text(merged)

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
        required, parts = schema.get("required", ()), schema.get("properties", {})
        chance = 0.5 if depth <= _DEEP else 0.0
        made = {}
        for name, part in parts.items():
            if name in required or self._rng.random() < chance:
                made[name] = self.value(part, depth + 1)
        return made | {name: self.value({}, depth + 1) for name in required if name not in parts}

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        items = schema.get("items", {})
        first = schema.get("prefixItems") or (items if isinstance(items, list) else ())
        if not first:
            least = schema.get("minItems", 0)
            most = least if depth > _DEEP or schema.get("uniqueItems") else min(2, schema.get("maxItems", 2))
            first = [items] * max(least, most)
        return [self.value(part, depth + 1) for part in first]

    def _text(self, schema: Mapping[str, Any]) -> str:
        pattern, form, least = schema.get("pattern"), schema.get("format"), schema.get("minLength", 0)
        if pattern or form:
            told = [*schema.get("examples", ()), schema.get("default")]
            if texts := [text for text in told if isinstance(text, str)]:
                return self._rng.choice(texts)
        if pattern:
            return _with_pattern(pattern, self._rng)
        if form in _OF_FORMAT:
            return _OF_FORMAT[form]
        if least > 1:
            long: str = "river lakes " * (least // 12 + 1)
            return long[:least]
        return " ".join(self._rng.choices(("river", "7", "größe", "of"), k=3))[: schema.get("maxLength", 20)]

    def _number(self, schema: Mapping[str, Any], kind: str) -> float:
        low = _bound(schema.get("minimum"), schema.get("exclusiveMinimum"), 1, kind)
        high = _bound(schema.get("maximum"), schema.get("exclusiveMaximum"), -1, kind)
        if low is None:
            low = 0 if high is None else min(0, high - 1)
        if unit := schema.get("multipleOf"):
            return unit * math.ceil(low / unit)  # type: ignore[no-any-return]
        if kind == "integer":
            low = math.ceil(low)
            return self._rng.randint(low, low + 9 if high is None else min(low + 9, math.floor(high)))
        low = float(low)
        return low + self._rng.random() * (1.0 if high is None else min(1.0, high - low))


def _bound(bound: float | None, strict: float | bool | None, inwards: int, kind: str) -> float | None:
    """The first number inside the bounds. Draft 4 says by true that the bound itself is strict."""
    if strict is True:
        bound, strict = None, bound
    if strict is None or strict is False:
        return bound
    return math.floor(strict * inwards + 1) * inwards if kind == "integer" else strict + 0.001 * inwards


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
