"""The author that is a model, or a script in its place, and the reader who doubts what it wrote."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError, install, no_such
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.domains.toolscale.domain_files import MOST_TEMPLATE
from toolorchestra.envs.models import ChatModel, ChatRequest, ScriptedModel
from toolorchestra.envs.money.prices import PriceSheet, load_sheet
from toolorchestra.synth.authors import KEYS, PART_OF, PartRequest, Unusable, author_prompts, untrusted_answers
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.formats.part_checks import Fault
from toolorchestra.synth.formats.spec import parsed
from toolorchestra.synth.storage import AUTHOR, JUDGE, MOST_CHARACTERS, PaidAnswer, PaidModel, PaidRequest

_STAGE = re.compile(r"^Stage: (.+)$", re.MULTILINE)
_BATCH = re.compile(r"this is batch (\d+) of (\d+)")
GIVES_UP = "I am sorry, but I cannot do this."
"""What the script says as a reader, which solves nothing."""
Slip = Callable[[str], str]
"""Spoils an answer."""


class ScriptedParts:
    """Answers requests for the parts of one spec."""

    def __init__(
        self, texts: Mapping[str, str], slips: Mapping[str, Slip] | None = None, *, always: bool = False
    ) -> None:
        self.texts = texts
        self.slips = slips or {}
        """Stage -> what is done to the first answer, or with `always` to every answer."""
        self.always = always

    def __call__(self, request: ChatRequest) -> str:
        found = _STAGE.search(str(request.messages[1]["content"]))
        if found is None:
            return GIVES_UP
        stage = found[1]
        if stage.startswith("doubt"):
            return json.dumps({"verdict": "yes", "reasons": []})
        if stage == "reword":
            return json.dumps({"wordings": self._reworded()}, ensure_ascii=False)
        told = json.dumps(self._value(stage, request), ensure_ascii=False)
        first = len(request.messages) == 2
        return self.slips[stage](told) if stage in self.slips and (first or self.always) else told

    def _value(self, stage: str, request: ChatRequest) -> Any:
        text = self.texts[PART_OF[stage]]
        value = plain(text) if PART_OF[stage].endswith(".yaml") else text
        if stage == "intents" and (batch := _BATCH.search(str(request.messages[1]["content"]))):
            number, of = int(batch[1]), int(batch[2])
            value = value[number - 1 :: of]
        return {KEYS[stage]: value} if stage in KEYS else value

    def _reworded(self) -> list[Any]:
        """Each request's first wording in a few frames."""
        frames = (
            "{} Nothing else.",
            "Oh hello there! {}",
            "Sorry for my words. {}",
            "Listen, will you? {}",
            "Good heavens. {}",
        )
        entries = plain(self.texts["intents.yaml"])
        return [{"intent": e["intent"], "say": [f.replace("{}", e["say"][0]) for f in frames]} for e in entries]


def plain(text: str) -> Any:
    """YAML as JSON has it."""
    return json.loads(json.dumps(specs.parsed(text, Path("spec")), ensure_ascii=False))


def model(name: str, slips: Mapping[str, Slip] | None = None) -> ScriptedModel:
    """The stand-in for a shipped spec, or one at a path."""
    return ScriptedModel(ScriptedParts(specs.load(name).parts, slips), seconds=1.0)


