"""Rollouts: many episodes on one asyncio loop, each going on when its own turn is sampled and its calls are done.

Chat keeps an episode as tokens: what was sampled stays as it was sampled, and only new messages are tokenised.
"""

from __future__ import annotations

import asyncio
import copy
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from toolorchestra.agents.engines.base import Sample, Samples, SamplingParams
from toolorchestra.agents.policies.expected import expected_bill, expected_chance
from toolorchestra.agents.rollouts.chat_template import ChatTemplate
from toolorchestra.agents.rollouts.grpo import Expected, Measure, TokenSequence, Trajectory
from toolorchestra.agents.rollouts.template_form import new_behind
from toolorchestra.agents.rollouts.time_split import TimeSplit
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ActionError, ConfigError, Outage, SpendCapReached
from toolorchestra.envs.base.preference import Preference
from toolorchestra.envs.base.types import Observation, Rows
from toolorchestra.envs.domains.questions.world import QaWorld
from toolorchestra.envs.episode.calls import Failure, failure
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.factory import EpisodeFactory, Started, factory
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR, REWARDED_ROLES, Tokens, Usage
from toolorchestra.envs.registration import spec_of
from toolorchestra.envs.runtime.background import COLLECTOR
from toolorchestra.envs.runtime.invoke import Gates, advance, begin
from toolorchestra.envs.wrappers.record import trajectory

ENTRY = "toolorchestra.envs.env:OrchestraEnv"
OUT_OF_CONTEXT = "context"
"""What an episode is truncated by that ran out of context: of the rollout's, or of its environment's own limit."""
OUTAGE = "outage"
"""What one is truncated by whose sampler was away or broke off."""
SHOWN = ("task", "preference", "budget", "price_sheet")
"""What a record keeps of an episode's first info."""
DEADLINE_SECONDS = 3_600.0
"""The seconds that one episode may take in training."""
MOST_TURNS = 1024
"""Number of turns that are kept, with their results, as the template writes them: those of a group are often alike."""


def factory_of(env_id: str, **arguments: Any) -> EpisodeFactory:
    """The episode factory behind a registered id: this project's, or anybody's that is made of a task source."""
    spec = spec_of(env_id)
    if spec.entry_point != ENTRY:
        raise ConfigError(
            f"{spec.id} is not an environment over a task source, so its episodes cannot run side by side; "
            f'register it with toolorchestra.envs.registration.register("{spec.id}", "your.module:YourSource")'
        )
    return factory(**{**spec.kwargs, **arguments})


class Chat(ChatTemplate):
    """How a transcript grows under a tokenizer's chat template, as tokens."""

    def __init__(self, tokenizer: Any, template_arguments: Mapping[str, Any] | None = None) -> None:
        super().__init__(tokenizer, template_arguments)
        self._turns: dict[tuple[tuple[str, str, str | None], ...], str] = {}

    def copy(self) -> Chat:
        """A chat like this with a tokenizer of its own, for another thread: tokenizers are not for two threads at a
        time."""
        return Chat(copy.deepcopy(self.tokenizer), self.arguments)

    def follow(self, sequence: TokenSequence | None, observation: Observation) -> tuple[TokenSequence, bool]:
        """The sequence extended by what is new in the observation, in whatever form the template writes what was
        sampled; or a new one where the template (or the history) rewrote the past, which happens when it drops old
        thoughts. True when it is new."""
        messages = observation["messages"]
        seen = 0
        if sequence is not None and self.apart and _begins_with(messages, sequence.shown):
            seen = len(sequence.shown)
        now = self._rendered_apart(messages[seen:], observation["tools"]) if seen else self.render(observation)
        if sequence is not None:
            past = sequence.text[sequence.turn_at if seen else 0 :]
            new = now[len(past) :] if now.startswith(past) else new_behind(past, now)
            if new is not None:
                self._show(sequence, messages, new)
                return sequence, False
        fresh = TokenSequence()
        self._show(fresh, messages, self.render(observation) if seen else now)
        return fresh, True

    def _rendered_apart(self, messages: Sequence[Any], tools: Any) -> str:
        """Messages behind the opening, where each is rendered on its own, by its role and content."""
        # The list makes the tuple faster than a generator would: this runs at every turn.
        key = tuple([(message["role"], message["content"], message.get("name")) for message in messages])
        known = self._turns.get(key)
        if known is None:
            known = self.render({"messages": Rows(messages), "tools": tools})
            if len(self._turns) >= MOST_TURNS:
                self._turns.clear()
            if all(role != "system" for role, _, _ in key):  # with it, tools are shown
                self._turns[key] = known
        return known

    def _show(self, sequence: TokenSequence, messages: Sequence[Mapping[str, Any]], text: str) -> None:
        sequence.force(self.encode(text), text)
        sequence.shown, sequence.turn_at = messages, len(sequence.text) - self.prompt_length

    def take(self, sequence: TokenSequence, sample: Sample) -> str:
        """Append a sampled turn; its text, as the episode should see it."""
        text = self.decode(sample.tokens)
        sequence.take(sample, text)
        return text.removesuffix(self.stop_text) if sample.finished else text


