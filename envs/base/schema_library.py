"""JSON Schemas of any shape, checked by the library jsonschema, in bounded time whatever the schema and the arguments.

What differs from the library's own reading:

- Objects take no names but their own unless the schema says more, as in the fast subset (see Anatomy.closed).
- A whole number is written without a point: 2.0 is no integer.
- `$ref` leads into the schema itself; nothing is ever fetched.
- `pattern` and `patternProperties` are searched for in bounded time (see patterns), and a check that takes more than
  MOST_STEPS or looks at more than MOST_VALUES is refused to the agent.
- `format` is checked for FORMATS, which need no further package, and ignored for others: what one machine refuses,
  another may not take.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from typing import Any

import jsonschema
import referencing.jsonschema

from toolorchestra.envs.base.bounded_regex import Steps, TooMuchWork, pattern
from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.base.schema_parts import Anatomy
from toolorchestra.envs.base.schema_words import choices, spoken

FORMATS = ("date", "email", "idn-email", "ipv4", "ipv6", "uuid")
MOST_VALUES = 10_000
"""Of the arguments of one call, those inside lists and objects counted too."""
MOST_STEPS = 1_000_000
"""Of one check: a step of a pattern is one, a reference followed is _STEPS_OF_REFERENCE. About a second."""
_STEPS_OF_REFERENCE = 100
_LIKE = 0.85
"""From here on a word is taken for a misspelling of another; "example" and "nullable" are none."""

_DRAFTS = (
    jsonschema.Draft4Validator,
    jsonschema.Draft6Validator,
    jsonschema.Draft7Validator,
    jsonschema.Draft201909Validator,
    jsonschema.Draft202012Validator,
)
_KEYWORDS = frozenset(keyword for draft in _DRAFTS for keyword in draft.VALIDATORS)
_steps: ContextVar[Steps] = ContextVar("steps")
Misfits = Iterator[Any]


class LibrarySchema:
    """One schema, ready to check arguments. Many threads may use it at once."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises ConfigError, which does not say whose schema it is."""
        base = _draft(schema)
        _check_itself(schema, base)
        anatomy = Anatomy(schema)
        for pointer, part in anatomy.schemas.items():
            _check_spelling(part, pointer, base)
        if schema.get("type", "object") not in ("object", ["object"]):
            raise ConfigError(f"arguments are an object, and its type is {schema['type']!r:.60}; make it 'object'")
        self.arguments, self._open = anatomy.arguments()
        self._required = tuple(schema.get("required", ()))
        for source in anatomy.patterns():
            pattern(source)  # refused here, not at the first call
        self._validator = _bounded_class(base)(
            anatomy.closed(),
            registry=referencing.jsonschema.EMPTY_REGISTRY,
            format_checker=jsonschema.FormatChecker(FORMATS),
        )

    def check(self, arguments: Mapping[str, Any], where: str) -> None:
        """Raise ToolError naming the first argument that does not fit."""
        for name in self._required:
            if name not in arguments:
                raise ToolError(f"{where} needs the argument {name!r:.60}{choices(self.arguments.get(name, {}))}")
        for name in arguments:
            if not self._open and name not in self.arguments:
                valid = ", ".join(self.arguments) or "none"
                raise ToolError(f"{where} has no argument {name!r:.60}; its arguments: {valid:.200}")
        if not _small(arguments):
            raise ToolError(f"{where}: the arguments hold more than {MOST_VALUES} values; give fewer at once")
        token = _steps.set(Steps(MOST_STEPS))
        try:
            misfit = next(self._validator.iter_errors(arguments), None)
        except (TooMuchWork, RecursionError):
            raise ToolError(
                f"{where}: the arguments are too long or too deep to be checked; make them simpler"
            ) from None
        finally:
            _steps.reset(token)
        if misfit is not None:
            raise ToolError(spoken(misfit, where))


@lru_cache(maxsize=512)
def _made(text: str) -> LibrarySchema:
    return LibrarySchema(json.loads(text))


def library_schema(schema: Mapping[str, Any], where: str) -> LibrarySchema:
    """The schema's LibrarySchema, made once for all tools that share it. Raises ConfigError."""
    try:
        text = json.dumps(schema, allow_nan=False, default=dict)
    except (TypeError, ValueError, RecursionError) as err:
        raise ConfigError(f"{where}: the schema cannot be written as JSON: {err}") from None
    try:
        return _made(text)
    except ConfigError as err:
        raise ConfigError(f"{where}: the schema of its arguments: {err}") from None


