"""Authors, readers and solvers behind servers on real sockets: they refuse, break off, hang, say too much, know other
parameters."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.synth import runs
from tests.two_texts import raises
from toolorchestra.envs.base.actions import OPEN
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTask
from toolorchestra.envs.models import ChatRequest
from toolorchestra.synth import generate, storage
from toolorchestra.synth.authors import model_author
from toolorchestra.synth.authors.model_author import ScriptedParts

pytest.importorskip("httpcore2", reason="models behind servers need .[models]")

NEW = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
OLD = "[{'type': 'extra_forbidden', 'loc': ('body', 'max_completion_tokens'), 'msg': 'Extra inputs are not permitted'}]"
SMALL = "max_tokens is too large: 4096. This model supports at most 1000 completion tokens, whereas you provided 4096."
QUICK = "deadline_seconds = 2.0\npatience_seconds = 6.0\nretries = 1\n"
LARGE = "output_tokens = 16000\ncontext_tokens = 131072\n"
LIBRARY = ("a library", "--model", "openai:served")
Answer = Callable[[ReceivedRequest], ServerReply]


def stand_in() -> Answer:
    """The author of a whole domain."""
    parts = ScriptedParts(runs.texts())

    def reply(asked: ReceivedRequest) -> ServerReply:
        return ServerReply(
            parts(ChatRequest("served", "answer", tuple(Message(row) for row in asked.json["messages"])))
        )

    return reply


def command(
    tmp_path: Path, server: Loopback, entry: str = QUICK, *more: str, asked: tuple[str, ...] = LIBRARY
) -> list[str]:
    """A command line that asks the server for a domain."""
    backends = tmp_path / "backends.toml"
    backends.write_text(
        f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\nendpoints = ["here"]\n{entry}',
        encoding="utf-8",
    )
    served = ["--price-as", "gpt-5", "--tasks", "10", "--backends", str(backends)]
    return [*asked, *served, "--out", str(tmp_path / "out"), *more]


def cut(asked: ReceivedRequest, text: str) -> ServerReply:
    """As much of a text as fits behind what was said already, and that it broke off there."""
    said = "".join(m["content"] for m in asked.json["messages"][2:] if m["role"] == "assistant")
    text = text.removeprefix(said)
    piece, whole = text[:LIMIT], len(text) <= LIMIT
    choice = {"index": 0, "finish_reason": "stop" if whole else "length", "message": {"content": piece}}
    used = {"prompt_tokens": len(asked.text) // 4, "completion_tokens": len(piece) // 4 + 1}
    return ServerReply(body={"choices": [choice], "usage": used})


LIMIT = 6000
"""Characters."""


# -- what the limit is called ----------------------------------------------------------------------------------------


def ending(answer: Answer, after: int) -> Answer:
    """A server that refuses everything after some requests: what is tested has come by then."""
    return lambda asked: answer(asked) if asked.number < after else ServerReply("enough", 400)


@pytest.mark.parametrize(
    ("key", "entry", "refusal"),
    [
        ("max_completion_tokens", "", NEW),
        ("max_tokens", 'output_key = "max_completion_tokens"\n', OLD),
    ],
)
def test_a_server_gets_the_limit_by_the_name_that_it_knows(tmp_path: Path, key: str, entry: str, refusal: str) -> None:
    answer = stand_in()

    def reply(asked: ReceivedRequest) -> ServerReply:
        return answer(asked) if key in asked.json else ServerReply(refusal, 400)

    with Loopback(ending(reply, 3)) as server:
        assert generate.main(command(tmp_path, server, QUICK + entry)) == 1
        assert [key in asked.json for asked in server.seen[:3]] == [False, True, True]


def test_a_limit_that_is_too_high_is_lowered_to_what_the_server_says(tmp_path: Path) -> None:
    answer = stand_in()

    def reply(asked: ReceivedRequest) -> ServerReply:
        return answer(asked) if asked.json["max_tokens"] <= 1000 else ServerReply(SMALL, 400)

    with Loopback(ending(reply, 3)) as server:
        assert generate.main(command(tmp_path, server)) == 1
        assert [asked.json["max_tokens"] for asked in server.seen[:3]] == [4096, 1000, 1000]


def test_openai_itself_is_asked_by_the_name_that_its_newer_models_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-key")
    models: Any = model_author.load("openai:gpt-5", "paper-2025-11").models
    served = models.endpoints.served("gpt-5")
    assert served.output_key == "max_completion_tokens"
    assert served.output_tokens >= 32_000


# -- answers that break off ------------------------------------------------------------------------------------------


def test_a_domain_is_written_though_the_server_breaks_once_and_answers_break_off_at_the_limit(tmp_path: Path) -> None:
    """The tools of the library are longer than the limit, so they come in pieces. Resumed, nobody is asked again."""
    answer = stand_in()

    def reply(asked: ReceivedRequest) -> ServerReply:
        if asked.number == 1:
            return ServerReply(status=503)
        whole = answer(replace(asked, json={**asked.json, "messages": asked.json["messages"][:2]}))
        return cut(asked, str(whole.content))

    with Loopback(reply) as server:
        assert generate.main(command(tmp_path, server)) == 0
        asked = len(server.seen)
        assert generate.main(command(tmp_path, server, QUICK, "--resume")) == 0
        assert len(server.seen) == asked
        pieces = [asked for asked in server.seen if "broke off at the limit" in asked.text]
    assert pieces
    rows = [json.loads(line) for line in (tmp_path / "out.work" / "calls.jsonl").read_text().splitlines()]
    assert len(rows) == asked - 1
    assert {row["model"] for row in rows} == {"served"}
    assert sum(bool(row.get("cut")) for row in rows) == len(pieces)


def test_an_answer_that_breaks_off_again_and_again_is_no_whole_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = {"index": 0, "finish_reason": "length", "message": {"content": '{"name": "library"} '}}
    with Loopback(lambda _: ServerReply(body={"choices": [choice], "usage": None})) as server:
        assert generate.main(command(tmp_path, server, QUICK, "--rounds", "0")) == 2
        assert len(server.seen) == 4
    told = capsys.readouterr().err
    assert "stage subjects" in told
    assert "cut off: the answer broke off at the limit of its length" in told
    assert "output_tokens" in told


# -- servers that do not answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "code", "seen", "most"),
    [
        (ServerReply("no such thing", 400), 2, "it refuses how it is asked, or who asks (400)", 1),
        (ServerReply("broken", 500), 1, "did not answer; tried 2 times", 2),
        (ServerReply(fault="silence"), 1, "did not answer; tried 2 times: here: no reply within", 2),
        (ServerReply("no key", 401), 2, "refused a call without a key", 1),
    ],
)
def test_a_server_that_does_not_answer_ends_the_run_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reply: ServerReply, code: int, seen: str, most: int
) -> None:
    started = time.monotonic()
    with Loopback(lambda _: reply) as server:
        entry = QUICK.replace("deadline_seconds = 2.0", "deadline_seconds = 0.5")
        assert generate.main(command(tmp_path, server, entry)) == code
        assert len(server.seen) == most
    told = capsys.readouterr().err.strip()
    assert told.startswith("error: ")
    assert seen in told
    assert "\n" not in told
    assert time.monotonic() - started < 20
    assert not (tmp_path / "out").exists()


def test_a_call_has_a_time_of_its_own_and_says_that_it_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "TELL_SECONDS", 0.3)
    monkeypatch.setattr(storage, "CALL_SECONDS", 1.0)
    with Loopback(lambda _: ServerReply(fault="silence")) as server:
        assert generate.main(command(tmp_path, server, "")) == 1
    told = capsys.readouterr().err.strip().splitlines()
    assert told[0] == "subjects: waiting for served, 0.3 s of at most 1 s"
    assert told[-1] == (
        "error: model 'served' did not answer within 1 s (stage subjects; answers that came are kept: go on with "
        "resume=True). On the command line: --resume"
    )


def test_batches_that_were_answered_beside_one_that_failed_are_kept(tmp_path: Path) -> None:
    answer = stand_in()

    def reply(asked: ReceivedRequest) -> ServerReply:
        return ServerReply("no", 400) if "this is batch 2 of 3" in asked.text else answer(asked)

    with Loopback(reply) as server:
        assert generate.main(command(tmp_path, server)) == 1
        asked = len(server.seen)
        rows = (tmp_path / "out.work" / "calls.jsonl").read_text().splitlines()
        assert len(rows) == asked - 1
        assert sum(json.loads(row)["stage"] == "intents" for row in rows) == 2


# -- money -----------------------------------------------------------------------------------------------------------


def spent(tmp_path: Path) -> float:
    """Dollars in the journal at gpt-5's price."""
    rows = map(json.loads, (tmp_path / "out.work" / "calls.jsonl").read_text().splitlines())
    return sum(runs.sheet().charge(storage._usage({**row, "model": "gpt-5"})).usd for row in rows)


