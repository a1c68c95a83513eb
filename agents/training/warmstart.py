"""The supervised start: of some routes taken at random the one that the group's reward likes best, task by task.

Nobody says who is good at what: the routes know nothing, and the best of a few is often a lucky one. So there is much
left to discover. Reinforcement learning starts only when the result is readable and does better than a policy that
answers at once: starts below that were seen to collapse into it and never to come back.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.engines.base import Datum, Engine, LossParams, Sample
from toolorchestra.agents.evaluation.choice_metrics import failures
from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.rollouts.rewards import GroupReward
from toolorchestra.agents.rollouts.rollout import Job, Rollouts, measured
from toolorchestra.agents.rollouts.tokens import Chat, Sequences
from toolorchestra.agents.training.workers import deaf_children
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.tools import Tool
from toolorchestra.envs.tools.search import NOTHING_MISSING, NOTHING_NEW

MOST_SEARCHES = 4
PATIENT = 0.5
"""Share of the routes that search until nothing new comes."""
PATIENCE = 7
"""Searches that even those stop after."""
FIRST_SEED = 2_000_000_011
CHECKED = 128
"""Rollouts that the gate looks at."""


class RandomRoute:
    """Searches, computes or not, answers; with one model of each tool, picked at random whatever the question. Half of
    the routes search a random number of times, the others until a search brings nothing new."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._picked: dict[str, str] = {}
        self._searches = 0
        self._computes = self._patient = False

    def __call__(self, episode: Episode) -> str:
        rng, tools = self._rng, episode.world.toolbox
        if episode.turn == 0:
            self._patient = rng.random() < PATIENT
            self._searches = PATIENCE if self._patient else rng.randint(0, MOST_SEARCHES)
            self._computes = rng.random() < 0.5
            self._picked = {tool.name: rng.choice(tool.keys) for tool in tools}
        if self._patient and str(episode.messages[-1]["content"]).startswith((NOTHING_NEW, NOTHING_MISSING)):
            self._searches = 0
        used: Tool | None
        if self._searches and (used := tools.of_kind("search")):
            self._searches -= 1
        elif self._computes and (used := tools.of_kind("enhance_reasoning")):
            self._computes = False
        else:
            used = answering(episode)
        return render_call(used.name, {"model": self._picked[used.name]})


def answering(episode: Episode) -> Tool:
    """The paper's `answer`, by whatever name."""
    found = episode.world.toolbox.of_kind("answer")
    if found is None:
        raise ConfigError(f"nothing among {[t.name for t in episode.world.toolbox]} asks an expert for the answer")
    return found


def _has_routes(factory: EpisodeFactory) -> bool:
    """Whether its tasks are ended by the paper's `answer`."""
    return factory.start(FIRST_SEED).episode.world.toolbox.of_kind("answer") is not None


def _check_routes(config: TrainConfig) -> None:
    for mix in config.environments:
        if not _has_routes(training(mix)):
            raise ConfigError(
                f"the warm start tries random routes through the paper's tools, which {mix.env_id} does not have: name "
                "recorded runs with warm_start.trajectories=FILE, or start cold with warm_start.steps=0, which takes a "
                "model that speaks the grammar"
            )


def answer_at_once(rng: random.Random) -> Callable[[Episode], str]:
    """The do-nothing policy that a start has to beat."""

    def at_once(episode: Episode) -> str:
        tool = answering(episode)
        return render_call(tool.name, {"model": rng.choice(tool.keys)})

    return at_once


def demonstrate(chat: Chat, factory: EpisodeFactory, policy: Callable[[Episode], str], seed: int) -> tuple[Datum, bool]:
    """One episode of a scripted policy as training data, and whether it solved its task."""
    sequence: Sequences | None = None

    def watched(episode: Episode) -> str:
        nonlocal sequence
        sequence, _ = chat.follow(sequence, episode.observation)
        text = policy(episode)
        ids = [*chat.encode(text), chat.stop]
        chat.take(sequence, Sample(ids, [0.0] * len(ids), True))
        return text

    episode = played(factory, watched, seed)
    if sequence is None:
        raise ConfigError(f"{episode.task_id} was over before its first turn")
    return _learned(sequence), bool(episode.outcome and episode.outcome.value >= 1.0)


def _learned(sequence: Sequences) -> Datum:
    return Datum(sequence.tokens, sequence.logprobs, [float(s) for s in sequence.sampled])


