"""Trials: which ones there are to play, what playing one comes to, and how those of a contest are played side by side
under a spend cap, so that the cap buys results and not halves of them."""

from __future__ import annotations

import asyncio
import hashlib
import random
from bisect import insort
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from toolorchestra.agents.evaluation.rows import EvaluationRow, RowKey, Status, bill_of, grouped
from toolorchestra.agents.policies.base import unreal
from toolorchestra.envs.base.cassette import PAYER
from toolorchestra.envs.base.errors import ConfigError, Outage, WrongSetting, one_line
from toolorchestra.envs.base.types import Outcome
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.factory import EpisodeFactory, Started
from toolorchestra.envs.models.wire import tells_no_credit
from toolorchestra.envs.money.journal import JOURNAL
from toolorchestra.envs.money.prices import NANO, Usage
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.runtime.invoke import Gates, advance, begin
from toolorchestra.envs.wrappers.record import strict_json, trajectory

if TYPE_CHECKING:
    from toolorchestra.agents.evaluation.runs import Contest, EvaluationRun


FAILURE_CHARACTERS = 500
_GROUPS = ("subject", "level", "hops", "domain", "difficulty")
_OPENING = ("task", "preference", "budget", "price_sheet")
"""What the trajectory keeps of what an episode's start told."""
_CAP_REFUSED = ("the spend cap was used up", "nothing was sent")
"""What a failure says where the spend cap is its cause."""
UNKNOWN = "grade: expected an outcome from 0 to 1, got {!r:.40}: nobody knows what is right"
"""What a failure says where that is its cause."""
_TRIES = 20
"""Draws for each new task, where most have been drawn already."""


Policy = Callable[[Episode], Awaitable[tuple[str, Usage | None]]]


@dataclass(frozen=True)
class Trial:
    """One task that one policy is to play once."""

    env: str
    split: str
    policy: str
    task: str
    number: int
    seed: int

    @property
    def key(self) -> RowKey:
        """Key as its row has it."""
        return (self.env, self.split, self.policy, self.task, self.number)


class PlayedTrial(NamedTuple):
    """What a trial came to."""

    row: EvaluationRow
    trajectory: dict[str, Any]
    wrong: ConfigError | None = None
    """What is wrong with the run's settings, where that made it fail: the other trials would fail by it too."""


def tasks_of(made: EpisodeFactory, tasks: int, seed: int) -> list[tuple[str, int]]:
    """Draw so many different tasks of the environment's split, each with the seed of its trials. Of a source that can
    list its tasks they are a sample that the seed draws, each subject or domain in proportion, and so is whatever
    comes first of it; of any other they are drawn one by one, by seeds that count on from `seed`."""
    source: Any = made.source
    split = made.settings.split
    try:
        listed = list(source.ids(split)) if hasattr(source, "ids") else None
    except (ConfigError, TypeError):  # they are generated without end, or listed by domain alone
        listed = None
    if listed is not None:
        return [(task, seed + number) for number, task in enumerate(mixed(source, listed, seed)[:tasks])]
    found: dict[str, int] = {}
    for number in range(tasks * _TRIES):
        if len(found) == tasks:
            break
        found.setdefault(source.draw(split, random.Random(seed + number)), seed + number)
    return list(found.items())


def mixed(source: Any, listed: Sequence[str], seed: int) -> list[str]:
    """Tasks in an order in which those of a subject, or of the domain that their ids begin with, are shuffled and
    spread evenly from a random place on."""

    def stratum(task: str) -> str:
        return str(source.question(task).subject) if hasattr(source, "question") else task.partition("/")[0]

    rng = random.Random(seed)
    placed: list[tuple[float, str]] = []
    for some in grouped(listed, stratum).values():
        begin = rng.random()
        placed += [((place + begin) / len(some), task) for place, task in enumerate(rng.sample(some, len(some)))]
    return [task for _, task in sorted(placed)]


def trials_of(env: str, made: EpisodeFactory, policy: str, tasks: int, seed: int, trials: int) -> list[Trial]:
    """Every trial of a policy on an environment's split: all tasks once, then all of them again, each time with other
    draws. Preference, prices and tools of a task are those of its first trial."""
    found, split = tasks_of(made, tasks, seed), made.settings.split
    return [Trial(env, split, policy, task, number, first) for number in range(trials) for task, first in found]


async def play(
    trial: Trial, made: EpisodeFactory, policy: Policy, gates: Gates, watch: Callable[[Episode], None] | None = None
) -> PlayedTrial:
    """Play a trial to its end. `watch` is told of its episode when that begins. Whatever breaks down, this trial alone
    fails; a wrong setting is told beside it, for it would fail all."""
    try:
        started = made.start(trial.seed, {"task_id": trial.task, "luck": trial.number})
    except Exception as err:  # noqa: BLE001 - a task that cannot be opened is one failed trial
        row = EvaluationRow(*trial.key, trial.seed, "failed", None, failure=_told("opening", err))
        nothing = {"key": list(trial.key), "task_id": trial.task, "seed": trial.seed, "messages": [], "charges": [],
                   "rewards": [], "outcome": None, "totals": {}}  # fmt: skip
        return PlayedTrial(row, nothing, err if isinstance(err, ConfigError) else None)
    if watch is not None:
        watch(started.episode)
    return await _played(trial, started, policy, gates)


