"""The author that is a model, and the second reader who doubts what it wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolorchestra.envs.base.types import Message
from toolorchestra.synth.authors import (
    PART_OF,
    PartRequest,
    Unusable,
    author_prompts,
    diversity_seeds,
    untrusted_answers,
)
from toolorchestra.synth.formats.part_checks import Fault
from toolorchestra.synth.formats.spec import parsed
from toolorchestra.synth.storage.paid_calls import AUTHOR, JUDGE, MOST_CHARACTERS, PaidAnswer, PaidModel, PaidRequest

DOUBTED = ("policy.md", "intents.yaml")
"""Parts that a second reader sees: what runs cannot tell whether it contradicts itself."""
MOST_PIECES = 4
"""Of one answer: so often an author goes on where the limit of its length broke it off."""
_PIECE = 100_000
"""Continuations are asked for under other numbers than their answer."""
_A_TAKE = 1000
"""A stage that is made anew on request asks under other numbers, so that its old answers do not come back."""


class LlmAuthor:
    """A model asked for each part; its answers are untrusted."""

    trusted = False

    def __init__(
        self,
        domain: str,
        paid_model: PaidModel,
        *,
        batches: int = 3,
        second_reader: bool = True,
        takes: Mapping[str, int] | None = None,
        diverse: int | None = None,
    ) -> None:
        self.domain = domain
        self.paid_model = paid_model
        self.batches = batches
        self.second_reader = second_reader
        self.takes = takes or {}
        self.diverse = diverse
        """The seed that prompts are varied by; None varies none."""

    async def write(self, asked: PartRequest) -> str:
        """One call, or for intents some at a time, put together. Raises Unusable."""
        if asked.stage != "intents" or asked.faults or self.batches < 2:
            note = ""
            if self.diverse is not None and asked.stage == "subjects":
                note = diversity_seeds.of_subject(self.diverse)
            messages = author_prompts.author(self.domain, asked, note=note)
            return untrusted_answers.part(asked.stage, await self._ask(asked, messages))
        asks = []
        for number in range(1, self.batches + 1):
            note = "" if self.diverse is None else diversity_seeds.of_intents(self.diverse, number)
            messages = author_prompts.author(self.domain, asked, f"{number} of {self.batches}", note)
            asks.append(self._ask(asked, messages))
        answers = await asyncio.gather(*asks, return_exceptions=True)  # all end: what is answered is kept
        if failed := next((answer for answer in answers if isinstance(answer, BaseException)), None):
            raise failed
        return _joined([answer for answer in answers if not isinstance(answer, BaseException)])

    async def tool_drafts(self, asked: PartRequest, count: int) -> list[str]:
        """So many drafts of the tools, each asked for by itself. Raises Unusable where none can be used."""
        asks = []
        for number in range(1, count + 1):
            note = f"Several drafts of the tools are written and merged; this is draft {number} of {count}."
            note += "" if self.diverse is None else f" {diversity_seeds.of_draft(self.diverse, number)}"
            asks.append(self._ask(asked, author_prompts.author(self.domain, asked, note=note)))
        texts: list[str] = []
        last: Unusable | None = None
        for answer in await asyncio.gather(*asks):
            try:
                texts.append(untrusted_answers.part(asked.stage, answer))
            except Unusable as err:
                last = err
        if not texts:
            raise last or Unusable(Fault("shape", "no draft in any answer"))
        return texts

    async def harder(self, asked: PartRequest) -> str:
        """Asks the model once for harder intents. Raises Unusable where its answer cannot be used."""
        answer = await self._ask(asked, author_prompts.harder(self.domain, asked), take_of="harder")
        return untrusted_answers.part("intents", answer)

    async def _ask(self, asked: PartRequest, messages: tuple[Message, ...], take_of: str = "") -> PaidAnswer:
        """`take_of`: the pipeline's name of the stage, where calls have another."""
        number = asked.number + _A_TAKE * self.takes.get(take_of or asked.stage, 0)
        answer = await self.paid_model.ask(PaidRequest(asked.stage, AUTHOR, messages, number))
        return await self._whole(answer, asked.stage, messages, number)

    async def _whole(self, answer: PaidAnswer, stage: str, messages: tuple[Message, ...], number: int) -> PaidAnswer:
        """An answer that the limit broke off is gone on with, so often; what is still not whole says so."""
        text = answer.text
        for piece in range(1, MOST_PIECES):
            if not answer.cut or not answer.text or len(text) > MOST_CHARACTERS:
                break
            going_on = author_prompts.going_on(messages, text)
            answer = await self.paid_model.ask(PaidRequest(stage, AUTHOR, going_on, number + _PIECE * piece))
            text += answer.text
        return PaidAnswer(text[: MOST_CHARACTERS + 1], max(len(text), answer.characters), answer.cut)

    async def doubts(self, parts: Mapping[str, str]) -> list[Fault]:
        """The second reader's reasons, where it says no. An answer that is no verdict counts as a doubt."""
        newest = list(parts)[-1]
        if not self.second_reader or newest not in DOUBTED:
            return []
        stage = next(stage for stage, part in PART_OF.items() if part == newest)
        answer = await self.paid_model.ask(PaidRequest(stage, JUDGE, author_prompts.doubt(self.domain, stage, parts)))
        try:
            said = untrusted_answers.parsed(answer)
        except Unusable as err:
            return [Fault("no verdict", err.fault.seen)]
        reasons = said.get("reasons")
        if said.get("verdict") == "yes" and reasons == []:
            return []
        listed = reasons if isinstance(reasons, list) else [said]
        return [Fault("doubted", f"{reason!s:.300}") for reason in listed[:5]] or [Fault("doubted", "no reason given")]


def _joined(answers: Sequence[PaidAnswer]) -> str:
    """The intents of all answers that can be used, none by a name that another has. Raises Unusable where none can."""
    entries: dict[str, object] = {}
    last: Unusable | None = None
    for answer in answers:
        try:
            listed = parsed(untrusted_answers.part("intents", answer), Path("intents.yaml"))
        except Unusable as err:
            last = err
            continue
        for entry in listed:
            name = str(entry.get("intent")) if isinstance(entry, dict) else ""
            entries.setdefault(name, dict(entry) if isinstance(entry, dict) else entry)
    if not entries:
        raise last or Unusable(Fault("shape", "no intent in any answer"))
    return untrusted_answers.dumped(list(entries.values()))
