"""Traffic for a server: asks it the questions of a data set, and tells it which answers were right.

`python -m tests.support.rated_traffic walk http://127.0.0.1:8392 always:answer-1 always:answer-2 --split train` asks
each of the models each question of walk/questions.jsonl that is in the split, and prints what the server says then.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import httpx2 as httpx

from toolorchestra.envs.base.answer_grading import is_right
from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.hle.source import HleSource

IN_FLIGHT = 48


def asked_questions(folder: Path, split: str) -> list[Question]:
    """The data set's questions of a split."""
    source = HleSource(dataset=str(folder / "questions.jsonl"), tools=str(folder / "tools.json"))
    assert source.rows is not None
    return [source.question(f"{source.name}/{split}/{key}") for key in source.rows.of(split)]


async def ask(client: httpx.AsyncClient, question: Question, model: str) -> None:
    """Ask, and rate the answer."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": question.text}],
        "metadata": {"subject": question.subject},
    }
    told = await client.post("/v1/chat/completions", json=body)
    said = told.raise_for_status().json()
    right = is_right(question.answer, said["choices"][0]["message"]["content"])
    (await client.post("/v1/feedback", json={"id": said["id"], "right": right})).raise_for_status()


async def traffic(url: str, questions: list[Question], models: list[str], times: int) -> dict[str, Any]:
    """Ask each model each question so many times, and read what the server says of it."""
    left = iter(list(itertools.product(questions, models)) * times)
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:

        async def one() -> None:
            for question, model in left:
                await ask(client, question, model)

        await asyncio.gather(*[one() for _ in range(IN_FLIGHT)])
        return dict((await client.get("/v1/activity")).json())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where questions.jsonl and tools.json are")
    parser.add_argument("url", help="of the server")
    parser.add_argument("models", nargs="+", help="names that the server knows")
    parser.add_argument("--split", default="train", choices=("train", "test"))
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--times", type=int, default=2)
    given = parser.parse_args()
    asked = asked_questions(given.folder, given.split)[: given.tasks]
    canary = asyncio.run(traffic(given.url, asked, given.models, given.times))["canary"]
    print(f"{len(asked) * len(given.models) * given.times} answers are rated")
    if canary:
        print(*(f"{name}: {json.dumps(arm)}" for name, arm in canary["arms"].items()), sep="\n")
        print("stopped:", canary["stopped"] or "no")
