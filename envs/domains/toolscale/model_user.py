"""A customer that a chat model plays. What it says yes to is a field of its reply, and is never read out of its words.

It numbers its requests as the task does, from 1. A reply without the fields is asked for again, and after TRIES of them
the episode fails: nobody guesses whether a customer has agreed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from toolorchestra.envs.base.errors import Outage, ToolError
from toolorchestra.envs.base.json_schema import Checker
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.domains.toolscale.sql_domain import SqlTask
from toolorchestra.envs.domains.toolscale.user import GREETING, Mood, SqlModelUser, SqlUserReply
from toolorchestra.envs.models import ChatRequest, ask
from toolorchestra.envs.money.prices import USER
from toolorchestra.envs.tools import ToolContext

TRIES = 3
_APART = 1000
"""How far the attempt numbers of one reply's tries lie apart, so that each is asked with a seed of its own."""
_RULES = """You play a customer who talks to a service agent. Stay in the role. Say one thing at a time and only what
the scenario holds; if you are asked for anything else, you do not know it. Do not give everything at once: wait until
you are asked. Do not repeat the scenario word for word. When all that you want has been settled, or refused for good,
write ###STOP###. When you are handed over to a person, write ###TRANSFER###. When the scenario does not let you go on,
write ###OUT-OF-SCOPE###.

Each of your replies is one JSON object and nothing else:
{"message": "what the customer says next", "agrees_to": [], "takes_back": []}
agrees_to: the numbers of the requests, if any, to which the message says yes. The agent has said what it is going to do
for them, it is what the customer wants, and the customer sets no further condition. One yes may be for several.
takes_back: the numbers of requests to which the customer had said yes and which it now refuses or wants otherwise.
Where the message says neither yes nor no to a change, both are []."""
_AGAIN = f"(This is not from the agent.) Your last reply could not be read. {_RULES[_RULES.index('Each of') :]}"


def scenario(task: SqlTask) -> str:
    """The scenario as a model is told it."""
    told = task.shape["user_scenario"]["instructions"]
    keys = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
    parts = [f"{key.replace('_', ' ')}: {told[key]}" for key in keys if told.get(key)]
    persona = task.shape["user_scenario"].get("persona")
    requests = [f"request {number}: {request.say[0]}" for number, request in enumerate(task.requests, 1)]
    return "\n".join([*([f"persona: {persona}"] if persona else []), *parts, *requests])


async def model_reply(
    user: SqlModelUser, context: ToolContext, task: SqlTask, heard: Sequence[str], replies: Sequence[SqlUserReply]
) -> SqlUserReply:
    """The model's next reply as the customer, who has said `replies` and has now heard all that the agent said. Raises
    Outage after TRIES replies that cannot be read."""
    talk = [Message(role="system", content=f"{_RULES}\n\nScenario\n{scenario(task)}"), said_by_agent(GREETING)]
    for said, words in zip(replies, heard, strict=True):
        talk += [Message(role="assistant", content=written(said)), said_by_agent(words)]
    text = ""
    again: tuple[Message, ...] = ()
    for number in range(TRIES):
        request = ChatRequest(
            user.model, "user", (*talk, *again), context.seed, context.turn + number * _APART, role=USER,
            bill=context.bill,
        )  # fmt: skip
        text = (await ask(user.models, request)).text
        if (found := read_reply(text, len(task.requests))) is not None:
            return found
        again = (Message(role="assistant", content=text), said_by_agent(_AGAIN))
    raise Outage(
        f"the model {user.model!r} that plays the user gave no JSON object with message, agrees_to and takes_back in "
        f"{TRIES} tries; its last reply ends with {text[-80:]!r}"
    )


def said_by_agent(text: str) -> Message:
    """A message as the customer's side has it."""
    return Message(role="user", content=text)


def written(reply: SqlUserReply) -> str:
    """A reply as a model writes it."""
    numbers = {"agrees_to": reply.agrees_to, "takes_back": reply.takes_back}
    return json.dumps({"message": reply.text, **{key: sorted(n + 1 for n in given) for key, given in numbers.items()}})


def read_reply(text: str, requests: int) -> SqlUserReply | None:
    """What a model's reply says; None where it is not of the form that was asked for."""
    try:
        found = json.loads(text[text.find("{") : text.rfind("}") + 1])
        if not isinstance(found, dict):
            return None
        _checker(requests).check(found, "the reply")
    except (ValueError, RecursionError, ToolError):
        return None
    agrees_to, takes_back = (frozenset(number - 1 for number in found[key]) for key in ("agrees_to", "takes_back"))
    return SqlUserReply(found["message"], Mood(), agrees_to, takes_back)


@lru_cache(maxsize=16)
def _checker(requests: int) -> Checker:
    numbers = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": requests}}
    properties = {"message": {"type": "string", "pattern": r"\S"}, "agrees_to": numbers, "takes_back": numbers}
    return Checker({"type": "object", "properties": properties, "required": [*properties]}, "a user's reply")