def _begins_with(messages: Sequence[Any], shown: Sequence[Any]) -> bool:
    """Whether these are the messages that were shown, and then others."""
    return len(messages) > len(shown) and all(map(operator.is_, shown, messages))


@dataclass(frozen=True)
class Job:
    """One rollout to make: its environment, its seed, and the options of its reset."""

    env_id: str
    factory: EpisodeFactory
    seed: int
    options: Mapping[str, Any] | None = None
    record: bool = False
    """Whether its trajectory keeps a record of every turn and charge."""
    max_tokens: int = 0
    """The most tokens that the model may sample in one turn; 0: as for all rollouts."""
    max_context: int = 0
    """The most tokens of the episode, prompt included; 0: as for all rollouts."""


def siblings(job: Job, count: int) -> list[Job]:
    """The rollouts of a group: one task under one preference and one price sheet, and each with its own draws. With
    shared draws whoever asks the same expert is given the same answer, and a group would tell how lucky its task is,
    and not what a choice is worth."""
    return [replace(job, options={**(job.options or {}), "luck": number}) if number else job for number in range(count)]


@dataclass(frozen=True)
class RolloutParams:
    """The settings by which rollouts are made."""

    max_tokens: int = 24
    """The most tokens that the model may sample in one turn."""
    max_context: int = 512
    """The most tokens of an episode, prompt and all; one whose next turn might not fit is cut."""
    temperature: float = 1.0
    concurrency: int = 128
    deadline_seconds: float = DEADLINE_SECONDS
    """The seconds that one episode may take; what is not done by then is marked failed."""
    expected_outcome: bool = False
    """Measure how likely an answer of a simulated expert was right, beside whether it was. For training alone."""


