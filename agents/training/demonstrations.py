"""What a supervised start learns from: random plays, which show the grammar and nothing else, or recorded
trajectories.

Random plays are not chosen by what they earned: what a policy knows beside the grammar it learns by reinforcement. With
`planned` the plan is shown that is worth most by what random plans on all tasks tell (plan_values.py): a start to
compare with.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import lru_cache, partial
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.engines.base import Datum, Sample
from toolorchestra.agents.evaluation.heldout import played
from toolorchestra.agents.policies.baselines import Baseline, RandomPolicy, baseline, players
from toolorchestra.agents.policies.plans import Follows, Plan, last_result, random_plan, tool_of
from toolorchestra.agents.rollouts.grpo import TokenSequence
from toolorchestra.agents.rollouts.rollout import Chat
from toolorchestra.agents.training.build import base_chat
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.plan_values import PlanValues, TriedPlan, learnt, tried
from toolorchestra.agents.training.workers import bound_to_parent, deaf_children
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.base.files import append_line
from toolorchestra.envs.base.types import Message
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.models.wire import tells_no_credit
from toolorchestra.envs.money.journal import require_money

FIRST_SEED = 2_000_000_011
SAID = 40
"""Characters of a result that a random play says."""
TRIES = 6
"""Random plans that are tried on each task before the best one is planned."""
AT_ONCE = 50
"""Tasks that a process is given at a time, so that the others have something to do until all are done."""


def check_plans(config: TrainConfig) -> None:
    """Refuse a mix in which there is an environment whose tasks are not ended by the paper's `answer`."""
    for mix in config.environments:
        if tool_of(training(mix).start(FIRST_SEED).episode, "answer") is None:
            raise ConfigError(
                f"warm_start.planned tries random plans through the paper's tools, which {mix.env_id} does not have: "
                "leave it out, and random plays of any tools are shown; or name recorded runs with "
                "warm_start.trajectories=FILE"
            )


class Wanderer:
    """Knows the grammar: any tool with any arguments, whatever comes of it, by what the sentence and the subject make
    likely (RandomPolicy). Where messages are heard, it says one as often as it calls any one tool: what the last call
    gave."""

    def __init__(self, rng: random.Random, habits: str) -> None:
        self._rng, self._plays = rng, RandomPolicy(rng.getrandbits(32), habits)

    def __call__(self, episode: Episode) -> str:
        tools = episode.world.toolbox.tools
        ends = episode.world.toolbox.of_kind("answer", "submit") is not None
        if not ends and self._rng.randrange(len(tools) + 1) == 0:
            return last_result(episode)[:SAID] or "?"
        return self._plays(episode)


def demonstrate(chat: Chat, factory: EpisodeFactory, policy: Baseline, seed: int) -> tuple[list[Datum], Episode]:
    """One episode of a scripted policy as training data, of each stretch whose past was left as it was, and as it
    ended."""
    sequences: list[TokenSequence] = []

    def watched(episode: Episode) -> str:
        sequence, fresh = chat.follow(sequences[-1] if sequences else None, episode.observation)
        if fresh:
            sequences.append(sequence)
        text = policy(episode)
        ids = [*chat.encode(text), chat.stop]
        chat.take(sequence, Sample(ids, [0.0] * len(ids), True))
        return text

    episode = played(factory, watched, seed)
    if not sequences:
        raise ConfigError(f"{episode.task_id} was over before its first turn")
    return [sequence.datum(1.0) for sequence in sequences], episode


# -- plans -------------------------------------------------------------------------------------------------------------


def _tasks(config: TrainConfig, numbers: Sequence[int]) -> Iterator[tuple[int, EpisodeFactory, int, random.Random]]:
    """The environment's index of each number, its factory, the task's seed, and its own source of chance."""
    mixes = config.environments
    factories = [training(mix) for mix in mixes]
    for number in numbers:
        rng = random.Random(f"{config.seed}/{number}")
        env = rng.choices(range(len(mixes)), [m.weight for m in mixes])[0]
        yield env, factories[env], FIRST_SEED + number, rng


def try_plans(config: TrainConfig, numbers: Sequence[int]) -> list[tuple[int, TriedPlan]]:
    """Some random plans on each task, each with its environment's index."""
    found = []
    for env, factory, seed, rng in _tasks(config, numbers):
        opening = factory.start(seed).episode
        for _ in range(TRIES):
            plan = random_plan(opening, rng)
            episode = played(factory, Follows(lambda _, plan=plan: plan), seed)  # type: ignore[misc]
            if episode.failure is None:
                found.append((env, tried(plan, episode)))
    return found


def best_plan(values: PlanValues, factory: EpisodeFactory, baselines: Sequence[str], seed: int) -> Plan:
    """The plan of the highest value for the task of a seed, by what was learnt of its environment. `baselines`: those
    between which rewards are scaled; those that cannot play there are left out."""
    opening, able, calls = factory.start(seed).episode, players(factory.source), list[Mapping[str, float]]()
    for name in baselines:
        if name in able:
            plays = baseline(name, seed)
            if isinstance(plays, Follows):  # what one of one plan calls on average needs no play
                calls.append(values.usual_calls(opening, plays.choose(opening)))
            else:
                calls.append(played(factory, plays, seed).calls)
    return values.best(opening, calls)


