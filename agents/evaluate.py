"""Plays policies over many tasks and says what came of it: accuracy, cents, seconds, calls by tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolorchestra.agents.baselines import Baseline
from toolorchestra.envs.env import run_calls
from toolorchestra.envs.episode import Episode, Pending, Step
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.prices import NANO, REWARDED_ROLES
from toolorchestra.envs.worlds.sqldomain import SqlWorld


@dataclass(frozen=True)
class Record:
    """One episode, played."""

    task_id: str
    right: float
    usd: float
    seconds: float
    turns: int
    calls: dict[str, int]
    failed: bool


@dataclass(frozen=True)
class Summary:
    """Many episodes of one policy. Failed ones are counted and left out of every mean."""

    policy: str
    episodes: int
    failed: int
    accuracy: float
    cents: float
    seconds: float
    turns: float
    cents_per_solved: float
    calls: dict[str, float]


def played(factory: EpisodeFactory, policy: Baseline, seed: int) -> Episode:
    """An episode, played to its end."""
    episode = factory.start(seed).episode
    while not episode.over:
        moved: Pending | Step = episode.act(policy(episode))
        while isinstance(moved, Pending):
            moved = episode.resolve(run_calls(moved.calls))
    return episode


def play(factory: EpisodeFactory, policy: Baseline, seed: int) -> Record:
    """One episode, and what it came to."""
    return record(played(factory, policy, seed))


def record(episode: Episode) -> Record:
    """What an ended episode came to."""
    value = episode.outcome.value if episode.outcome else 0.0
    ledger = episode.ledger
    return Record(
        episode.task_id,
        value,
        ledger.usd,
        ledger.seconds,
        episode.turn,
        dict(episode.calls),
        episode.failure is not None,
    )


def regret_usd(episode: Episode) -> float | None:
    """Dollars that an ended episode spent beyond the cheapest known solution of its task, in the rewarded roles, both
    under the episode's prices, tools and preference; None where none is known. Below 0: the episode was cheaper."""
    world = episode.world
    known = world.known if isinstance(world, SqlWorld) else None
    if known is None:
        return None
    added = len(episode.messages[0]["content"]) - len(world.system)
    shown = world.toolbox.schema_characters + added
    least = known.billed(episode.sheet, shown, episode.rules.orchestrator)
    return (episode.ledger.nano_usd_of(REWARDED_ROLES) - least) / NANO


def summarise(policy: str, records: Sequence[Record]) -> Summary:
    """The means."""
    kept = [r for r in records if not r.failed]
    n = len(kept) or 1
    calls: Counter[str] = Counter()
    for r in kept:
        calls.update(r.calls)
    solved = sum(r.right for r in kept)
    usd = sum(r.usd for r in kept)
    return Summary(
        policy=policy,
        episodes=len(records),
        failed=len(records) - len(kept),
        accuracy=solved / n,
        cents=100 * usd / n,
        seconds=sum(r.seconds for r in kept) / n,
        turns=sum(r.turns for r in kept) / n,
        cents_per_solved=100 * usd / solved if solved else float("inf"),
        calls={key: count / n for key, count in sorted(calls.items())},
    )


def compare(
    factory: EpisodeFactory, policies: dict[str, Callable[[], Baseline]], tasks: int, seed: int
) -> list[Summary]:
    """Every policy on the same tasks, preferences and prices."""
    return [
        summarise(name, [play(factory, policy, seed + k) for k in range(tasks)])
        for name, policy in ((name, make()) for name, make in policies.items())
    ]


def table(summaries: Sequence[Summary]) -> str:
    """The comparison as text, with the calls by tool below."""
    head = f"{'policy':12} {'accuracy':>8} {'¢/task':>9} {'¢/solved':>9} {'s/task':>8} {'turns':>6} {'failed':>6}"
    rows = [
        f"{s.policy:12} {s.accuracy:8.1%} {s.cents:9.4f} {s.cents_per_solved:9.4f} "
        f"{s.seconds:8.1f} {s.turns:6.2f} {s.failed:6d}"
        for s in summaries
    ]
    calls = [f"  {s.policy}: " + ", ".join(f"{k} {v:.2f}" for k, v in s.calls.items()) for s in summaries]
    return "\n".join([head, *rows, "calls per task", *calls])
