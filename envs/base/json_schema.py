"""Tool arguments and their JSON Schemas. A schema that cannot be checked is refused when the tool is made.

The library jsonschema-rs checks them as draft 2020-12 has it, but for this:

- Objects take no names but their own unless the schema says more (see _Closer).
- A whole number is written without a point: 2.0 is no integer.
- `$ref` leads into the schema itself; nothing is ever fetched.
- Patterns are searched for in time that grows with the text alone: no look-arounds, no back references.
- `format` is checked for FORMATS and ignored for others.
- What earlier drafts wrote otherwise is read as they meant it (see _modern).
"""

from __future__ import annotations

import copy
import difflib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import unquote

from toolorchestra.envs.base.errors import ConfigError, ToolError

FORMATS = frozenset(("date", "email", "idn-email", "ipv4", "ipv6", "uuid"))
MOST_TEXT = 2000
"""Characters of a refusal. Names and values of the agent's are cut long before."""
_MOST_LISTED = 1000
_MOST_WAYS = 4096
"""Ways through alternatives that are looked at to say what does not fit. Whether it fits is found without them."""
_MOST_MISFITS = 500
_LIKE = 0.85
"""Likeness from which a word is taken for a misspelling of another; OpenAPI's "nullable" is none."""

_WHOLE = "wholeNumber"
"""A keyword of our own beside `type: integer`."""
_TOGETHER = ("allOf", "then", "else", "dependentSchemas")
_IN_TURN = ("anyOf", "oneOf")
_HERE = (*_TOGETHER, *_IN_TURN)
"""Look at the same value as the schema that they stand in, and say what it must be; so does $ref."""
_CONDITIONS = ("not", "if", "contains", "propertyNames")
_INSIDE = (
    "items prefixItems unevaluatedItems properties patternProperties additionalProperties unevaluatedProperties"
).split()
_DEFINITIONS = ("$defs", "definitions")
_BY_NAME = frozenset(("dependentSchemas", "properties", "patternProperties", *_DEFINITIONS))
_OTHERS = ("additionalProperties", "unevaluatedProperties")
_KEYWORDS = frozenset(
    (
        *(*_HERE, *_CONDITIONS, *_INSIDE, *_DEFINITIONS),
        *"$ref $schema $id $anchor $comment $vocabulary".split(),
        *"title description default example examples deprecated readOnly writeOnly type enum const required".split(),
        *"minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength pattern format".split(),
        *"minItems maxItems uniqueItems minContains maxContains minProperties maxProperties dependentRequired".split(),
        *"contentEncoding contentMediaType contentSchema id dependencies additionalItems".split(),
    )
)
Schema = dict[str, Any]


class Checker:
    """A schema, ready to check the arguments of calls. Many threads may use it at once."""

    __slots__ = ("_schema", "arguments")

    def __init__(self, schema: Mapping[str, Any], where: str = "the schema") -> None:
        """Raises ConfigError for a schema that is wrong or cannot be enforced."""
        try:
            text = json.dumps(schema, allow_nan=False, default=dict)
        except (TypeError, ValueError, RecursionError) as err:
            raise ConfigError(f"{where}: the schema cannot be written as JSON: {err}") from None
        try:
            self._schema = _ready(text)
        except ConfigError as err:
            raise ConfigError(f"{where}: the schema of its arguments: {err}") from None
        self.arguments: Mapping[str, Mapping[str, Any]] = self._schema.arguments
        """The arguments that have a name, and what the schema says of each, references followed."""

    def check(self, arguments: Mapping[str, Any], where: str) -> None:
        """Raise ToolError naming the first argument that does not fit."""
        try:
            if self._schema.fits(arguments):
                return
            refusal = _refusal(self._schema, arguments, where)
        except ValueError as err:
            refusal = f"{where}: the arguments are no JSON: {err!s:.100}"
        raise ToolError(refusal)


class _Ready(NamedTuple):
    """A schema as the library checks it."""

    fits: Callable[[Any], bool]
    misfits: Callable[[Any], Iterable[Any]]
    root: Schema
    arguments: Mapping[str, Schema]
    ways: int
    """Alternatives that a value inside a value may have to be looked at by."""