class BestRoute(NamedTuple):
    """The best route that was found for a task."""

    env: int
    """Index of its environment in the mix."""
    seed: int
    actions: tuple[str, ...]


def find_routes(config: TrainConfig, numbers: Sequence[int]) -> list[BestRoute]:
    """For each task the best of some random routes, by the group reward that training uses; none where all fail."""
    mixes = config.environments
    factories = [training(mix) for mix in mixes]
    found = []
    for number in numbers:
        rng = random.Random(f"{config.seed}/{number}")
        env = rng.choices(range(len(mixes)), [m.weight for m in mixes])[0]
        best = _best(factories[env], FIRST_SEED + number, config.warm_start.routes, rng)
        if best:
            found.append(BestRoute(env, FIRST_SEED + number, best))
    return found


def _best(factory: EpisodeFactory, seed: int, routes: int, rng: random.Random) -> tuple[str, ...]:
    tried = [played(factory, RandomRoute(rng), seed) for _ in range(routes)]
    reward = GroupReward(tried[0].preference, tried[0].world.toolbox.keys)
    scores = [score.total if score else 0.0 for score in reward.score([measured(e) for e in tried])]
    best = max(range(routes), key=scores.__getitem__)
    if not measured(tried[best]).solved:
        return ()
    return tuple(str(m["content"]) for m in tried[best].messages if m["role"] == "assistant")


def demonstrations(chat: Chat, config: TrainConfig) -> list[Datum]:
    """The routes found, as training data."""
    tasks, shares = config.warm_start.demonstrations, config.model.processes
    found = _found_together(config) if shares > 1 else find_routes(config, range(tasks))
    factories = [training(mix) for mix in config.environments]
    data = []
    for env, seed, actions in found:
        told = iter(actions)
        data.append(demonstrate(chat, factories[env], lambda _, told=told: next(told), seed)[0])  # type: ignore[misc]
    return data


def _found_together(config: TrainConfig) -> list[BestRoute]:
    """find_routes() shared out over processes, which an interrupt of this one ends at once."""
    tasks, shares = config.warm_start.demonstrations, config.model.processes
    others = set(active_children())
    with ProcessPoolExecutor(shares, get_context("spawn")) as pool:
        try:
            with deaf_children():
                parts = [pool.submit(find_routes, config, range(k, tasks, shares)) for k in range(shares)]
            return sorted((f for part in parts for f in part.result()), key=lambda f: f.seed)
        except KeyboardInterrupt:
            for child in set(active_children()) - others:
                child.terminate()
            raise


def recorded(chat: Chat, path: Path, say: Callable[[str], None] = lambda _: None) -> list[Datum]:
    """Demonstrations from a JSONL of trajectories: `messages` and, where the template needs them, `tools`. Of runs that
    say their outcome, as RecordTrajectories' do, those that solved their task."""
    if not path.is_file():
        raise ConfigError(f"warm_start.trajectories: no file {str(path)!r}; it is a JSONL of recorded trajectories")
    made: list[Datum] = []
    unsolved = 0
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if line.strip():
                row, messages, tools = _transcript(line, f"{path}, line {number}")
                if _solved(row):
                    made += _sequences(chat, messages, tools)
                else:
                    unsolved += 1
    except UnicodeDecodeError as err:
        raise ConfigError(f"{path} is not UTF-8 text ({err}); a JSONL of recorded trajectories was expected") from None
    left_out = f"{unsolved} runs that did not solve their task are left out"
    if not made:
        raise ConfigError(f"{path} holds no assistant turn to learn from" + (f"; {left_out}" if unsolved else ""))
    if unsolved:
        say(f"warm start: {left_out}")
    return made


def _solved(row: Mapping[str, Any]) -> bool:
    if "outcome" not in row:
        return True
    outcome = row["outcome"]
    return isinstance(outcome, Mapping) and float(outcome.get("value") or 0.0) >= 1.0


