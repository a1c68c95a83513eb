"""The parts of a reward, each by its own rule. Nothing is replayed: the episode's own state is what is looked at.

The package's evaluator is wrong in some cases, which docs/explanation.md lists; `corrected` mends them.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from toolorchestra.envs.base.actions import UNTHINK
from toolorchestra.envs.base.errors import Outage
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.domains.tau2.domain import State, Tau2Domain, clone
from toolorchestra.envs.domains.tau2.task import (
    Aside,
    Criteria,
    Done,
    Entry,
    Function,
    GoldAction,
    Said,
    Tau2Task,
    conversation,
)
from toolorchestra.envs.domains.tau2.user_and_judge_models import BilledModel
from toolorchestra.envs.models import ChatRequest, ask
from toolorchestra.envs.money.ledger import Bill
from toolorchestra.envs.money.prices import JUDGE

_INSTRUCTION = """\
You check a customer service conversation. Below is the conversation, then a numbered list of expectations.
For each expectation decide from the conversation alone whether it was met.
Reply with one JSON object and nothing else: {"met": [...]}, with true or false for each expectation, in their order."""


class Graded(NamedTuple):
    """The parts named by a task's reward basis, and what they were made of."""

    parts: dict[str, float]
    details: dict[str, Any]

    @property
    def value(self) -> float:
        """The product of the parts; without any criteria an episode that ended is right."""
        return math.prod(self.parts.values(), start=1.0)


def grade(domain: Tau2Domain, plan: Tau2Task, state: State, log: Sequence[Entry], *, corrected: bool) -> Graded:
    """Everything but what a judge has to say."""
    criteria = plan.criteria
    graded = Graded({}, {})
    if criteria is None:
        return graded
    if "DB" in criteria.basis:
        graded.parts["DB"] = float(database_matches(domain, plan, criteria, state))
    if "ACTION" in criteria.basis:
        done = [entry for entry in log if isinstance(entry, Done)]
        met = actions_met(criteria.actions or (), done, corrected=corrected, solo=domain.solo)
        graded.parts["ACTION"] = float(all(met))
        graded.details["actions"] = met
    if "COMMUNICATE" in criteria.basis:
        met = communicated(criteria.communicate, log, corrected=corrected)
        graded.parts["COMMUNICATE"] = float(all(met))
        graded.details["communicated"] = met
    if "ENV_ASSERTION" in criteria.basis:  # last: an assertion may be any method, so also one that writes
        met = [holds(state, assertion) for assertion in criteria.assertions or ()]
        graded.parts["ENV_ASSERTION"] = float(all(met))
        graded.details["assertions"] = met
    return graded


def database_matches(domain: Tau2Domain, plan: Tau2Task, criteria: Criteria, state: State) -> bool:
    """Whether both databases are what the reference path leaves. A task that names no path asks for nothing."""
    if criteria.actions is None and criteria.assertions is None:
        return True
    gold = _gold_rows(domain, plan)
    mine = state.touched()
    for row in gold.keys() | mine.keys():
        want = gold[row] if row in gold else state.pristine(row)
        got = mine[row] if row in mine else state.pristine(row)
        if want != got:
            return False
    return True


@lru_cache(maxsize=4096)
def _gold_rows(domain: Tau2Domain, plan: Tau2Task) -> Mapping[tuple[str, str], str]:
    """What the reference path touches. As in the benchmark: its errors are passed over, the sides are not synced."""
    state = domain.start(plan)
    state.solo = False
    for action in (plan.criteria and plan.criteria.actions) or ():
        with contextlib.suppress(Exception):  # a reference path may fail as any call may
            state.value(action.side, action.call.name, clone(action.call.arguments), sync=False)
    return state.touched()


def holds(state: State, assertion: Function) -> bool:
    """Whether an assertion gives the value it must. One that raises does not hold."""
    try:
        return state.run(assertion) is assertion.expected
    except Exception:  # noqa: BLE001 - a domain's function may raise anything
        return False


def actions_met(gold: Sequence[GoldAction], done: Sequence[Done], *, corrected: bool, solo: bool) -> list[bool]:
    """Tell which actions of the reference path were made: any number by one call, whoever made it; arguments that no
    action names are compared only where the call has them.

    corrected: each by a call of its own, by the same side, with its arguments.
    """
    if not corrected:
        return [any(_loosely(action, entry) for entry in done) for action in gold]
    fits = [[k for k, entry in enumerate(done) if _exactly(action, entry, solo=solo)] for action in gold]
    taken: dict[int, int] = {}
    return [_place(number, fits, taken, set()) for number in range(len(gold))]


def _place(number: int, fits: Sequence[Sequence[int]], taken: dict[int, int], tried: set[int]) -> bool:
    """Find a call for an action, moving others on where they have another: bipartite matching by augmenting paths."""
    for k in fits[number]:
        if k not in tried:
            tried.add(k)
            if k not in taken or _place(taken[k], fits, taken, tried):
                taken[k] = number
                return True
    return False


def _exactly(action: GoldAction, entry: Done, *, solo: bool) -> bool:
    if action.call.name != entry.call.name or not (solo or action.side == entry.side):
        return False
    want, got = action.call.arguments, entry.call.arguments
    if action.compared is None:
        return want == got
    return all((name in want) == (name in got) and want.get(name) == got.get(name) for name in action.compared)


def _loosely(action: GoldAction, entry: Done) -> bool:
    if action.call.name != entry.call.name:
        return False
    want, got = action.call.arguments, entry.call.arguments
    names = got.keys() if action.compared is None else action.compared
    return {k: v for k, v in got.items() if k in names} == {k: v for k, v in want.items() if k in names}


def communicated(wanted: Sequence[str], log: Sequence[Entry], *, corrected: bool) -> list[bool]:
    """Tell which texts the agent said to the user, whatever the case and without commas. Corrected, text beside calls
    does not count, which the user never sees."""
    spoken = [
        entry.text.lower().replace(",", "")
        for entry in log
        if isinstance(entry, Said if corrected else Said | Aside) and entry.side == "assistant"
    ]
    return [any(text.lower() in said for said in spoken) for text in wanted]


async def ask_judge(
    judge: BilledModel, wanted: Sequence[str], log: Sequence[Entry], seed: int, bill: Bill | None = None
) -> list[bool]:
    """Ask a model once which assertions hold. A verdict that cannot be read is an outage, never a pass."""
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(wanted, 1))
    shown = f"<conversation>\n{conversation(log)}\n</conversation>\n<expectations>\n{listed}\n</expectations>"
    messages = (Message(role="system", content=_INSTRUCTION), Message(role="user", content=shown))
    request = ChatRequest(judge.item, "judge", messages, seed, role=JUDGE, bill=bill or Bill())
    said = (await ask(judge.model, request)).text
    met = _met(said, len(wanted))
    if met is None:
        expected = f'the judge must reply {{"met": [{len(wanted)} booleans]}}, got {said!r:.200}'
        raise Outage(expected)
    return met


_DECODER = json.JSONDecoder()


def _met(text: str, count: int) -> list[bool] | None:
    """The last verdict of a reply. A thought is none, nor is what else stands in braces."""
    said, at = text.rpartition(UNTHINK)[2], 0
    verdict = None
    while (at := said.find("{", at)) >= 0:
        try:
            found, at = _DECODER.raw_decode(said, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        met = found.get("met")
        if isinstance(met, list) and len(met) == count and all(isinstance(one, bool) for one in met):
            verdict = met
    return verdict