# -- reading a schema --------------------------------------------------------------------------------------------------


def _draft(schema: Mapping[str, Any]) -> Any:
    """The library's class for the draft that the schema names, the latest where it names none."""
    named = schema.get("$schema", "")
    if isinstance(named, str):
        found = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    if not isinstance(named, str) or found not in _DRAFTS:
        raise ConfigError(f"$schema is {named!r:.80}; drafts 4 to 2020-12 can be read")
    return found


def _check_itself(schema: Mapping[str, Any], base: Any) -> None:
    try:
        wrong = next(base(base.META_SCHEMA).iter_errors(schema), None)
    except RecursionError:
        raise ConfigError("it is nested too deep to be read") from None
    if wrong is not None:
        draft = base.META_SCHEMA.get("$id", base.META_SCHEMA.get("id"))
        raise ConfigError(f"{spoken(wrong, 'it')} (read as {draft}; another draft is named by $schema)")


def _check_spelling(schema: Mapping[str, Any], pointer: str, base: Any) -> None:
    """JSON Schema ignores keywords that it does not know, so a misspelt one would check nothing."""
    for key in schema:
        if key in _KEYWORDS:
            continue
        if meant := difflib.get_close_matches(key, base.VALIDATORS, n=1, cutoff=_LIKE):
            raise ConfigError(f"{pointer} has {key!r:.60}, which is no keyword; did you mean {meant[0]!r}?")


def _small(arguments: Mapping[str, Any]) -> bool:
    count = 0
    waiting: list[Any] = [arguments]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        else:
            continue
        count += len(value)
        if count > MOST_VALUES:
            return False
    return True


# -- keywords whose work is bounded ------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _bounded_class(base: Any) -> Any:
    whole = base.TYPE_CHECKER.redefine("integer", _whole_number)
    keywords: dict[str, Any] = {"$ref": _counted(base.VALIDATORS["$ref"]), **_BOUNDED}
    return jsonschema.validators.extend(base, keywords, type_checker=whole)


def _whole_number(_checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _counted(follow: Callable[..., Misfits]) -> Callable[..., Misfits]:
    def counted(validator: Any, reference: str, value: Any, schema: Any) -> Misfits:
        _steps.get().take(_STEPS_OF_REFERENCE)
        yield from follow(validator, reference, value, schema)

    return counted


def _pattern(_validator: Any, source: str, value: Any, _schema: Any) -> Misfits:
    if isinstance(value, str) and not pattern(source).search(value, _steps.get()):
        yield jsonschema.ValidationError("")


def _pattern_properties(validator: Any, by_pattern: Mapping[str, Any], value: Any, _schema: Any) -> Misfits:
    if not isinstance(value, dict):
        return
    for source, part in by_pattern.items():
        for name, inner in value.items():
            if pattern(source).search(name, _steps.get()):
                yield from validator.descend(inner, part, path=name, schema_path=source)


def _additional_properties(validator: Any, more: Any, value: Any, schema: Mapping[str, Any]) -> Misfits:
    if not isinstance(value, dict) or more is True:
        return
    for name in value:
        if name in schema.get("properties", {}):
            continue
        if any(pattern(source).search(name, _steps.get()) for source in schema.get("patternProperties", ())):
            continue
        if more is False:
            yield jsonschema.ValidationError(name)
        else:
            yield from validator.descend(value[name], more, path=name)


def _unique_items(_validator: Any, wanted: bool, value: Any, _schema: Any) -> Misfits:
    if wanted and isinstance(value, list) and len({_identity(item) for item in value}) < len(value):
        yield jsonschema.ValidationError("")


def _identity(value: Any) -> Any:
    """The same for values that JSON Schema takes for equal: 1 and 1.0, but not 1 and true."""
    if isinstance(value, list):
        return (list, *map(_identity, value))
    if isinstance(value, dict):
        return (dict, frozenset((name, _identity(part)) for name, part in value.items()))
    return (type(value) if isinstance(value, bool) else None, value)


def _multiple_of(_validator: Any, unit: Any, value: Any, _schema: Any) -> Misfits:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and (_exact(value) / _exact(unit)).denominator != 1:
        yield jsonschema.ValidationError("")


def _exact(number: float) -> Fraction:
    """The number as it is written: 0.3 is three times 0.1."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


_BOUNDED: Mapping[str, Callable[..., Misfits]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "multipleOf": _multiple_of,
}
