"""What a supervised start learns from: routes that are found by random play, or recorded trajectories.

Nobody says who is good at what. Shown is for each task the best of some random routes, as the group's reward sees it;
or with `planned` the route that is worth most by what random routes on all tasks tell (route_values.py).
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import lru_cache, partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.agents.configuration.config import ModelConfig, TrainConfig, WarmStart
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.engines.base import Datum, Sample
from toolorchestra.agents.evaluation.simulated_evaluation import played
from toolorchestra.agents.policies.baselines import Baseline, Pipeline, baseline, players
from toolorchestra.agents.rollouts.grpo import GroupReward, TokenSequence
from toolorchestra.agents.rollouts.rollout import Chat, measured
from toolorchestra.agents.training.route_values import RouteValues, learnt
from toolorchestra.agents.training.routes import (
    FollowRoute,
    Route,
    TriedRoute,
    answering,
    random_route,
    tried,
)
from toolorchestra.agents.training.workers import deaf_children
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Message, Observation
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory

FIRST_SEED = 2_000_000_011
MOST_WORDS = 64
"""Of a wish, which are left out or not each by itself."""
AT_ONCE = 50
"""Tasks that a process is given at a time, so that the others have something to do until all are done."""


class RandomRoute:
    """Plays a route that is drawn at random at the first turn."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._follow: FollowRoute | None = None

    def __call__(self, episode: Episode) -> str:
        if self._follow is None:
            self._follow = FollowRoute(random_route(episode, self._rng))
        return self._follow(episode)


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


def demonstrate(
    chat: Chat, factory: EpisodeFactory, policy: Callable[[Episode], str], seed: int, drop_words: float = 0.0
) -> tuple[Datum, bool]:
    """One episode of a scripted policy as training data, and whether it solved its task. Up to that share of the words
    of the user's wish are left out of what is shown."""
    datum, episode = _shown(chat, factory, policy, seed, drop_words)
    return datum, bool(episode.outcome and episode.outcome.value >= 1.0)


def _shown(
    chat: Chat, factory: EpisodeFactory, policy: Callable[[Episode], str], seed: int, drop_words: float
) -> tuple[Datum, Episode]:
    sequence: TokenSequence | None = None
    rng = random.Random(f"words/{seed}")
    dropped = drop_words * rng.random()
    places = [rng.random() for _ in range(MOST_WORDS)]

    def watched(episode: Episode) -> str:
        nonlocal sequence
        sequence, _ = chat.follow(sequence, _thinned(episode, dropped, places))
        text = policy(episode)
        ids = [*chat.encode(text), chat.stop]
        chat.take(sequence, Sample(ids, [0.0] * len(ids), True))
        return text

    episode = played(factory, watched, seed)
    if sequence is None:
        raise ConfigError(f"{episode.task_id} was over before its first turn")
    return sequence.datum(1.0), episode


def _thinned(episode: Episode, dropped: float, places: Sequence[float]) -> Observation:
    """The observation, without the words of the wish whose place's number is below `dropped`."""
    observation, sentence = episode.observation, episode.preference.sentence
    if not (dropped and sentence):
        return observation
    words = sentence.split()
    left = " ".join(word for word, place in zip(words, itertools.cycle(places), strict=False) if place >= dropped)
    first, *others = observation["messages"]
    shown = Message({**first, "content": str(first["content"]).replace(sentence, left)})
    return {**observation, "messages": (shown, *others)}


class BestRoute(NamedTuple):
    """The best route that was found or planned for a task."""

    env: int
    """Index of its environment in the mix."""
    seed: int
    actions: tuple[str, ...] = ()
    """What was said in a route that was found."""
    route: Route | None = None
    """A route that was planned."""

    def policy(self) -> Callable[[Episode], str]:
        """A policy that plays this route. It serves for one episode."""
        return _Says(self.actions) if self.route is None else FollowRoute(self.route)


def find_routes(config: TrainConfig, numbers: Sequence[int]) -> list[BestRoute]:
    """For each task the best of some random routes, by the group reward that training uses; none where all fail."""
    found = []
    for env, factory, seed, rng in _tasks(config, numbers):
        actions = _best(factory, seed, config.warm_start, rng)
        if actions:
            found.append(BestRoute(env, seed, actions))
    return found


def try_routes(config: TrainConfig, numbers: Sequence[int]) -> list[tuple[int, TriedRoute]]:
    """Some random routes on each task, each with its environment's index."""
    found = []
    for env, factory, seed, rng in _tasks(config, numbers):
        opening = factory.start(seed).episode
        for _ in range(config.warm_start.routes):
            route = random_route(opening, rng)
            episode = played(factory, FollowRoute(route), seed)
            if episode.failure is None:
                found.append((env, tried(route, episode)))
    return found


def plan_routes(values: Mapping[int, RouteValues], config: TrainConfig, numbers: Sequence[int]) -> list[BestRoute]:
    """For each task the route of the highest value, by what was learnt of its environment."""
    return [
        BestRoute(env, seed, route=Planner(values[env], factory, config.baselines).plan(seed))
        for env, factory, seed, _ in _tasks(config, numbers)
        if env in values
    ]