async def _played(trial: Trial, started: Started, policy: Policy, gates: Gates) -> PlayedTrial:
    episode = started.episode
    turns: list[int] = []
    rewards: list[float] = []
    failure, wrong = "", None
    last: Step | None = None
    where = "opening"
    try:
        await begin(episode, gates)
        while not episode.over:
            where = "policy"
            text, usage = await policy(episode)
            if not isinstance(text, str):
                raise TypeError(f"a move is a text, got {type(text).__name__}")
            where = "step"
            last = await advance(episode, text, gates, usage)
            rewards.append(last.reward)
            turns += [episode.turn] * (len(episode.ledger) - len(turns))
    except Exception as err:  # noqa: BLE001 - the other trials go on
        failure, wrong = _told(where, err), err if isinstance(err, ConfigError) else None
        episode.settle_policy()
    turns += [episode.turn] * (len(episode.ledger) - len(turns))
    if episode.failure:
        failure = one_line(f"{episode.failure.where}: {episode.failure.error}")[:FAILURE_CHARACTERS]
        wrong = wrong or (WrongSetting(episode.failure.setting) if episode.failure.setting else None)
    elif episode.outcome and not failure and value_of(episode.outcome) is None:
        failure = UNKNOWN.format(episode.outcome.value)
    info = last.info if last is not None else {}
    row = _row(trial, started, info, failure)
    terminated = last is not None and last.terminated
    told = {name: started.info[name] for name in _OPENING if name in started.info}
    shown = {"key": list(trial.key), "reset_seed": trial.seed, **told}
    return PlayedTrial(row, trajectory(episode, shown, turns, rewards, info, terminated=terminated), wrong)


def value_of(outcome: Outcome) -> float | None:
    """An outcome's value as a row has it; None where it is no number from 0 to 1, as where nobody knows what is
    right."""
    with suppress(TypeError, ValueError):
        value = float(outcome.value)
        return value if 0 <= value <= 1 else None
    return None


def _told(where: str, err: Exception) -> str:
    return one_line(f"{where}: {type(err).__name__}: {err}")[:FAILURE_CHARACTERS]


def _row(trial: Trial, started: Started, info: Mapping[str, Any], failure: str) -> EvaluationRow:
    episode = started.episode
    status = _status(episode, info, failure)
    outcome = episode.outcome if status == "ended" else None
    evidence: dict[str, Any] = strict_json(outcome.evidence) if outcome else {}
    told = {**evidence, **started.info["task"]}
    user = episode.preference
    preference = {"kind": user.kind, "weights": user.weights(), "sentence": user.sentence} if user.sentence else {}
    return EvaluationRow(
        *trial.key[:4],
        trial.number,
        trial.seed,
        status,
        value_of(outcome) if outcome else None,
        evidence,
        failure,
        info.get("truncated_by", ""),
        episode.turn,
        episode.ledger.elapsed_ns,
        **bill_of([*episode.ledger]),
        calls=dict(episode.calls),
        models={offer.alias: offer.model for tool in episode.world.toolbox for offer in tool.offers},
        replies={model: [*count] for model, count in sorted(episode.context.bill.replies.items())},
        groups={name: str(told[name]) for name in _GROUPS if name in told},
        preference=preference,
        over_budget_usd=info.get("over_budget_usd", 0.0),
        sheet=episode.sheet.sheet_id,
        digest=_digest_of(episode),
    )


def _status(episode: Episode, info: Mapping[str, Any], failure: str) -> Status:
    cap = episode.rules.spend_cap
    broken = failure or not episode.over or episode.outcome is None
    refused = any(words in failure for words in _CAP_REFUSED)
    cut = info.get("truncated_by") == "spend_cap" or bool(broken and cap is not None and cap.used_up and refused)
    return "cut" if cut else "failed" if broken else "ended"


def _digest_of(episode: Episode) -> str:
    """Digest of the transcript, every charge and the outcome: equal where two episodes are."""
    parts = [str([dict(m) for m in episode.messages]), str(list(episode.ledger)), str(episode.ledger.elapsed_ns)]
    outcome = episode.outcome
    parts.append(str(outcome and (outcome.value, dict(outcome.evidence))))
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()


# -- when another trial may begin under a spend cap --------------------------------------------------------------------


FIRST_AT_ONCE = 4
"""Trials side by side while none has ended, so while nobody knows what one costs. Each that fails lets one more begin:
else a run whose first trials all fail would go on at this pace to its end."""
_QUANTILE = 0.9