class _Whole:
    """The check of _WHOLE, called by the library."""

    def __init__(self, _schema: object, _value: object, _path: object) -> None: ...

    def validate(self, value: object) -> None:
        if isinstance(value, float):
            raise ValueError


@lru_cache(maxsize=1024)
def _ready(text: str) -> _Ready:
    """The schema of a text, made once for all tools that share it. The library is imported at the first."""
    from jsonschema_rs import Draft202012Validator, RegexOptions, ValidationError

    root = json.loads(text)
    if root.get("type", "object") not in ("object", ["object"]):
        raise ConfigError(f"arguments are an object, and its type is {root['type']!r:.60}; make it 'object'")
    options: Any = {"validate_formats": True, "pattern_options": RegexOptions(), "offline": True}
    options["keywords"] = {_WHOLE: _Whole}
    closer = _Closer(root)
    try:
        closer.read()
        Draft202012Validator(root, **options)  # nothing in it is of another kind than is expected below
        arguments = closer.close()
        made = Draft202012Validator(root, **options)
    except ConfigError:
        raise
    except ValidationError as err:
        if err.kind.name != "format":
            raise ConfigError(f"{_said(err, {}, 'it')} (read as draft 2020-12)") from None
        raise ConfigError(
            f"the pattern {err.instance!r:.80} cannot be read; write a regular expression without look-arounds and "
            "back references, which could take for ever, and with few repeats"
        ) from None
    except (RecursionError, ValueError):
        raise ConfigError("it is nested too deep to be read; name what repeats in $defs") from None
    return _Ready(made.is_valid, made.iter_errors, root, arguments, closer.ways)


# -- reading a schema --------------------------------------------------------------------------------------------------


def _parts(schema: Schema, keywords: Iterable[str]) -> Iterator[tuple[str, str, Schema]]:
    """The schemas that stand directly under these keywords, each with its keyword and the way to it. True and False are
    left out."""
    for keyword in keywords:
        found = schema.get(keyword)
        held: Iterable[tuple[str, object]] = [(keyword, found)]
        if isinstance(found, list):
            held = [(f"{keyword}/{place}", part) for place, part in enumerate(found)]
        elif keyword in _BY_NAME and isinstance(found, dict):
            held = [(f"{keyword}/{name}", part) for name, part in found.items()]
        for way, part in held:
            if isinstance(part, dict):
                yield keyword, way, part


def _check_words(schema: Schema, at: str) -> None:
    """Refuse what would be ignored: a misspelt keyword, a reference that is not followed."""
    for key in schema.keys() - _KEYWORDS:
        if key in ("$dynamicRef", "$recursiveRef"):
            raise ConfigError(f"{at} has {key}, which is not followed; use $ref")
        if meant := difflib.get_close_matches(key, _KEYWORDS, n=1, cutoff=_LIKE):
            raise ConfigError(f"{at} has {key!r:.60}, which is no keyword; did you mean {meant[0]!r}?")
    if "$id" in schema and at != "#":
        raise ConfigError(f"{at} has an $id of its own; only the whole schema may have one")


def _modern(schema: Schema) -> None:
    """Write as draft 2020-12 does what earlier drafts wrote otherwise."""
    for keyword in ("$schema", "$id", "id"):
        schema.pop(keyword, None)
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
    for bound, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if schema.get(strict) is True and bound in schema:
            schema[strict] = schema.pop(bound)
        elif schema.get(strict) is False:
            del schema[strict]
    if isinstance(needed := schema.pop("dependencies", None), dict):
        for name, part in needed.items():
            keyword = "dependentRequired" if isinstance(part, list) else "dependentSchemas"
            schema.setdefault(keyword, {})[name] = part


def _as_read_here(schema: Schema) -> None:
    """Write what is read here otherwise than the library reads it."""
    if schema.get("format") not in FORMATS:
        schema.pop("format", None)
    kinds = schema.get("type")
    if kinds == "integer" or (isinstance(kinds, list) and "integer" in kinds and "number" not in kinds):
        schema[_WHOLE] = True
    if schema.get("additionalProperties") is False:
        schema.setdefault("properties", {})  # without it the library says of a value what is wrong with a name


