"""Assertions in natural language: a judge model reads the conversation and says which of them hold."""

from __future__ import annotations

import json
from collections.abc import Sequence

from toolorchestra.envs.base.errors import Outage
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.domains.tau2.conversation_log import Entry, conversation
from toolorchestra.envs.domains.tau2.hired_models import BilledModel
from toolorchestra.envs.models import ChatRequest, ask
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import JUDGE

_INSTRUCTION = """\
You check a customer service conversation. Below is the conversation, then a numbered list of expectations.
For each expectation decide from the conversation alone whether it was met.
Reply with one JSON object and nothing else: {"met": [...]}, with true or false for each expectation, in their order."""


async def ask_judge(
    judge: BilledModel, wanted: Sequence[str], log: Sequence[Entry], seed: int, bill: Bill | None = None
) -> list[bool]:
    """Ask once. A verdict that cannot be read is an outage of the judge's, never a pass."""
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(wanted, 1))
    shown = f"<conversation>\n{conversation(log)}\n</conversation>\n<expectations>\n{listed}\n</expectations>"
    messages = (Message(role="system", content=_INSTRUCTION), Message(role="user", content=shown))
    request = ChatRequest(judge.item, "judge", messages, seed, role=JUDGE, bill=bill or Bill())
    said = (await ask(judge.model, request)).text
    met = _read(said, len(wanted))
    if met is None:
        expected = f'the judge must reply {{"met": [{len(wanted)} booleans]}}, got {said!r:.200}'
        raise Outage(expected)
    return met


def _read(text: str, count: int) -> list[bool] | None:
    start, end = text.find("{"), text.rfind("}")
    try:
        met = json.loads(text[start : end + 1])["met"] if start >= 0 else None
    except (ValueError, KeyError, TypeError):
        met = None
    if not isinstance(met, list) or len(met) != count or not all(isinstance(one, bool) for one in met):
        return None
    return met
