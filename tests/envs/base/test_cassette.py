"""What was recorded comes back as it was, at the same bill, with nothing behind; a miss says what comes nearest."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from toolorchestra.envs.base.cassette import PAYER, Cassette, CassetteMiss
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError
from toolorchestra.envs.base.types import Message, Passage
from toolorchestra.envs.models import DEFAULT_LIMITS, ChatRequest, Completion, ScriptedModel, output_tokens_of
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.models.openai import OpenAiModels
from toolorchestra.envs.money.prices import Tokens, Usage, load_sheet
from toolorchestra.envs.retrieval import Hit
from toolorchestra.envs.retrieval.bm25 import Bm25
from toolorchestra.envs.sandbox import Execution
from toolorchestra.envs.tools import ToolContext
from toolorchestra.envs.tools.backends import BesideSimulated
from toolorchestra.envs.tools.cassette_backends import RecordedInterpreter, RecordedModels, RecordedRetriever
from toolorchestra.envs.tools.search import Search, SearchSettings, WebSearch


def asks(text: str = "six times seven?", seed: int = 0) -> ChatRequest:
    return ChatRequest("qwen3-32b", "answer", (Message(role="user", content=text),), seed)


class Counting:
    """Answers each call with its number, so that two calls never answer alike. Waits, as a real backend does."""

    suspends = True
    describe, item = "a counter", "code-interpreter"

    def __init__(self) -> None:
        self.calls = 0

    async def _next(self) -> int:
        self.calls += 1
        number = self.calls
        await asyncio.sleep(0.01)
        return number

    async def complete(self, request: ChatRequest) -> Completion:
        number = await self._next()
        usage = Usage(request.model, request.role, Tokens(number, 2, 3, 4), seconds=number / 7)
        request.bill.add(usage)
        if "refuse" in request.messages[0]["content"]:
            raise ToolError("refused")
        if "away" in request.messages[0]["content"]:
            raise Outage("away")
        return Completion(f"reply {number} ü", usage)

    async def search(self, query: str, top_k: int, bill: object = None) -> Sequence[Hit]:
        number = await self._next()
        return [Hit(Passage(f"d{number}", "title", query), 0.1 + number)]

    async def run(self, code: str, session: str = "", bill: object = None) -> Execution:
        return Execution(f"{await self._next()} {session.split('.')[0]}", "", 0, 0.123456789)


async def _two(models: RecordedModels) -> list[Completion]:
    return [await models.complete(asks()), await models.complete(asks()), await models.complete(asks(seed=1))]


def test_model_replies_come_back_in_order_with_their_usage(tmp_path: Path) -> None:
    live = Counting()
    recorded = asyncio.run(_two(RecordedModels(live, Cassette(tmp_path / "c", "record"))))
    assert [c.text for c in recorded] == ["reply 1 ü", "reply 2 ü", "reply 3 ü"]
    replay = RecordedModels(None, Cassette(tmp_path / "c", "replay"))
    assert not replay.suspends
    assert asyncio.run(_two(replay)) == recorded
    assert asyncio.run(_two(replay))[2] == recorded[2]


@pytest.mark.parametrize(("text", "error"), [("refuse", ToolError), ("away", Outage)])
def test_refusals_and_outages_are_replayed_with_what_they_cost(
    tmp_path: Path, text: str, error: type[ToolError | Outage]
) -> None:
    seen = []
    for live, mode in ((Counting(), "record"), (None, "replay")):
        models = RecordedModels(live, Cassette(tmp_path / "c", mode))  # type: ignore[arg-type]
        request = asks(text)
        with pytest.raises(error) as caught:
            asyncio.run(models.complete(request))
        seen.append((str(caught.value), request.bill.usages))
    assert seen[0] == seen[1]
    assert seen[0][1][0].tokens.input == 1


@pytest.mark.parametrize("mode", ["record", "cache", "replay"])
def test_the_size_of_replies_is_that_of_the_models_behind(tmp_path: Path, mode: Any) -> None:
    (tmp_path / "c").touch()
    rows = {"gpt-5": {"output_tokens": 2000}}
    endpoints = Endpoints.read({"endpoints": {"a": {"base_url": "http://a"}}, "models": rows}, "my.toml")
    beside = BesideSimulated(OpenAiModels(endpoints), Counting(), endpoints)
    recorded = RecordedModels(None if mode == "replay" else beside, Cassette(tmp_path / "c", mode), endpoints)
    for models in (recorded, beside):
        assert [output_tokens_of(models, name, 1) for name in ("gpt-5", "simulated")] == [2000, 1]
        assert models.limits_of("simulated") == DEFAULT_LIMITS
    assert output_tokens_of(RecordedModels(None, Cassette(tmp_path / "c", mode)), "gpt-5", 1) == 1


def test_a_miss_names_the_nearest_recording_and_where_they_part(tmp_path: Path) -> None:
    models = RecordedModels(Counting(), Cassette(tmp_path / "c", "record"))
    asyncio.run(models.complete(asks("something else entirely")))
    asyncio.run(models.complete(asks("six times seven?")))
    replay = RecordedModels(None, Cassette(tmp_path / "c", "replay"))
    with pytest.raises(
        CassetteMiss, match=r"nearest recorded one is \d+% alike and differs in messages: .*eight.*seven"
    ):
        asyncio.run(replay.complete(asks("six times eight?")))
    retriever = RecordedRetriever(None, Cassette(tmp_path / "c", "replay"))
    with pytest.raises(CassetteMiss, match="nor of any other"):
        asyncio.run(retriever.search("x", 3))


class AwayAtFirst(Counting):
    async def search(self, query: str, top_k: int, bill: object = None) -> Sequence[Hit]:
        if await self._next() == 1:
            raise Outage("away")
        return [Hit(Passage("d", "title", query), 1.0)]


def test_after_an_outage_a_search_is_asked_again_and_a_replay_has_both(tmp_path: Path) -> None:
    async def three(retriever: RecordedRetriever) -> list[object]:
        said: list[object] = []
        for _ in range(3):
            try:
                said += await retriever.search("q", 3)
            except Outage as err:
                said.append(str(err))
        return said

    live = AwayAtFirst()
    recorded = asyncio.run(three(RecordedRetriever(live, Cassette(tmp_path / "c", "record"))))
    assert (recorded[0], recorded[1] == recorded[2], live.calls) == ("away", True, 2)
    assert asyncio.run(three(RecordedRetriever(None, Cassette(tmp_path / "c", "replay")))) == recorded
    assert asyncio.run(three(RecordedRetriever(live, Cassette(tmp_path / "c", "cache")))) == [recorded[1]] * 3


def test_a_recording_of_an_outage_alone_replays_it_each_time(tmp_path: Path) -> None:
    with pytest.raises(Outage):
        asyncio.run(RecordedRetriever(AwayAtFirst(), Cassette(tmp_path / "c", "record")).search("q", 3))
    replay = RecordedRetriever(None, Cassette(tmp_path / "c", "replay"))
    for _ in range(3):
        with pytest.raises(Outage, match="away"):
            asyncio.run(replay.search("q", 3))


def test_a_program_or_search_that_comes_again_gives_what_it_gave(tmp_path: Path) -> None:
    live = Counting()
    tape = Cassette(tmp_path / "c", "record")
    retriever, box = RecordedRetriever(live, tape), RecordedInterpreter(live, tape)

    async def all_at_once(r: RecordedRetriever, b: RecordedInterpreter) -> list[object]:
        return list(await asyncio.gather(*(r.search("q", 3) for _ in range(8)), *(b.run("1") for _ in range(8))))

    first = asyncio.run(all_at_once(retriever, box))
    assert live.calls == 2
    tape = Cassette(tmp_path / "c", "replay")
    assert asyncio.run(all_at_once(RecordedRetriever(None, tape), RecordedInterpreter(None, tape))) == first
    assert RecordedInterpreter(None, tape).describe == "a counter"


def test_threads_that_want_the_same_ask_once(tmp_path: Path) -> None:
    class InPlace(Counting):
        suspends = False

        async def _next(self) -> int:
            self.calls += 1
            time.sleep(0.05)
            return self.calls

    live = InPlace()
    retriever = RecordedRetriever(live, Cassette(tmp_path / "c", "record"))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: asyncio.run(retriever.search("q", 3)), range(4)))
    assert live.calls == 1
    assert found == found[:1] * 4


@pytest.mark.parametrize("gone", [0, 1])
def test_whoever_is_cancelled_takes_nobody_along(tmp_path: Path, gone: int) -> None:
    live = Counting()
    retriever = RecordedRetriever(live, Cassette(tmp_path / "c", "record"))

    async def three() -> list[Sequence[Hit] | BaseException]:
        asking = [asyncio.create_task(retriever.search("q", 3)) for _ in range(3)]
        await asyncio.sleep(0)
        asking[gone].cancel()
        async with asyncio.timeout(10):
            return await asyncio.gather(*asking, return_exceptions=True)

    done = asyncio.run(three())
    assert isinstance(done.pop(gone), asyncio.CancelledError)
    assert done[0] == done[1] == [Hit(Passage(f"d{live.calls}", "title", "q"), 0.1 + live.calls)]
    assert live.calls == (2 if gone == 0 else 1)


class Sessions(Counting):
    """Adds to a list of what ran in each session, and says it."""

    sessions = True

    def __init__(self) -> None:
        super().__init__()
        self.ran: dict[str, list[str]] = {}

    async def run(self, code: str, session: str = "", bill: object = None) -> Execution:
        self.ran.setdefault(session, []).append(code)
        said = " ".join(self.ran[session])
        await asyncio.sleep(0.01)
        return Execution(said, "", 0, 0.5)


@pytest.mark.parametrize("mode", ["record", "cache"])
def test_what_a_session_had_from_the_tape_is_run_before_what_it_has_not(tmp_path: Path, mode: str) -> None:
    live, tape = Sessions(), Cassette(tmp_path / "c", mode)  # type: ignore[arg-type]
    box = RecordedInterpreter(live, tape)

    async def play(session: str, *programs: str) -> list[Execution]:
        return [await box.run(code, session) for code in programs]

    asyncio.run(play("1.1", "a", "b"))
    kept = len(tape)
    done = asyncio.run(play("2.2", "a", "b", "c", "d"))
    assert live.ran == {"1.1": ["a", "b"], "2.2": ["a", "b", "c", "d"]}
    assert [one.stdout for one in done] == ["a", "a b", "a b c", "a b c d"]
    assert sum(one.seconds for one in done) == (2.0 if mode == "record" else 1.0)
    assert len(tape) == kept + 2
    asyncio.run(play("3.3", "a", "b", "c", "d"))
    assert "3.3" not in live.ran


def test_a_cache_asks_once_and_bills_once_also_in_the_next_run(tmp_path: Path) -> None:
    live = Counting()
    path = tmp_path / "deep" / "cache.jsonl"

    async def many(models: RecordedModels) -> list[Completion]:
        return list(await asyncio.gather(*(models.complete(asks()) for _ in range(16))))

    done = asyncio.run(many(RecordedModels(live, Cassette(path, "cache"))))
    assert live.calls == 1
    assert {c.text for c in done} == {"reply 1 ü"}
    assert sum(c.usage.tokens.input for c in done) == 1
    path.write_text(path.read_text() + '{"key": "ha', encoding="utf-8")  # a run that was killed
    again = asyncio.run(many(RecordedModels(live, Cassette(path, "cache"))))
    assert live.calls == 1
    assert all(c.usage == Usage("qwen3-32b", "expert") for c in again)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_what_could_not_be_written_is_not_taken_for_recorded() -> None:
    live = Counting()
    retriever = RecordedRetriever(live, Cassette("/dev/full", "record"))
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            asyncio.run(retriever.search("q", 3))
    assert live.calls == 2


@pytest.mark.parametrize("web", [False, True])
def test_a_search_that_comes_from_a_cache_costs_nothing(tmp_path: Path, web: bool) -> None:
    live, sheet = Counting(), load_sheet("paper-2025-11")
    context = ToolContext(SimpleNamespace(documents=()), 0)

    def costs() -> tuple[int, float]:
        retriever = RecordedRetriever(live, Cassette(tmp_path / "c", "cache"))
        settings = SearchSettings()
        search = WebSearch(retriever, settings, 1.0) if web else Search(retriever, settings, "local-index", 1.0)
        asyncio.run(search.asked(context, "q"))
        usages = context.bill.take()
        return sum(sheet.charge(usage).nano_usd for usage in usages), sum(usage.seconds for usage in usages)

    assert costs() > (0, 0.0)
    assert costs() == (0, 0.0)
    assert live.calls == 1


def test_a_failure_is_not_cached(tmp_path: Path) -> None:
    live = Counting()
    models = RecordedModels(live, Cassette(tmp_path / "c", "cache"))
    for _ in range(2):
        with pytest.raises(Outage):
            asyncio.run(models.complete(asks("away")))
    assert live.calls == 2


def test_wrong_cassettes_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='record one first, with mode = "record"'):
        Cassette(tmp_path / "none", "replay")
    (tmp_path / "bad").write_text("{}\n")
    with pytest.raises(ConfigError, match="line 1 is not a recording"):
        Cassette(tmp_path / "bad", "replay")
    with pytest.raises(ConfigError, match="exists; replay it"):
        Cassette(tmp_path / "bad", "record")
    with pytest.raises(ConfigError, match="Did you mean 'record'"):
        Cassette(tmp_path / "x", "recording")  # type: ignore[arg-type]


def test_programs_of_a_session_that_come_together_keep_their_order(tmp_path: Path) -> None:
    live = Sessions()
    box = RecordedInterpreter(live, Cassette(tmp_path / "c", "cache"))

    async def together(session: str, *programs: str) -> list[str]:
        return [done.stdout for done in await asyncio.gather(*(box.run(code, session) for code in programs))]

    asyncio.run(together("1.1", "a"))
    assert asyncio.run(together("2.2", "a", "b", "c")) == ["a", "a b", "a b c"]
    assert live.ran["2.2"] == ["a", "b", "c"]


class LastFirst(Counting):
    """Answers what was asked first last."""

    async def _next(self) -> int:
        self.calls += 1
        number = self.calls
        await asyncio.sleep(0.06 / number)
        return number


@pytest.mark.parametrize("trials", ["", "12", "21"])
def test_equal_requests_in_flight_get_their_own_replies_back(tmp_path: Path, trials: str) -> None:
    async def asked(models: RecordedModels, run: str, trial: str) -> Completion:
        PAYER.set(trial and f"{run}|{trial}")
        return await models.complete(asks())

    async def both(models: RecordedModels, run: str, trials: Sequence[str]) -> list[Completion]:
        return await asyncio.gather(*(asked(models, run, one) for one in trials))

    first = asyncio.run(
        both(RecordedModels(LastFirst(), Cassette(tmp_path / "c", "record")), "a", ["1", "2"] if trials else ["", ""])
    )
    again = asyncio.run(both(RecordedModels(None, Cassette(tmp_path / "c", "replay")), "b", list(trials) or ["", ""]))
    assert [one.text for one in first] == ["reply 1 ü", "reply 2 ü"]
    assert again == (first[::-1] if trials == "21" else first)


def tool(says: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": "answer", "description": says, "parameters": {"type": "object"}}}


OTHERS: list[dict[str, object]] = [
    {"tools": [tool("gpt-5 at 10 $")]},
    {"tools": [tool("gpt-5 at 1 $")]},
    {"temperature": 1.0},
    {"native_tools": True},
    {"most_output_tokens": 16},
]


def test_a_cache_tells_requests_of_other_tools_and_settings_apart(tmp_path: Path) -> None:
    for _ in range(2):
        models = RecordedModels(Counting(), Cassette(tmp_path / "c", "cache"))
        said = [asyncio.run(models.complete(replace(asks(), **other))).text for other in [{}, *OTHERS]]  # type: ignore[arg-type]
        assert said == [f"reply {number} ü" for number in range(1, 7)]
    replay = RecordedModels(None, Cassette(tmp_path / "c", "replay"))
    said = [asyncio.run(replay.complete(replace(asks(), **other))).text for other in OTHERS[::-1]]  # type: ignore[arg-type]
    assert said == [f"reply {number} ü" for number in range(6, 1, -1)]


def test_a_replay_under_other_prices_takes_what_was_recorded(tmp_path: Path) -> None:
    old, new = (replace(asks(), **other) for other in OTHERS[:2])  # type: ignore[arg-type]
    first = asyncio.run(RecordedModels(Counting(), Cassette(tmp_path / "c", "record")).complete(old))
    assert asyncio.run(RecordedModels(None, Cassette(tmp_path / "c", "replay")).complete(new)) == first


def test_a_cache_tells_models_and_indexes_behind_one_name_apart(tmp_path: Path) -> None:
    said = []
    for model in ("Qwen3-32B", "Llama-70B", "Qwen3-32B"):
        entry = {"endpoints": {"e": {"base_url": "http://127.0.0.1:9/v1"}}, "models": {"*": {"model": model}}}
        tape = Cassette(tmp_path / "c", "cache")
        models = RecordedModels(ScriptedModel(lambda _, model=model: model), tape, Endpoints.read(entry, "test"))  # type: ignore[misc]
        index = RecordedRetriever(Bm25([Passage("1", model, "river"), Passage("2", "x", "y")]), tape)
        said.append((asyncio.run(models.complete(asks())).text, asyncio.run(index.search("river", 1))[0].passage.title))
        assert len(tape) == min(4, 2 * len(said))
    assert said == [(model, model) for model in ("Qwen3-32B", "Llama-70B", "Qwen3-32B")]
    replay = RecordedRetriever(None, Cassette(tmp_path / "c", "replay"))
    assert asyncio.run(replay.search("river", 1))[0].passage.title == "Qwen3-32B"


def test_a_recording_of_an_earlier_version_is_replayed_and_is_no_cache(tmp_path: Path) -> None:
    path = tmp_path / "c"
    asyncio.run(RecordedModels(Counting(), Cassette(path, "record")).complete(replace(asks(), **OTHERS[0])))  # type: ignore[arg-type]
    row = json.loads(path.read_text())
    assert row.pop("settings")
    assert row.pop("number") == 0
    assert row["key"] == "dc3b84668bf38e0a4d9933ac3b05d5c1"
    path.write_text(json.dumps(row) + "\n")
    for mode, live in (("replay", None), ("cache", LastFirst())):
        models = RecordedModels(live, Cassette(path, mode))  # type: ignore[arg-type]
        assert asyncio.run(models.complete(replace(asks(), **OTHERS[0]))).text == "reply 1 ü"  # type: ignore[arg-type]
        assert live is None or live.calls == 1