def test_a_backends_file_that_is_none_is_said_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "backends.toml"
    for text in (None, b"[endpoints", "# für".encode("latin-1")):
        if text:
            file.write_bytes(text)
        with raises(ConfigError, f"^{file}: a TOML file of servers .* expected, got .*; mend it or", "--backends FILE"):
            model_author.load("openai:served", "paper-2025-11", endpoints=file)


def test_without_the_models_extra_a_spec_still_makes_a_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toolorchestra.envs.models.openai", None)
    said = "Without it a spec makes a domain, and standin:public_library stands in for a model$"
    with raises(ConfigError, said, "synth make SPEC, or --model standin:public_library"):
        model_author.load("openai:served", "paper-2025-11")


def test_an_answer_may_be_no_longer_than_the_money_that_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server writes as much as it is allowed, each time."""
    cap = 0.05

    def reply(asked: ReceivedRequest) -> ServerReply:
        tokens = asked.json["max_tokens"]
        used = {"prompt_tokens": len(asked.text) // 4, "completion_tokens": tokens}
        return ServerReply("x" * 4 * tokens, usage=used)

    entry = f"{QUICK}output_tokens = 32000\ncontext_tokens = 200000\n"
    with Loopback(reply) as server:
        assert generate.main(command(tmp_path, server, entry, "--spend-cap", str(cap))) == 1
        limits = [asked.json["max_tokens"] for asked in server.seen]
    assert "error: the spend cap of" in capsys.readouterr().err
    assert limits
    assert limits[0] < 32_000
    assert 0.3 * cap < spent(tmp_path) <= cap


def test_an_endless_answer_is_broken_off_paid_once_and_not_asked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Loopback(lambda _: ServerReply(fault="endless")) as server:
        assert generate.main(command(tmp_path, server, QUICK, "--spend-cap", "0.05")) == 1
        assert len(server.seen) == 1
    assert "the reply is longer than" in capsys.readouterr().err
    assert 0.001 < spent(tmp_path) <= 0.05


def test_replies_that_were_paid_and_of_no_use_are_on_the_bill(tmp_path: Path) -> None:
    answer = stand_in()

    def reply(asked: ReceivedRequest) -> ServerReply:
        used = {"prompt_tokens": 1500, "completion_tokens": 1000}
        wrong = {"choices": [], "usage": used}
        return ServerReply(body=wrong) if asked.number == 0 else answer(asked)

    with Loopback(ending(reply, 2)) as server:
        assert generate.main(command(tmp_path, server, QUICK, "--spend-cap", "5")) == 1
    first = json.loads((tmp_path / "out.work" / "calls.jsonl").read_text().splitlines()[0])
    assert first["tokens"][0] > 1500
    assert first["tokens"][2] > 1000


Solve = Callable[[SqlDomain, SqlTask, int], str]


class Server:
    """An author, and a solver that knows the tasks of the folders that it finds: it reads which one from the words."""

    def __init__(self, work: Path, solve: Solve) -> None:
        self.author = ScriptedParts(runs.texts())
        self.work = work
        self.solve = solve
        self.domains: dict[str, SqlDomain] = {}
        self.read = 0

    def __call__(self, asked: ReceivedRequest) -> ServerReply:
        messages = tuple(Message(row) for row in asked.json["messages"])
        if not str(messages[0]["content"]).startswith("You serve a customer"):
            return ServerReply(self.author(ChatRequest("served", "answer", messages)))
        self.read += 1
        turns = [m for m in messages if m["role"] == "assistant"][1:]  # the greeting is the first
        said = "\n".join(str(m["content"]) for m in messages if m["role"] == "user")
        found = self._task(said)
        return ServerReply(self.solve(*found, len(turns)) if found else "I am sorry, but I cannot do this.")

    def _task(self, said: str) -> tuple[SqlDomain, SqlTask] | None:
        for folder in self.work.glob("candidate-*"):
            if folder.name not in self.domains and (folder / "domain.json").is_file():
                self.domains[folder.name] = loader.read(folder)
        found = [
            (sum(fact.value in said for fact in task.facts if fact.value), domain, task)
            for domain in reversed(self.domains.values())
            for task in domain.tasks.values()
            if any(wording in said for wording in task.requests[0].say)
        ]
        return max(found, key=lambda one: one[0])[1:] if found else None


def oracle(domain: SqlDomain, task: SqlTask, turn: int) -> str:
    """The right move."""
    return dict(enumerate(moves(domain, task))).get(turn, "Is there anything else?")


def report_of(tmp_path: Path) -> dict[str, Any]:
    """The run's report, its stages by name."""
    made = json.loads((tmp_path / "out.work" / "report.json").read_text(encoding="utf-8"))
    return {**made, "stages": {row["stage"]: row for row in made["stages"]}}