class _Closer:
    """Closes a schema: objects take no names but their own, unless the schema says more of them.

    Where several schemas describe an object together (allOf, properties beside anyOf) it takes the names of all. What a
    reference leads to is closed in a copy, since elsewhere it may be one part of several. Conditions stay as they are.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._closed: dict[str, str] = {}
        """Reference -> the reference to its closed copy."""
        self.ways = 1

    def read(self) -> None:
        """Write the schema as it is read here, in its place. Raises ConfigError."""
        self._read(self._root, "#")

    def close(self) -> Mapping[str, Schema]:
        """Close the schema in its place; its named arguments, references followed. Raises ConfigError."""
        arguments = {name: self._followed(part) for name, part in self.names(self._root).items()}
        said_open = any(part.get(other, False) is not False for part in self._here(self._root) for other in _OTHERS)
        pattern = any("patternProperties" in part for part in self._here(self._root))
        missing = sorted(self._needed(self._root) - set(arguments))
        if missing and not (said_open or pattern):
            raise ConfigError(f"required names {missing!s:.100} are not among the properties")
        self._visit(self._root)
        if not said_open and not self._root.keys() & set(_OTHERS):
            self._root["unevaluatedProperties"] = False
        return arguments

    def _read(self, schema: Schema, at: str) -> None:
        _check_words(schema, at)
        _modern(schema)
        _as_read_here(schema)
        if "$ref" in schema:
            self._target(schema["$ref"], at)
        for _, way, part in list(_parts(schema, (*_HERE, *_CONDITIONS, *_INSIDE, *_DEFINITIONS))):
            self._read(part, f"{at}/{way}")
        for keyword in _IN_TURN:
            recursive = sum("$ref" in json.dumps(part) for _, _, part in _parts(schema, (keyword,)))
            self.ways = max(self.ways, recursive)

    def _target(self, reference: object, at: str) -> Schema:
        found: Any = self._root
        try:
            first, *steps = unquote(str(reference)).split("/")
            for step in [step.replace("~1", "/").replace("~0", "~") for step in steps]:
                found = found[int(step)] if isinstance(found, list) else found[step]
        except (KeyError, IndexError, ValueError, TypeError):
            first = ""
        if first != "#" or not isinstance(found, dict | bool):
            raise ConfigError(
                f"{at} refers to {reference!r:.80}, which is no schema inside this one, and nothing is fetched; write "
                'it into $defs and refer to it by "#/$defs/NAME"'
            )
        return found if isinstance(found, dict) else {}

    def _here(self, schema: Schema) -> list[Schema]:
        """The schema and all that say, of the same value, what it must be."""
        found = [schema]
        for one in found:
            parts = [part for _, _, part in _parts(one, _HERE)]
            if "$ref" in one:
                parts.append(self._target(one["$ref"], ""))
            found += [part for part in parts if all(part is not seen for seen in found)]
        return found

    def names(self, schema: Schema) -> dict[str, Any]:
        """The names that a value may have, with what is said of each."""
        named: dict[str, Any] = {}
        for part in self._here(schema):
            for name, inner in part.get("properties", {}).items():
                named.setdefault(name, inner)
        return named

    def _needed(self, schema: Schema) -> set[str]:
        listed = (part.get("required", ()) for part in self._here(schema))
        return {name for names in listed if isinstance(names, list) for name in names}

    def _followed(self, schema: Any) -> Schema:
        seen = 0
        while isinstance(schema, dict) and "$ref" in schema and seen < 100:
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            schema, seen = {**self._target(schema["$ref"], ""), **beside}, seen + 1
        return copy.deepcopy(schema) if isinstance(schema, dict) else {}

    def _visit(self, schema: Schema) -> None:
        """Close the values inside, wherever they are described."""
        for keyword, _, part in list(_parts(schema, (*_HERE, *_INSIDE, *_DEFINITIONS))):
            self._visit(part)
            if keyword in _INSIDE:
                self._shut(part)

    def _shut(self, schema: Schema) -> None:
        """Close one value's schema."""
        if any(other in part for part in self._here(schema) for other in _OTHERS):
            self._shut_copy(schema)
            return
        own = "properties" in schema or "patternProperties" in schema
        others = [(key, part) for key, _, part in _parts(schema, _HERE) if self._describes(part)]
        refers = "$ref" in schema and self._describes(self._target(schema["$ref"], ""))
        if not own and refers and not others:
            self._shut_copy(schema)
        elif not own and others and len({key for key, _ in others}) == 1 and others[0][0] in _IN_TURN:
            for _, part in others:
                self._shut(part)
        elif (own or others or refers) and self._needed(schema) <= set(self.names(schema)):
            schema["unevaluatedProperties" if others or refers else "additionalProperties"] = False

    def _describes(self, schema: Schema) -> bool:
        return any("properties" in part or "patternProperties" in part for part in self._here(schema))

    def _shut_copy(self, schema: Schema) -> None:
        reference = schema.get("$ref")
        if reference is None or reference in self._closed.values():
            return
        if reference not in self._closed:
            name = f"-closed-{len(self._closed)}"
            self._closed[reference] = f"#/$defs/{name}"
            made = self._root.setdefault("$defs", {})[name] = copy.deepcopy(self._target(reference, ""))
            self._visit(made)
            self._shut(made)
        schema["$ref"] = self._closed[reference]


