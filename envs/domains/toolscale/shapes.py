"""JSON schemas of a domain's files. What is not named here is refused."""

from __future__ import annotations

from typing import Any


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


TEXT: dict[str, Any] = {"type": "string"}
MAYBE: dict[str, Any] = {"type": ["string", "null"]}
WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
FREE: dict[str, Any] = {"type": "object", "additionalProperties": True}
TEXTS = _list(TEXT)

MANIFEST = _object(
    "name subject clock content_hash generator counts",
    name=TEXT,
    subject=TEXT,
    clock=TEXT,
    held_out={"type": "boolean"},
    content_hash=TEXT,
    generator=_object("seed spec_hash", seed={"type": "integer"}, spec_hash=TEXT),
    process=_object(
        "ways confirm caller own",
        ways=_list(TEXTS),
        confirm={"type": "boolean"},
        caller=TEXT,
        own=FREE,
    ),
    counts={"type": "object", "additionalProperties": True},
    costs=_object("hash", hash=TEXT),
)

COSTS = _object(
    "what sheet orchestrator seed tools_characters solvers tries columns",
    what=TEXT,
    sheet=TEXT,
    orchestrator=TEXT,
    seed={"type": "integer"},
    tools_characters=WHOLE,
    solvers=TEXTS,
    tries=WHOLE,
    columns=TEXTS,
)

TABLE = _object("table key columns", table=TEXT, key=TEXT, columns=TEXTS)

TOOL = _object(
    "name kind description parameters returns",
    name=TEXT,
    kind={"type": "string", "enum": ["read", "write"]},
    description=TEXT,
    parameters=FREE,
    optional=TEXTS,
    steps=_list(_object("", let=TEXT, check=TEXT, do=TEXT, error=TEXT)),
    returns=_object("", row=TEXT, rows=TEXT),
    transfers={"type": "boolean"},
)

_FACT = _object("label asked", label=TEXT, asked=TEXTS, value=TEXT)
_ACTION = _object(
    "action_id requestor name arguments",
    action_id=TEXT,
    requestor={"type": "string", "enum": ["assistant"]},
    name=TEXT,
    arguments=FREE,
    info=MAYBE,
    compare_args={"type": ["array", "null"]},
)
_REQUEST = _object(
    "intent ending say actions",
    intent=TEXT,
    ending={"type": "string", "enum": ["serve", "refuse", "transfer"]},
    say=TEXTS,
    facts=_list(_FACT),
    actions=_list(WHOLE),
    inform=TEXTS,
    pushback=TEXT,
    first=_object(
        "kind say then",
        kind={"type": "string", "enum": ["corrects", "changes_mind", "negotiates"]},
        say=TEXTS,
        then=TEXTS,
    ),
    branch=TEXT,
)
_WRONG = _object(
    "kind request calls",
    kind={"type": "string", "enum": ["candidate", "uncomputed", "branch", "first_said"]},
    request=WHOLE,
    calls=_list({"type": "array"}),
)
_INSTRUCTIONS = _object(
    "domain reason_for_call known_info task_instructions",
    domain=TEXT,
    reason_for_call=TEXT,
    known_info=MAYBE,
    unknown_info=MAYBE,
    task_instructions=TEXT,
)

TASK = _object(
    "id user_scenario evaluation_criteria toolscale",
    id=TEXT,
    description=_object("", purpose=MAYBE, relevant_policies=MAYBE, notes=MAYBE),
    user_scenario=_object("instructions", persona=MAYBE, instructions=_INSTRUCTIONS),
    ticket=MAYBE,
    initial_state={"type": "null"},
    evaluation_criteria=_object(
        "actions communicate_info reward_basis",
        actions=_list(_ACTION),
        env_assertions={"type": ["array", "null"]},
        communicate_info=TEXTS,
        nl_assertions={"type": ["array", "null"]},
        reward_basis=TEXTS,
    ),
    toolscale=_object(
        "split difficulty end_states facts requests identify",
        split={"type": "string", "enum": ["train", "validation", "test", "heldout"]},
        difficulty={"type": "integer", "minimum": 1, "maximum": 5},
        end_states=TEXTS,
        alternatives=_list(_list(_ACTION)),
        facts=_list(_FACT),
        requests=_list(_REQUEST),
        identify=WHOLE,
        cost=FREE,
        caller=TEXT,
        computed=TEXTS,
        wrong=_list(_WRONG),
        hardness=FREE,
    ),
)
"""tau2's Task, and under "toolscale" what the scripted user, the splits and the proof need."""
