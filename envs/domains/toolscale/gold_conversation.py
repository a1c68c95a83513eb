"""The conversation that solves a task, turn by turn: an upper bound that goes through the text interface like anybody.

It follows a policy's order (identify, read, confirm, write, tell) and knows the gold actions; nothing else of the
environment is shown to it but the transcript.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall, Request, SqlDomain, SqlTask

CLOSING = "Is there anything else I can help you with?"


class OracleWords:
    """How the oracle words what it says; other wordings change what they want."""

    def hold(self) -> str:
        """Said before calls; "" says nothing."""
        return ""

    def ask_identity(self, labels: Sequence[str]) -> str:
        return f"I can help with that. To verify your identity, could you tell me your {', '.join(labels)}?"

    def ask_details(self, labels: Sequence[str]) -> str:
        return f"Could you tell me the {' and the '.join(labels)}?"

    def confirm(self, plan: str) -> str:
        return f"I am going to do this: {plan}. Do you confirm (yes/no)?"

    def repeat(self, said: str) -> str:
        """Asks whether the user stays with what it has said."""
        return f"Let me repeat what you want: {said} Is that correct?"

    def settled(self, inform: Sequence[str]) -> str:
        return f"{_told(inform)} That has been settled. {CLOSING}".strip()

    def refuse(self, inform: Sequence[str]) -> str:
        return f"{_told(inform)} I am sorry, but I cannot do this: the policy does not allow it.".strip()

    def insist(self, inform: Sequence[str]) -> str:
        """Said to a user that objects to a refusal."""
        return f"{self.refuse(inform)} There is no exception."

    def hand_over(self, inform: Sequence[str]) -> str:
        return f"{_told(inform)} You are being transferred to a human agent.".strip()


_PLAIN = OracleWords()


def moves(domain: SqlDomain, task: SqlTask, words: OracleWords = _PLAIN) -> Iterator[str]:
    """The assistant's turns that solve the task, in their order."""
    if task.identify:
        yield words.ask_identity([fact.label for fact in task.facts if fact.value])
        yield from _held(words)
        for action in task.actions[: task.identify]:
            yield _call(action)
    for request in task.requests:
        yield from _settle(domain, task, request, words)


def _held(words: OracleWords) -> Iterator[str]:
    if said := words.hold():
        yield said


def _settle(domain: SqlDomain, task: SqlTask, request: Request, words: OracleWords) -> Iterator[str]:
    actions = [task.actions[number] for number in request.actions]
    labels = [fact.label for fact in request.facts if fact.value]
    if request.first:
        yield words.refuse(()) if request.first.kind == "negotiates" else words.repeat(request.first.say[0])
    if labels:
        yield words.ask_details(labels)
    if actions:
        yield from _held(words)
    asked = False
    for action in actions:
        tool = domain.tools[action.name]
        if tool.kind == "write" and not tool.transfers and not asked:
            asked = True
            yield words.confirm(spoken(actions, domain))
        yield _call(action)
    if request.ending == "transfer":
        yield words.hand_over(request.inform)
    elif request.ending == "refuse":
        yield words.refuse(request.inform)
        if request.pushback:
            yield words.insist(request.inform)
    else:
        yield words.settled(request.inform)


def _told(inform: Sequence[str]) -> str:
    return " ".join(f"For your information: {info}." for info in inform)


def _call(action: GoldCall) -> str:
    return render_call(action.name, dict(action.arguments))


def spoken(actions: Sequence[GoldCall], domain: SqlDomain) -> str:
    """The writes among the actions, in words."""
    writes = [action for action in actions if domain.tools[action.name].kind == "write"]
    return "; ".join(f"{action.name.replace('_', ' ')} with {_listed(action.arguments)}" for action in writes)


def _listed(arguments: Mapping[str, object]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in arguments.items())
