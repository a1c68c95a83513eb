"""A cassette that somebody else wrote, or broke, is refused in one sentence."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.envs.base.test_cassette import Counting, asks
from toolorchestra.envs.base.cassette import Cassette
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.tools.cassette_backends import RecordedInterpreter, RecordedModels, RecordedRetriever


@pytest.mark.parametrize(
    "line",
    [
        "7",
        '{"key": "k"}',
        '{"kind": "model", "key": ["k"], "request": {}, "reply": {}}',
        '{"kind": "model", "key": "k", "request": {}, "reply": "x"}',
        "[" * 100_000,
        "\ud800",
    ],
)
def test_a_line_that_is_no_recording_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text(f"\n{line}\n", encoding="utf-8", errors="surrogatepass")
    for mode in ("replay", "cache"):
        with pytest.raises(ConfigError, match=r"c\.jsonl: line 2 is not a recording; record it anew"):
            Cassette(path, mode)  # type: ignore[arg-type]


@pytest.mark.parametrize("mark", ["\u2028", "\x85"])
def test_only_a_newline_ends_a_recording(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "c.jsonl"
    reply = {"text": f"a{mark}b"} if mark >= " " else {"text": "ab"}
    row = {"kind": "model", "key": "k", "request": {}, "reply": reply}
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n" + json.dumps(row) + "\n", encoding="utf-8")
    assert Cassette(path, "replay").first("k") == row


def rewritten(path: Path, kind: str, reply: Any) -> Cassette:
    """The cassette with other replies of a kind."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    made = [{**row, "reply": {**row["reply"], **reply}} if row["kind"] == kind else row for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return Cassette(path, "replay")


USAGE = {"item": "m", "role": "expert", "tokens": [1, 2, 3, 4], "units": 0, "seconds": 0.5, "estimated": False}


@pytest.mark.parametrize(
    ("kind", "reply"),
    [
        ("model", {"text": 7}),
        ("model", {"usages": [{**USAGE, "tokens": [1, 2, 3, "4"]}]}),
        ("model", {"error": "KeyboardInterrupt", "message": "x", "usages": []}),
        ("retrieval", {"hits": [[{}, 1]]}),
        ("program", {"seconds": "long"}),
        ("about", {"describe": None}),
    ],
)
def test_a_reply_of_another_shape_is_one_sentence(tmp_path: Path, kind: str, reply: dict[str, Any]) -> None:
    path = tmp_path / "c"
    tape = Cassette(path, "record")

    async def ask(live: Counting | None, tape: Cassette) -> None:
        await RecordedModels(live, tape).complete(asks())
        await RecordedRetriever(live, tape).search("q", 1)
        await RecordedInterpreter(live, tape).run("print(1)")

    asyncio.run(ask(Counting(), tape))
    of = "program" if kind == "about" else kind
    with pytest.raises(ConfigError, match=f"c, a recorded {of} reply: ") as caught:
        asyncio.run(ask(None, rewritten(path, kind, reply)))
    assert len(str(caught.value)) < 400
