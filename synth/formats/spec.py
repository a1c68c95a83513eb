"""A domain's specification: a folder of YAML, SQL and Markdown, or one file of six sections. See docs/domains.md.

domain.yaml   name, subject, clock, how users are found and what they know, personas
schema.sql    the tables
rows.yaml     how each table's rows are made, in order, and SQL that makes them consistent
tools.yaml    the tools, as tools.json has them
policy.md     the policy; a shipped domain's stands in its domain folder alone
intents.yaml  what users want, as templates with gold actions
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, ToolError, install, no_such
from toolorchestra.envs.base.files import inside
from toolorchestra.envs.base.json_schema import Checker
from toolorchestra.envs.domains.toolscale.domain_files import FREE, MOST_TEMPLATE, TEXT, TEXTS
from toolorchestra.envs.domains.toolscale.loader import NAME, NAMED, check_head
from toolorchestra.envs.domains.toolscale.loader import SHIPPED as DOMAINS

PARTS = ("domain.yaml", "schema.sql", "rows.yaml", "tools.yaml", "policy.md", "intents.yaml")
SHIPPED = Path(__file__).parents[1] / "specs"
_PART_OF = {part.partition(".")[0]: part for part in PARTS}
MOST_PART = 500_000
"""Characters of one of the six files."""
MOST_POLICY = 100_000
MOST_FILE_BYTES = 16 << 20
MOST_VALUES = 100_000
"""Entries of a YAML file once its anchors are filled in."""
MOST_CALLS = 64
"""Gold calls of one request."""
MOST_WORDINGS = 50
"""Wordings of one intent."""
_SECTION = re.compile(rf"({'|'.join(_PART_OF)}):\s*\|?\s*$")


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


_FACTS = _list(_object("label asked value", label=TEXT, asked=TEXTS, value=TEXT))
_UNKNOWN = _list(_object("label asked", label=TEXT, asked=TEXTS))
_ACTIONS = _list(FREE)
_WAY = _object("facts actions", facts=_FACTS, unknown=_UNKNOWN, actions=_ACTIONS)
_PROCESS = _object("own", own=FREE, caller=TEXT, confirm={"type": "boolean"})
_HEAD = _object(
    "name subject clock user personas",
    name=TEXT,
    subject=TEXT,
    clock=TEXT,
    held_out={"type": "boolean"},
    user=_object("draw key ways", draw=TEXT, key=TEXT, ways=_list(_WAY)),
    personas=TEXTS,
    process=_PROCESS,
    held_out_intents=TEXTS,
)
_FIRST = _object(
    "kind say then",
    kind={"type": "string", "enum": ["corrects", "changes_mind", "negotiates"]},
    say=TEXTS,
    then=TEXTS,
    values=FREE,
)
_CANDIDATES = _object("column of", column=TEXT, of=TEXT)
_ENDING = {"type": "string", "enum": ["serve", "refuse", "transfer"]}
_PART = {
    "say": TEXTS,
    "facts": _FACTS,
    "unknown": _UNKNOWN,
    "actions": _ACTIONS,
    "inform": TEXTS,
    "tell": TEXTS,
    "ending": _ENDING,
    "pushback": TEXT,
    "candidates": _CANDIDATES,
    "computed": TEXTS,
    "branches": FREE,
    "first": _FIRST,
}
_INTENT = _object(
    "intent draw say",
    intent=TEXT,
    public={"type": "boolean"},
    weight={"type": "number", "minimum": 0},
    draw=TEXT,
    otherwise=_list(_ACTIONS),
    instructions=TEXT,
    followed_by=_list(_object("say", **_PART)),
    **_PART,
)
_BRANCH = _object("", actions=_ACTIONS, inform=TEXTS, tell=TEXTS, ending=_ENDING, pushback=TEXT, computed=TEXTS)
_TABLE = _object(
    "table key columns",
    table=TEXT,
    key=TEXT,
    count={"type": "integer", "minimum": 1},
    each=TEXT,
    per={"type": "array", "items": {"type": "integer"}},
    columns=FREE,
    given=_list(FREE),
)
_ROWS = _object("tables", lists=FREE, tables=_list(_TABLE), finish=TEXTS)


@dataclass(frozen=True, slots=True)
class Spec:
    """A specification as read, its shapes checked; what its SQL means is checked when it is run."""

    name: str
    head: Mapping[str, Any] = field(repr=False)
    schema: str = field(repr=False)
    lists: Mapping[str, Sequence[Any]] = field(repr=False)
    tables: Sequence[Mapping[str, Any]] = field(repr=False)
    finish: Sequence[str] = field(repr=False)
    tools: Sequence[Mapping[str, Any]] = field(repr=False)
    policy: str = field(repr=False)
    intents: Sequence[Mapping[str, Any]] = field(repr=False)
    digest: str
    folder: Path


def shipped() -> list[str]:
    """The specs that come with the package: folders, and small ones of a single file under extra/."""
    return sorted(_places())


def _places() -> dict[str, Path]:
    folders = {path.parent.name: path.parent for path in SHIPPED.glob("*/domain.yaml")}
    return {**{path.stem: path for path in SHIPPED.glob("extra/*.yaml")}, **folders}


def load(name: str | Path) -> Spec:
    """A shipped spec by its name, or one in a folder or a single file."""
    place = _places().get(str(name), Path(name))
    found = read(texts(place), place)
    _check_head(found.head, place / "domain.yaml")
    return found


def texts(place: Path) -> dict[str, str]:
    """The six texts of a spec: files of a folder, or sections of one YAML file."""
    if place.is_file() and place.suffix == ".yaml":
        return sections(_text(place), place)
    if not (place / "domain.yaml").is_file():
        raise ConfigError(
            f"no spec {str(place)!r}; name a folder that holds {', '.join(PARTS)}, a YAML file with a section for"
            f" each, or one of: {', '.join(shipped())}"
        )
    found = {part: place for part in PARTS}
    if place.resolve().parent == SHIPPED.resolve():
        found["policy.md"] = DOMAINS / place.name
    return {part: _text(inside(folder, folder / part)) for part, folder in found.items()}


def sections(text: str, path: Path) -> dict[str, str]:
    """The parts of a spec in one file. Each starts with its name at the margin, the rest is indented by two:
    YAML for most, a literal block (`schema: |`) for SQL and Markdown. Errors count lines from the section's start."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if match := _SECTION.match(line):
            part = _PART_OF[match[1]]
            if part in found:
                raise ConfigError(f"{path}:{number}: a second section {match[1]!r}")
            lines = found.setdefault(part, [])
        elif line.strip() and not line.startswith("  "):
            if line.startswith("#"):
                continue
            raise ConfigError(f"{path}:{number}: a section ({', '.join(_PART_OF)}) or an indented line expected")
        else:
            lines.append(line[2:])
    if missing := [name for name, part in _PART_OF.items() if part not in found]:
        raise ConfigError(f"{path}: no section {missing[0]!r}; a spec file has {', '.join(_PART_OF)}")
    return {part: "\n".join(found[part]).strip("\n") + "\n" for part in PARTS}