class KeptDemonstrations(dict[int, list[Datum]]):
    """Demonstrations by the number of their task, in a file too: a run that goes on plays, and pays, none again."""

    def __init__(self, path: Path, of: str) -> None:
        """`of` names the settings that they follow from: a file may have those of others."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._of = path, of
        for row in read(path):
            if row["of"] == of:
                self[row["task"]] = [Datum(**one) for one in row["data"]]

    def add(self, number: int, data: list[Datum]) -> None:
        """Keep a task's. Raises SpendCapReached where that cut it off."""
        require_money()
        row = {"of": self._of, "task": number, "data": [asdict(one) for one in data]}
        append_line(self._path, json.dumps(row).encode() + b"\n")


def demonstrations(
    chat: Chat,
    config: TrainConfig,
    watch: Callable[[str, int], None] = lambda *_: None,
    kept: KeptDemonstrations | None = None,
) -> list[Datum]:
    """The plans found, as training data. The same for any number of processes. `watch` hears what is done, and of how
    many tasks; `kept` is for one process."""
    tasks = range(config.warm_start.demonstrations)
    values: dict[int, PlanValues] | None = None
    with _pool(config) as pool:
        if config.warm_start.planned and not (kept and kept.keys() >= set(tasks)):
            plays = _shared_out(pool, partial(try_plans, config), tasks, partial(watch, "tasks tried"))
            by_env = itertools.groupby(sorted(plays, key=lambda one: one[0]), lambda one: one[0])
            values = {env: learnt([one for _, one in some]) for env, some in by_env}
        work = partial(_told, None if pool else chat, config, values, None if pool else kept)
        said = "plans made" if config.warm_start.planned else "random plays"
        return _shared_out(pool, work, tasks, partial(watch, said))


def _told(
    chat: Chat | None,
    config: TrainConfig,
    values: Mapping[int, PlanValues] | None,
    kept: KeptDemonstrations | None,
    numbers: Sequence[int],
) -> list[Datum]:
    """The plans for some tasks, as training data; by a chat of this process where none is given."""
    chat = chat or _own_chat(config.model)
    data: list[Datum] = []
    for env, factory, seed, rng in _tasks(config, numbers):
        number = seed - FIRST_SEED
        if kept is not None and number in kept:
            data += kept[number]
            continue
        policy: Baseline = Wanderer(rng, f"habits {config.seed}")
        if values is not None:
            if env not in values:  # nothing was learnt of it
                continue
            plan = best_plan(values[env], factory, config.baselines, seed)
            policy = Follows(lambda _, plan=plan: plan)  # type: ignore[misc]
        stretches, episode = demonstrate(chat, factory, policy, seed)
        if episode.failure is not None:  # nor kept: a run that goes on tries it again
            if episode.failure.setting or tells_no_credit(episode.failure.error):
                raise Outage(f"{episode.failure.error}, while demonstrations were played")
            continue
        data += stretches
        if kept is not None:
            kept.add(number, stretches)
    return data


_own_chat = lru_cache(maxsize=1)(base_chat)


# -- processes ---------------------------------------------------------------------------------------------------------


@contextmanager
def _pool(config: TrainConfig) -> Iterator[ProcessPoolExecutor | None]:
    """Other processes, where the model has several. An interrupt of this process ends them at once, and so does a part
    that breaks."""
    if config.model.processes == 1:
        yield None
        return
    others = set(active_children())
    with ProcessPoolExecutor(config.model.processes, get_context("spawn"), bound_to_parent) as pool:
        try:
            yield pool
        except BaseException:
            for child in set(active_children()) - others:
                child.kill()
            raise


def _shared_out(
    pool: ProcessPoolExecutor | None,
    work: Callable[[Sequence[int]], list[Any]],
    tasks: range,
    watch: Callable[[int], None],
) -> list[Any]:
    """What the work on some tasks makes, part by part, in the order of the tasks."""
    parts = [tasks[k : k + AT_ONCE] for k in range(0, len(tasks), AT_ONCE)]
    done: Iterable[list[Any]] = map(work, parts)
    if pool:
        with deaf_children():  # not pool.map, which cancels what is left: the pool's own thread then ends in an error
            begun = [pool.submit(work, part) for part in parts]
        done = (one.result() for one in begun)
    made = []
    for part, some in zip(parts, done, strict=True):
        made += some
        watch(part.stop)
    return made


# -- recorded trajectories ---------------------------------------------------------------------------------------------


def recorded(chat: Chat, path: Path, say: Callable[[str], None] = lambda _: None) -> list[Datum]:
    """Demonstrations from a JSONL of trajectories: `messages` and, where the template needs them, `tools`. Of runs that
    say their outcome, as RecordTrajectories' do, those that solved their task."""
    check_file(path)
    made: list[Datum] = []
    unsolved = 0
    try:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if line.strip():
                outcome, messages, tools = _transcript(line, f"{path}, line {number}")
                if outcome >= 1.0:
                    made += _sequences(chat, messages, tools)
                else:
                    unsolved += 1
    except UnicodeDecodeError as err:
        raise ConfigError(f"{path} is not UTF-8 text ({err}); a JSONL of recorded trajectories was expected") from None
    if unsolved:
        say(f"warm start: {unsolved} runs that did not solve their task are left out")
    if not made:
        raise ConfigError(f"{path} holds no assistant turn to learn from")
    return made


def check_file(path: Path) -> None:
    """Refuse a file of trajectories that is not there."""
    if not path.is_file():
        raise ConfigError(f"warm_start.trajectories: no file {str(path)!r}; it is a JSONL of recorded trajectories")


def _transcript(line: str, where: str) -> tuple[float, list[Message], Sequence[Any]]:
    """What a recorded trajectory came to, its messages and its tools."""
    try:
        row = json.loads(line)
        outcome = float((row["outcome"] or {}).get("value") or 0.0) if "outcome" in row else 1.0
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
    return outcome, messages, tools


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
