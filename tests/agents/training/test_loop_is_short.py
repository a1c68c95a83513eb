"""How much a reader of one step of reinforcement learning has to read: at most 600 lines in 6 files.

What is counted: every function under agents/ that take_step runs, from its def (with its docstring) to its end, in
whatever file it stands. What only declares (data classes with the checks of their values, constants, imports) is not
counted.
There is no list of files that are left out. What a step only calls, behind a protocol, is not run here at all, and
stand-ins take its place:

- the sampler: it says fixed turns;
- the tokenizer with its chat template (ChatTemplate's render, encode and decode): each character is a token;
- a prompt is run with each of its plays and not once for all, which gives the same gradient for more work;
- the tiny model's embeddings move with all others, and no KL holds it to its start, as in presets of larger models;
- the log of a step, with the stopwatch of its rollouts: nothing is written.

The episode, its tools and its bills are in envs/ and not counted. No baseline plays, and no rollout is recorded.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType, SimpleNamespace
from typing import Any

import pytest

import toolorchestra.agents
from tests.agents.training.even_source import ENV_ID
from tests.agents.training.test_trainer import COLD
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.engines.base import LossParams, Sample
from toolorchestra.agents.rollouts.grpo import AdvantageParams
from toolorchestra.agents.training import trainer
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.training_run import open_run
from toolorchestra.envs.base.actions import render_call

AGENTS = Path(toolorchestra.agents.__file__).resolve().parent
LOOP = {
    "training/trainer.py",
    "configuration/environments.py",
    "rollouts/rollout.py",
    "rollouts/grpo.py",
    "engines/local.py",
    "engines/update.py",
}
"""The loop, the choice of tasks, the rollout, reward and advantage, the engine's step, its loss and batches."""
MOST_LINES = 600

Function = tuple[int, int]
"""First and last line."""


@contextmanager
def watched() -> Iterator[set[CodeType]]:
    """The code that is run meanwhile, in every thread that is begun."""
    ran: set[CodeType] = set()

    def hear(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            ran.add(frame.f_code)

    threading.setprofile(hear)
    sys.setprofile(hear)
    try:
        yield ran
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def functions_run(step: Callable[[], object]) -> dict[str, set[Function]]:
    """The functions under agents/ that a call ran, by file. What is written inside a function is a part of it."""
    with watched() as ran:
        step()
    found: dict[str, set[Function]] = defaultdict(set)
    for code in ran.copy():  # threads that the step began may still run, and add to it
        path = Path(code.co_filename).resolve()
        if path.is_relative_to(AGENTS) and (around := _around(path, code.co_firstlineno)):
            found[path.relative_to(AGENTS).as_posix()] |= around
    return dict(found)


def _around(path: Path, line: int) -> set[Function]:
    """The outermost function that a line is in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = [
        (min([node.lineno, *(one.lineno for one in node.decorator_list)]), node.end_lineno or node.lineno, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "__post_init__"
    ]
    around = [(first, last) for begun, last, first in inside if begun <= line <= last]
    return {min(around)} if around else set()


def lines_of(found: Mapping[str, set[Function]]) -> dict[str, int]:
    return {name: sum(last - first + 1 for first, last in functions) for name, functions in found.items()}


class Scripted:
    """Adds two numbers, and then says something of an even length, or of an odd one, which is wrong."""

    def __init__(self) -> None:
        self.turns = 0
        self.called: set[str] = set()

    async def sample(self, prompt: object, params: object, session: str = "") -> Sample:
        self.turns += 1
        text = ("even" if self.turns % 3 else "odd") if session in self.called else render_call("add", {"a": 1, "b": 2})
        self.called.add(session)
        return Sample([ord(one) for one in text], [-1.0] * len(text), True)

    def release(self, session: str) -> None:
        self.called.discard(session)

    def sleep(self) -> None:
        """It has no memory to give back."""

    def stats(self) -> dict[str, float]:
        return {}


def test_a_step_takes_six_files_and_at_most_600_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a mix of environments, in which some groups teach something and others nothing."""
    even = EnvMix(ENV_ID, 1.0, {"max_turns": 4, "preference": "accurate"}, validation="test")
    config = replace(
        COLD,
        environments=(*COLD.environments, even),
        algorithm="grpo",
        groups=6,
        advantage=AdvantageParams(least_spread=0.0),
        loss=LossParams(entropy_weight=0.01),
        baselines=(),
        dump_every=0,
        max_context=2_000,
    )
    run = open_run(config, tmp_path, *build(config), resume=False, say=lambda _: None)
    most = len(run.chat.tokenizer)  # type: ignore[arg-type]
    monkeypatch.setattr(run.chat, "render", lambda seen: "".join(str(m["content"])[:99] for m in seen["messages"]))
    monkeypatch.setattr(run.chat, "prompt_length", 0)
    monkeypatch.setattr(run.chat, "encode", lambda text: [ord(one) % most for one in text])
    monkeypatch.setattr(run.chat, "decode", lambda ids: "".join(map(chr, ids)))
    monkeypatch.setattr(run.rollouts, "engine", Scripted())
    monkeypatch.setattr(run.engine, "sampler", Scripted())
    monkeypatch.setattr(run.engine._update, "_shares", False)
    run.engine.model.get_input_embeddings()._forward_hooks.clear()
    stopwatch = SimpleNamespace(tokenisation=nullcontext(), sampling=nullcontext(), tools=nullcontext())
    monkeypatch.setattr(run.rollouts, "split", stopwatch)
    learned: list[Mapping[str, float]] = []
    monkeypatch.setattr(trainer, "log_step", lambda run, taken, batch, metrics, times: learned.append(metrics) or "")
    found = functions_run(lambda: trainer.take_step(run))
    lines = lines_of(found)
    assert learned[0]["tokens"] > 0  # it did learn
    assert set(lines) == LOOP, lines
    assert sum(lines.values()) <= MOST_LINES, lines