class Rollouts:
    """Makes trajectories with an engine."""

    def __init__(self, engine: Samples, chat: Chat, params: RolloutParams, gates: Gates | None = None) -> None:
        self.engine, self.chat, self.params = engine, chat, params
        self._gates = gates or Gates()
        self.split = TimeSplit()
        """Where the seconds go."""

    def with_params(self, params: RolloutParams) -> Rollouts:
        """Rollouts with the same engine, made by other settings."""
        return Rollouts(self.engine, self.chat, params)

    def close(self) -> None:
        """Ends the processes that make rollouts. There are none here; subclasses may have some."""

    def collect(self, jobs: Sequence[Job], watch: Callable[[Trajectory], None] | None = None) -> list[Trajectory]:
        """All of them, in the order of the jobs. `watch` hears of each as it ends."""
        at_once = min(len(jobs), self.params.concurrency)
        COLLECTOR.at_work(at_once)
        try:
            return asyncio.run(self._collect(jobs, watch))
        finally:
            COLLECTOR.at_work(-at_once)

    async def _collect(self, jobs: Sequence[Job], watch: Callable[[Trajectory], None] | None) -> list[Trajectory]:
        self._gates, places = Gates(), asyncio.Semaphore(self.params.concurrency)

        async def one(number: int, job: Job) -> Trajectory:
            async with places:
                made = await self.play(job, f"{number}")
            if watch:
                watch(made)
            return made

        try:
            return await asyncio.gather(*(one(n, job) for n, job in enumerate(jobs)))
        finally:  # the loop ends, and connections with it
            backings: set[Any] = {getattr(job.factory.source, "backing", None) for job in jobs}
            for backing in backings - {None}:
                await backing.aclose()

    async def play(self, job: Job, name: str) -> Trajectory:
        """One of them, on the loop that is running. The name tells its sessions from those of others at the time."""
        try:
            episode = (started := job.factory.start(job.seed, job.options)).episode
        except Exception as err:  # noqa: BLE001 - a task that cannot be opened is one failed rollout
            return _unopened(job, err)
        run = _RolloutState(name, RolloutRecorder(started) if job.record else None)
        try:
            async with self.deadline():
                await self._play(job, episode, run)
        except TimeoutError:
            run.stopped = "deadline"
        except Outage as err:  # the sampler's: what tools raise has become the episode's own failure
            run.stopped, run.failure = OUTAGE, failure("sampler", err)
        finally:
            self.engine.release(run.session)
        episode.settle()
        return _trajectory(job, episode, run, self.params)

    def deadline(self) -> AbstractAsyncContextManager[Any]:
        """The limit within which an episode is played."""
        return asyncio.timeout(self.params.deadline_seconds)

    def turn(self, name: str) -> AbstractAsyncContextManager[int]:
        """The time in which a turn of the rollout of that name is sampled. Gives the step of the weights it is sampled
        with."""
        del name
        return nullcontext(0)

    async def _play(self, job: Job, episode: Episode, run: _RolloutState) -> None:
        params = SamplingParams(job.max_tokens or self.params.max_tokens, self.params.temperature)
        most = job.max_context or self.params.max_context
        await begin(episode, self._gates)
        while not episode.over:
            async with self.turn(run.name) as step_of_weights:
                with self.split.tokenisation:
                    sequence, fresh = self.chat.follow(
                        run.sequences[-1] if run.sequences else None, episode.observation
                    )
                if fresh:
                    self.engine.release(run.session)
                    run.sequences.append(sequence)
                prompt = len(sequence.tokens)
                if prompt + params.max_tokens > most:
                    run.stopped = OUT_OF_CONTEXT
                    return
                with self.split.sampling:
                    sample = await self.engine.sample(sequence.tokens, params, run.session)
                with self.split.tokenisation:
                    text = self.chat.take(sequence, sample)
            run.sampled_with[step_of_weights] += len(sample.tokens)
            run.valid = run.valid and sample.finished and _readable(text)
            tokens = Tokens(prompt, 0, len(sample.tokens))
            usage = Usage(episode.rules.orchestrator, ORCHESTRATOR, tokens)
            with self.split.tools:
                step = await advance(episode, text, self._gates, usage)
            run.stopped = step.info.get("truncated_by", "")
            if run.recorder is not None:
                run.recorder.saw(step)


@dataclass
class _RolloutState:
    """What a rollout remembers beside its episode."""

    name: str
    recorder: RolloutRecorder | None
    sequences: list[TokenSequence] = field(default_factory=list)
    stopped: str = ""
    failure: Failure | None = None
    valid: bool = True
    sampled_with: Counter[int] = field(default_factory=Counter)
    """Tokens by the step of the weights that they were sampled with."""

    @property
    def session(self) -> str:
        return f"{self.name}/{len(self.sequences)}"


@lru_cache(4096)
def _readable(text: str) -> bool:
    """Whether the grammar reads it. Turns of a group are often alike."""
    try:
        parse(text)
    except ActionError:
        return False
    return True


def measured(episode: Episode) -> Measure:
    """What an episode came to."""
    value = episode.outcome.value if episode.outcome else 0.0
    usd = episode.ledger.nano_usd_of(REWARDED_ROLES) / NANO
    seconds, calls, failed = episode.ledger.seconds, dict(episode.calls), episode.failure is not None
    return Measure(value, usd, seconds, calls, failed, terms=dict(episode.terms))


