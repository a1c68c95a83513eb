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
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, install, no_such
from toolorchestra.envs.base.files import inside
from toolorchestra.envs.domains.toolscale import domain_files
from toolorchestra.envs.domains.toolscale.domain_files import (
    BOOLEAN,
    ENDING,
    FACT,
    FIRST,
    FREE,
    MOST_TEMPLATE,
    TEXT,
    TEXTS,
    list_of,
    object_of,
)  # fmt: skip
from toolorchestra.envs.domains.toolscale.loader import NAME, NAMED, check_head
from toolorchestra.envs.domains.toolscale.loader import SHIPPED as DOMAINS

PARTS = ("domain.yaml", "schema.sql", "rows.yaml", "tools.yaml", "policy.md", "intents.yaml")
SHIPPED = Path(__file__).parents[1] / "specs"
_PART_OF = {part.partition(".")[0]: part for part in PARTS}
MOST_PART = 500_000
"""Characters of one of the six files."""
MOST_POLICY = 100_000
"""Fewer of the policy, since every prompt holds it."""
MOST_FILE_BYTES = 16 << 20
MOST_VALUES = 100_000
"""Entries of a YAML file once its anchors are filled in."""
MOST_CALLS = 64
"""Gold calls of one request."""
MOST_WORDINGS = 50
"""Wordings of one intent."""
_SECTION = re.compile(rf"({'|'.join(_PART_OF)}):\s*\|?\s*$")


_SAID = {**TEXT, "maxLength": MOST_TEMPLATE}
"""What people say: a text of a few lines. Longer ones are refused before anything is made of them."""
_SAY = {**list_of(_SAID), "minItems": 1, "maxItems": MOST_WORDINGS}
_FACTS = list_of(FACT)
_UNKNOWN = list_of(object_of("label asked", label=TEXT, asked=TEXTS))
_ACTIONS = {**list_of(FREE), "maxItems": MOST_CALLS}
_WAY = object_of("facts actions", facts=_FACTS, unknown=_UNKNOWN, actions=_ACTIONS)
_HEAD = object_of(
    "name subject clock user personas",
    talk=TEXTS,
    name=TEXT,
    subject=TEXT,
    clock=TEXT,
    held_out=BOOLEAN,
    user=object_of("draw key ways", draw=TEXT, key=TEXT, ways={**list_of(_WAY), "minItems": 1}),
    personas={**list_of(_SAID), "minItems": 1},
    process=object_of("own", own=FREE, caller=TEXT, confirm=BOOLEAN),
    held_out_intents=TEXTS,
)
_BRANCH = {
    "actions": _ACTIONS,
    "inform": TEXTS,
    "tell": TEXTS,
    "ending": ENDING,
    "pushback": _SAID,
    "computed": TEXTS,
}
_PART = {
    **_BRANCH,
    "say": _SAY,
    "more": {**list_of(_SAID), "maxItems": MOST_WORDINGS},
    "facts": _FACTS,
    "unknown": _UNKNOWN,
    "candidates": object_of("column of", column=TEXT, of=TEXT),
    "branches": {"type": "object", "additionalProperties": object_of("", **_BRANCH)},
    "first": object_of("kind say then", values=FREE, **FIRST),
}
_INTENT = object_of(
    "intent draw say",
    intent=TEXT,
    public=BOOLEAN,
    weight={"type": "number", "minimum": 0},
    draw=TEXT,
    otherwise=list_of(_ACTIONS),
    instructions=_SAID,
    followed_by=list_of(object_of("say", **_PART)),
    **_PART,
)
_TABLE = object_of(
    "table key columns",
    table=TEXT,
    key=TEXT,
    count={"type": "integer", "minimum": 1},
    each=TEXT,
    per=list_of({"type": "integer"}),
    columns=FREE,
    given=list_of(FREE),
)
_ROWS = object_of("tables", lists=FREE, tables=list_of(_TABLE), finish=TEXTS)


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
    parts: Mapping[str, str] = field(repr=False)
    """The six texts."""

    @property
    def times(self) -> dict[str, str]:
        """The parameters of SQL that say when it is."""
        return {"now": self.head["clock"], "today": self.head["clock"][:10]}


def shipped() -> list[str]:
    """The specs that come with the package: folders, and small ones of a single file under extra/."""
    return sorted(_places())


def _places() -> dict[str, Path]:
    folders = {path.parent.name: path.parent for path in SHIPPED.glob("*/domain.yaml")}
    return {**{path.stem: path for path in SHIPPED.glob("extra/*.yaml")}, **folders}


def load(name: str | Path) -> Spec:
    """A shipped spec by its name, or one in a folder or a single file."""
    return read(texts(name), _place(name))


def _place(name: str | Path) -> Path:
    return _places().get(str(name), Path(name))


def texts(name: str | Path) -> dict[str, str]:
    """The six texts of a spec: files of a folder, or sections of one YAML file."""
    place = _place(name)
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
        if len(given[part]) > (most := MOST_POLICY if part == "policy.md" else MOST_PART):
            seen = f"{len(given[part])} characters, at most {most} are read; make the domain smaller"
            raise ConfigError(f"{folder / part}: {seen}")
    parts = {part: parsed(given[part], folder / part) for part in PARTS if part.endswith(".yaml")}
    head = fits(_HEAD, parts["domain.yaml"], folder / "domain.yaml")
    check_head(head, str(folder / "domain.yaml"))
    rows = fits(_ROWS, parts["rows.yaml"], folder / "rows.yaml")
    intents = _intents(parts["intents.yaml"], folder / "intents.yaml")
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
        parts=given,
    )


def _intents(value: object, path: Path) -> list[Mapping[str, Any]]:
    found = _entries(value, _INTENT, path)
    names: set[str] = set()
    for entry in found:
        at = f"{path}:{entry.line}: {entry['intent']:.60}" if isinstance(entry, Marked) else str(path)
        if not NAME.fullmatch(entry["intent"]):
            raise ConfigError(f"{at}: the name of an intent is {NAMED}")
        if entry["intent"] in names:
            raise ConfigError(f"{at}: a second intent of this name; give each its own")
        names.add(entry["intent"])
        for part in (entry, *entry.get("followed_by", [])):
            branches = part.get("branches", {})
            if "actions" not in part and not branches:
                raise ConfigError(f"{at}: actions or branches expected")
            if bare := [name for name, one in branches.items() if "actions" not in one and "actions" not in part]:
                raise ConfigError(f"{at}: branch {bare[0]!r:.60} has no actions")
        if "actions" not in entry:  # where only its usual path is asked for, it is that of its first branch
            entry["actions"] = next(iter(entry["branches"].values()))["actions"]  # type: ignore[index]
    return found


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
    if isinstance(value, dict):
        named = (value[key] for key in ("intent", "table", "name") if key in value)
        at = f"{at}: {next(named, 'the mapping')}"
    return domain_files.fits(schema, value, at)


def _entries(value: object, schema: Mapping[str, Any], path: Path) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value:
        raise ConfigError(f"{path}: a list expected, got {value!r:.60}")
    return [fits(schema, entry, path) for entry in value]
