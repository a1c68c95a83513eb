"""How far a domain is from others: in the words of its tasks, and in the shapes of its tools and gold paths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.domain import SqlDomain, SqlTool
from toolorchestra.synth.proof import similarity


class Prints(NamedTuple):
    """What a domain is compared by."""

    words: frozenset[str]
    """Runs of three words of all that its users say, without names and numbers."""
    tools: frozenset[str]
    """Tools by what they take and do: kind, parameters' types, statements."""
    paths: frozenset[str]
    """Gold paths as reads and writes."""


class Distance(NamedTuple):
    """From one other domain: 0 is the same, 1 has nothing in common."""

    other: str
    words: float
    tools: float
    paths: float


class Diversity(NamedTuple):
    """A domain by itself, and beside the others."""

    distinct_runs: float
    """Different runs of three words over all runs of three words in its tasks."""
    tasks_a_path: float
    """Tasks that share their tools in order with others: tasks over different sequences."""
    distances: tuple[Distance, ...]
    """Nearest in words first."""


def prints(domain: SqlDomain) -> Prints:
    """What a domain is compared by, collected from its tasks and tools."""
    words: set[str] = set()
    for task in domain.tasks.values():
        words |= similarity.shingles(similarity.words(task.shape))
    paths = {
        "".join(domain.tools[action.name].kind[0] for action in task.actions[task.identify :])
        for task in domain.tasks.values()
    }
    return Prints(frozenset(words), frozenset(map(_shape, domain.tools.values())), frozenset(paths))


def _shape(tool: SqlTool) -> str:
    types = ",".join(sorted(str(part["type"]) for part in tool.parameters["properties"].values()))
    return f"{tool.kind}({types}){''.join(step.verb[0] for step in tool.steps)}{'*' if tool.many else ''}"


@lru_cache(maxsize=32)
def _shipped(name: str) -> Prints:
    return prints(loader.load(name))


def compare(domain: SqlDomain, others: Sequence[str] | None = None) -> Diversity:
    """A domain beside the shipped ones, or those that are named."""
    own = prints(domain)
    names = [name for name in (loader.names() if others is None else others) if name != domain.name]
    distances = []
    for name in names:
        try:
            other = _shipped(name)
        except ConfigError:
            continue  # a shipped folder that cannot be read is no matter of this domain's
        distances.append(Distance(name, *(_distance(a, b) for a, b in zip(own, other, strict=True))))
    runs = [run for task in domain.tasks.values() for run in similarity.shingles(similarity.words(task.shape))]
    sequences = {tuple(action.name for action in task.actions) for task in domain.tasks.values()}
    return Diversity(
        len(set(runs)) / max(1, len(runs)),
        len(domain.tasks) / max(1, len(sequences)),
        tuple(sorted(distances, key=lambda distance: distance.words)),
    )


def _distance(a: frozenset[str], b: frozenset[str]) -> float:
    return 1 - len(a & b) / max(1, len(a | b))