def read(given: Mapping[str, str], folder: Path, *, whole: bool = True) -> Spec:
    """A spec from its six texts; `folder` is where errors say they are from. Where it is not whole yet, intents that it
    holds out may be still to come."""
    for part in PARTS:
        if len(given[part]) > MOST_PART:
            seen = f"{len(given[part])} characters, at most {MOST_PART} are read; make the domain smaller"
            raise ConfigError(f"{folder / part}: {seen}")
    if len(given["policy.md"]) > MOST_POLICY:
        seen = f"{len(given['policy.md'])} characters, at most {MOST_POLICY} are read, since every prompt holds it"
        raise ConfigError(f"{folder / 'policy.md'}: {seen}")
    parts = {part: parsed(given[part], folder / part) for part in PARTS if part.endswith(".yaml")}
    head = fits(_HEAD, parts["domain.yaml"], folder / "domain.yaml")
    rows = fits(_ROWS, parts["rows.yaml"], folder / "rows.yaml")
    intents = _intents(parts["intents.yaml"], folder / "intents.yaml")
    _check_wordings(head, intents, folder)
    if whole:
        _check_held_out(head.get("held_out_intents", ()), intents, folder)
    hashed = hashlib.blake2b("\x00".join(given[part] for part in PARTS).encode(), digest_size=16)
    return Spec(
        name=head["name"],
        head=head,
        schema=given["schema.sql"],
        lists=rows.get("lists", {}),
        tables=rows["tables"],
        finish=rows.get("finish", []),
        tools=_entries(parts["tools.yaml"], FREE, folder / "tools.yaml"),
        policy=given["policy.md"],
        intents=intents,
        digest=hashed.hexdigest(),
        folder=folder,
    )


