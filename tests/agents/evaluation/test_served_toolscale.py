"""A served model plays ToolScale through evaluation: it is asked with policy and tools, its experts are served too, and
what failed is told apart from what was answered wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands import evaluate
from toolorchestra.agents.evaluation.trials import tasks_of
from toolorchestra.envs.base.actions import parse, render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource, ready
from toolorchestra.envs.factory import factory

pytest.importorskip("httpcore2", reason='needs pip install ".[models]"')
MODELS = '[models."*"]\nretries = 0\nprice = {usd_per_mtok = {input = 1, output = 2}}\nnative_tools = false\n'


def file_of(folder: Path, server: Loopback, models: str = MODELS) -> str:
    path = folder / "backends.toml"
    path.write_text(f'[endpoints.here]\nbase_url = "{server.base_url}"\nfailures_to_open = 1000\n{models}')
    return str(path)


def evaluated(folder: Path, file: str, *more: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code and the rows of three tasks of finance."""
    out = folder / "run"
    code = evaluate.main(
        ["--env", "ToolScale-v0", "domain=finance", "level=easy", *more, "--backends", file, "--policy", "chat",
         "--tasks", "3", "--at-once", "1", "--out", str(out)]
    )  # fmt: skip
    return code, [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]


def scripts() -> dict[str, list[str]]:
    """The oracle's moves of the tasks that are played, by the user's first words."""
    made = factory(ToolScaleSource("finance", level="easy"), split="test", preference="none")
    domain, found = ready("finance").domain, {}
    for task_id, seed in tasks_of(made, 3, 0):
        episode = made.start(seed, {"task_id": task_id}).episode
        said = next(m["content"] for m in reversed(episode.observation["messages"]) if m["role"] == "user")
        found[said] = list(moves(domain, domain.tasks[task_id.rsplit("/", 1)[1]]))
    return found


def test_a_served_model_solves_what_it_knows_and_is_billed_as_the_file_says(tmp_path: Path) -> None:
    known = scripts()

    def oracle(asked: ReceivedRequest) -> ServerReply:
        said = [m["content"] for m in asked.json["messages"]]
        number = sum(m["role"] == "assistant" for m in asked.json["messages"]) - 1  # the greeting is one
        moves_of = next(script for first, script in known.items() if any(first in text for text in said))
        return ServerReply(moves_of[number])

    with Loopback(oracle) as server:
        code, rows = evaluated(tmp_path, file_of(tmp_path, server), "call_expert=false")
        first = server.seen[0].text
    assert code == 0
    assert [(row["status"], row["right"]) for row in rows] == [("ended", 1.0)] * 3
    assert "You are a customer service agent" in first
    assert all(name in first for name in ready("finance").domain.tools)
    assert "call_expert" not in first
    assert all(row["nano_usd_by_model"]["qwen3-8b"] > 0 for row in rows)


def test_experts_are_served_too_and_never_the_ones_that_know_the_gold_path(tmp_path: Path) -> None:
    def either(asked: ReceivedRequest) -> ServerReply:
        if "Calls so far" in asked.text:
            return ServerReply("I am an expert. Which card is it?")
        return ServerReply(render_call("call_expert", {"expert": "expert-1"}))

    with Loopback(either) as server:
        file = file_of(tmp_path, server)
        _, rows = evaluated(tmp_path, file, "max_turns=2")
        assert [one.json["model"] for one in server.seen[:2]] == ["qwen3-8b", "gpt-5"]
        assert parse(either(server.seen[0]).content or "").calls[0].name == "call_expert"
        source = ToolScaleSource("finance", backends=file)
        sheet = factory(source, split="test", preference="none").start(1, None).episode.sheet
        assert sheet.price("gpt-5") == sheet.price("qwen3-8b")
        alone = file_of(tmp_path, server, MODELS.replace('"*"', '"qwen3-8b"'))
        with pytest.raises(ConfigError, match=r"does not say where gpt-5 is served.*call_expert=False"):
            ToolScaleSource("finance", backends=alone)
        assert ToolScaleSource("finance", backends=alone, call_expert=False).backing is not None
    assert all(row["nano_usd_by_role"]["expert"] > 0 for row in rows)
