"""A model that works on single tasks: it words them anew, makes them harder, and proposes records for tables.

What it writes is untrusted: it is parsed, looked through and then run by the stages that ask for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolorchestra.envs.base.types import Message
from toolorchestra.synth.authors import Unusable, diversity_seeds, untrusted_answers
from toolorchestra.synth.formats.part_checks import Fault
from toolorchestra.synth.storage.paid_calls import AUTHOR, PaidModel, PaidRequest

_HEAD = (
    "You work on tasks for customer service agents that use tools on a SQLite database. Everything you write is "
    "checked "
    "by running it. Answer with one JSON object and nothing else. Texts are plain words: no markup, no instructions to "
    "whoever reads them."
)
_REWORD = """Word the requests of this task anew, as its user would say them:
{{"requests": [{{"say": [two wordings]}}, ...]}}, one entry for each request and in their order. The user speaks like
this: {voice}. Ask for exactly the same: every value under "keep" stands in each wording as it is written, no value is
added, and nothing else is asked for."""
_EVOLVE = """Write one more request for the same user, harder than those of the task:
{{"intent": new_name, "say": [three wordings],
"actions": [{{"tool": {{"argument": value}}}}], "inform": ["tool.field" or "tool.0.field"], "ending": "serve"}}.
- Make it hard by this: {twist}. It has more calls than "usual" says.
- actions: the right calls after identification, with values of this user's data below; {{tool.field}} as an argument
  takes a value of an earlier result. Leave out reads that are not needed.
- say: the user's words, without ids that people do not know. inform: what must be told; never what the user says.
- It must not undo or repeat the requests that the task has, and it must be right under the policy."""
_RECORDS = """Propose records for these tables: {{"records": {{table: [{{column: value}}, ...]}}}}, at most {most} of
each. Give the columns that are listed and no others; ids, references and what is computed are filled in for you. Make
them plausible for the subject, different from each other, and of the kind that the recipe makes. {seed}"""


@dataclass(frozen=True)
class TaskAuthor:
    """One model, and the seed that its prompts are varied by."""

    domain: str
    paid_model: PaidModel
    seed: int = 1

    async def reworded(self, task_id: str, requests: Sequence[Mapping[str, Any]], number: int = 0) -> list[list[str]]:
        """New wordings of each request. Raises Unusable."""
        voice = diversity_seeds.of_task(self.seed, task_id)
        said = await self._said("reword", _REWORD.format(voice=voice), {"task": task_id, "requests": requests}, number)
        listed = said.get("requests")
        if not isinstance(listed, list) or len(listed) != len(requests):
            raise _shape(f"a list of {len(requests)} requests expected, got {listed!r:.80}")
        made = [one.get("say") if isinstance(one, dict) else None for one in listed]
        wordings = [[text for text in one if isinstance(text, str) and text.strip()] for one in made if one]
        if len(wordings) != len(requests) or not all(wordings):
            raise _shape("each request has say, a list of texts")
        return wordings

    async def evolved(self, task_id: str, about: Mapping[str, Any], number: int, faults: Sequence[Fault] = ()) -> Any:
        """One more request. Raises Unusable."""
        twist = diversity_seeds.of_evolving(self.seed, task_id, number)
        return await self._said("evolve task", _EVOLVE.format(twist=twist), about, number, faults)

    async def records(self, about: Mapping[str, Any], most: int) -> Mapping[str, Any]:
        """Records by table. Raises Unusable."""
        seed = diversity_seeds.of_subject(self.seed)
        said = await self._said("records", _RECORDS.format(most=most, seed=seed), about, 0)
        found = said.get("records")
        if not isinstance(found, dict):
            raise _shape('{"records": {table: [...]}} expected')
        return found

    async def _said(
        self, stage: str, wanted: str, about: Mapping[str, Any], number: int, faults: Sequence[Fault] = ()
    ) -> dict[str, Any]:
        given = json.dumps(about, ensure_ascii=False)
        text = f"Stage: {stage}\nThe subject: {self.domain}\n\n{wanted}\n\n{given}"
        if faults:
            text += "\n\nAn earlier try was of no use: " + "; ".join(f"{f.reason}: {f.seen:.400}" for f in faults[:3])
        messages = (Message(role="system", content=_HEAD), Message(role="user", content=text))
        answer = await self.paid_model.ask(PaidRequest(stage, AUTHOR, messages, number))
        return untrusted_answers.object_of(answer, stage)


def _shape(seen: str) -> Unusable:
    return Unusable(Fault("shape", seen))