# -- what does not fit, in words ---------------------------------------------------------------------------------------


def _refusal(schema: _Ready, arguments: Mapping[str, Any], where: str) -> str:
    """Where, what was expected, what came: of the first argument that does not fit."""
    for name in schema.root.get("required", ()):
        if name not in arguments:
            choices = schema.arguments.get(name, {}).get("enum")
            among = f", {_one_of(choices)}" if choices is not None else ""
            return _cut(f"{where} needs the argument {name!r:.60}{among}")
    if schema.ways ** _depth(arguments) > _MOST_WAYS:
        return f"{where}: the arguments do not fit, and are too deep to say where; make them simpler"
    order = {name: index for index, name in enumerate(arguments)}

    def rank(misfit: Any) -> tuple[int, int, int]:
        name, path = misfit.kind.name, misfit.instance_path or _unexpected(misfit)
        # A name whose value does not fit is unevaluated too.
        deep = 1000 if name == "unevaluatedProperties" else len(misfit.instance_path)
        return order.get(path[0], -1) if path else -1, deep, _FIRST.get(name, 2)

    misfits = islice(schema.misfits(arguments), _MOST_MISFITS)
    return _cut(_said(min(misfits, key=rank), schema.root, where))


_FIRST = {"required": -1, "type": 0, _WHOLE: 0, "enum": 1, "const": 1}


def _depth(value: object) -> int:
    inside: Iterable[object] = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max((1 + _depth(part) for part in inside if isinstance(part, dict | list)), default=0)


def _unexpected(misfit: Any) -> Sequence[str]:
    if misfit.kind.name not in _OTHERS:
        return ()
    found = set(misfit.kind.unexpected)
    return [name for name in misfit.instance if name in found]


def _cut(text: str, most: int = MOST_TEXT) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _one_of(values: Iterable[Any]) -> str:
    return f"one of: {_cut(', '.join(map(str, values)), _MOST_LISTED)}"


def _where(misfit: Any, whole: str) -> str:
    steps = [f"[{step}]" if isinstance(step, int) else f".{step:.40}" for step in misfit.instance_path]
    return _cut("".join(steps).removeprefix("."), 120) or whole


def _came(misfit: Any) -> str:
    return f"{type(misfit.instance).__name__} {misfit.instance!r:.60}"


def _keyword(misfit: Any, root: Schema) -> tuple[str, Schema]:
    """The keyword that says no, and the schema that it stands in; {} where that is not the tool's."""
    path = list(misfit.schema_path)
    name = misfit.kind.name
    at = len(path) - 1 - path[::-1].index(name) if name in path else len(path) - 1
    found: Any = root
    try:
        for step in path[:at]:
            found = found[step]
    except (KeyError, IndexError, TypeError):
        return name, {}
    return name, found if isinstance(found, dict) else {}


