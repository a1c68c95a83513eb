"""What a run keeps on the disk: each stage's result, and each paid answer, before it is used. None is paid twice."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakValueDictionary

from toolorchestra.envs.base.answer_store import AnswerStore, digest
from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached, ToolError
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.models import ChatModel, ChatRequest, Completion, output_tokens_of
from toolorchestra.envs.money.ledger import Bill, Ledger, most_nano_usd
from toolorchestra.envs.money.prices import NANO, Charge, PriceSheet, Tokens, Usage, plain
from toolorchestra.envs.money.spend_cap import WAIT_SECONDS, Hold, SpendCap

MOST_CHARACTERS = 400_000
"""Length of an answer: what is longer is refused unread, and only so much of it is kept."""
MOST_TOKENS = 32_000
"""Length of an answer, where the backend sets no limit of its own."""
LEAST_TOKENS = 256
"""No shorter answer is asked for: less money than that costs is as good as none."""
TEMPLATE_TOKENS = 1_024
"""What a server's chat template may add to a request."""
CALL_SECONDS = 900.0
"""How long one call may take, its retries and the waits between them included."""
TELL_SECONDS = 30.0
"""How often it is said that an answer is waited for."""
Role = Literal["author", "judge"]
AUTHOR: Role = "author"
JUDGE: Role = "judge"
"""Roles of a run's ledger."""


class PaidAnswer(NamedTuple):
    """A model's answer to one paid request, and whether it was cut off."""

    text: str
    characters: int
    """How long the answer was; the text may hold less."""
    cut: bool = False
    """Whether it broke off at the limit of its length."""


class _HeldBill(Bill):
    """Money is set aside already for the first reply that is paid; only those after it set aside more."""

    __slots__ = ()

    async def hold(self, item: str, into: int, out: int, seconds: float = WAIT_SECONDS) -> Hold | None:
        return await super().hold(item, into, out, seconds) if self.usages else None


class StageStore(AnswerStore):
    """What each stage of a run made, under a hash of what it was made from: a run goes on where it broke."""

    what = "a stage's result; remove the file, and make the stages anew"
    shape = {"key": str, "stage": str, "result": object}  # noqa: RUF012
    durable = True

    def __init__(self, folder: Path, *, resume: bool) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if not resume and any(folder.glob("*.json*")):
            raise ConfigError(
                f"{folder} holds an earlier run; go on with resume=True, or remove it or write elsewhere",
                command_line="--resume, or another --out",
            )
        super().__init__(folder / "stages.jsonl")

    def kept(self, made_from: str) -> Any:
        """The result that was made from these inputs, else None."""
        return self.rows[made_from][-1]["result"] if made_from in self.rows else None

    def keep(self, stage: str, made_from: str, result: Any) -> None:
        """Keep a stage's result with the key of its inputs."""
        self.add({"key": made_from, "stage": stage, "result": result})

    def agree(self, settings: Mapping[str, Any]) -> None:
        """Refuse to go on with other settings than the run began with."""
        here, there = json.loads(json.dumps(settings)), self.kept("settings")
        if there is None:
            self.keep("", "settings", here)
        elif here != there:
            differ = ", ".join(f"{k}: {there.get(k)!r} then, {v!r} now" for k, v in here.items() if there.get(k) != v)
            raise ConfigError(
                f"{self.folder} was begun with other settings ({differ}); use those, or write elsewhere",
                command_line="another --out",
            )


class Journal(AnswerStore):
    """Answered calls. `replay` makes a call that is not among them an error: the file is a cassette then."""

    what = "a recorded call; record it anew"
    shape = {"key": str, "stage": str, "text": str, "characters": int}  # noqa: RUF012
    durable = True

    def __init__(self, path: Path, *, replay: bool = False) -> None:
        self.replay = replay
        if replay and not path.is_file():
            raise ConfigError(f"no cassette {str(path)!r} to replay; name the calls.jsonl of a run's work folder")
        super().__init__(path)

    def check(self, row: Any) -> None:
        super().check(row)
        _usage(row)


