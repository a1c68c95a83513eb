"""What tools, policy and intents must be: they run on real rows, name what exists, and do not contradict themselves."""

from __future__ import annotations

import contextlib
import datetime
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlDomain, SqlTable, SqlTool
from toolorchestra.envs.domains.toolscale.tool_runs import Called
from toolorchestra.synth.formats import places
from toolorchestra.synth.formats.intent_templates import Templates, action, informed, text
from toolorchestra.synth.formats.part_checks import Fault, Parts, partial
from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.proof import similarity
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.stages.domain_folder import skeleton

# -- tools -------------------------------------------------------------------------------------------------------------

TRIES = 400
_HOSTILE = "' OR '1'='1"
_WORDLESS = {"phone": "+00 00 00 00 00", "email": "nobody@example.com", "code": "X-0", "id": "X-0", "text": "nobody"}


class Tried(NamedTuple):
    """What calls of one tool did."""

    tool: str
    succeeded: int
    refused: int
    last_refusal: str


def attempt(bench: DomainPlayer, tool: SqlTool, rng: random.Random, tries: int = TRIES) -> Tried:
    """Call a tool with values of real rows until it has succeeded and refused; then with what must be refused."""
    succeeded = refused = 0
    last = ""
    for _ in range(tries):
        if succeeded and refused:
            break
        arguments = guess(bench, tool, rng)
        if succeeded:  # now for a refusal
            arguments = spoilt(tool, arguments)
        with bench.session() as session:
            try:
                bench.call(session, GoldCall(tool.name, arguments))
                succeeded += 1
            except ToolError as err:
                refused += 1
                last = str(err)
    return Tried(tool.name, succeeded, refused, last)


def chained(bench: DomainPlayer, tool: SqlTool, rng: random.Random, tries: int = 40) -> bool:
    """Whether a tool succeeds on what other writes have just made."""
    others = [other for other in bench.domain.tools.values() if other.kind == "write" and other is not tool]
    for _ in range(tries):
        with bench.session() as session:
            made: dict[str, Any] = {}
            for other in rng.sample(others, len(others)):
                with contextlib.suppress(ToolError):
                    arguments = guess(bench, other, rng)
                    value = bench.call(session, GoldCall(other.name, arguments)).value
                    made.update(arguments)
                    made.update(value if isinstance(value, dict) else {})
                own = {name: made[name] for name in tool.parameters["properties"] if made.get(name) is not None}
                with contextlib.suppress(ToolError):
                    bench.call(session, GoldCall(tool.name, {**guess(bench, tool, rng), **own}))
                    return True
    return False


def guess(bench: DomainPlayer, tool: SqlTool, rng: random.Random) -> dict[str, Any]:
    """Arguments that belong together: those of one random row as far as it has them."""
    properties = tool.parameters["properties"]
    tables = [table for table in bench.domain.tables.values() if table.rows and set(table.columns) & set(properties)]
    known = _row(rng.choice(tables), rng) if tables else {}
    made = {}
    for name, schema in properties.items():
        if name in known and known[name] is not None and "enum" not in schema:
            made[name] = known[name]
        elif name in tool.parameters["required"] or rng.random() < 0.5:
            made[name] = _value(bench, name, {**schema, "format": tool.formats.get(name, "")}, rng)
    return made


def _row(table: SqlTable, rng: random.Random) -> dict[str, Any]:
    return dict(zip(table.columns, rng.choice(table.rows), strict=True))


def _value(bench: DomainPlayer, name: str, schema: Mapping[str, Any], rng: random.Random) -> Any:
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "boolean":
        return rng.random() < 0.5
    if schema["type"] in ("integer", "number"):
        low = schema.get("minimum", 0)
        high = min(schema.get("maximum", low + 60), low + 60)
        return rng.randint(int(low) + (low != int(low)), max(int(low), int(high)))
    pool = _pool(bench.domain, name)
    if pool:
        return rng.choice(pool)
    day = datetime.datetime.fromisoformat(bench.domain.clock) + datetime.timedelta(days=rng.randint(-20, 60))
    text = {"date": f"{day:%Y-%m-%d}", "time": f"{day:%H:%M}", "datetime": f"{day:%Y-%m-%d %H:%M}"}
    return text.get(schema["format"], _WORDLESS.get(schema["format"], "nobody"))


