"""A server that sends its key back in every way: no row, transcript, manifest, page, cassette or output holds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.evaluation.test_endpoint_evaluation import expert
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands import compare, evaluate, report

pytest.importorskip("openai", reason='needs pip install ".[models]"')
CANARY = "sk-canary-7f3a9c51e8d24b60-never-kept"
PIECE = 12
"""Characters of a key that are told as a key."""


def echo(asked: ReceivedRequest) -> ServerReply:
    """The key in errors, in answers, before and behind a cut, in calls, and beside a good reply. Streamed it comes in
    pieces, and stands in what had come when a stream broke off, in events that are none and in errors between them."""
    key = asked.headers.get("authorization", "").removeprefix("Bearer ")
    assert key == CANARY
    ways = [
        ServerReply(f"bad key {key}", 500),
        ServerReply(f"{'x' * 280} {key}", 402),
        ServerReply(f"no {key}", 400),
        ServerReply(body=f"not JSON {key}"),
        ServerReply(body={"choices": [], "said": key}),
        ServerReply(f"<answer>{key}</answer>"),
        ServerReply(f"<query>{key}</query>"),
        ServerReply(f'<tool_call>{{"name": "search", "arguments": {{"model": "{key}"}}}}</tool_call>'),
        ServerReply(f"<think>{key}</think>{key[:20]}"),
        ServerReply(f"{key} {key} {key}", fault="reset"),
        ServerReply(f"{key} {key} {key}", fault="cut"),
        ServerReply(f"{key} {key} {key}", fault="error", manner="running usage"),
        ServerReply(calls=({"name": "search", "arguments": f'{{"model": "{key}"}}'},), reasoning=key),
        ServerReply(body=f'data: {{"choices": "{"x" * 50} {key}'),
        ServerReply(body=f'data: {{"choices": [{{"delta": {{"tool_calls": ["{key}"]}}}}]}}\n\n'),
        ServerReply(body=f'data: {{"error": {{"message": "{"x" * 240}{key}"}}}}\n\n'),
        ServerReply(body=f"event: error\ndata: {'x' * 240}{key}\n\n"),
    ]
    return ways[asked.number // 2 % len(ways)] if asked.number % 2 else expert(asked)


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_key_that_a_server_sends_back_is_nowhere(
    stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CANARY_KEY", CANARY)
    run, tape = tmp_path / "run", tmp_path / "tape.jsonl"
    with Loopback(echo) as server:
        (tmp_path / "b.toml").write_text(
            f'[endpoints.here]\nbase_url = "{server.base_url}"\nkey_env = "CANARY_KEY"\nfailures_to_open = 1000\n'
            '[models."*"]\nretries = 1\ndeadline_seconds = 20.0\n'
            f"stream = {stream}\n"
        )
        words = ["--env", "HLE-v0", "max_turns=6", "--tasks", "40", "--policy", "chat", "cheap"]
        kept = ["--backends", str(tmp_path / "b.toml"), f"record={tape}", "--out", str(run)]
        assert evaluate.main([*words, *kept]) in (0, 1)
        assert bool(server.streamed) == (stream == "true")
    for command in (report, compare):
        assert command.main([str(run)]) == 0
    out, err = capsys.readouterr()
    files = {path.name: path.read_bytes() for path in (tape, *run.iterdir())}
    assert {"rows.jsonl", "trajectories.jsonl", "manifest.json", "summary.json", "page.html", tape.name} <= set(files)
    assert len(files["rows.jsonl"].splitlines()) == 80
    for name, data in {**files, "output": out.encode(), "errors": err.encode()}.items():
        for at in range(len(CANARY) - PIECE + 1):
            assert CANARY[at : at + PIECE].encode() not in data, (name, at)