def _said(misfit: Any, root: Schema, whole: str) -> str:
    name, schema = _keyword(misfit, root)
    if name in _IN_TURN:
        return _of_alternatives(misfit, root, whole)
    where = _where(misfit, whole)
    given = misfit.kind.as_dict()
    limit = schema.get(name, given.get("limit"))
    if name == "required":
        return f"{where} needs the argument {given['property']!r:.60}"
    if name in _OTHERS:
        names = _Closer(root).names(schema)
        listed = _cut(", ".join(names) or "none", _MOST_LISTED)
        return f"{where} has no argument {_unexpected(misfit)[0]!r:.60}; its arguments: {listed}"
    if name in ("type", _WHOLE):
        return f"{where} must be {' or '.join(_kinds(misfit, root))}, got {_came(misfit)}"
    if name == "enum":
        return f"{where} must be {_one_of(given['options'])}; got {misfit.instance!r:.60}"
    if name in ("falseSchema", "not"):
        return f"{where} may not {f'fit {limit!r:.100}' if name == 'not' else 'be given'}, got {_came(misfit)}"
    if name in _COUNTS:
        least, what = _COUNTS[name]
        return f"{where} {least} {limit} {what}, got {len(misfit.instance)}"
    if name in _EXPECTED:
        return f"{where} must be {_EXPECTED[name].format(limit)[:200]}, got {misfit.instance!r:.60}"
    return f"{where} does not fit {name} {limit!r:.100}, got {_came(misfit)}"


_COUNTS = {
    "minLength": ("needs at least", "characters"),
    "maxLength": ("may have", "characters"),
    "minItems": ("needs at least", "items"),
    "maxItems": ("may have", "items"),
    "minProperties": ("needs at least", "arguments"),
    "maxProperties": ("may have", "arguments"),
}
_EXPECTED = {
    "const": "{!r}",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "above {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "a multiple of {}",
    "pattern": "text with the pattern {}",
    "format": "text of the format {}",
    "uniqueItems": "a list without repetitions",
}


def _kinds(misfit: Any, root: Schema) -> list[str]:
    said = _keyword(misfit, root)[1].get("type") or misfit.kind.types
    return [said] if isinstance(said, str) else list(said)


def _of_alternatives(misfit: Any, root: Schema, whole: str) -> str:
    """What the alternative that was most likely meant says; all of them where they differ in kind or choice alone."""
    told: list[list[Any]] = misfit.kind.context
    where, depth = _where(misfit, whole), len(misfit.instance_path)
    if not all(told):
        return f"{where} fits several alternatives where it may fit one only, got {_came(misfit)}"
    likely = [errors for errors in told if not any(_wrong_kind(error, depth) for error in errors)]
    if not likely:
        kinds = dict.fromkeys(kind for errors in told for error in errors for kind in _all_kinds(error, depth, root))
        return f"{where} must be {' or '.join(kinds)}, got {_came(misfit)}" if kinds else f"{where} may not be given"
    chosen = [errors for errors in likely if not any(map(_wrong_choice, errors))]
    picks = [next(filter(_wrong_choice, errors)) for errors in likely] if not chosen else []
    if len({tuple(choice.instance_path) for choice in picks}) == 1:
        values = [value for choice in picks for value in _listed(choice)]
        return f"{_where(picks[0], whole)} must be {_one_of(values)}; got {picks[0].instance!r:.60}"
    return _said(min(chosen or likely, key=len)[0], root, whole)


def _wrong_kind(misfit: Any, depth: int) -> bool:
    """Whether the value as a whole is of another kind than the alternative takes."""
    if len(misfit.instance_path) > depth:
        return False
    if misfit.kind.name in _IN_TURN:
        return all(_wrong_kind(error, depth) for errors in misfit.kind.context for error in errors)
    return misfit.kind.name in ("type", _WHOLE, "falseSchema")


def _wrong_choice(misfit: Any) -> bool:
    return misfit.kind.name in ("const", "enum")


def _all_kinds(misfit: Any, depth: int, root: Schema) -> list[str]:
    if misfit.kind.name in _IN_TURN:
        return [kind for errors in misfit.kind.context for one in errors for kind in _all_kinds(one, depth, root)]
    whole = misfit.kind.name in ("type", _WHOLE) and len(misfit.instance_path) == depth
    return _kinds(misfit, root) if whole else []


def _listed(misfit: Any) -> list[Any]:
    return [misfit.kind.expected_value] if misfit.kind.name == "const" else list(misfit.kind.options)