def _intents(value: object, path: Path) -> list[Mapping[str, Any]]:
    found = _entries(value, _INTENT, path)
    for entry in found:
        at = f"{path}:{entry.line}" if isinstance(entry, Marked) else str(path)
        _check_bounds(entry, at)
        for part in (entry, *entry.get("followed_by", [])):
            if "actions" not in part and not part.get("branches"):
                raise ConfigError(f"{at}: {entry['intent']}: actions or branches expected")
            _check_calls(part, f"{at}: {entry['intent']}")
            for name, branch in part.get("branches", {}).items():
                if "actions" not in fits(_BRANCH, branch, path) and "actions" not in part:
                    raise ConfigError(f"{at}: {entry['intent']}: branch {name!r} has no actions")
                _check_calls(branch, f"{at}: {entry['intent']}: branch {name!r:.60}")
        if "actions" not in entry:  # where only its usual path is asked for, it is that of its first branch
            entry["actions"] = next(iter(entry["branches"].values()))["actions"]  # type: ignore[index]
    return found


def _check_bounds(entry: Mapping[str, Any], at: str) -> None:
    """A name that can be read, and a weight that others can be compared with."""
    if not NAME.fullmatch(entry["intent"]):
        raise ConfigError(f"{at}: the name of an intent is {NAMED}, got {entry['intent']!r:.60}")
    if not math.isfinite(entry.get("weight", 1)):
        raise ConfigError(f"{at}: {entry['intent']}: weight is a number from 0 up, got {entry['weight']}")


def _check_calls(part: Mapping[str, Any], at: str) -> None:
    if len(part.get("actions", ())) > MOST_CALLS:
        raise ConfigError(f"{at}: {len(part['actions'])} actions, at most {MOST_CALLS} are allowed")


