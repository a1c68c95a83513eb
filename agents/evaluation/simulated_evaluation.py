"""Plays policies over many tasks and says what came of it: accuracy, cents, seconds, calls by tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolorchestra.agents.policies.baselines import Baseline
from toolorchestra.envs.domains.toolscale.world import SqlWorld
from toolorchestra.envs.env import run_calls
from toolorchestra.envs.episode.episode import Episode, Pending, Step
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import NANO, REWARDED_ROLES
from toolorchestra.envs.money.spend_cap import SpendCap


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
    """By a bug, an outage or the run's spend cap: what it came to says nothing of the policy."""
    cut: bool = False
    """By the run's spend cap."""


@dataclass(frozen=True)
class Summary:
    """Many episodes of one policy. Failed and unplayed ones are counted and left out of every mean."""

    policy: str
    episodes: int
    failed: int
    accuracy: float
    cents: float
    seconds: float
    turns: float
    cents_per_solved: float
    calls: dict[str, float]
    unplayed: int = 0
    """Of the episodes, those that the run's spend cap cut short or kept from being started."""


def played(factory: EpisodeFactory, policy: Baseline, seed: int) -> Episode:
    """An episode, played to its end."""
    return _ended(factory, policy, seed)[0]


def _ended(factory: EpisodeFactory, policy: Baseline, seed: int) -> tuple[Episode, Step | None]:
    """An episode, played to its end, and its last step."""
    episode = factory.start(seed).episode
    moved: Pending | Step | None = None
    while not episode.over:
        moved = episode.act(policy(episode))
        while isinstance(moved, Pending):
            moved = episode.resolve(run_calls(moved.calls))
    return episode, moved if isinstance(moved, Step) else None


def play(factory: EpisodeFactory, policy: Baseline, seed: int) -> Record:
    """One episode, and what it came to."""
    return record(*_ended(factory, policy, seed))


def used_up(cap: SpendCap | None) -> bool:
    """Whether nothing more may be spent."""
    return cap is not None and cap.used_up


def record(episode: Episode, last: Step | None) -> Record:
    """What an ended episode came to, by its last step; None: it was broken off, as its policy could not be asked."""
    ended_by = last.info["truncated_by"] if last is not None else "failed"
    cut = ended_by in ("failed", "spend_cap") and used_up(episode.rules.spend_cap)
    value = episode.outcome.value if episode.outcome else 0.0
    ledger = episode.ledger
    return Record(
        episode.task_id,
        value,
        ledger.usd,
        ledger.seconds,
        episode.turn,
        dict(episode.calls),
        cut or ended_by == "failed",
        cut,
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


def summarise(policy: str, records: Sequence[Record], unstarted: int = 0) -> Summary:
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
        episodes=len(records) + unstarted,
        failed=sum(r.failed and not r.cut for r in records),
        accuracy=solved / n,
        cents=100 * usd / n,
        seconds=sum(r.seconds for r in kept) / n,
        turns=sum(r.turns for r in kept) / n,
        cents_per_solved=100 * usd / solved if solved else float("inf"),
        calls={key: count / n for key, count in sorted(calls.items())},
        unplayed=unstarted + sum(r.cut for r in records),
    )


def plays(factory: EpisodeFactory, policy: Baseline, tasks: int, seed: int) -> Iterator[Record]:
    """One record after the other; none is begun once the spend cap is used up."""
    for number in range(tasks):
        if used_up(factory.rules.spend_cap):
            return
        yield play(factory, policy, seed + number)


def table(summaries: Sequence[Summary]) -> str:
    """The comparison as text, with the calls by tool below, and what was not played where the spend cap was used up."""
    head = f"{'policy':12} {'accuracy':>8} {'¢/task':>9} {'¢/solved':>9} {'s/task':>8} {'turns':>6} {'failed':>6}"
    calls = [f"  {s.policy}: " + ", ".join(f"{k} {v:.2f}" for k, v in s.calls.items()) for s in summaries]
    lines = [head, *map(_row, summaries), "calls per task", *calls]
    if unplayed := [f"{s.policy} {s.unplayed} of {s.episodes}" for s in summaries if s.unplayed]:
        lines.append(f"the spend cap is used up; not played: {', '.join(unplayed)}")
    return "\n".join(lines)


def _row(s: Summary) -> str:
    if s.episodes == s.failed + s.unplayed:
        return f"{s.policy:12} {'-':>8} {'-':>9} {'-':>9} {'-':>8} {'-':>6} {s.failed:6d}"
    return (
        f"{s.policy:12} {s.accuracy:8.1%} {s.cents:9.4f} {s.cents_per_solved:9.4f} "
        f"{s.seconds:8.1f} {s.turns:6.2f} {s.failed:6d}"
    )