def _expected(episode: Episode) -> Expected | None:
    """What an episode was to be expected to come to, as far as the oracle can know, where one call of a simulated
    expert ended it. With a budget what was drawn counts: what was spent beyond it is in it."""
    if not isinstance(episode.world, QaWorld) or episode.rules.limits.usd is not None:
        return None
    said = next(str(m["content"]) for m in reversed(episode.messages) if m["role"] == "assistant")
    calls = parse(said).calls if _readable(said) else ()
    chance = expected_chance(episode, calls[0]) if len(calls) == 1 else None
    return None if chance is None else Expected(chance, *expected_bill(episode))


def _trajectory(job: Job, episode: Episode, run: _RolloutState, params: RolloutParams) -> Trajectory:
    finished = episode.over and episode.outcome is not None and not run.stopped
    measure = measured(episode)
    broken = episode.failure or run.failure
    made = Trajectory(
        env_id=job.env_id,
        task_id=episode.task_id,
        seed=job.seed,
        sheet=episode.sheet.sheet_id,
        preference=episode.preference,
        keys=episode.world.toolbox.keys,
        sequences=run.sequences,
        measure=replace(
            measure,
            failed=broken is not None or run.stopped == "deadline",
            valid_format=run.valid,
            valid_output=finished,
            context_cut=run.stopped == OUT_OF_CONTEXT,
            expected=_expected(episode) if params.expected_outcome and finished else None,
        ),
        turns=episode.turn,
        truncated_by=run.stopped,
        failure=broken._asdict() if broken else None,
        messages=episode.messages,
        bill=episode.ledger.summary(),
        sampled_with=run.sampled_with,
    )
    return made if run.recorder is None else replace(made, record=run.recorder.line(made))


def opens(job: Job) -> bool:
    """Whether the task of a job can be opened."""
    try:
        job.factory.start(job.seed, job.options)
    except (ConfigError, SpendCapReached):
        raise
    except Exception:  # noqa: BLE001 - whatever it is, play() has told it
        return False
    return True


def _unopened(job: Job, err: Exception) -> Trajectory:
    """A failed rollout of a task that cannot be opened. It looks like its siblings, which cannot be either. What would
    end every rollout alike is raised."""
    if isinstance(err, ConfigError | SpendCapReached):
        raise err
    task_id, sheet = str((job.options or {}).get("task_id")), job.factory.sheet.sheet_id
    failed, told = Measure(0.0, 0.0, 0.0, {}, failed=True), failure("open", err)._asdict()
    return Trajectory(job.env_id, task_id, job.seed, sheet, Preference(), (), [], failed, 0, "failed", told)


class RolloutRecorder:
    """Remembers a rollout turn by turn, in the form of RecordTrajectories, so that it can be read as any trajectory is.
    It draws no random numbers and changes nothing."""

    def __init__(self, started: Started) -> None:
        self._started = started
        self._turns: list[int] = []
        self._rewards: list[float] = []
        self._last: Step | None = None

    def saw(self, step: Step) -> None:
        """Record the step with which a turn has ended."""
        self._last = step
        self._rewards.append(step.reward)
        self._date_charges()

    def line(self, made: Trajectory) -> dict[str, Any]:
        """The rollout as a trajectory. What stopped it outside of its episode counts as training counts it."""
        self._date_charges()
        told = {name: self._started.info[name] for name in SHOWN if name in self._started.info}
        info: Mapping[str, Any] = self._last.info if self._last is not None else {}
        over = self._last is not None and self._last.terminated
        row = trajectory(self._started.episode, told, self._turns, self._rewards, info, terminated=over)
        row["truncated_by"] = row["truncated_by"] or made.truncated_by
        if made.measure.failed:
            ran_out = {"where": "rollout", "error": f"it ran into its {made.truncated_by}"}
            row |= {"outcome": None, "failed": row["failed"] or made.failure or ran_out}
        elif row["outcome"] is None:
            row["outcome"] = {"value": made.measure.outcome, "evidence": {}}
        return row

    def _date_charges(self) -> None:
        episode = self._started.episode
        self._turns += [episode.turn] * (len(episode.ledger) - len(self._turns))
