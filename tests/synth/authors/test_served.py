"""A model behind a real socket writes a whole domain: the backend for servers, with its retries, below synthesis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.synth import runs
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.models import ChatRequest
from toolorchestra.synth import make_domain
from toolorchestra.synth.authors.model_author import ScriptedParts

pytest.importorskip("openai", reason="models behind servers need .[models]")


def test_a_served_model_writes_a_domain_through_a_server_that_breaks_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in = ScriptedParts(runs.texts())

    def reply(asked: ReceivedRequest) -> ServerReply:
        if asked.number == 1:
            return ServerReply(status=503)
        messages = tuple(Message(row) for row in asked.json["messages"])
        return ServerReply(stand_in(ChatRequest("served", "answer", messages)))

    with Loopback(reply) as server:
        endpoints = tmp_path / "endpoints.toml"
        endpoints.write_text(
            f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models."*"]\nendpoints = ["here"]\n', encoding="utf-8"
        )
        command = ["a library", "--model", "openai:served", "--price-as", "qwen3-32b", "--tasks", "10"]
        command += ["--backends", str(endpoints), "--out", str(tmp_path / "out")]
        assert make_domain.main(command) == 0
        told = capsys.readouterr().out
        assert "tasks kept" in told
        asked = len(server.seen)
        assert make_domain.main([*command, "--resume"]) == 0
        assert len(server.seen) == asked
    rows = [json.loads(line) for line in (tmp_path / "out.work" / "calls.jsonl").read_text().splitlines()]
    assert len(rows) == asked - 1
    assert {row["model"] for row in rows} == {"served"}