def test_a_readers_disagreement_is_shown_with_its_conversation_and_mended_by_the_author(tmp_path: Path) -> None:
    """The first intents have a loan's number told where its date is asked for; the reader tells the date, each time."""
    right = runs.texts()
    wrong = right["intents.yaml"].replace("inform: [renew_loan.due_on]", "inform: [renew_loan.loan_id]")
    assert wrong != right["intents.yaml"]
    spoilt = {**right, "intents.yaml": wrong}
    seen: list[str] = []

    class Author(ScriptedParts):
        def __call__(self, request: ChatRequest) -> str:
            texts = "\n".join(str(message["content"]) for message in request.messages)
            self.texts = right if "second reader: task" in texts else spoilt
            if "second reader: task" in texts:
                seen.append(texts)
            return super().__call__(request)

    def reads(domain: SqlDomain, task: SqlTask, turn: int) -> str:
        text = oracle(domain, task, turn)
        return text if OPEN in text else re.sub(r"LO-\d+", "the loan", text)

    served = Server(tmp_path / "out.work", reads)
    served.author = Author(spoilt)
    with Loopback(served) as server:
        reader = ["--reader", "author", "--reader-tasks", "0", "--rounds", "1"]
        assert generate.main(command(tmp_path, server, LARGE, *reader)) == 0
    assert seen
    assert "The reader's conversation:" in seen[0]
    assert any("< tool_call>" in text for text in seen)  # marks of the grammar are broken in a text that is shown
    assert "0 of 3 tries end as gold does" in seen[0]
    stage = report_of(tmp_path)["stages"]["reader"]
    assert stage["rounds"] == 1
    stages = [json.loads(line) for line in (tmp_path / "out.work" / "stages.jsonl").read_text().splitlines()]
    parts = next(row for row in stages if row["stage"] == "reader")["result"]["making"]["parts"]
    assert "renew_loan.loan_id" not in parts["intents.yaml"]


def test_the_cap_stops_the_reader_and_resuming_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served = Server(tmp_path / "out.work", oracle)
    with Loopback(served) as server:
        reader = ["--reader", "openai:served", "--reader-tasks", "2"]
        asked = command(tmp_path, server, LARGE, *reader, asked=("public_library",))
        assert generate.main([*asked, "--spend-cap", "0.03"]) != 0
        assert "--spend-cap" in capsys.readouterr().err
        paid = served.read
        assert paid > 0
        assert generate.main([*asked, "--spend-cap", "50", "--resume"]) == 0
    keys = [json.loads(line)["key"] for line in (tmp_path / "out.work" / "calls.jsonl").read_text().splitlines()]
    assert len(keys) == len(set(keys))
