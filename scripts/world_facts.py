"""What recordings of real models look like, beside the simulated worlds.

`python scripts/world_facts.py outcomes_mcpmark.csv.gz` prints each fact for the recording (all its models, and the nine
that docs/results/worlds.md routes over) and for the worlds 2026-11 and 2025-11. Without a file it prints the worlds
alone. In a world every expert answers the same questions of HLE-v0 four times, with all facts in view: what is compared
is how experts err and how long they take, not what there is to be found.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from toolorchestra.agents.calibration.facts import facts
from toolorchestra.envs.base.errors import ToolError
from toolorchestra.envs.base.grading import is_right
from toolorchestra.envs.base.types import Message, Question
from toolorchestra.envs.domains.hle.source import HleSource
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.outcomes.forms import read
from toolorchestra.envs.outcomes.rows import MEASURES, Outcomes

RUNS = 4
NINE = (
    "gpt-5-medium gpt-5-mini-medium gpt-5-nano-medium claude-sonnet-4-5 deepseek-v3-2-chat qwen-3-coder-plus "
    "grok-4-fast kimi-k2-0905 gpt-oss-120b"
).split()


def of_world(world: str, tasks: int) -> Outcomes:
    """Every expert on the same questions."""
    source = HleSource(world=world)
    models = sorted(source.skills)
    questions = [source.question(f"{source.name}/train/{number}") for number in range(tasks)]
    rows = [
        (task, at, run, *asked(source, question, model, run))
        for task, question in enumerate(questions)
        for at, model in enumerate(models)
        for run in range(RUNS)
    ]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    task, model, run = (column.astype(np.int32) for column in columns[:3])
    success, seconds, output = (column.astype(float) for column in columns[3:])
    unknown = np.full(len(rows), np.nan)
    measures = {**dict.fromkeys(MEASURES, unknown), "seconds": seconds, "output": output}
    names = tuple(f"{number}" for number in range(tasks))
    families = tuple(question.family for question in questions)
    return Outcomes(f"world {world}", names, families, tuple(models), {}, task, model, run, success, measures)


def asked(source: HleSource, question: Question, model: str, run: int) -> tuple[float, float, float]:
    """Success, seconds and output tokens of one answer."""
    shown = "\n".join((question.text, *(fact.sentence for fact in question.facts)))
    request = ChatRequest(model, "answer", (Message(role="user", content=shown),), run, 0, question)
    try:
        made = asyncio.run(source.behind.models.complete(request))
    except ToolError:  # no answer in time
        (usage,) = request.bill.usages
        return 0.0, usage.seconds, float(usage.tokens.output + usage.tokens.reasoning)
    answer = made.text.removeprefix("<answer>").removesuffix("</answer>")
    tokens = made.usage.tokens
    return float(is_right(question.answer, answer)), made.usage.seconds, float(tokens.output + tokens.reasoning)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", nargs="?", type=Path, help="a table of outcomes of your own")
    parser.add_argument("--reasoning-apart", nargs="*", default=(), help="models whose output leaves it out")
    parser.add_argument("--tasks", type=int, default=200)
    args = parser.parse_args()
    made: dict[str, Mapping[str, float]] = {}
    if args.recording:
        rows = read("table", args.recording, reasoning_apart=args.reasoning_apart)
        made["recorded"] = facts(rows)
        if set(NINE) <= set(rows.models):
            made["recorded, nine models"] = facts(rows.only(NINE))
    for world in ("2026-11", "2025-11"):
        made[f"world {world}"] = facts(of_world(world, args.tasks))
    print(f"| fact | {' | '.join(made)} |")
    print(f"| --- | {' | '.join('---' for _ in made)} |")
    for name in next(iter(made.values())) if args.recording else made["world 2026-11"]:
        told = (f"{of[name]:.3f}" if name in of else "" for of in made.values())
        print(f"| {name} | {' | '.join(told)} |")


if __name__ == "__main__":
    main()
