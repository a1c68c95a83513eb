"""Translation from a function's annotations to the JSON schema of its arguments, and from arguments to the records it
takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from toolorchestra.envs.base.errors import ConfigError

Build: TypeAlias = Callable[[Any], Any]
_JSON_TYPES: Mapping[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    NoneType: "null",
}
_TAKEN = "str, int, float, bool, list, dict, Literal, None, Any, a dataclass or TypedDict, or several of them with |"


def schema_of(hint: Any, where: str, inside: tuple[Any, ...] = ()) -> dict[str, Any]:
    """The schema of what an annotation takes. Raises ConfigError for an annotation that says nothing to JSON.

    str, int, float, bool, list[...], dict[str, ...], Literal, None, Any, dataclasses, TypedDict, and several with `|`.
    Of a list whose elements are annotated with anything else the elements are not checked.
    """
    if hint is Any:
        return {}
    if get_origin(hint) is Literal:
        kinds = dict.fromkeys(schema_of(type(value), where)["type"] for value in get_args(hint))
        return {"type": next(iter(kinds)) if len(kinds) == 1 else list(kinds), "enum": list(get_args(hint))}
    if _is_union(hint):
        return _one_of([schema_of(part, where, inside) for part in get_args(hint)])
    if _is_record(hint):
        return _record(hint, where, inside)
    kind = _JSON_TYPES.get(get_origin(hint) or hint)
    if kind is None:
        raise ConfigError(f"{where}: annotate with {_TAKEN}; got {hint!r}")
    element = next(reversed(get_args(hint)), None)
    if element is None or not _says_something(element):
        return {"type": kind}
    if kind == "array":
        return {"type": kind, "items": schema_of(element, f"{where}[]", inside)}
    return {"type": kind, "additionalProperties": schema_of(element, f"{where}.*", inside)}


def hints_of(of: Any, *, extras: bool = False) -> dict[str, Any]:
    """Annotations of a function or a record; with `extras` as they stand there, Annotated and all. Raises ConfigError
    for one that names what is not there."""
    try:
        return get_type_hints(of, include_extras=extras)
    except NameError as err:
        raise ConfigError(
            f"{of.__name__}: an annotation cannot be resolved: {err}; define or import it at the top of the module, "
            "and not for type checkers alone"
        ) from None


def said_of(marked: Any) -> dict[str, str]:
    """The description that `Annotated[..., "text"]` gives, if it does."""
    texts = [note for note in getattr(marked, "__metadata__", ()) if isinstance(note, str)]
    return {"description": texts[0]} if texts else {}


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or is_typeddict(hint))


def _says_something(hint: Any) -> bool:
    """Whether a schema can be made of it."""
    if _is_union(hint):
        return all(map(_says_something, get_args(hint)))
    return (get_origin(hint) or hint) in (*_JSON_TYPES, Literal) or _is_record(hint)


def _fields(record: Any) -> dict[str, tuple[Any, bool]]:
    """The annotation of each entry of a record, and whether it must be there."""
    hints, nothing = hints_of(record), dataclasses.MISSING
    if dataclasses.is_dataclass(record):
        told = [one for one in dataclasses.fields(record) if one.init]
        return {one.name: (hints[one.name], one.default is one.default_factory is nothing) for one in told}
    marked, made = hints_of(record, extras=True), {}
    for name, hint in hints.items():
        mark = get_origin(marked[name])  # __required_keys__ alone does not know it where annotations are strings
        made[name] = hint, mark is Required if mark in (Required, NotRequired) else name in record.__required_keys__
    return made


def _record(record: Any, where: str, inside: tuple[Any, ...]) -> dict[str, Any]:
    if record in inside:
        raise ConfigError(
            f"{where}: a {record.__name__} holds a {record.__name__}, which no annotation can say; make the Tool of a "
            "schema with $defs and $ref"
        )
    fields = _fields(record)
    parts = {name: schema_of(hint, f"{where}.{name}", (*inside, record)) for name, (hint, _) in fields.items()}
    return {"type": "object", "properties": parts, "required": [name for name, (_, needed) in fields.items() if needed]}


def _one_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """One schema where the alternatives differ in kind, for what is said of lists says nothing of texts; else anyOf."""
    if {} in parts:
        return {}
    kinds = [kind for part in parts for kind in _kinds(part)]
    chosen = [part for part in parts if "enum" in part]
    apart = len(set(kinds)) == len(kinds) and not any("anyOf" in part for part in parts)
    if not apart or (chosen and any(part not in chosen and part != {"type": "null"} for part in parts)):
        return {"anyOf": parts}
    made = {key: value for part in parts for key, value in part.items()}
    if chosen:
        made["enum"] = [value for part in chosen for value in part["enum"]] + [None] * ("null" in kinds)
    return {**made, "type": kinds}


def _kinds(part: Mapping[str, Any]) -> list[str]:
    kind = part.get("type", ())
    return [kind] if isinstance(kind, str) else list(kind)


# -- arguments into records --------------------------------------------------------------------------------------------


def builder_of(hint: Any) -> Build | None:
    """What makes dataclasses of an argument that its schema has taken; None where there are none in it."""
    if dataclasses.is_dataclass(hint) or is_typeddict(hint):
        builders = {name: build for name, (part, _) in _fields(hint).items() if (build := builder_of(part))}
        make: Any = dict if is_typeddict(hint) else hint
        if not builders and make is dict:
            return None
        return lambda value: make(**{n: builders[n](part) if n in builders else part for n, part in value.items()})
    if _is_union(hint):
        return _union_builder(hint)
    element = next(reversed(get_args(hint)), None)
    build = builder_of(element) if get_origin(hint) in (list, dict) else None
    if build is None:
        return None
    if get_origin(hint) is list:
        return lambda value: [build(item) for item in value]
    return lambda value: {name: build(item) for name, item in value.items()}


def _union_builder(hint: Any) -> Build | None:
    """Lists and objects are told apart by their kind, so of each there may be one where anything has to be built."""
    found: dict[type, list[Build | None]] = {dict: [], list: []}
    for part in get_args(hint):
        kind = dict if _is_record(part) else get_origin(part) or part
        if kind in found:
            found[kind].append(builder_of(part))
    if any(len(same) > 1 and any(same) for same in found.values()):
        raise ConfigError(f"{hint!r}: which dataclass an argument is meant to be cannot be told; use one, or TypedDict")
    builders = {kind: build for kind, same in found.items() for build in same if build}
    if not builders:
        return None
    return lambda value: builders[type(value)](value) if type(value) in builders else value
