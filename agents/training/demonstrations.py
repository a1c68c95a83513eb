"""What a supervised start learns from: for each task the best of some random routes, as the group's reward sees it;
or recorded trajectories.

Nobody says who is good at what: the routes know nothing, and the best of a few is often a lucky one. So there is much
left to discover.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.agents.configuration.config import TrainConfig, WarmStart
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.engines.base import Datum, Sample
from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.rollouts.rewards import GroupReward
from toolorchestra.agents.rollouts.rollout import measured
from toolorchestra.agents.rollouts.tokens import Chat, TokenSequence
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
AT_ONCE = 50
"""Tasks that a process is given at a time, so that the others have something to do until all are done."""


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


def has_routes(factory: EpisodeFactory) -> bool:
    """Whether its tasks are ended by the paper's `answer`."""
    return factory.start(FIRST_SEED).episode.world.toolbox.of_kind("answer") is not None


def check_routes(config: TrainConfig) -> None:
    """Refuse a mix in which there is an environment without routes."""
    for mix in config.environments:
        if not has_routes(training(mix)):
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
    sequence: TokenSequence | None = None

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
    return sequence.datum(1.0), bool(episode.outcome and episode.outcome.value >= 1.0)


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
        best = _best(factories[env], FIRST_SEED + number, config.warm_start, rng)
        if best:
            found.append(BestRoute(env, FIRST_SEED + number, best))
    return found


def _best(factory: EpisodeFactory, seed: int, start: WarmStart, rng: random.Random) -> tuple[str, ...]:
    """The calls of the route that does best on average over some plays, each with the luck of another day."""
    names = [rng.random() for _ in range(start.routes)]
    days = [
        [played(factory, RandomRoute(random.Random(name)), seed, luck=day) for name in names]
        for day in range(start.plays)
    ]
    reward = GroupReward(days[0][0].preference, days[0][0].world.toolbox.keys)
    ended = [[measured(episode) for episode in day] for day in days]
    scores = [[score.total if score else 0.0 for score in reward.score(day)] for day in ended]
    best = max(range(start.routes), key=lambda n: (sum(day[n] for day in scores), sum(day[n].solved for day in ended)))
    if not any(day[best].solved for day in ended):
        return ()
    return tuple(str(m["content"]) for m in days[0][best].messages if m["role"] == "assistant")


Watch = Callable[[int], None]
"""Hears how many tasks have been tried."""


def demonstrations(chat: Chat, config: TrainConfig, watch: Watch = lambda _: None) -> list[Datum]:
    """The routes found, as training data."""
    factories = [training(mix) for mix in config.environments]
    data = []
    for env, seed, actions in _found(config, watch):
        told = iter(actions)
        data.append(demonstrate(chat, factories[env], lambda _, told=told: next(told), seed)[0])  # type: ignore[misc]
    return data


def _found(config: TrainConfig, watch: Watch) -> list[BestRoute]:
    tasks = range(config.warm_start.demonstrations)
    parts = [tasks[k : k + AT_ONCE] for k in range(0, len(tasks), AT_ONCE)]
    if config.model.processes > 1:
        return _found_together(config, parts, watch)
    found: list[BestRoute] = []
    for part in parts:
        found += find_routes(config, part)
        watch(part.stop)
    return found


def _found_together(config: TrainConfig, parts: Sequence[range], watch: Watch) -> list[BestRoute]:
    """find_routes() shared out over processes, which an interrupt of this one ends at once, and so does a part that
    breaks."""
    others = set(active_children())
    found: list[BestRoute] = []
    tried = 0
    with ProcessPoolExecutor(config.model.processes, get_context("spawn")) as pool:
        try:
            with deaf_children():
                asked = {pool.submit(find_routes, config, part): len(part) for part in parts}
            for part in as_completed(asked):
                found += part.result()
                watch(tried := tried + asked[part])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()) - others:
                child.terminate()
            raise
    return sorted(found, key=lambda f: f.seed)


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
    sequence: TokenSequence | None = None
    past: list[Message] = []
    for message in messages:
        if message["role"] == "assistant":
            extended, fresh = chat.follow(sequence, {"messages": tuple(past), "tools": tuple(tools)})
            if fresh and sequence is not None:
                yield sequence.datum(1.0)
            sequence = extended
            said = chat.marks.spoken(message["content"])
            ids = [*chat.encode(said), chat.stop]
            chat.take(sequence, Sample(ids, [0.0] * len(ids), True))
            message = Message({**message, "content": said})
        past.append(message)
    if sequence is not None:
        yield sequence.datum(1.0)