def _pool(domain: SqlDomain, name: str) -> list[Any]:
    """Values of the column of this name, or of the key that the name ends with: new_slot_id takes slot ids."""
    for table in domain.tables.values():
        columns = [c for c in table.columns if c == name] or [c for c in (table.key,) if name.endswith(f"_{c}")]
        if columns:
            at = table.columns.index(columns[0])
            found = [row[at] for row in table.rows if row[at] is not None]
            if found:
                return found
    return []


def spoilt(tool: SqlTool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with one that no call may take."""
    bad = dict(arguments)
    for name, schema in tool.parameters["properties"].items():
        if schema["type"] == "string":
            bad[name] = _HOSTILE
            return bad
    for name in tool.parameters["properties"]:
        bad[name] = _HOSTILE
        return bad
    return {**bad, "no_such_parameter": 1}


def tools(parts: Parts, seed: int) -> list[Fault]:
    """tools.yaml: SQL that compiles under the authorizer, reads that read, guards before every write."""
    try:
        spec = partial(parts)
        domain, _ = skeleton(spec, seed)
    except ConfigError as err:
        return [Fault("tool", str(err))]
    faults = [*_named(domain, spec.head["user"]["ways"])]
    bench = DomainPlayer(domain)
    for tool in domain.tools.values():
        places.at(f"tools.yaml: tool {tool.name!r}")
        tried = attempt(bench, tool, random.Random(f"{seed}/{tool.name}"))
        if not tried.refused:
            faults.append(Fault("refusal", f"tool {tool.name} refused none of {TRIES} calls", tool.name))
        if tool.kind == "write" and not any(step.verb != "do" for step in tool.steps):
            faults.append(Fault("guard", f"tool {tool.name} writes without a let or check before it", tool.name))
    if not any(tool.kind == "write" for tool in domain.tools.values()):
        faults.append(Fault("tools", "no tool writes; tasks need tools that change something"))
    return faults


def _named(domain: SqlDomain, ways: Iterable[Mapping[str, Any]]) -> list[Fault]:
    used = [name for way in ways for action in way["actions"] for name in action]
    return [
        Fault("identification", f"domain.yaml identifies users with {name!r}; there must be a tool of that name")
        for name in dict.fromkeys(used)
        if name not in domain.tools
    ]


def idle(bench: DomainPlayer, used: Iterable[str], seed: int) -> list[Fault]:
    """Tools that no gold call uses and that no guessed call got to succeed: nobody has seen them work."""
    seen = set(used)
    faults = []
    for tool in bench.domain.tools.values():
        if tool.name in seen:
            continue
        rng = random.Random(f"{seed}/{tool.name}")
        tried = attempt(bench, tool, rng)
        if not tried.succeeded and not chained(bench, tool, rng):
            why = f"tool {tool.name} succeeded in none of {TRIES} calls and no intent uses it"
            faults.append(Fault("never works", f"{why}: {tried.last_refusal:.200}", tool.name))
    return faults


# -- policy and intents ------------------------------------------------------------------------------------------------

SAMPLES = 4
"""Ways to fill an intent that are tried."""
LEAST_POLICY = 200
COVERED_SHARE = 0.5
_CODE = re.compile(r"`([^`\n]+)`|\b([a-z]+(?:_[a-z0-9]+)+)\b")
_SENTENCE = re.compile(r"(?<=[.;:!?])\s+|\n+")
_NO = re.compile(r"\b(?:(?:must|may|can) (?:not|never)|cannot|can't|never|do not)\s+(.+)", re.IGNORECASE)
_YES = re.compile(r"\b(?:may|must|can|always)\s+(?!not\b|never\b)(.+)", re.IGNORECASE)
_CONDITION = re.compile(
    r"\b(?:if|unless|only|except|when|before|after|until|once|while|without|at most|at least|more than|less than|over|"
    r"under|then|but|otherwise|within|whose|who|that|which|for|at any time)\b",
    re.IGNORECASE,
)
_FILLERS = frozenset("a an the any all every each their his her its of to be also always please".split())
_HANDOVER = re.compile(r"transfer|hand\w* over|human|handoff", re.IGNORECASE)


def policy(parts: Parts, seed: int) -> list[Fault]:
    """policy.md: names only what exists, says something of every write, forbids nothing that it allows."""
    try:
        domain, _ = skeleton(partial(parts), seed)
    except ConfigError as err:
        return [Fault("tool", str(err))]
    said = parts["policy.md"]
    places.at("policy.md")
    if len(said) < LEAST_POLICY:
        return [Fault("length", f"a policy of {len(said)} characters, at least {LEAST_POLICY} expected")]
    known = _known(parts, domain)
    unknown = [word for word in _coded(said) if not known(word)]
    faults = [Fault("unknown thing", f"{word!r:.60} is no tool, table, column or value") for word in unknown[:10]]
    faults += [
        Fault("not covered", f"the policy says nothing of the write tool {tool.name}", tool.name)
        for tool in domain.tools.values()
        if tool.kind == "write" and not covered(tool, said)
    ]
    faults += [Fault("contradiction", f"it says {a!r:.120} and {b!r:.120}") for a, b in contradictions(said)]
    return faults


def _coded(said: str) -> list[str]:
    found = [(quoted or plain).strip().partition("(")[0] for quoted, plain in _CODE.findall(said)]
    return [word for word in dict.fromkeys(found) if re.fullmatch(r"\w+", word)]


def _known(parts: Parts, domain: SqlDomain) -> Any:
    names = {*domain.tools, *domain.tables}
    names.update(c for table in domain.tables.values() for c in table.columns)
    names.update(p for tool in domain.tools.values() for p in tool.parameters["properties"])
    words = set(re.findall(r"\w+", parts["schema.sql"] + parts["tools.yaml"]))
    return lambda word: word in names or word in words or re.fullmatch(r"[A-Z]{1,4}-?\d+|\d+", word)


def covered(tool: SqlTool, said: str) -> bool:
    """Whether a policy speaks of what a tool does: by its name, or by most words of its name and description."""
    if tool.name in said or (tool.transfers and _HANDOVER.search(said)):
        return True
    low = said.lower().replace("-", "")
    words = re.findall(r"[a-z]{4,}", f"{tool.name.replace('_', ' ')} {tool.description}".lower().replace("-", ""))
    stems = {_stem(word) for word in words} - _FILLERS
    return sum(stem in low for stem in stems) >= COVERED_SHARE * len(stems)


def _stem(word: str) -> str:
    return word[: max(4, len(word) - 3)] if len(word) > 5 else word[:4]


def contradictions(said: str) -> list[tuple[str, str]]:
    """Sentences that forbid, with no condition, what another allows with no condition."""
    allowed: dict[tuple[str, ...], str] = {}
    forbidden: dict[tuple[str, ...], str] = {}
    for sentence in _SENTENCE.split(said):
        plain = sentence.strip(" -*#.;:!")
        if _CONDITION.search(plain):
            continue
        no = _NO.search(plain)
        if no:
            forbidden.setdefault(_core(no[1]), plain)
        elif yes := _YES.search(plain):
            allowed.setdefault(_core(yes[1]), plain)
    return [(forbidden[core], allowed[core]) for core in forbidden if core in allowed and core]


def _core(rest: str) -> tuple[str, ...]:
    words = set(re.findall(r"[a-z0-9_]+", rest.lower())) - _FILLERS
    return tuple(sorted(word.removesuffix("s").removesuffix("ed").removesuffix("e") for word in words))


# -- intents -------------------------------------------------------------------------------------------------------


def intents(parts: Parts, seed: int) -> list[Fault]:
    """intents.yaml: every intent's draw finds rows, its gold calls run on some of them, and no two say the same."""
    try:
        spec = partial(parts)
        domain, _ = skeleton(spec, seed)
    except ConfigError as err:
        return [Fault("shape", str(err))]
    bench = DomainPlayer(domain)
    faults: list[Fault] = []
    used = {name for way in spec.head["user"]["ways"] for row in way["actions"] for name in row}
    names = [entry["intent"] for entry in spec.intents]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    faults += [Fault("duplicate", f"two intents are named {name!r}", name) for name in twice]
    for entry in spec.intents:
        found = list(intent(spec, bench, entry, random.Random(f"{seed}/{entry['intent']}")))
        faults += found
        if not found:
            used |= {name for path in (entry["actions"], *entry.get("otherwise", [])) for row in path for name in row}
    return [*faults, *alike(spec.intents), *(idle(bench, used, seed) if not faults else [])]


def intent(spec: Spec, bench: DomainPlayer, entry: Mapping[str, Any], rng: random.Random) -> Iterator[Fault]:
    """What is wrong with one intent."""
    name = entry["intent"]
    places.at(f"intents.yaml: intent {name!r}")
    unknown = [tool for row in entry["actions"] for tool in row if tool not in bench.domain.tools]
    if unknown:
        yield Fault("unknown tool", f"intent {name} calls {unknown[0]!r}, which is no tool", name)
        return
    if not entry["say"] or len(set(entry["say"])) < len(entry["say"]):
        yield Fault("wordings", f"intent {name} needs wordings, none of them twice", name)
        return
    writes = any(bench.domain.tools[tool].kind == "write" for row in entry["actions"] for tool in row)
    if entry.get("ending", "serve") == "refuse" and writes:
        yield Fault("ending", f"intent {name} is to be refused, but its gold calls write", name)
    if entry.get("ending", "serve") == "serve" and not writes and not (entry.get("inform") or entry.get("tell")):
        what = f"intent {name} changes nothing and tells nothing; doing nothing would solve it"
        yield Fault("does nothing", what, name)
    try:
        templates = Templates(replace(spec, intents=[entry]), bench.domain)
        yield from _tried(templates, spec, bench, entry, rng)
    except ConfigError as err:
        yield Fault("template", f"intent {name}: {err}", name)


def _tried(
    templates: Templates, spec: Spec, bench: DomainPlayer, entry: Mapping[str, Any], rng: random.Random
) -> Iterator[Fault]:
    """Gold calls on some rows: one success is enough, for drafts that fail are dropped later."""
    name, last = entry["intent"], ""
    people = [p for p in templates.people if entry.get("public") or p.key in templates.private.get(name, {})]
    if not people:
        yield Fault("nobody", f"intent {name}: its draw finds nobody whom user.draw knows", name)
        return
    for _ in range(SAMPLES):
        person = rng.choice(people)
        values = templates.instance(entry, person, rng)
        way = rng.choice(spec.head["user"]["ways"])
        for wording in entry["say"]:
            text(wording, values, name)
        with bench.session() as session:
            called: list[Called] = []
            try:
                if not entry.get("public"):
                    for row in way["actions"]:
                        bench.call(session, action(row, person.values, [], "user.ways"))
                for row in entry["actions"]:
                    called.append(bench.call(session, action(row, values, called, name)))
            except ToolError as err:
                last = str(err)
                continue
        informed(entry.get("inform", []), called, name)
        return
    yield Fault("gold refused", f"intent {name}: none of {SAMPLES} tries of its gold calls went through: {last}", name)


def alike(entries: Sequence[Mapping[str, Any]]) -> list[Fault]:
    """Intents that ask for the same in nearly the same words."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in entries:
        groups[";".join(sorted(tool for row in entry["actions"] for tool in row))].append(entry)
    faults = []
    for group in groups.values():
        for one, other in combinations(group, 2):
            said = {similarity.normal(re.sub(r"\{\w+\}", "X", say)) for say in one["say"]}
            if said & {similarity.normal(re.sub(r"\{\w+\}", "X", say)) for say in other["say"]}:
                what = f"intent {other['intent']} says what {one['intent']} says, with the same calls"
                faults.append(Fault("duplicate", what, other["intent"]))
    return faults
