"""Single tasks made harder by a model: it adds a request of its own, whose gold calls run on the rows as they are.

The requests that a task has stay as they are, with their values. The new task takes the old one's place only if it
passes every check of a new task and measures harder (`harder_tasks.hardness`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.synth.formats.intent_templates import Caller, Templates, action, text
from toolorchestra.synth.formats.spec import Spec
from toolorchestra.synth.proof import similarity
from toolorchestra.synth.proof.task_checks import DomainPlayer
from toolorchestra.synth.stages.domain_folder import YieldReport, admit, skeleton
from toolorchestra.synth.stages.hard_requests import Rejected
from toolorchestra.synth.stages.harder_tasks import Evolver, hardness
from toolorchestra.synth.stages.stage_values import Making
from toolorchestra.synth.stages.task_drafts import Drafter, Shape

MOST_EXAMPLES = 4
MOST_CALLS = 12
_NAME = re.compile(r"[a-z][a-z0-9_]{2,39}")
_FIELDS = frozenset(("intent", "say", "actions", "inform", "ending", "pushback"))


def about(making: Making, seed: int, wanted: Sequence[Shape]) -> list[Any]:
    """What a model is told of each task, or None where its user cannot be told; in the process that has limits."""
    spec = making.spec
    domain, _ = skeleton(spec, seed)
    bench = DomainPlayer(domain)
    evolver = Evolver(spec, bench, random.Random(f"{seed}/{spec.name}/about"))
    tools = [
        {
            "name": tool.name,
            "kind": tool.kind,
            "description": tool.description,
            "parameters": tool.parameters["properties"],
        }
        for tool in domain.tools.values()
    ]
    return [_about(spec, bench, evolver, tools, shape) for shape in wanted]


def _about(spec: Spec, bench: DomainPlayer, evolver: Evolver, tools: Any, shape: Shape) -> Any:
    person = evolver.person(shape)
    if person is None:
        return None
    requests = shape["toolscale"]["requests"]
    actions = shape["evaluation_criteria"]["actions"]
    named = {request["intent"] for request in requests}
    fitting = [e for e in evolver.drafter.templates.fitting(person) if e["intent"] not in named]
    examples = [_example(evolver.drafter.templates, entry, person) for entry in fitting[:MOST_EXAMPLES]]
    task = evolver.bench.play([_call(row) for row in actions])
    return {
        "policy": spec.policy,
        "tools": tools,
        "user": {name: value for name, value in person.values.items()},
        "task": [{"say": r["say"][0], "actions": [actions[n]["name"] for n in r["actions"]]} for r in requests],
        "results": [{"tool": called.name, "result": called.text[:1500]} for called in task.called],
        "usual": max((len(r["actions"]) for r in requests), default=1),
        "other requests that this user may have": [example for example in examples if example],
    }


def _call(row: Mapping[str, Any]) -> Any:
    from toolorchestra.envs.domains.toolscale.domain import GoldCall

    return GoldCall(row["name"], row["arguments"])


def _example(templates: Templates, entry: Mapping[str, Any], person: Caller) -> Any:
    """A request of the spec's, filled in for this person where that needs no earlier result."""
    values = {**person.values, **templates.private[entry["intent"]][person.key][0]}
    filled = []
    try:
        for row in entry["actions"]:
            needs = any(
                isinstance(v, str) and re.search(r"\{\w+\.", v) for part in row.values() for v in (part or {}).values()
            )
            call = row if needs else {k: dict(v) for k, v in [action(row, values, [], entry["intent"])]}
            filled.append(call)
        said = [text(say, values, entry["intent"]) for say in entry["say"]]
    except ConfigError:
        return None
    ending = entry.get("ending", "serve")
    return {
        "intent": entry["intent"],
        "say": said,
        "actions": filled,
        "inform": entry.get("inform", []),
        "ending": ending,
    }


