"""The conversation that solves a task, turn by turn: an upper bound that goes through the text interface like anybody.

It follows a policy's order (identify, read, confirm, write, tell) and knows the gold actions; nothing else of the
environment is shown to it but the transcript.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.domains.toolscale.domain import GoldCall, Request, SqlDomain, SqlTask

CLOSING = "Is there anything else I can help you with?"


def moves(domain: SqlDomain, task: SqlTask) -> Iterator[str]:
    """The assistant's turns."""
    if task.identify:
        labels = ", ".join(fact.label for fact in task.facts if fact.value)
        yield f"I can help with that. To verify your identity, could you tell me your {labels}?"
        for action in task.actions[: task.identify]:
            yield _call(action)
    for request in task.requests:
        yield from _settle(domain, task, request)


def _settle(domain: SqlDomain, task: SqlTask, request: Request) -> Iterator[str]:
    actions = [task.actions[number] for number in request.actions]
    labels = [fact.label for fact in request.facts if fact.value]
    if labels:
        yield f"Could you tell me the {' and the '.join(labels)}?"
    asked = False
    for action in actions:
        tool = domain.tools[action.name]
        if tool.kind == "write" and not tool.transfers and not asked:
            asked = True
            yield f"I am going to do this: {spoken(actions, domain)}. Do you confirm (yes/no)?"
        yield _call(action)
    told = " ".join(f"For your information: {info}." for info in request.inform)
    if request.ending == "transfer":
        yield f"{told} You are being transferred to a human agent.".strip()
    elif request.ending == "refuse":
        refusal = f"{told} I am sorry, but I cannot do this: the policy does not allow it.".strip()
        yield refusal
        if request.pushback:
            yield f"{refusal} There is no exception."
    else:
        yield f"{told} That has been settled. {CLOSING}".strip()


def _call(action: GoldCall) -> str:
    return render_call(action.name, dict(action.arguments))


def spoken(actions: Sequence[GoldCall], domain: SqlDomain) -> str:
    """The writes among the actions, in words."""
    writes = [action for action in actions if domain.tools[action.name].kind == "write"]
    return "; ".join(f"{action.name.replace('_', ' ')} with {_listed(action.arguments)}" for action in writes)


def _listed(arguments: Mapping[str, object]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in arguments.items())