def _transcript(line: str, where: str) -> tuple[Mapping[str, Any], list[Message], Sequence[Any]]:
    """One recorded trajectory, its messages and its tools."""
    try:
        row = json.loads(line)
        messages, tools = [Message(m) for m in row["messages"]], [dict(t) for t in row.get("tools") or ()]
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise ConfigError(
            f"{where}: an object with `messages`, and `tools` if any, was expected, both of objects ({err})"
        ) from None
    for number, message in enumerate(messages, 1):
        if not all(isinstance(message.get(name), str) for name in ("role", "content")):
            raise ConfigError(
                f"{where}: message {number} needs a role and a content, both text; got {dict(message)!r:.200}; a call "
                f"stands in the content, as {render_call('name', {})}"
            )
    if messages and messages[0]["role"] == "assistant":
        raise ConfigError(f"{where}: message 1 is the assistant's; what it answers was expected before it")
    return row, messages, tools


def _sequences(chat: Chat, messages: Sequence[Message], tools: Sequence[Any]) -> Iterator[Datum]:
    """One for each stretch whose past the template leaves as it was."""
    sequence: Sequences | None = None
    past: list[Message] = []
    for message in messages:
        if message["role"] == "assistant":
            extended, fresh = chat.follow(sequence, {"messages": tuple(past), "tools": tuple(tools)})
            if fresh and sequence is not None:
                yield _learned(sequence)
            sequence = extended
            said = chat.plain(message["content"])
            ids = [*chat.encode(said), chat.stop]
            chat.take(sequence, Sample(ids, [0.0] * len(ids), True))
            message = Message({**message, "content": said})
        past.append(message)
    if sequence is not None:
        yield _learned(sequence)


def warm_start(engine: Engine, chat: Chat, rollouts: Rollouts, config: TrainConfig, say: Callable[[str], None]) -> None:
    """Train on demonstrations until the gate opens; after `rounds` tries give up with what was seen."""
    start = config.warm_start
    if not start.steps:
        return
    if not start.trajectories:
        _check_routes(config)
    if not start.trajectories:
        say(f"warm start: trying {start.routes} random routes on each of {start.demonstrations:,} tasks")
    data = recorded(chat, Path(start.trajectories), say) if start.trajectories else demonstrations(chat, config)
    if not data:
        raise ConfigError(
            "the warm start found nothing to learn from: no random route solved its task; raise "
            "warm_start.demonstrations or warm_start.routes"
        )
    say(f"warm start: {len(data)} demonstrations")
    rng = random.Random(config.seed + 1)
    seen = ""
    for attempt in range(start.rounds):
        loss = _epoch(engine, data, config, rng)
        open_, seen = gate(rollouts, config)
        say(f"warm start, round {attempt + 1}: loss {loss:.3f} a token; {seen}")
        if open_:
            return
    raise ConfigError(
        f"the warm start did not reach what reinforcement learning needs in {start.rounds} rounds: {seen}; "
        "raise warm_start.steps or warm_start.rounds, or give better demonstrations"
    )


def _epoch(engine: Engine, data: Sequence[Datum], config: TrainConfig, rng: random.Random) -> float:
    start = config.warm_start
    loss = float("nan")
    for step in range(start.steps):
        rate = start.learning_rate * min(1.0, (step + 1) / 20) * (1 - 0.9 * step / start.steps)
        batch = [data[i] for i in rng.sample(range(len(data)), min(start.batch, len(data)))]
        loss = engine.train(batch, LossParams("cross_entropy"), rate)["loss"]
    return loss


def gate(rollouts: Rollouts, config: TrainConfig) -> tuple[bool, str]:
    """Whether reinforcement learning may start, and what was seen."""
    rng = random.Random(config.seed + 2)
    outcomes: list[float] = []
    jobs = []
    for number in range(CHECKED):
        mix = config.environments[number % len(config.environments)]
        made, seed = training(mix), FIRST_SEED - CHECKED + number
        jobs.append(Job(mix.env_id, made, seed))
        if _has_routes(made):
            outcomes.append(float(demonstrate(rollouts.chat, made, answer_at_once(rng), seed)[1]))
    trajectories = rollouts.collect(jobs)
    sound = [t.measure for t in trajectories if not t.measure.failed]
    valid, outcome = (
        statistics.fmean(values) if values else 0.0
        for values in ([m.valid_format for m in sound], [m.outcome for m in sound])
    )
    floor = statistics.fmean(outcomes) if outcomes else 0.0
    wanted = config.warm_start
    said = (
        f"readable {valid:.1%} (needs {wanted.least_valid:.0%}), accuracy {outcome:.1%}, answering at once {floor:.1%}"
    )
    return valid >= wanted.least_valid and outcome >= floor + wanted.margin, "; ".join([said, *failures(trajectories)])
