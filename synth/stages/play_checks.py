"""What tools, policy and intents must be: they run on real rows, name what exists, and do not contradict themselves."""

from __future__ import annotations

import contextlib
import datetime
import random
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, SqlDomain, SqlTool
from toolorchestra.synth.formats import places
from toolorchestra.synth.formats.intent_templates import Rejected, informed, text
from toolorchestra.synth.formats.part_checks import Fault, Parts, partial
from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.proof import similarity
from toolorchestra.synth.proof.domain_player import DomainPlayer
from toolorchestra.synth.stages.domain_folder import skeleton
from toolorchestra.synth.stages.task_drafts import HELD_OUT, Drafter

# -- tools -------------------------------------------------------------------------------------------------------------

TRIES = 400
CHAINED_TRIES = 40
_HOSTILE = "' OR '1'='1"
_WORDLESS = {"phone": "+00 00 00 00 00", "email": "nobody@example.com", "code": "X-0", "id": "X-0", "text": "nobody"}


def attempt(bench: DomainPlayer, tool: SqlTool, rng: random.Random) -> tuple[bool, str]:
    """Call a tool with values of real rows until it has succeeded and refused; then with what must be refused. Whether
    it succeeded, and its last refusal."""
    succeeded, refusal = False, ""
    for _ in range(TRIES):
        if succeeded and refusal:
            break
        arguments = guess(bench, tool, rng)
        if succeeded:  # now for a refusal
            arguments = spoilt(tool, arguments)
        with bench.session() as session:
            try:
                bench.call(session, GoldCall(tool.name, arguments))
                succeeded = True
            except ToolError as err:
                refusal = str(err)
    return succeeded, refusal


def chained(bench: DomainPlayer, tool: SqlTool, rng: random.Random) -> bool:
    """Whether a tool succeeds on what other writes have just made."""
    others = [other for other in bench.domain.tools.values() if other.kind == "write" and other is not tool]
    for _ in range(CHAINED_TRIES):
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
    known: dict[str, Any] = {}
    if tables:
        table = rng.choice(tables)
        known = dict(zip(table.columns, rng.choice(table.rows), strict=True))
    made = {}
    for name, schema in properties.items():
        if name in known and known[name] is not None and "enum" not in schema:
            made[name] = known[name]
        elif name in tool.parameters["required"] or rng.random() < 0.5:
            made[name] = _value(bench, name, {**schema, "format": tool.formats.get(name, "")}, rng)
    return made


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
    properties = tool.parameters["properties"]
    texts = (name for name, schema in properties.items() if schema["type"] == "string")
    name = next(texts, next(iter(properties), None))
    return {**arguments, "no_such_parameter": 1} if name is None else {**arguments, name: _HOSTILE}


def tools(parts: Parts, seed: int) -> list[Fault]:
    """tools.yaml: SQL that compiles under the authorizer, reads that read, guards before every write."""
    spec = partial(parts)
    domain = skeleton(spec, seed)
    used = [name for way in spec.head["user"]["ways"] for action in way["actions"] for name in action]
    faults = [
        Fault("identification", f"domain.yaml identifies users with {name!r}; there must be a tool of that name")
        for name in dict.fromkeys(used)
        if name not in domain.tools
    ]
    bench = DomainPlayer(domain)
    for tool in domain.tools.values():
        places.at(f"tools.yaml: tool {tool.name!r}")
        _, refusal = attempt(bench, tool, random.Random(f"{seed}/{tool.name}"))
        if not refusal:
            faults.append(Fault("refusal", f"tool {tool.name} refused none of {TRIES} calls", tool.name))
        if tool.kind == "write" and not any(step.verb != "do" for step in tool.steps):
            faults.append(Fault("guard", f"tool {tool.name} writes without a let or check before it", tool.name))
    if not domain.writes:
        faults.append(Fault("tools", "no tool writes; tasks need tools that change something"))
    return faults