def _check_wordings(head: Mapping[str, Any], intents: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """What people say is a text of a few lines. Longer ones are refused before anything is made of them."""
    said = [(f"domain.yaml: personas[{number}]", text) for number, text in enumerate(head["personas"])]
    for entry in intents:
        at = f"intents.yaml:{entry.line}" if isinstance(entry, Marked) else "intents.yaml"
        at = f"{at}: intent {entry['intent']:.60}"
        if len(entry["say"]) > MOST_WORDINGS:
            raise ConfigError(f"{folder}/{at}: {len(entry['say'])} wordings, at most {MOST_WORDINGS} are allowed")
        said += [(f"{at}: say[{number}]", text) for number, text in enumerate(entry["say"])]
        said += [(f"{at}: {name}", entry.get(name, "")) for name in ("pushback", "instructions")]
    for at, text in said:
        if len(text) > MOST_TEMPLATE:
            raise ConfigError(f"{folder}/{at}: a text of {len(text)} characters, at most {MOST_TEMPLATE} are allowed")


def _check_held_out(names: Sequence[str], intents: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Intents that are held out are there, and their words are no other intent's."""
    said: dict[str, str] = {}
    for entry in intents:
        if entry["intent"] not in names:
            said.update(dict.fromkeys(entry["say"], entry["intent"]))
    known = {entry["intent"]: entry for entry in intents}
    for name in names:
        if name not in known:
            raise ConfigError(f"{folder}/domain.yaml: held_out_intents: {no_such('intent', name, known)}")
        if shared := next((say for say in known[name]["say"] if say in said), None):
            raise ConfigError(
                f"{folder}/domain.yaml: held_out_intents: {name} says what {said[shared]} says, {shared!r:.80};"
                " hold out both, or give one of them words of its own"
            )


def _check_head(head: Mapping[str, Any], path: Path) -> None:
    """What a model writes is checked by part_checks.py, which tells it more."""
    check_head(head, str(path))
    _some(head["personas"], f"{path}: personas")
    _some(head["user"]["ways"], f"{path}: user.ways")


def _some(listed: Sequence[Any], where: str) -> None:
    if not listed:
        raise ConfigError(f"{where} lists nothing; one at least is needed, since tasks draw from it")


def _text(path: Path) -> str:
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; a spec folder holds {', '.join(PARTS)}")
    if path.stat().st_size > MOST_FILE_BYTES:
        raise ConfigError(f"{path}: {path.stat().st_size} bytes, at most {MOST_FILE_BYTES} are read")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as err:
        raise ConfigError(f"{path}: not UTF-8 text: {err}; save it as UTF-8") from None


class Marked(dict[str, Any]):
    """A YAML mapping that knows its line."""

    line = 0


def parsed(text: str, path: Path) -> Any:
    """YAML, its mappings marked with their lines. Dates and times stay text."""
    try:
        import yaml
    except ImportError:
        raise ConfigError(f"reading a spec needs PyYAML: {install('synth')}") from None

    class SpecLoader(yaml.SafeLoader):  # type: ignore[misc]
        """Safe, with lines, and without YAML's own dates, whose types no schema here knows."""

        yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute
            first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
            for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    def mapping(loader: Any, node: Any) -> Marked:
        made = Marked(loader.construct_mapping(node, deep=True))
        made.line = node.start_mark.line + 1
        if len(made) != len(node.value):
            raise ConfigError(f"{path}:{made.line}: a key stands twice in one mapping")
        return made

    SpecLoader.add_constructor("tag:yaml.org,2002:map", mapping)
    try:
        loader = SpecLoader(text)
        node = loader.get_single_node()
        _check_size(node, path)
        return None if node is None else loader.construct_document(node)
    except ConfigError:
        raise
    except (yaml.YAMLError, ValueError) as err:  # a number of too many digits is no YAMLError
        raise ConfigError(f"{path}: not valid YAML: {err}") from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply to be read") from None


def _check_size(node: Any, path: Path) -> None:
    """Refuse anchors that hold themselves, or that are repeated until a small file stands for a huge one."""
    sizes: dict[int, int] = {}

    def size(one: Any) -> int:
        known = sizes.get(id(one))
        if known == 0:
            raise ConfigError(f"{path}:{one.start_mark.line + 1}: an anchor holds itself; write the value out")
        if known is None:
            sizes[id(one)] = 0
            inner = one.value if isinstance(one.value, list) else ()
            sizes[id(one)] = known = 1 + sum(
                sum(map(size, entry)) if isinstance(entry, tuple) else size(entry) for entry in inner
            )
            if known > MOST_VALUES:
                raise ConfigError(
                    f"{path}:{one.start_mark.line + 1}: more than {MOST_VALUES} values, with what its anchors stand for"
                )
        return known

    if node is not None:
        size(node)


def fits(schema: Mapping[str, Any], value: object, path: Path) -> Mapping[str, Any]:
    """The value, which must be a mapping that fits; errors name file, line and field."""
    at = f"{path}:{value.line}" if isinstance(value, Marked) else str(path)
    if not isinstance(value, dict):
        raise ConfigError(f"{at}: a mapping expected, got {value!r:.60}")
    name = next((str(value[key]) for key in ("intent", "table", "name") if key in value), "the mapping")
    try:
        Checker(schema).check(value, name)
    except ToolError as err:
        raise ConfigError(f"{at}: {name}: {err}") from None
    return value


def _entries(value: object, schema: Mapping[str, Any], path: Path) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{path}: a list expected, got {value!r:.60}")
    return [fits(schema, entry, path) for entry in value]
