"""Questions with a picture: left out and counted where a model takes none, else shown to all who are asked."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents.evaluation.played_episodes import play
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.policies.players import player
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.domains.questions.datasets import picture_url
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.endpoints import Endpoints, Served
from toolorchestra.envs.models.wire import Sent, body
from toolorchestra.envs.runtime.invoke import Gates

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 60_000
URL = picture_url(PNG)
ROWS = [
    {"id": "seen", "question": "What is drawn?", "answer": "a cat", "image": URL, "category": "Art"},
    {"id": "plain", "question": "What is two and two?", "answer": "4", "image": "", "category": "Math"},
    {
        "id": "away",
        "question": "What is there?",
        "answer": "b",
        "image": "https://pictures.example/b",
        "category": "Art",
    },
]


def _answer(asked: ReceivedRequest) -> ServerReply:
    if "<answer>" in asked.text:
        return ServerReply("<answer>a cat</answer>")
    return ServerReply(render_call("answer", {"model": "answer-4"}))


def _made(tmp_path: Path, url: str, mode: str, **settings: Any) -> Any:
    rows, file = tmp_path / "hle.jsonl", tmp_path / "backends.json"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    held = {
        "endpoints": {"here": {"base_url": url}},
        "models": {"*": settings},
        "retrieval": {"index": "embedded"},
        "cassette": {"path": str(tmp_path / "tape.jsonl"), "mode": mode},
    }
    file.write_text(json.dumps(held), encoding="utf-8")
    return factory_of("HLE-v0", dataset=str(rows), backends=str(file), split="all", preference="none")


def test_a_made_file_is_played_with_its_pictures_recorded_and_billed(tmp_path: Path) -> None:
    pytest.importorskip("httpcore2", reason='needs pip install ".[models]"')
    bills = []
    with Loopback(_answer) as server:
        for mode in ("record", "replay"):
            made = _made(tmp_path, server.base_url, mode, image_tokens=1500)
            assert made.source.left_out == {"images": 1}  # a picture that is an address: nobody fetches it
            got = asyncio.run(play(made, player("chat", made).move, 0, Gates(), {"task_id": "hle/all/seen"}))
            assert (got.failure, got.record.right, got.nano_usd > 0) == ("", 1.0, True)
            bills.append(got.nano_usd)
        asked = [one.json["messages"] for one in server.seen]
        without = _made(tmp_path, server.base_url, "replay")
        assert without.source.left_out == {"images": 2}
        assert without.source.ids("all") == ["hle/all/plain"]
    assert bills[0] == bills[1]
    assert len(asked) == 2
    for messages in asked:
        shown = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
        assert [part["image_url"]["url"] for part in shown if part["type"] == "image_url"] == [URL]


def test_a_picture_s_bytes_and_urls() -> None:
    assert URL.startswith("data:image/png;base64,iVBOR")
    assert picture_url({"bytes": b"\xff\xd8\xff", "path": None}) == "data:image/jpeg;base64,/9j/"
    assert picture_url(URL) == URL
    assert picture_url("https://pictures.example/b") == picture_url(b"%PDF") == picture_url(b"RIFF....WAVEfmt ") == ""
    assert picture_url(b"RIFF....WEBPVP8 ").startswith("data:image/webp;")


def test_the_request_has_openai_s_parts_and_is_counted_without_its_bytes() -> None:
    served = Served("a", ("here",), image_tokens=1500)
    asked = ChatRequest("a", "answer", (Message(role="user", content="What is drawn?"),), images=(URL,))
    made = body(asked, served)
    text, picture = made["messages"][-1]["content"]
    assert text == {"type": "text", "text": "What is drawn?"}
    assert picture == {"type": "image_url", "image_url": {"url": URL}}
    bare = Sent.of({**made, "messages": [{"role": "user", "content": "What is drawn?"}]}, served)
    assert Sent.of(made, served).most_tokens == bare.most_tokens + 1500
    with pytest.raises(ConfigError, match="model 'a' takes no pictures"):
        body(asked, Served("a", ("here",)))


def test_all_models_that_may_be_asked_have_to_take_pictures() -> None:
    rows = {"a": {"image_tokens": 1000}, "b": {}}
    ends = Endpoints.read({"endpoints": {"here": {"base_url": "http://h/v1"}}, "models": rows}, "file")
    assert ends.take_images(["a"])
    assert not ends.take_images(["a", "b"])
    assert not ends.take_images(["a", "c"])
