"""Authors behind servers that refuse, break off, hang, say too much or know other parameters; over real sockets."""

from __future__ import annotations

import json
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
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.wire import OutputLimit, corrected
from toolorchestra.synth import make_domain, storage
from toolorchestra.synth.authors import model_author
from toolorchestra.synth.authors.model_author import ScriptedParts

pytest.importorskip("openai", reason="models behind servers need .[models]")

NEW = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
OLD = "[{'type': 'extra_forbidden', 'loc': ('body', 'max_completion_tokens'), 'msg': 'Extra inputs are not permitted'}]"
SMALL = "max_tokens is too large: 4096. This model supports at most 1000 completion tokens, whereas you provided 4096."
QUICK = "deadline_seconds = 2.0\npatience_seconds = 6.0\nretries = 1\n"
Answer = Callable[[ReceivedRequest], ServerReply]


def stand_in() -> Answer:
    """The author of a whole domain."""
    parts = ScriptedParts(runs.texts())

    def reply(asked: ReceivedRequest) -> ServerReply:
        return ServerReply(
            parts(ChatRequest("served", "answer", tuple(Message(row) for row in asked.json["messages"])))
        )

    return reply


def command(tmp_path: Path, server: Loopback, entry: str = QUICK, *more: str) -> list[str]:
    """A command line that asks the server for a domain."""
    backends = tmp_path / "backends.toml"
    backends.write_text(
        f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\nendpoints = ["here"]\n{entry}',
        encoding="utf-8",
    )
    asked = ["a library", "--model", "openai:served", "--price-as", "gpt-5", "--tasks", "10"]
    return [*asked, "--backends", str(backends), "--out", str(tmp_path / "out"), *more]


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

    with Loopback(reply) as server:
        assert make_domain.main(command(tmp_path, server, QUICK + entry)) == 0
        refused = [asked.number for asked in server.seen if key not in asked.json]
    assert refused == [0]


def test_a_limit_that_is_too_high_is_lowered_to_what_the_server_says(tmp_path: Path) -> None:
    answer = stand_in()

    def reply(asked: ReceivedRequest) -> ServerReply:
        return answer(asked) if asked.json["max_tokens"] <= 1000 else ServerReply(SMALL, 400)

    with Loopback(reply) as server:
        assert make_domain.main(command(tmp_path, server)) == 0
        assert [asked.json["max_tokens"] for asked in server.seen[:3]] == [4096, 1000, 1000]


def test_openai_itself_is_asked_by_the_name_that_its_newer_models_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-key")
    models: Any = model_author.load("openai:gpt-5", "paper-2025-11").models
    served = models.endpoints.served("gpt-5")
    assert served.output_key == "max_completion_tokens"
    assert served.output_tokens >= 32_000


@pytest.mark.parametrize(
    "refusal",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
        "Unsupported value: 'temperature' does not support 0.0 with this model.",
        "max_tokens is too large for this prompt",
    ],
)
def test_other_refusals_teach_nothing(refusal: str) -> None:
    assert corrected(OutputLimit(), {"max_tokens": 4096, "messages": []}, refusal) is None


def test_two_requests_that_learn_at_once_agree() -> None:
    first = corrected(OutputLimit(), {"max_tokens": 9}, NEW)
    assert first == OutputLimit("max_completion_tokens")
    assert corrected(first, {"max_tokens": 9}, NEW) == first
    assert corrected(first, first.applied({"max_tokens": 9}), OLD) is None
    assert OutputLimit(most=5).applied({"max_tokens": 9, "n": 1}) == {"max_tokens": 5, "n": 1}


# -- answers that break off ------------------------------------------------------------------------------------------


def test_an_answer_that_breaks_off_at_the_limit_is_gone_on_with(tmp_path: Path) -> None:
    """The tools of the library are longer than the limit, so they come in pieces."""
    answer = stand_in()

    def reply(asked: ReceivedRequest) -> ServerReply:
        whole = answer(replace(asked, json={**asked.json, "messages": asked.json["messages"][:2]}))
        return cut(asked, str(whole.content))

    with Loopback(reply) as server:
        assert make_domain.main(command(tmp_path, server)) == 0
        pieces = [asked for asked in server.seen if "broke off at the limit" in asked.text]
    assert pieces
    rows = [json.loads(line) for line in (tmp_path / "out.work" / "calls.jsonl").read_text().splitlines()]
    assert sum(bool(row.get("cut")) for row in rows) == len(pieces)


def test_an_answer_that_breaks_off_again_and_again_is_no_whole_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choice = {"index": 0, "finish_reason": "length", "message": {"content": '{"name": "library"} '}}
    with Loopback(lambda _: ServerReply(body={"choices": [choice], "usage": None})) as server:
        assert make_domain.main(command(tmp_path, server, QUICK, "--rounds", "0")) == 2
        assert len(server.seen) == 4
    told = capsys.readouterr().err
    assert "stage subjects" in told
    assert "cut off: the answer broke off at the limit of its length" in told
    assert "output_tokens" in told


