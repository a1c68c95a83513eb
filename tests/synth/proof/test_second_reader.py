"""A model's whole path over a server on the loopback: it writes a domain, a second reader reads the tasks, and they are
filtered by pass@k of a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.synth import runs
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain, SqlTask
from toolorchestra.envs.models import ChatRequest
from toolorchestra.synth import make_domain, prove
from toolorchestra.synth.authors.model_author import ScriptedParts

pytest.importorskip("openai", reason="models behind servers need .[models]")

Solve = Callable[[SqlDomain, SqlTask, int], str]


class Server:
    """An author, and a solver that knows the tasks of the folders that it finds: it reads which one from the words."""

    def __init__(self, work: Path, solve: Solve, texts: dict[str, str] | None = None) -> None:
        self.author = ScriptedParts(texts or runs.texts())
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


def command(tmp_path: Path, server: Loopback, *more: str) -> list[str]:
    """A command line that asks the server."""
    backends = tmp_path / "backends.toml"
    entry = 'endpoints = ["here"]\noutput_tokens = 16000\ncontext_tokens = 131072\n'
    backends.write_text(f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\n{entry}', encoding="utf-8")
    asked = ["--backends", str(backends), "--price-as", "gpt-5", "--out", str(tmp_path / "out")]
    return [*asked, "--spend-cap", "50", *more]


def report(tmp_path: Path) -> dict[str, Any]:
    """The run's report, its stages by name."""
    made = json.loads((tmp_path / "out.work" / "report.json").read_text(encoding="utf-8"))
    return {**made, "stages": {row["stage"]: row for row in made["stages"]}}


def test_a_model_writes_reads_and_tries_a_domain_over_a_server(tmp_path: Path) -> None:
    served = Server(tmp_path / "out.work", oracle)
    with Loopback(served) as server:
        reads = ["--reader", "author", "--reader-tasks", "4"]
        filters = ["--solvers", "openai:served", "--k", "1", "--band", "0", "1"]
        asked = command(
            tmp_path, server, "a library", "--model", "openai:served", "--tasks", "10", *reads, *filters
        )  # fmt: skip
        assert make_domain.main(asked) == 0
        first = len(server.seen)
        assert make_domain.main([*asked, "--resume"]) == 0
        assert len(server.seen) == first
    made = report(tmp_path)
    assert made["stages"]["reader"]["notes"][0].startswith("4 tasks read, ")
    assert {"tools/author", "evolve/author", "reader/judge", "filters/solver"} <= set(made["usd_by_stage"])
    domain = loader.read(tmp_path / "out", verify=True)
    assert prove.check_tasks(str(tmp_path / "out"), list(domain.tasks)).faults == ()


def careless() -> dict[str, str]:
    """The library, whose loans say another date than the one that is asked for."""
    texts = runs.texts()
    wrong = texts["intents.yaml"].replace("inform: [renew_loan.due_on]", "inform: [renew_loan.loan_id]")
    assert wrong != texts["intents.yaml"]
    return {**texts, "intents.yaml": wrong}


def test_a_readers_disagreement_is_shown_with_its_conversation_and_mended_by_the_author(tmp_path: Path) -> None:
    """The first intents have a loan's number told where its date is asked for; the reader tells the date, each time."""
    right, spoilt = runs.texts(), careless()
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
        if "LO-" in text and "For your information" in text:
            return text.partition("For your information")[0] + "That has been settled. Anything else?"
        return text

    served = Server(tmp_path / "out.work", reads)
    served.author = Author(spoilt)
    with Loopback(served) as server:
        asked = ["a library", "--model", "openai:served", "--tasks", "10", "--evolve", "0"]
        reader = ["--reader", "author", "--reader-tasks", "0", "--rounds", "1"]
        assert make_domain.main(command(tmp_path, server, *asked, *reader)) == 0
    assert seen
    assert "The reader's conversation:" in seen[0]
    assert any("< tool_call>" in text for text in seen)  # marks of the grammar are broken in a text that is shown
    assert "0 of 3 tries end as gold does" in seen[0]
    stage = report(tmp_path)["stages"]["reader"]
    assert stage["rounds"] == 1
    stages = [json.loads(line) for line in (tmp_path / "out.work" / "stages.jsonl").read_text().splitlines()]
    parts = next(row for row in stages if row["stage"] == "reader")["result"]["making"]["parts"]
    assert "renew_loan.loan_id" not in parts["intents.yaml"]


def test_a_persons_spec_is_read_within_the_cap_and_what_differs_is_in_the_report(tmp_path: Path) -> None:
    def nothing(_domain: SqlDomain, _task: SqlTask, _turn: int) -> str:
        return "I am sorry, but I cannot do this."

    served = Server(tmp_path / "out.work", nothing)
    with Loopback(served) as server:
        asked = ["public_library", "--tasks", "10", "--reader", "openai:served", "--reader-tasks", "3"]
        assert make_domain.main(command(tmp_path, server, *asked)) == 0
    stage = report(tmp_path)["stages"]["reader"]
    told = (tmp_path / "out.work" / "disagreements.txt").read_text(encoding="utf-8")
    assert stage["notes"][0] == "3 tasks read, 0 of 9 tries solved"
    assert stage["dropped"] == {"tries agree with each other, not with gold": 3}
    assert told.count("0 of 3 tries end as gold does, and the tries agree with each other") == 3
    assert "assistant: I am sorry, but I cannot do this." in told
    assert served.read > 0


def test_the_cap_stops_the_reader_and_resuming_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    served = Server(tmp_path / "out.work", oracle)
    with Loopback(served) as server:
        asked = ["public_library", "--tasks", "10", "--reader", "openai:served", "--reader-tasks", "2"]
        poor = command(tmp_path, server, *asked)
        poor[poor.index("--spend-cap") + 1] = "0.03"
        assert make_domain.main(poor) != 0
        assert "--spend-cap" in capsys.readouterr().err
        paid = served.read
        assert paid > 0
        rich = command(tmp_path, server, *asked, "--resume")
        assert make_domain.main(rich) == 0
    keys = [json.loads(line)["key"] for line in (tmp_path / "out.work" / "calls.jsonl").read_text().splitlines()]
    assert len(keys) == len(set(keys))
