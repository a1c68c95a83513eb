"""Tool arguments and their JSON Schemas. A schema that cannot be checked is refused when the tool is made.

The part that most tools use is checked here, fast: type, enum, properties, required, additionalProperties (true or
false, default false), items, minimum, maximum, maxLength, maxItems, description, default, title. Checker gives a schema
that holds anything else to schema_library, which takes the whole of JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolorchestra.envs.base.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from toolorchestra.envs.base.schema_library import LibrarySchema

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_KEYS = frozenset(
    "type enum properties required additionalProperties items minimum maximum maxLength maxItems"
    " description default title".split()
)
_BOUNDS = _KEYS - {"type", "enum", "required", "description", "default", "title"}


def is_simple(schema: Any) -> bool:
    """Whether a schema keeps to the part that is checked here. It may be wrong all the same."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, Mapping) or not _KEYS.issuperset(part):
            return False
        named = part.get("properties", {})
        if not isinstance(named, Mapping) or isinstance(part.get("additionalProperties"), Mapping):
            return False
        waiting += named.values()
        if "items" in part:
            waiting.append(part["items"])
    return True


def check_schema(schema: Mapping[str, Any], where: str) -> None:
    """Refuse a schema that check_arguments would not fully enforce."""
    if unknown := sorted(set(schema) - _KEYS):
        raise ConfigError(f"{where}: JSON schema keys {unknown} are not understood; use {sorted(_KEYS)}")
    kinds = _kinds(schema)
    if unknown := sorted(set(kinds) - set(_TYPES)):
        raise ConfigError(f"{where}: types {unknown} are not JSON types; use {sorted(_TYPES)}")
    if not isinstance(more := schema.get("additionalProperties", False), bool):
        raise ConfigError(f"{where}: additionalProperties is true or false, got {more!r:.60}")
    if not isinstance(listed := schema.get("enum", ()), list | tuple):
        raise ConfigError(f"{where}: enum lists the values that are allowed, got {listed!r:.60}")
    for key in ("minimum", "maximum", "maxLength", "maxItems"):
        if isinstance(bound := schema.get(key, 0), bool) or not isinstance(bound, int | float):
            raise ConfigError(f"{where}: {key} is a number, got {bound!r:.60}")
    for name, part in schema.get("properties", {}).items():
        check_schema(part, f"{where}.{name}")
    if missing := sorted(set(schema.get("required", ())) - set(schema.get("properties", {}))):
        raise ConfigError(f"{where}: required names {missing} are not among the properties")
    if "items" in schema:
        check_schema(schema["items"], f"{where}[]")


def _kinds(schema: Mapping[str, Any]) -> tuple[str, ...]:
    kind = schema.get("type", ())
    return (kind,) if isinstance(kind, str) else tuple(kind)


_EXACT: Mapping[str, frozenset[type]] = {
    "string": frozenset({str}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "boolean": frozenset({bool}),
}


_NEVER_GIVEN: Any = object()


class Checker:
    """Checks arguments against one schema, with the common case (a plain type, maybe an enum) looked up beforehand."""

    __slots__ = ("_all", "_library", "_plain", "_required", "_schema", "arguments")

    def __init__(self, schema: Mapping[str, Any], where: str = "the schema") -> None:
        """Raises ConfigError for a schema that is wrong or cannot be enforced."""
        self._schema = schema
        self._library: LibrarySchema | None = None
        self._required: tuple[str, ...]
        self._plain: dict[str, tuple[frozenset[type], frozenset[Any] | None]] = {}
        self.arguments: Mapping[str, Mapping[str, Any]]
        """The arguments that have a name, and what the schema says of each, references followed."""
        if not is_simple(schema):
            from toolorchestra.envs.base.schema_library import library_schema

            self._library = library_schema(schema, where)
            self.arguments = self._library.arguments
            # No call passes the quick look.
            self._required, self._all = (_NEVER_GIVEN,), -1
            return
        check_schema(schema, where)
        self.arguments = schema.get("properties", {})
        self._required = tuple(schema.get("required", ()))
        for name, part in schema.get("properties", {}).items():
            kind = part.get("type")
            listed = any(isinstance(value, list | dict) for value in part.get("enum", ()))  # those cannot be hashed
            plain = isinstance(kind, str) and kind in _EXACT and not listed
            if plain and set(part) <= {"type", "enum", "description", "title"}:
                self._plain[name] = (_EXACT[kind], frozenset(part["enum"]) if "enum" in part else None)
        # With as many plain arguments as there are, none that is required can be missing.
        self._all = len(self._plain) if set(self._required) <= set(self._plain) else -1

    def check(self, arguments: Mapping[str, Any], where: str) -> None:
        """Raise ToolError naming the first argument that does not fit."""
        plain = self._plain
        for name, value in arguments.items():
            rule = plain.get(name)
            if rule is None or type(value) not in rule[0] or (rule[1] is not None and value not in rule[1]):
                break
        else:
            if len(arguments) == self._all:
                return
            for name in self._required:
                if name not in arguments:
                    break
            else:
                return
        if self._library is None:
            check_arguments(self._schema, arguments, where)
        else:
            self._library.check(arguments, where)


def check_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any], where: str) -> None:
    """Raise ToolError naming the first argument that does not fit."""
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in arguments:
            raise ToolError(f"{where} needs the argument {name!r}{_hint(properties[name])}")
    for name, value in arguments.items():
        part = properties.get(name)
        if part is not None:
            _check(part, value, name)
        elif not schema.get("additionalProperties", False):
            valid = ", ".join(properties) or "none"
            raise ToolError(f"{where} has no argument {name!r:.60}; its arguments: {valid}")


def _hint(schema: Mapping[str, Any]) -> str:
    return f", one of: {', '.join(map(str, schema['enum']))}" if "enum" in schema else ""


def _check(schema: Mapping[str, Any], value: object, where: str) -> None:
    kinds = _kinds(schema)
    if kinds and not _is_one_of(value, kinds):
        raise ToolError(f"{where} must be {_spoken(kinds)}, got {type(value).__name__} {value!r:.60}")
    enum = schema.get("enum")
    if enum is not None and value not in enum:
        raise ToolError(f"{where} must be one of: {', '.join(map(str, enum))}; got {value!r:.60}")
    if not _BOUNDS.isdisjoint(schema):
        _check_bounds(schema, value, where)


def _spoken(kinds: tuple[str, ...]) -> str:
    return " or ".join(kinds)


def _is_one_of(value: object, kinds: tuple[str, ...]) -> bool:
    if isinstance(value, bool):  # bool is an int to Python, not to JSON
        return "boolean" in kinds
    return any(isinstance(value, _TYPES[kind]) for kind in kinds)


def _check_bounds(schema: Mapping[str, Any], value: Any, where: str) -> None:
    if isinstance(value, int | float):
        low, high = schema.get("minimum"), schema.get("maximum")
        if low is not None and value < low:
            raise ToolError(f"{where} must be at least {low}, got {value!r:.60}")
        if high is not None and value > high:
            raise ToolError(f"{where} must be at most {high}, got {value!r:.60}")
    for key, kind, unit in (("maxLength", str, "characters"), ("maxItems", list, "items")):
        if key in schema and isinstance(value, kind) and len(value) > schema[key]:
            raise ToolError(f"{where} may have {schema[key]} {unit}, got {len(value)}")
    if isinstance(value, dict) and ("properties" in schema or "additionalProperties" in schema):
        check_arguments(schema, value, where)
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            _check(schema["items"], item, f"{where}[{index}]")