class Spending:
    """Lets a trial begin when what is left of the cap pays for it, beside what those that run may still cost.

    What a trial costs is estimated by those that have ended: nine of ten cost at most so much. `known` are the costs of
    those that ended before, in nano-dollars. Without a cap every trial may begin. Requests in flight are held to the
    cap by the cap itself.
    """

    def __init__(self, cap: SpendCap | None, known: Iterable[int] = ()) -> None:
        self._cap = cap
        self._costs = sorted(known)
        self._failed = 0
        self.running: dict[Hashable, Episode | None] = {}
        """The trials that run, each with its episode once that has begun: its bill is looked at meanwhile."""
        self._changed = asyncio.Event()

    async def begin(self, trial: Hashable) -> bool:
        """Wait until the trial may begin; False: the cap pays for none any more."""
        while self._cap is not None and not (allowed := self._allowed(self._cap)):
            if allowed is False:
                return False
            self._changed.clear()
            await self._changed.wait()
        self.running[trial] = None
        return True

    def ended(self, trial: Hashable, nano_usd: int | None) -> None:
        """The trial is over; None: it failed or was broken off, and says nothing of what one costs."""
        self.running.pop(trial, None)
        if nano_usd is None:
            self._failed += 1
        else:
            insort(self._costs, nano_usd)
        self._changed.set()

    def _allowed(self, cap: SpendCap) -> bool | None:
        """Whether another may begin now; None: not while these run."""
        if cap.used_up:
            return False
        if not self._costs:  # nobody knows what one may cost
            return True if len(self.running) < FIRST_AT_ONCE + self._failed else None
        each = self._costs[min(len(self._costs) - 1, int(_QUANTILE * len(self._costs)))]
        spent = [episode.ledger.nano_usd if episode is not None else 0 for episode in self.running.values()]
        left = round((cap.usd - cap.spent_usd) * NANO) - sum(max(0, each - own) for own in spent)
        if left >= each:
            return True
        return None if self.running else False


# -- the trials of one contest, side by side ---------------------------------------------------------------------------


class ContestPlay:
    """What a contest of a run still lacks, while it is played."""

    def __init__(
        self, run: EvaluationRun, contest: Contest, at_once: int, watch: Callable[[EvaluationRow], None] | None = None
    ) -> None:
        self._run, self._contest, self._watch = run, contest, watch
        self._gates, self._places = Gates(), asyncio.Semaphore(at_once)
        self._cap, self._real = contest.made.rules.spend_cap, not unreal(contest.made)
        ended = [row.nano_usd for row in run.rows.values() if row.cell == contest.cell and row.status == "ended"]
        self._spending = Spending(self._cap, ended)
        self._again = run.billed_again() if run.cached else {}
        """What trials have cost that a cache bills anew."""
        self._wrong: Exception | None = None
        """Why no trial is begun any more: a wrong setting, no credit, or too many failures."""

    async def play(self) -> None:
        """Play to the end. Raises ConfigError where a setting is wrong, and Outage where the credit is gone or too many
        trials have failed, when all that had begun has ended."""
        wanted = [trial for trial in self._contest.trials if trial.key not in self._run.rows]
        playing = [asyncio.create_task(self._one(trial)) for trial in wanted]
        try:
            await asyncio.gather(*playing)
        finally:
            for task in playing:
                task.cancel()
            await asyncio.gather(*playing, return_exceptions=True)
            backing = getattr(self._contest.made.source, "backing", None)
            if backing is not None:
                await backing.aclose()
        if self._wrong is not None:
            raise self._wrong

    async def _one(self, trial: Trial) -> None:
        async with self._places:
            await asyncio.sleep(0)  # where nothing waits for a backend, this is where an interrupt is seen
            if self._wrong is not None or not await self._spending.begin(trial):
                return
            if self._wrong is not None:  # found while it waited
                self._spending.ended(trial, None)
                return
            done = await self._played(trial)
            self._run.add(done.row, done.trajectory)
            self._wrong = self._wrong or self._told_by(done)
            if self._watch is not None:
                self._watch(done.row)

    def _told_by(self, done: PlayedTrial) -> Exception | None:
        """What a trial tells of those to come: that they would fail too."""
        row = done.row
        if done.wrong is not None:
            return done.wrong
        if tells_no_credit(row.failure):
            return Outage(row.failure)
        if self._real and (silent := self._run.silent(row.replies)):
            return WrongSetting(silent)
        return Outage(told) if (told := self._run.too_many_failures()) else None

    async def _played(self, trial: Trial) -> PlayedTrial:
        PAYER.set(self._run.payer(trial.key))
        JOURNAL.set(self._run.journal)
        if self._cap is not None and trial.key in self._again:
            self._cap.add(-self._again[trial.key])
        cost = None
        try:
            move, running = self._contest.player.move, self._spending.running
            done = await play(trial, self._contest.made, move, self._gates, partial(running.__setitem__, trial))
            cost = done.row.nano_usd if done.row.status == "ended" else None
        except BaseException:
            self._run.interrupted(trial, self._spending.running.get(trial))
            raise
        finally:
            self._spending.ended(trial, cost)
        return done
