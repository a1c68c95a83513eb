"""What a policy and the intents must be: they speak of things that exist, do not contradict, and run on real rows."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.domains.toolscale.domain import SqlDomain, SqlTool
from toolorchestra.envs.domains.toolscale.tool_runs import Called
from toolorchestra.synth.formats import places
from toolorchestra.synth.formats.intent_templates import Templates, action, informed, text
from toolorchestra.synth.formats.part_checks import Fault, Parts, partial
from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.proof import similarity
from toolorchestra.synth.proof.task_checks import DomainPlayer
from toolorchestra.synth.stages.domain_folder import skeleton
from toolorchestra.synth.stages.tool_trials import idle

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
    if entry.get("ending", "serve") == "serve" and not writes and not entry.get("inform"):
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
