"""Episodes for tests: many at once on one loop or one after the other, each with its bill, and a digest to compare."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolorchestra.agents.policies.base import Move
from toolorchestra.agents.policies.baselines import Baseline, RandomPolicy, baseline
from toolorchestra.agents.policies.chat_player import ChatPolicy
from toolorchestra.envs.base.errors import ConfigError, Outage, ToolError, no_such
from toolorchestra.envs.env import run_calls
from toolorchestra.envs.episode.episode import Episode, Pending, Step
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.prices import Charge
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.runtime.invoke import Gates, advance, begin

NAMES = ("random", "cheap", "expensive", "chat")


Policy = Callable[[Episode], Awaitable[Move]]


def _plain(baseline: Baseline) -> Policy:
    async def policy(episode: Episode) -> Move:
        return Move(baseline(episode), None)

    return policy


def policy(name: str, factory: EpisodeFactory, seed: int = 0) -> Policy:
    """A policy by its name. `chat` asks the environment's orchestrator model through the source's own backends."""
    if name == "chat":
        backing = getattr(factory.source, "backing", None)
        if backing is None or backing.wanted.endpoints is None:
            raise ConfigError("policy 'chat' asks a model: name its endpoint: --backends FILE")
        behind = getattr(factory.source, "behind", None)  # of question sources, with what was put around it
        return ChatPolicy(behind.models if behind else backing.models, factory.settings.orchestrator)
    made: Mapping[str, Callable[[], Baseline]] = {
        "random": lambda: RandomPolicy(seed),
        "cheap": lambda: baseline("cheap"),
        "expensive": lambda: baseline("expensive"),
    }
    if name not in made:
        raise ConfigError(no_such("live policy", name, NAMES))
    return _plain(made[name]())


@dataclass(frozen=True)
class PlayedEpisode:
    """One episode, and what tells it from any other."""

    record: Record
    nano_usd: int
    elapsed_ns: int
    failure: str
    digest: str
    """Of the transcript, every charge and the outcome."""
    charges: tuple[Charge, ...] = ()

    @property
    def nano_usd_by_role(self) -> Mapping[str, int]:
        """What each role cost."""
        by_role: Counter[str] = Counter()
        for charge in self.charges:
            by_role[charge.role] += charge.nano_usd
        return by_role


async def play(
    factory: EpisodeFactory, policy: Policy, seed: int, gates: Gates, options: Mapping[str, object] | None = None
) -> PlayedEpisode:
    """One episode to its end. A policy that cannot be asked ends it as failed; the others go on."""
    episode = factory.start(seed, options).episode
    await begin(episode, gates)
    last, failure = None, ""
    while not episode.over:
        try:
            move = await policy(episode)
        except (Outage, ToolError) as err:
            failure = f"policy: {err}"
            episode.settle_policy()
            break
        last = await advance(episode, move.text, gates, move.usage)
    if episode.failure:
        failure = f"{episode.failure.where}: {episode.failure.error}"
    made = record(episode, last if episode.over else None)
    return PlayedEpisode(
        made, episode.ledger.nano_usd, episode.ledger.elapsed_ns, failure, _digest(episode), (*episode.ledger,)
    )


def _digest(episode: Episode) -> str:
    parts = [str([dict(m) for m in episode.messages]), str(list(episode.ledger)), str(episode.ledger.elapsed_ns)]
    outcome = episode.outcome
    parts.append(str(outcome and (outcome.value, dict(outcome.evidence))))
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()


async def evaluate(
    factory: EpisodeFactory,
    policy: Policy,
    seed: int,
    tasks: Sequence[str] | int,
    at_once: int = 64,
    done: dict[int, PlayedEpisode] | None = None,
) -> list[PlayedEpisode]:
    """Named tasks, or a number of drawn ones, `at_once` side by side; in the order of the tasks. None is begun once the
    spend cap is used up. `done` is filled by the tasks' numbers as they end, for who may be interrupted."""
    gates, places = Gates(), asyncio.Semaphore(at_once)
    done = {} if done is None else done

    async def one(number: int, options: Mapping[str, object] | None) -> None:
        async with places:
            await asyncio.sleep(0)  # where nothing waits for a backend, this is where an interrupt is seen
            if not used_up(factory.rules.spend_cap):
                done[number] = await play(factory, policy, seed + number, gates, options)

    named = [None] * tasks if isinstance(tasks, int) else [{"task_id": task} for task in tasks]
    try:
        await asyncio.gather(*(one(number, options) for number, options in enumerate(named)))
        return in_order(done)
    finally:
        backing = getattr(factory.source, "backing", None)
        if backing is not None:
            await backing.aclose()


def in_order(done: Mapping[int, PlayedEpisode]) -> list[PlayedEpisode]:
    """Episodes by the tasks' numbers, in that order."""
    return [done[number] for number in sorted(done)]


def whole_digest(played: Sequence[PlayedEpisode]) -> str:
    """One digest of a run: equal when every transcript, charge and outcome is."""
    return hashlib.blake2b("".join(p.digest for p in played).encode(), digest_size=8).hexdigest()


# -- one after the other, without waiting ------------------------------------------------------------------------------


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


def _ended(factory: EpisodeFactory, policy: Baseline, seed: int) -> tuple[Episode, Step | None]:
    """An episode, played to its end, and its last step."""
    episode = factory.start(seed).episode
    moved: Pending | Step | None = None
    while not episode.over:
        moved = episode.act(policy(episode))
        while isinstance(moved, Pending):
            moved = episode.resolve(run_calls(moved.calls))
    return episode, moved if isinstance(moved, Step) else None


def play_alone(factory: EpisodeFactory, policy: Baseline, seed: int) -> Record:
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
        yield play_alone(factory, policy, seed + number)


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
