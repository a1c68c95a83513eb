"""What does not fit a JSON Schema, in words that an agent can act on: where, what was expected, what came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

MOST_TEXT = 300
"""Characters of a text. What names and values hold is cut long before."""
_MOST_CHOICES = 150

Misfit = Any
"""jsonschema.ValidationError; the library is not typed, and is not imported for its name alone."""


def spoken(misfit: Misfit, whole: str) -> str:
    """The misfit in words. `whole` is what the value as a whole is called."""
    return _bounded(_said(misfit, whole), MOST_TEXT)


def choices(schema: Mapping[str, Any]) -> str:
    """What the argument of this schema may be, to be put behind its name; "" where it has no list."""
    return f", {_one_of(schema['enum'])}" if "enum" in schema else ""


def _bounded(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _said(misfit: Misfit, whole: str) -> str:
    if misfit.validator in ("anyOf", "oneOf"):
        return _of_alternatives(misfit, whole)
    where = _where(misfit, whole)
    if misfit.validator in _WHOLE:
        return f"{where} {_WHOLE[misfit.validator](misfit)}"
    if misfit.validator in _EXPECTED:
        return f"{where} must be {_EXPECTED[misfit.validator](misfit)}, got {misfit.instance!r:.60}"
    if misfit.validator in _SAID_WELL:
        return f"{where}: {misfit.message}"
    return f"{where} does not fit {misfit.validator} {misfit.validator_value!r:.100}, got {_came(misfit)}"


def _where(misfit: Misfit, whole: str) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step:.40}" for step in misfit.absolute_path]
    return _bounded("".join(steps).removeprefix("."), 120) or whole


def _came(misfit: Misfit) -> str:
    return f"{type(misfit.instance).__name__} {misfit.instance!r:.60}"


def _one_of(values: Iterable[Any]) -> str:
    return f"one of: {_bounded(', '.join(map(str, values)), _MOST_CHOICES)}"


def _kinds(misfit: Misfit) -> list[str]:
    said = misfit.validator_value
    return [said] if isinstance(said, str) else list(said)


def _bound(word: str, strict: str, strictly: str) -> Callable[[Misfit], str]:
    """Draft 4 says beside a bound whether it is strict, by true."""
    return lambda misfit: f"{strictly if misfit.schema.get(strict) is True else word} {misfit.validator_value}"


_EXPECTED: Mapping[str, Callable[[Misfit], str]] = {
    "const": lambda misfit: f"{misfit.validator_value!r:.60}",
    "minimum": _bound("at least", "exclusiveMinimum", "above"),
    "maximum": _bound("at most", "exclusiveMaximum", "below"),
    "exclusiveMinimum": lambda misfit: f"above {misfit.validator_value}",
    "exclusiveMaximum": lambda misfit: f"below {misfit.validator_value}",
    "multipleOf": lambda misfit: f"a multiple of {misfit.validator_value}",
    "pattern": lambda misfit: f"text with the pattern {misfit.validator_value:.100}",
    "format": lambda misfit: f"text of the format {misfit.validator_value}",
    "uniqueItems": lambda _misfit: "a list without repetitions",
}


def _needs(misfit: Misfit) -> str:
    missing = next((name for name in misfit.validator_value if name not in misfit.instance), "")
    return f"needs the argument {missing!r:.60}"


def _unknown(misfit: Misfit) -> str:
    names = ", ".join(map(str, misfit.schema.get("properties", {}))) or "none"
    return f"has no argument {misfit.message!r:.60}; its arguments: {_bounded(names, _MOST_CHOICES)}"


def _what_is_excluded(misfit: Misfit) -> str:
    return f"fit {misfit.validator_value!r:.100}" if misfit.validator_value else "be given"


def _count(limit: str, what: str) -> Callable[[Misfit], str]:
    return lambda misfit: f"{limit} {misfit.validator_value} {what}, got {len(misfit.instance)}"


_WHOLE: Mapping[str, Callable[[Misfit], str]] = {
    "type": lambda misfit: f"must be {' or '.join(_kinds(misfit))}, got {_came(misfit)}",
    "enum": lambda misfit: f"must be {_one_of(misfit.validator_value)}; got {misfit.instance!r:.60}",
    "required": _needs,
    "additionalProperties": _unknown,
    "not": lambda misfit: f"may not {_what_is_excluded(misfit)}, got {_came(misfit)}",
    "minLength": _count("needs at least", "characters"),
    "maxLength": _count("may have", "characters"),
    "minItems": _count("needs at least", "items"),
    "maxItems": _count("may have", "items"),
    "minProperties": _count("needs at least", "arguments"),
    "maxProperties": _count("may have", "arguments"),
}
_SAID_WELL = frozenset("items additionalItems unevaluatedItems unevaluatedProperties".split())
"""The library's own texts name what is too many."""


# -- alternatives ------------------------------------------------------------------------------------------------------


def _of_alternatives(misfit: Misfit, whole: str) -> str:
    """What the alternative that was most likely meant says; all of them where they differ in kind or choice alone."""
    if not misfit.context:
        where = _where(misfit, whole)
        return f"{where} fits several alternatives where it may fit one only, got {_came(misfit)}"
    by_number: dict[int, list[Misfit]] = {}
    for inner in misfit.context:
        by_number.setdefault(inner.relative_schema_path[0], []).append(inner)
    alternatives = list(by_number.values())
    likely = [told for told in alternatives if not any(map(_wrong_kind, told))]
    if not likely:
        kinds = dict.fromkeys(kind for told in alternatives for inner in told for kind in _all_kinds(inner))
        return f"{_where(misfit, whole)} must be {' or '.join(kinds)}, got {_came(misfit)}"
    chosen = [told for told in likely if not any(map(_wrong_choice, told))]
    picks = [next(filter(_wrong_choice, told)) for told in likely] if not chosen else []
    if len({tuple(choice.absolute_path) for choice in picks}) == 1:
        values = [value for choice in picks for value in _listed(choice)]
        return f"{_where(picks[0], whole)} must be {_one_of(values)}; got {picks[0].instance!r:.60}"
    return _said(min(chosen or likely, key=len)[0], whole)


def _wrong_kind(misfit: Misfit) -> bool:
    """Whether the value as a whole is of another kind than the alternative takes."""
    if misfit.relative_path:
        return False
    if misfit.validator in ("anyOf", "oneOf") and misfit.context:
        return all(map(_wrong_kind, misfit.context))
    return bool(misfit.validator == "type")


def _wrong_choice(misfit: Misfit) -> bool:
    return misfit.validator in ("const", "enum")


def _all_kinds(misfit: Misfit) -> list[str]:
    if misfit.validator in ("anyOf", "oneOf"):
        return [kind for inner in misfit.context for kind in _all_kinds(inner)]
    return _kinds(misfit) if misfit.validator == "type" and not misfit.relative_path else []


def _listed(misfit: Misfit) -> list[Any]:
    return [misfit.validator_value] if misfit.validator == "const" else list(misfit.validator_value)