class Planner:
    """Plans routes by what was learnt of an environment. `baselines`: those that rewards are scaled between; those
    that cannot play there are left out."""

    def __init__(self, values: RouteValues, factory: EpisodeFactory, baselines: Sequence[str]) -> None:
        self._values = values
        self._factory = factory
        self._baselines = [name for name in baselines if name in players(factory.source)]

    def plan(self, seed: int) -> Route:
        """The route of the highest value for the task of a seed."""
        opening = self._factory.start(seed).episode
        return self._values.best(
            opening, [self._calls(opening, baseline(name, seed), seed) for name in self._baselines]
        )

    def _calls(self, opening: Episode, plays: Baseline, seed: int) -> Mapping[str, float]:
        """Of a fixed rule what it calls on average, which needs no play; of others what they call now."""
        if isinstance(plays, Pipeline):
            return self._values.usual_calls(opening, plays.picks(opening))
        return played(self._factory, plays, seed).calls


class _Says:
    """Says these texts, one a turn."""

    def __init__(self, actions: Sequence[str]) -> None:
        self._left = iter(actions)

    def __call__(self, _episode: Episode) -> str:
        return next(self._left)


def _tasks(config: TrainConfig, numbers: Sequence[int]) -> Iterator[tuple[int, EpisodeFactory, int, random.Random]]:
    """Of each number: the environment's index, its factory, the task's seed, and its own source of chance."""
    mixes = config.environments
    factories = [training(mix) for mix in mixes]
    for number in numbers:
        rng = random.Random(f"{config.seed}/{number}")
        env = rng.choices(range(len(mixes)), [m.weight for m in mixes])[0]
        yield env, factories[env], FIRST_SEED + number, rng


def _actions(episode: Episode) -> tuple[str, ...]:
    return tuple(str(m["content"]) for m in episode.messages if m["role"] == "assistant")


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
    return _actions(days[0][best])


Watch = Callable[[str, int], None]
"""Hears what is done, and of how many tasks."""
Find = Callable[[TrainConfig, Sequence[int]], list[BestRoute]]


def demonstrations(chat: Chat, config: TrainConfig, watch: Watch = lambda *_: None) -> list[Datum]:
    """The routes found, as training data. The same for any number of processes."""
    tasks = range(config.warm_start.demonstrations)
    find: Find = find_routes
    with _pool(config) as pool:
        if config.warm_start.planned:
            routes = _shared_out(pool, partial(try_routes, config), tasks, partial(watch, "tasks tried"))
            values = {env: learnt(tuple(one for _, one in some)) for env, some in _by_environment(routes)}
            find = partial(plan_routes, values)
        work = partial(_told, None if pool else chat, find, config)
        said = "routes planned" if config.warm_start.planned else "tasks tried"
        return _shared_out(pool, work, tasks, partial(watch, said))


def _told(chat: Chat | None, find: Find, config: TrainConfig, numbers: Sequence[int]) -> list[Datum]:
    """The routes that are found for some tasks, as training data; by a chat of this process where none is given."""
    chat = chat or _own_chat(config.model)
    factories = [training(mix) for mix in config.environments]
    data = []
    for one in find(config, numbers):
        datum, episode = _shown(chat, factories[one.env], one.policy(), one.seed, config.warm_start.drop_words)
        if episode.failure is None:
            data.append(datum)
    return data


@lru_cache(maxsize=1)
def _own_chat(wanted: ModelConfig) -> Chat:
    from toolorchestra.agents.training.build import base_chat

    return base_chat(wanted)


def _by_environment(routes: list[tuple[int, TriedRoute]]) -> Iterator[tuple[int, list[tuple[int, TriedRoute]]]]:
    for env, some in itertools.groupby(sorted(routes, key=lambda one: one[0]), lambda one: one[0]):
        yield env, list(some)


@contextmanager
def _pool(config: TrainConfig) -> Iterator[ProcessPoolExecutor | None]:
    """Other processes, where the model has several. An interrupt of this process ends them at once, and so does a part
    that breaks."""
    if config.model.processes == 1:
        yield None
        return
    others = set(active_children())
    with ProcessPoolExecutor(config.model.processes, get_context("spawn")) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()) - others:
                child.terminate()
            raise


def _shared_out(
    pool: ProcessPoolExecutor | None,
    work: Callable[[Sequence[int]], list[Any]],
    tasks: range,
    watch: Callable[[int], None],
) -> list[Any]:
    """What the work on some tasks makes, part by part, in the order of the tasks."""
    parts = [tasks[k : k + AT_ONCE] for k in range(0, len(tasks), AT_ONCE)]
    done: dict[int, list[Any]] = {}
    if pool is None:
        for at, part in enumerate(parts):
            done[at] = work(part)
            watch(part.stop)
    else:
        with deaf_children():
            asked = {pool.submit(work, part): at for at, part in enumerate(parts)}
        worked = 0
        for future in as_completed(asked):
            done[asked[future]] = future.result()
            watch(worked := worked + len(parts[asked[future]]))
    return [one for at in range(len(parts)) for one in done[at]]


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