USUAL: Mapping[str, Slip] = {
    "schema": lambda text: text.replace("SELECT", "SELEKT").replace("CREATE TABLE", "CREATE TABEL"),
    "tools": lambda text: f"Sure, here is what you asked for:\n{text}\nLet me know if it fits.",
    "policy": lambda text: text[: len(text) // 2],
}
"""What goes wrong in the recorded run: SQL that does not compile, remarks around JSON, an answer that breaks off."""


# -- the author, and the reader who doubts what it wrote ---------------------------------------------------------------

BATCHES = 3
"""Calls among which the writing of intents is shared."""
DOUBTED = ("policy.md", "intents.yaml")
"""Parts that a second reader sees: what runs cannot tell whether it contradicts itself."""
MOST_PIECES = 4
"""Pieces of one answer: so often an author goes on where the limit of its length broke it off."""
_PIECE = 100_000
"""Continuations are asked for under other numbers than their answer."""


class LlmAuthor:
    """A model asked for each part; its answers are untrusted."""

    def __init__(self, domain: str, paid_model: PaidModel) -> None:
        self.domain = domain
        self.paid_model = paid_model

    async def write(self, asked: PartRequest) -> str:
        """One call, or for intents some at a time, put together. Raises Unusable."""
        if asked.stage != "intents" or asked.faults:
            messages = author_prompts.author(self.domain, asked)
            return untrusted_answers.part(asked.stage, await self._ask(asked, messages))
        batches = (f"{number} of {BATCHES}" for number in range(1, BATCHES + 1))
        asks = [self._ask(asked, author_prompts.author(self.domain, asked, batch)) for batch in batches]
        answers = await asyncio.gather(*asks, return_exceptions=True)  # all end: what is answered is kept
        if failed := next((answer for answer in answers if isinstance(answer, BaseException)), None):
            raise failed
        return _joined([answer for answer in answers if not isinstance(answer, BaseException)])

    async def _ask(self, asked: PartRequest, messages: tuple[Message, ...]) -> PaidAnswer:
        """The answer. One that the limit broke off is gone on with, so often; what is still not whole says so."""
        stage, number = asked.stage, asked.number
        answer = await self.paid_model.ask(PaidRequest(stage, AUTHOR, messages, number))
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
        if newest not in DOUBTED:
            return []
        stage = next(stage for stage, part in PART_OF.items() if part == newest)
        return (await self._doubted(stage, author_prompts.doubt(self.domain, stage, parts)))[:5]

    async def wordings(self, said: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """More ways to say requests, by their names. Raises Unusable where the answer cannot be used."""
        answer = await self._ask(PartRequest("reword", {}), author_prompts.reword(self.domain, said))
        listed = parsed(untrusted_answers.part("reword", answer), Path("wordings"))
        rows = [row for row in listed if isinstance(row, dict) and isinstance(row.get("say"), list)]
        return {str(row.get("intent")): [say for say in row["say"] if isinstance(say, str)] for row in rows}

    async def differing(self, said: Mapping[str, Sequence[str]], anew: Mapping[str, Sequence[str]]) -> list[Fault]:
        """The new wordings that ask for something else, as a second reader sees it."""
        return await self._doubted("reword", author_prompts.same_meaning(said, anew))

    async def _doubted(self, stage: str, messages: tuple[Message, ...]) -> list[Fault]:
        answer = await self.paid_model.ask(PaidRequest(stage, JUDGE, messages))
        try:
            said = untrusted_answers.parsed(answer)
        except Unusable as err:
            return [Fault("no verdict", err.fault.seen)]
        reasons = said.get("reasons")
        if said.get("verdict") == "yes" and reasons == []:
            return []
        listed = reasons if isinstance(reasons, list) else [said]
        doubts = [Fault("doubted", f"{reason!s:.{MOST_TEMPLATE}}") for reason in listed]
        return doubts or [Fault("doubted", "no reason given")]


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


# -- the model behind its name -----------------------------------------------------------------------------------------

SCHEMES = ("openai", "standin")
STANDIN_PRICED_AS = "gpt-5"
_OPENAI = {"endpoints": {"openai": {"base_url": "https://api.openai.com/v1", "key_env": "OPENAI_API_KEY"}}}
_ANY = {
    "models": {
        "*": {
            "endpoints": ["openai"],
            "output_key": "max_completion_tokens",
            "output_tokens": 32_000,
            "context_tokens": 272_000,
            "deadline_seconds": 600.0,
            "patience_seconds": 900.0,
        }
    }
}
"""A part such as the tools of a bank has 15,000 tokens, and what a model thinks before counts too."""


class Backend(NamedTuple):
    """A model, the name that it is asked and billed under, and the sheet that has its price."""

    models: ChatModel
    model: str
    sheet: PriceSheet


def load(
    named: str, prices: str, price_as: str = "", endpoints: Path | None = None, *, silent: bool = False
) -> Backend:
    """`openai:NAME` or `standin:SPEC`. `price_as` bills it as another item of the sheet; a silent one is never asked,
    since a cassette answers."""
    scheme, _, name = named.partition(":")
    if scheme not in SCHEMES or not name:
        raise ConfigError(
            f"a model is written SCHEME:NAME, got {named!r:.80}; {no_such('scheme', scheme, SCHEMES)}",
            command_line="--model openai:NAME",
        )
    sheet = load_sheet(prices)
    if scheme == "standin":
        models: ChatModel = model(name, USUAL)
        name, price_as = named, price_as or STANDIN_PRICED_AS
    else:
        models = ScriptedModel(_nobody) if silent else _served(endpoints)
    if price_as:
        sheet = replace(sheet, prices={**sheet.prices, name: sheet.price(price_as)})
    return Backend(models, name, sheet)


def _nobody(_request: ChatRequest) -> str:
    raise ConfigError("a model was asked although a cassette answers; record the cassette anew")


def _served(endpoints: Path | None) -> ChatModel:
    try:
        from toolorchestra.envs.models.endpoints import Endpoints
        from toolorchestra.envs.models.openai import OpenAiModels

        rows = tomllib.loads(endpoints.read_text(encoding="utf-8-sig")) if endpoints else {**_OPENAI, **_ANY}
    except ModuleNotFoundError as err:
        raise ConfigError(
            f"models behind servers need {err.name}, which is not there: {install('models')}. Without it "
            "a spec makes a domain, and standin:public_library stands in for a model",
            command_line="synth make SPEC, or --model standin:public_library",
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as err:
        raise ConfigError(
            f"{endpoints}: a TOML file of servers and models expected, got {err}; mend it or name another",
            command_line="--backends FILE",
        ) from None
    return OpenAiModels(Endpoints.read(rows, str(endpoints or "openai")))