def checked(making: Making, seed: int, wanted: Sequence[tuple[Shape, Any]]) -> list[Any]:
    """For each task and the request that a model adds the harder task, or why not; in the process that has limits."""
    spec = making.spec
    domain, _ = skeleton(spec, seed)
    bench = DomainPlayer(domain)
    forms = {similarity.form(shape) for shape in making.shapes}
    evolver = Evolver(spec, bench, random.Random(f"{seed}/{spec.name}/evolved"))
    made: list[Any] = []
    for shape, entry in wanted:
        try:
            new = _with_request(spec, bench, evolver, shape, entry)
            admit(bench, new, forms, YieldReport(spec.name), len(making.shapes))
        except (Rejected, ConfigError) as err:
            made.append((err.reason if isinstance(err, Rejected) else "shape", str(err)[:400]))
            continue
        forms.add(similarity.form(new))
        made.append({**new, "id": shape["id"]})
    return made


def _with_request(spec: Spec, bench: DomainPlayer, evolver: Evolver, shape: Shape, given: Any) -> Shape:
    person = evolver.person(shape)
    if person is None:
        raise Rejected("nobody to ask for more")
    entry = _entry(spec, given, person)
    own = shape["toolscale"]["requests"]
    if any(request["ending"] == "transfer" for request in own):
        raise Rejected("handed over already")
    wider = replace(spec, intents=[*spec.intents, entry])
    rng = random.Random(f"{shape['id']}/{spec.name}/evolved")
    drafter = Drafter(wider, bench, rng)
    intents = [_pinned(drafter, evolver, request, person) for request in own]
    made = drafter.compose(person, [*intents, entry], shape["toolscale"]["split"])
    if hardness(made) <= hardness(shape):
        raise Rejected("measures no harder")
    return made


def _entry(spec: Spec, given: Any, person: Caller) -> dict[str, Any]:
    """The model's request as an intent of this person alone. Raises Rejected."""
    if not isinstance(given, Mapping) or set(given) - _FIELDS or not {"intent", "say", "actions"} <= set(given):
        raise Rejected("shape", f"an object with {', '.join(sorted(_FIELDS))} expected, got {given!r:.120}")
    texts, calls, inform = given["say"], given["actions"], given.get("inform", [])
    lists = isinstance(texts, list) and isinstance(calls, list) and isinstance(inform, list)
    if not lists or not texts or not all(isinstance(one, str) for one in [*texts, *inform]):
        raise Rejected("shape", "say and inform are lists of texts, actions a list of calls")
    if not 0 < len(calls) <= MOST_CALLS or not all(isinstance(call, Mapping) and len(call) == 1 for call in calls):
        raise Rejected("shape", f"actions is a list of 1 to {MOST_CALLS} calls, {{tool: {{argument: value}}}}")
    name = str(given["intent"])
    if not _NAME.fullmatch(name) or any(entry["intent"] == name for entry in spec.intents):
        raise Rejected("shape", f"intent is a new lower-case name, got {name!r:.60}")
    if given.get("ending", "serve") not in ("serve", "refuse"):
        raise Rejected("shape", "ending is serve or refuse")
    who = str(person.key).replace("'", "''")
    return {
        "intent": name, "draw": f"SELECT '{who}' AS who", "say": texts, "actions": calls, "inform": inform,
        "ending": given.get("ending", "serve"), "pushback": str(given.get("pushback", "")),
    }  # fmt: skip


def _pinned(drafter: Drafter, evolver: Evolver, request: Mapping[str, Any], person: Caller) -> Mapping[str, Any]:
    """The intent of a request, held to the values that it has in the task. Raises Rejected."""
    entry = evolver.intents.get(request["intent"])
    if entry is None:
        raise Rejected("a request has no intent")
    templates = drafter.templates
    public = bool(entry.get("public"))
    rows = templates.public[entry["intent"]] if public else templates.private[entry["intent"]][person.key]
    for row in rows:
        values = row if public else {**person.values, **row}
        said = {text(say, values, entry["intent"]) for say in entry["say"]}
        if set(request["say"]) <= said:
            if public:
                templates.public[entry["intent"]] = [row]
            else:
                templates.private[entry["intent"]] = {person.key: [row]}
            return entry
    raise Rejected("a request has other values")