# -- servers that do not answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "code", "seen", "most"),
    [
        (ServerReply("no such thing", 400), 1, "refused the request (400)", 1),
        (ServerReply("broken", 500), 1, "did not answer; tried 2 times", 2),
        (ServerReply("slow down", 429), 1, "did not answer; tried 2 times", 2),
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
        assert make_domain.main(command(tmp_path, server, entry)) == code
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
        assert make_domain.main(command(tmp_path, server, "")) == 1
    told = capsys.readouterr().err.strip().splitlines()
    assert told[0] == "subjects: waiting for served, 0.3 s of at most 1 s"
    assert told[-1] == (
        "error: model 'served' did not answer within 1 s (stage subjects); answers that came are kept: go on with "
        "resume=True. On the command line: --resume"
    )


def test_batches_that_were_answered_beside_one_that_failed_are_kept(tmp_path: Path) -> None:
    answer = stand_in()

    def reply(asked: ReceivedRequest) -> ServerReply:
        return ServerReply("no", 400) if "this is batch 2 of 3" in asked.text else answer(asked)

    with Loopback(reply) as server:
        assert make_domain.main(command(tmp_path, server)) == 1
        asked = len(server.seen)
        rows = (tmp_path / "out.work" / "calls.jsonl").read_text().splitlines()
        assert len(rows) == asked - 1
        assert sum(json.loads(row)["stage"] == "intents" for row in rows) == 2


# -- money -----------------------------------------------------------------------------------------------------------


def spent(tmp_path: Path) -> float:
    """Dollars in the journal at gpt-5's price."""
    sheet, usd = runs.sheet(), 0.0
    file = tmp_path / "out.work" / "calls.jsonl"
    for line in file.read_text().splitlines() if file.is_file() else ():
        row = json.loads(line)
        usd += sheet.charge(storage._usage({**row, "model": "gpt-5"})).usd
    return usd


def test_a_backends_file_that_is_none_is_said_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "backends.toml"
    for text in (None, "[endpoints"):
        if text:
            file.write_text(text)
        with raises(ConfigError, f"^{file}: a TOML file of servers .* expected, got .*; mend it or", "--backends FILE"):
            model_author.load("openai:served", "paper-2025-11", endpoints=file)


def test_without_the_models_extra_a_spec_still_makes_a_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toolorchestra.envs.models.openai", None)
    said = "Without it a spec makes a domain, and standin:public_library stands in for a model$"
    with raises(ConfigError, said, "synth make SPEC, or --model standin:public_library"):
        model_author.load("openai:served", "paper-2025-11")


@pytest.mark.parametrize("cap", [0.02, 0.1])
def test_an_answer_may_be_no_longer_than_the_money_that_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cap: float
) -> None:
    """The server writes as much as it is allowed, each time."""

    def reply(asked: ReceivedRequest) -> ServerReply:
        tokens = asked.json["max_tokens"]
        used = {"prompt_tokens": len(asked.text) // 4, "completion_tokens": tokens}
        return ServerReply("x" * 4 * tokens, usage=used)

    entry = f"{QUICK}output_tokens = 32000\ncontext_tokens = 200000\n"
    with Loopback(reply) as server:
        assert make_domain.main(command(tmp_path, server, entry, "--spend-cap", str(cap))) == 1
        limits = [asked.json["max_tokens"] for asked in server.seen]
    assert "error: the spend cap of" in capsys.readouterr().err
    assert limits
    assert limits[0] < 32_000
    assert 0.3 * cap < spent(tmp_path) <= cap


@pytest.mark.parametrize("fault", ["endless", ""])
def test_an_endless_answer_is_broken_off_paid_once_and_not_asked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: Any
) -> None:
    body = ServerReply(fault="endless") if fault else ServerReply("x" * 50_000_000, usage={"prompt_tokens": 9})
    with Loopback(lambda _: body) as server:
        assert make_domain.main(command(tmp_path, server, QUICK, "--spend-cap", "0.05")) == 1
        assert len(server.seen) == 1
    assert "the reply is longer than" in capsys.readouterr().err
    assert 0.001 < spent(tmp_path) <= 0.05


def test_replies_that_were_paid_and_of_no_use_are_on_the_bill(tmp_path: Path) -> None:
    answer = stand_in()

    def reply(asked: ReceivedRequest) -> ServerReply:
        used = {"prompt_tokens": 1500, "completion_tokens": 1000}
        wrong = {"choices": [], "usage": used}
        return ServerReply(body=wrong) if asked.number == 0 else answer(asked)

    with Loopback(reply) as server:
        assert make_domain.main(command(tmp_path, server, QUICK, "--spend-cap", "5")) == 0
    first = json.loads((tmp_path / "out.work" / "calls.jsonl").read_text().splitlines()[0])
    assert first["tokens"][0] > 1500
    assert first["tokens"][2] > 1000
