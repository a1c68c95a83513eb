"""A stand-in for real models, with known skills: what is recorded of it shows whether a fit finds them again.

with StandIn(questions(400)) as server:
    ...  # server.base_url, an OpenAI-compatible server on the loopback

`python -m tests.support.stand_in walk` serves it for the walk of docs/calibrate.md, and writes walk/questions.jsonl,
walk/tools.json and walk/backends.toml, which with real models are yours, and walk/truth.json, the skills.

It answers questions as the experts of truth() do. An answer's luck follows from how often that model was asked that
question before, so the same run gives the same recording, whatever the order of its requests. SIMULATED.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.envs.base.answer_grading import is_right
from toolorchestra.envs.base.types import Answer, Message, Question
from toolorchestra.envs.domains.hle.source import SUBJECTS
from toolorchestra.envs.domains.hle.subjects_form import LEVELS
from toolorchestra.envs.domains.questions.datasets import DIFFICULTY
from toolorchestra.envs.models import ChatRequest, Completion
from toolorchestra.envs.models.simulated import SimulatedModels, drawn_reply, read_experts
from toolorchestra.envs.outcomes.table import Outcomes, OutcomesBuilder

ASKED = ("number theory", "probability", "combinatorics", "code tracing", "graph algorithms", "logic")
"""Subjects of HLE-v0 whose questions need nothing to be looked up."""
EXPERTS = {"answer-1": "gpt-5", "answer-2": "gpt-5-mini", "answer-math-1": "qwen2.5-math-72b"}
"""Names that the price sheet knows. Nothing is said of the real models."""
SECONDS = {"answer-1": 96.0, "answer-2": 27.0, "answer-math-1": 13.0}
_ELSEWHERE = "\n(asked of the stand-in)"
"""Ends the texts that luck is drawn from here, so that no simulation of the same questions has the same luck."""
_SKILLS: Mapping[str, Mapping[str, float]] = {
    "gpt-5": {"math": 1.1, "code": 1.0, "logic": 0.9},
    "gpt-5-mini": {"math": -0.2, "code": 1.0, "logic": -0.8},
    "qwen2.5-math-72b": {"math": 1.0, "code": -1.0, "logic": -1.3},
}
_TOKENS = {"gpt-5": 1500.0, "gpt-5-mini": 700.0, "qwen2.5-math-72b": 400.0}
_WAITS = {"gpt-5": 0.4, "gpt-5-mini": 0.2, "qwen2.5-math-72b": 0.1}
"""Median seconds: a stand-in hurries."""
_PURPOSES = ("query", "code", "answer")


def truth() -> dict[str, Any]:
    """The file of experts by which it answers."""
    law = {
        "level": 0.0,
        "middle": DIFFICULTY,
        "task": 1.2,
        "pair": 0.8,
        "search": 0.0,
        "computed": 0.0,
        "tokens": {"task": 0.3, "pair": 0.3, "run": 0.5, "with_difficulty": 0.5},
        "seconds": {"task": 0.25, "pair": 0.3, "run": 0.4, "with_difficulty": 0.4},
        "together": 0.6,
        "limit_seconds": 3600.0,
        "refusals": 0.0,
        "source": "chosen: a stand-in for real models",
    }
    models = {}
    for model, known in _SKILLS.items():
        skills = {**known, "science": -2.0, "knowledge": -2.0}
        models[model] = {
            "answering": skills,
            "coding": skills,
            "querying": -2.0,
            "median_tokens": dict.fromkeys(_PURPOSES, _TOKENS[model]),
            "median_seconds": dict.fromkeys(_PURPOSES, _WAITS[model]),
            "reasons": model != "qwen2.5-math-72b",
        }
    return {"law": law, "models": models}


def questions(count: int, seed: int = 0) -> list[Question]:
    """Questions of three families, each text once."""
    rng = random.Random(seed)
    found: dict[str, Question] = {}
    while len(found) < count:
        made = SUBJECTS[rng.choice(ASKED)](rng, rng.choice(LEVELS))
        text = f"Subject: {made.subject}.\n{made.text.partition(chr(10))[2]}"
        found.setdefault(text, Question(text, Answer(made.answer.text), made.family, made.family, DIFFICULTY))
    return list(found.values())


def write_files(folder: Path, asked: Sequence[Question]) -> None:
    """What a user has of his own: questions.jsonl and tools.json; and truth.json, which nobody has of real models."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"id": f"q{at}", "question": one.text, "answer": one.answer.text, "category": one.subject}
        for at, one in enumerate(asked)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    offers = [{"alias": alias, "model": model, "seconds": SECONDS[alias]} for alias, model in EXPERTS.items()]
    tool = {"kind": "answer", "name": "answer", "description": "Give the final answer.", "offers": offers}
    (folder / "tools.json").write_text(json.dumps({"name": "three experts", "tools": [tool]}, indent=1) + "\n")
    (folder / "truth.json").write_text(json.dumps(truth(), indent=1) + "\n")