def idle(bench: DomainPlayer, used: Collection[str], seed: int) -> list[Fault]:
    """Tools that no gold call uses and that no guessed call got to succeed: nobody has seen them work."""
    faults = []
    for tool in (tool for name, tool in bench.domain.tools.items() if name not in used):
        rng = random.Random(f"{seed}/{tool.name}")
        succeeded, refusal = attempt(bench, tool, rng)
        if not succeeded and not chained(bench, tool, rng):
            why = f"tool {tool.name} succeeded in none of {TRIES} calls and no intent uses it"
            faults.append(Fault("never works", f"{why}: {refusal:.200}", tool.name))
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
    domain = skeleton(partial(parts), seed)
    said = parts["policy.md"]
    places.at("policy.md")
    if len(said) < LEAST_POLICY:
        return [Fault("length", f"a policy of {len(said)} characters, at least {LEAST_POLICY} expected")]
    known = {*domain.tools, *domain.tables, *re.findall(r"\w+", parts["schema.sql"] + parts["tools.yaml"])}
    known.update(c for table in domain.tables.values() for c in table.columns)
    known.update(p for tool in domain.tools.values() for p in tool.parameters["properties"])
    coded = [(quoted or plain).strip().partition("(")[0] for quoted, plain in _CODE.findall(said)]
    names = [word for word in dict.fromkeys(coded) if re.fullmatch(r"\w+", word) and word not in known]
    unknown = [word for word in names if not re.fullmatch(r"[A-Z]{1,4}-?\d+|\d+", word)]
    faults = [Fault("unknown thing", f"{word!r:.60} is no tool, table, column or value") for word in unknown[:10]]
    faults += [
        Fault("not covered", f"the policy says nothing of the write tool {tool.name}", tool.name)
        for tool in domain.tools.values()
        if tool.kind == "write" and not covered(tool, said)
    ]
    faults += [Fault("contradiction", f"it says {a!r:.120} and {b!r:.120}") for a, b in contradictions(said)]
    return faults


def covered(tool: SqlTool, said: str) -> bool:
    """Whether a policy speaks of what a tool does: by its name, or by most words of its name and description."""
    if tool.name in said or (tool.transfers and _HANDOVER.search(said)):
        return True
    low = said.lower().replace("-", "")
    words = re.findall(r"[a-z]{4,}", f"{tool.name.replace('_', ' ')} {tool.description}".lower().replace("-", ""))
    stems = {word[: max(4, len(word) - 3)] if len(word) > 5 else word[:4] for word in words} - _FILLERS
    return sum(stem in low for stem in stems) >= COVERED_SHARE * len(stems)


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
    spec = partial(parts)
    domain = skeleton(spec, seed)
    bench = DomainPlayer(domain)
    faults: list[Fault] = []
    used = {name for way in spec.head["user"]["ways"] for row in way["actions"] for name in row}
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
    called = [tool for row in entry["actions"] for tool in row]
    if unknown := [tool for tool in called if tool not in bench.domain.tools]:
        yield Fault("unknown tool", f"intent {name} calls {unknown[0]!r}, which is no tool", name)
        return
    if len(set(entry["say"])) < len(entry["say"]):
        yield Fault("wordings", f"intent {name} has a wording twice", name)
        return
    writes = not bench.domain.writes.isdisjoint(called)
    if entry.get("ending", "serve") == "refuse" and writes:
        yield Fault("ending", f"intent {name} is to be refused, but its gold calls write", name)
    if entry.get("ending", "serve") == "serve" and not writes and not (entry.get("inform") or entry.get("tell")):
        what = f"intent {name} changes nothing and tells nothing; doing nothing would solve it"
        yield Fault("does nothing", what, name)
    try:
        yield from _tried(Drafter(replace(spec, intents=[entry]), bench, rng), entry)
    except ConfigError as err:
        yield Fault("template", f"intent {name}: {err}", name)


def _tried(drafter: Drafter, entry: Mapping[str, Any]) -> Iterator[Fault]:
    """Gold calls on some rows: one success is enough, for drafts that fail are dropped later."""
    bench, templates, rng, name, last = drafter.bench, drafter.templates, drafter.rng, entry["intent"], ""
    people = [p for p in templates.people if entry.get("public") or p.key in templates.private.get(name, {})]
    if not people:
        yield Fault("nobody", f"intent {name}: its draw finds nobody whom user.draw knows", name)
        return
    for _ in range(SAMPLES):
        person = rng.choice(people)
        values = templates.instance(entry, person, rng)
        way = rng.choice(drafter.spec.head["user"]["ways"])
        try:
            for wording in entry["say"]:
                text(wording, values, name)
            with bench.session() as session:
                if not entry.get("public"):
                    bench.follow(session, way["actions"], person.values, "user.ways")
                called = bench.follow(session, entry["actions"], values, name)
        except (Rejected, ToolError) as err:
            last = str(err)
            continue
        informed(entry.get("inform", []), called, name)
        # Now all that it names is looked up, in what a draft alone fills. One that is no task is dropped later.
        for _ in range(SAMPLES * max(1, len(entry.get("branches", ())))):
            with contextlib.suppress(Rejected):  # held out, so that all wordings are filled
                drafter.compose(None if entry.get("public") else rng.choice(people), [entry], HELD_OUT)
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
