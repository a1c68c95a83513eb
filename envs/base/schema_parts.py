"""What a JSON Schema is made of: the schemas inside it, what its references point at, which names it knows.

A schema inside is named by its pointer, as references write it: "#/properties/city", "#/$defs/Place". Nothing here
checks a value; see schema_library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple
from urllib.parse import unquote

from toolorchestra.envs.base.errors import ConfigError

MOST_DEPTH = 100
"""How many levels of schemas inside schemas are read."""
_HERE = "allOf anyOf oneOf then else dependentSchemas dependencies".split()
"""Look at the same value as the schema that they stand in."""
_CONDITIONS = "not if".split()
"""The same, and do not say what the value must be."""
_FILTERS = "contains propertyNames".split()
_INSIDE = (
    "items prefixItems additionalItems unevaluatedItems properties patternProperties additionalProperties"
    " unevaluatedProperties $defs definitions"
).split()
"""Look at what is inside the value, or are there to be referred to."""
_BY_NAME = frozenset("dependentSchemas dependencies properties patternProperties $defs definitions".split())
_NAMING = frozenset("properties patternProperties additionalProperties unevaluatedProperties".split())
"""Say which names an object may have."""
_LISTS = frozenset("allOf anyOf oneOf prefixItems items".split())
_NEVER: Mapping[str, Any] = {"not": {}}
_OTHERS = ("additionalProperties", "unevaluatedProperties")


class Part(NamedTuple):
    """A schema that stands directly in another one."""

    keyword: str
    step: str | int | None
    """Its name or number among those of the keyword, None where it is the only one."""
    pointer: str
    schema: Mapping[str, Any]


def parts(schema: Mapping[str, Any], pointer: str) -> Iterator[Part]:
    """The schemas that stand directly in this one. True and False, which are schemas too, are left out."""
    for keyword in (*_HERE, *_CONDITIONS, *_FILTERS, *_INSIDE):
        found = schema.get(keyword)
        if isinstance(found, Mapping) and keyword not in _BY_NAME:
            yield Part(keyword, None, f"{pointer}/{keyword}", found)
        elif isinstance(found, Mapping | list):
            for step, part in found.items() if isinstance(found, Mapping) else enumerate(found):
                if isinstance(part, Mapping):
                    escaped = str(step).replace("~", "~0").replace("/", "~1")
                    yield Part(keyword, step, f"{pointer}/{keyword}/{escaped}", part)


class Anatomy:
    """A schema with all the schemas inside it. Each reference leads to one of these, and none leads in a circle."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        """Raises ConfigError."""
        self.root = root
        self.schemas: dict[str, Mapping[str, Any]] = {}
        """Pointer -> schema, the whole one's first."""
        self._collect(root, "#", 0)
        for pointer, schema in self.schemas.items():
            self._check_references(schema, pointer)
        try:
            self._order = tuple(TopologicalSorter(self._same_value()).static_order())
        except CycleError as err:
            way = " to ".join(reversed(err.args[1]))
            raise ConfigError(
                f"its references go in a circle, from {way:.200}, and look into no value on the way"
            ) from None

    def _collect(self, schema: Mapping[str, Any], pointer: str, depth: int) -> None:
        if depth > MOST_DEPTH:
            raise ConfigError(f"it is nested deeper than {MOST_DEPTH} schemas; name what repeats in $defs")
        self.schemas[pointer] = schema
        for part in parts(schema, pointer):
            self._collect(part.schema, part.pointer, depth + 1)

    def _check_references(self, schema: Mapping[str, Any], pointer: str) -> None:
        for keyword in ("$dynamicRef", "$recursiveRef"):
            if keyword in schema:
                raise ConfigError(f"{pointer} has {keyword}, which is not followed; use $ref")
        if "$id" in schema and pointer != "#":
            raise ConfigError(f"{pointer} has an $id of its own; only the whole schema may have one")
        if "$ref" in schema and _target(schema) not in self.schemas:
            raise ConfigError(
                f"{pointer} refers to {schema['$ref']!r:.80}, which is no schema inside this one, and nothing is "
                'fetched; write it into $defs and refer to it by "#/$defs/NAME"'
            )

    def _same_value(self) -> dict[str, list[str]]:
        """Pointer -> pointers of the schemas that look at the same value on its behalf."""
        made = {}
        for pointer, schema in self.schemas.items():
            conditions = [part.pointer for part in parts(schema, pointer) if part.keyword in _CONDITIONS]
            made[pointer] = [*(part for _, part in self._here(pointer)), *conditions]
        return made

    def _here(self, pointer: str) -> Iterator[tuple[str, str]]:
        """Keyword and pointer of what says, of the same value, what it must be."""
        schema = self.schemas[pointer]
        yield from ((part.keyword, part.pointer) for part in parts(schema, pointer) if part.keyword in _HERE)
        if "$ref" in schema:
            yield "$ref", _target(schema)

    def patterns(self) -> Iterator[str]:
        """Every regular expression in it. Raises ConfigError where their search could not be bounded."""
        by_name = [schema["patternProperties"] for schema in self.schemas.values() if "patternProperties" in schema]
        if by_name and any("unevaluatedProperties" in schema for schema in self.schemas.values()):
            raise ConfigError("it has patternProperties and unevaluatedProperties; say the names by only one of them")
        yield from (name for named in by_name for name in named)
        yield from (schema["pattern"] for schema in self.schemas.values() if "pattern" in schema)

    # -- names ---------------------------------------------------------------------------------------------------------

    def arguments(self) -> tuple[dict[str, Mapping[str, Any]], bool]:
        """The schemas of the whole's names, references followed, and whether it takes names beside these.

        Raises ConfigError where a name is needed that it does not take.
        """
        needed: set[str] = set()
        named: dict[str, Mapping[str, Any]] = {}
        takes_others = False
        waiting, seen = ["#"], set()
        while waiting:
            pointer = waiting.pop()
            if pointer in seen:
                continue
            seen.add(pointer)
            schema = self.schemas[pointer]
            needed |= _required(schema)
            for name, part in schema.get("properties", {}).items():
                named.setdefault(name, self._followed(part) if isinstance(part, Mapping) else {})
            takes_others |= any(schema.get(keyword, False) is not False for keyword in _OTHERS)
            takes_others |= bool(schema.get("patternProperties"))
            waiting += reversed([part for _, part in self._here(pointer)])
        if missing := [] if takes_others else sorted(needed - set(named)):
            raise ConfigError(f"required names {missing!s:.100} are not among the properties")
        return named, takes_others

    def _followed(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**self.schemas[_target(schema)], **beside}
        return schema

    # -- closing -------------------------------------------------------------------------------------------------------

    def closed(self) -> dict[str, Any]:
        """A copy in which objects take no names but their own, unless they say more of it.

        Objects that several schemas describe together (allOf, properties beside anyOf), and what is inside of them,
        stay as the standard has them: none of these schemas knows all the names. So do conditions.
        """
        left: set[str] = set()
        describe: set[str] = set()
        names: dict[str, set[str]] = {}
        needed: dict[str, set[str]] = {}
        for pointer in self._order:  # what a schema refers to comes before it
            schema = self.schemas[pointer]
            here = list(self._here(pointer))
            names[pointer] = set(schema.get("properties", ())).union(*(names[part] for _, part in here))
            needed[pointer] = _required(schema).union(*(needed[part] for _, part in here))
            others = [keyword for keyword, part in here if part in describe]
            own = not _NAMING.isdisjoint(schema)
            if own or others:
                describe.add(pointer)
            # The choices of one anyOf describe the object in turn, the parts of allOf together.
            together = own + others.count("allOf") + len(set(others) - {"allOf"})
            if together > 1 or (together and needed[pointer] - names[pointer]):
                self._leave(pointer, left)
            for part in parts(schema, pointer):
                if part.keyword in (*_CONDITIONS, *_FILTERS):
                    self._leave(part.pointer, left)
        made = self._copy(self.root, "#", left)
        made.pop("$id", None)
        return made

    def _leave(self, pointer: str, left: set[str]) -> None:
        waiting = [pointer]
        while waiting:
            pointer = waiting.pop()
            if pointer in left:
                continue
            left.add(pointer)
            schema = self.schemas[pointer]
            waiting += [part.pointer for part in parts(schema, pointer) if part.keyword not in ("$defs", "definitions")]
            waiting += [part for _, part in self._here(pointer)]

    def _copy(self, schema: Mapping[str, Any], pointer: str, left: set[str]) -> dict[str, Any]:
        # A subschema's $schema would have the library go on by other rules.
        made = {key: _with_nevers(key, value) for key, value in schema.items() if key != "$schema"}
        for part in parts(schema, pointer):
            copy = self._copy(part.schema, part.pointer, left)
            if part.step is None:
                made[part.keyword] = copy
            else:
                made[part.keyword][part.step] = copy
        named = "properties" in schema or "patternProperties" in schema
        if named and pointer not in left and not any(keyword in schema for keyword in _OTHERS):
            made["additionalProperties"] = False
        return made


def _with_nevers(keyword: str, held: Any) -> Any:
    """A copy of what holds schemas, False among them written out: of False the library does not say where it stands."""
    if keyword in _BY_NAME and isinstance(held, Mapping):
        return {name: _NEVER if part is False else part for name, part in held.items()}
    if keyword in _LISTS and isinstance(held, list):
        return [_NEVER if part is False else part for part in held]
    return _NEVER if keyword in (*_CONDITIONS, *_FILTERS, "then", "else") and held is False else held


def _required(schema: Mapping[str, Any]) -> set[str]:
    required = schema.get("required", ())
    return set(required) if isinstance(required, list) else set()  # draft 3 wrote true


def _target(schema: Mapping[str, Any]) -> str:
    """What a schema's reference points at, "" for what can be none."""
    reference = schema["$ref"]
    return unquote(reference) if isinstance(reference, str) else ""