def write_backends(folder: Path, base_url: str) -> Path:
    """The endpoint file. It is written last, so whoever waits for it finds a server that answers."""
    lines = ["[endpoints.stand-in]", f'base_url = "{base_url}"', "", '[models."*"]', 'endpoints = ["stand-in"]',
             "context_tokens = 200000", "output_tokens = 100000", ""]  # fmt: skip
    made, file = folder / "backends.toml.new", folder / "backends.toml"
    made.write_text("\n".join(lines), encoding="utf-8")
    made.replace(file)
    return file


class StandIn(Loopback):
    """A server on the loopback that answers known questions in place of real models."""

    def __init__(self, asked: Sequence[Question]) -> None:
        super().__init__(self._drawn)
        self._asked = {one.text: replace(one, text=one.text + _ELSEWHERE) for one in asked}
        self._models = SimulatedModels(read_experts(truth(), "the stand-in's truth"))
        self._times: Counter[tuple[str, str]] = Counter()
        """How often each model was asked each question."""

    def _drawn(self, asked: ReceivedRequest) -> ServerReply:
        shown = str(asked.json["messages"][-1]["content"]).partition("Question: ")[2]
        if shown not in self._asked:
            return ServerReply("the stand-in knows its own questions alone", status=422)
        model = str(asked.json["model"])
        made = asked_of(self._models, self._asked[shown], model, self._times[model, shown])
        self._times[model, shown] += 1
        tokens = made.usage.tokens
        usage = {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output + tokens.reasoning,
            "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
        }
        return ServerReply(made.text, usage=usage, seconds=made.usage.seconds)


def asked_of(models: SimulatedModels, question: Question, model: str, seed: int) -> Completion:
    """A model's reply to a question."""
    message = Message(role="user", content=question.text)
    return drawn_reply(models, ChatRequest(model, "answer", (message,), seed, 0, question))


def recorded(tasks: int, runs: int, seed: int) -> Outcomes:
    """A recording of the stand-in, without server and clock: other questions and other luck for each seed."""
    models = SimulatedModels(read_experts(truth(), "the stand-in's truth"))
    made = OutcomesBuilder("the stand-in")
    for at, one in enumerate(questions(tasks, seed)):
        question = replace(one, text=f"{one.text}{_ELSEWHERE} {seed}")
        for model in models.skills:
            for run in range(runs):
                reply = asked_of(models, question, model, run)
                answer, used = reply.text.removeprefix("<answer>").removesuffix("</answer>"), reply.usage
                made.add(
                    f"q{at}",
                    model,
                    is_right(question.answer, answer),
                    family=one.family,
                    run=run,
                    input=used.tokens.input,
                    output=used.tokens.output,
                    reasoning=used.tokens.reasoning,
                    seconds=used.seconds,
                )
    return made.made()


def serve(folder: Path, count: int) -> None:
    """Write the files, serve, and wait until the process is stopped."""
    asked = questions(count)
    write_files(folder, asked)
    with StandIn(asked) as server:
        write_backends(folder, server.base_url)
        print(
            f"{server.base_url} answers {count} questions; {folder}/backends.toml names it. Ctrl-C stops it.",
            flush=True,
        )
        while True:
            time.sleep(1.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("--questions", type=int, default=1000)
    given = parser.parse_args()
    try:
        serve(given.folder, given.questions)
    except KeyboardInterrupt:
        print("stopped")