class PaidRequest(NamedTuple):
    """A call to be made."""

    stage: str
    role: Role
    messages: tuple[Message, ...]
    number: int = 0
    """Tells two calls of the same words apart."""


@dataclass
class PaidModel:
    """Makes calls to one model and bills them: by stage, and by the role author or judge."""

    models: ChatModel
    model: str
    sheet: PriceSheet
    journal: Journal
    cap: SpendCap | None = None
    concurrency: int = 4
    waits: Callable[[str], object] = str
    """Told, now and then, what is waited for; nobody is, by default."""
    ledger: Ledger = field(default_factory=Ledger)
    _counted: set[str] = field(default_factory=set)
    _made: set[str] = field(default_factory=set)
    _asking: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _gate: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.sheet.require([self.model], "the author")
        self._gate = asyncio.Semaphore(self.concurrency)
        if self.journal.replay:  # a cassette is billed as it plays
            return
        for wanted, (row, *_) in self.journal.rows.items():  # what earlier runs paid
            charge = self._bill(wanted, row, row["stage"])
            if self.cap is not None:
                self.cap.add(charge.nano_usd)

    def _bill(self, wanted: str, row: Mapping[str, Any], stage: str) -> Charge:
        charge = self.sheet.charge(_usage(row), stage)
        self._counted.add(wanted)
        self.ledger.add(charge)
        return charge

    @property
    def paid(self) -> int:
        """Calls made by this run, by payers beside it too, without those that an earlier one made."""
        return len(self._made)

    async def ask(self, asked: PaidRequest) -> PaidAnswer:
        """The answer, from the journal if the call was ever answered. Raises SpendCapReached."""
        wanted = digest(self.model, asked.stage, asked.role, [dict(m) for m in asked.messages], asked.number)
        row = self.journal.first(wanted)
        if row is None:
            if self.journal.replay:
                raise ConfigError(
                    f"{self.journal.path}: no recording of this call ({asked.stage}, {asked.role}, number"
                    f" {asked.number}); the spec, the prompts or the model have changed: record it anew"
                )
            async with self._asking.setdefault(wanted, asyncio.Lock()), self._gate:  # who asks the same meanwhile waits
                row = self.journal.first(wanted) or await self._pay(wanted, asked)
        if wanted not in self._counted:
            self._bill(wanted, row, asked.stage)
        return PaidAnswer(row["text"], row["characters"], bool(row.get("cut")))

    async def _pay(self, wanted: str, asked: PaidRequest) -> Mapping[str, Any]:
        purpose: Literal["answer", "judge"] = "judge" if asked.role == JUDGE else "answer"
        tokens, hold = await self._reserved(asked)
        bill = _HeldBill(self.sheet, self.cap)
        request = ChatRequest(
            self.model, purpose, asked.messages, seed=int(wanted[:8], 16), attempt=asked.number, role=asked.role,
            bill=bill, most_output_tokens=tokens,
        )  # fmt: skip
        try:
            completion = await self._answered(request, asked)
            if not completion.booked:
                bill.add(completion.usage)
        except BaseException:
            self._lost(wanted, asked, bill.take())
            raise
        finally:
            if hold is not None:
                hold.release()
        row = self._row(wanted, asked, bill.take(), completion.text, completion.cut)
        self.journal.add(row)
        self._made.add(wanted)
        return row

    async def _reserved(self, asked: PaidRequest) -> tuple[int, Hold | None]:
        """How long the answer may be for the money that is left, and that money set aside."""
        most = output_tokens_of(self.models, self.model, MOST_TOKENS)
        if self.cap is None:
            return most, None
        self.cap.check()
        told = json.dumps([dict(m) for m in asked.messages], ensure_ascii=False).encode("utf-8", "replace")
        into, least = len(told) + TEMPLATE_TOKENS, min(LEAST_TOKENS, most)
        needed = most_nano_usd(self.sheet, self.model, into, least)
        if self.cap.free_nano_usd < needed:
            if not self.cap.held_usd:
                left, wants = plain(max(0, self.cap.free_nano_usd), 9), plain(needed, 9)
                raise SpendCapReached(
                    f"the spend cap of {self.cap.usd:g} $ has {left} $ left, and the next call (stage {asked.stage}) "
                    f"may cost {wants} $ for the shortest answer; raise the cap, and go on with resume=True",
                    command_line="--resume with a higher --spend-cap",
                )
            (await self.cap.hold(needed)).release()  # others in flight hold it: when they end, there may be more
        fits = most
        while most_nano_usd(self.sheet, self.model, into, fits) > self.cap.free_nano_usd and fits > least:
            fits = max(least, fits * 3 // 4)
        return fits, await self.cap.hold(most_nano_usd(self.sheet, self.model, into, fits))

    async def _answered(self, request: ChatRequest, asked: PaidRequest) -> Completion:
        """The completion. Every way in which a server fails ends in an error of one sentence."""
        telling = asyncio.create_task(self._tell(asked.stage))
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self.models.complete(request)
        except ToolError as err:
            if self.cap is not None and self.cap.used_up:
                raise SpendCapReached(str(err)) from None
            raise Outage(f"{err} (stage {asked.stage})") from None
        except (TimeoutError, Outage) as err:
            late = f"model {self.model!r} did not answer within {CALL_SECONDS:g} s"
            raise Outage(
                f"{err if isinstance(err, Outage) else late} (stage {asked.stage}; answers that came are kept: go on "
                "with resume=True)",
                command_line="--resume",
            ) from None
        finally:
            telling.cancel()

    async def _tell(self, stage: str) -> None:
        for times in itertools.count(1):
            await asyncio.sleep(TELL_SECONDS)
            self.waits(f"{stage}: waiting for {self.model}, {times * TELL_SECONDS:g} s of at most {CALL_SECONDS:g} s")

    def _row(
        self, wanted: str, asked: PaidRequest, used: Sequence[Usage], text: str, cut: bool
    ) -> dict[str, Any]:  # fmt: skip
        """A line of the journal. Replies that were of no use are paid too, and count with the one that was."""
        made: dict[str, Any] = {
            "key": wanted,
            "stage": asked.stage,
            "role": asked.role,
            "model": self.model,
            "tokens": [sum(counts) for counts in zip(*(usage.tokens for usage in used), strict=True)],
            "seconds": round(sum(usage.seconds for usage in used), 3),
            "characters": len(text),
            "text": text[: MOST_CHARACTERS + 1],
        }
        if any(usage.told_nano_usd is not None for usage in used):
            made["told_nano_usd"] = sum(self.sheet.charge(usage).nano_usd for usage in used)
        return {**made, "cut": True} if cut else made

    def _lost(self, wanted: str, asked: PaidRequest, used: Sequence[Usage]) -> None:
        """Keep what was paid for a call that came to nothing: it is asked again, and its cost stands."""
        if used:
            name = f"lost/{wanted}/{len(self.journal.rows)}"
            row = self._row(name, asked, used, "", False)
            self.journal.add(row)
            self._bill(name, row, asked.stage)

    def beside(self, models: ChatModel, model: str) -> PaidModel:
        """A payer for another model of the sheet, with the same journal, ledger, cap and count of calls."""
        self.sheet.require([model], "the reader")
        other = copy(self)
        other.models, other.model = models, model
        return other

    async def close(self) -> None:
        """Close the backend's connections, if it holds any."""
        if (aclose := getattr(self.models, "aclose", None)) is not None:
            await aclose()

    def usd_by_stage(self) -> dict[str, float]:
        """Dollars by stage and role, as `stage/role`."""
        sums: dict[str, int] = {}
        for charge in self.ledger:
            name = f"{charge.tool}/{charge.role}"
            sums[name] = sums.get(name, 0) + charge.nano_usd
        return {name: nano / NANO for name, nano in sums.items()}


def _usage(row: Mapping[str, Any]) -> Usage:
    tokens, told = Tokens(*row["tokens"]), row.get("told_nano_usd")
    return Usage(row["model"], row["role"], tokens, seconds=row["seconds"], told_nano_usd=told)
