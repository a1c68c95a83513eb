"""The rules of the conformance test, each a function that plays and demands. See testing."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import islice, zip_longest
from typing import Any, cast

from gymnasium.utils.env_checker import check_env

from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ResetNeeded
from toolorchestra.envs.base.types import Answer, Message, Observation, Question
from toolorchestra.envs.domains.world import World
from toolorchestra.envs.episode.episode import Episode, Step
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.testing.rehearsal import (
    Held,
    RandomCaller,
    Rehearsal,
    Sabotaged,
    difference,
    fits,
    leaves,
    replay,
    twin,
    unusable,
)
from toolorchestra.envs.vector_infos import info_of

AT_THE_END = ("outcome", "calls", "failed", "truncated_by")
SEEDS_FOR_VARIETY = 20


class BrokenRule(Exception):
    """What was seen instead of what the rule says."""


class NothingToCheck(Exception):
    """The environment has nothing that the rule could be seen to hold for."""


def _demand(holds: bool, seen: str) -> None:
    if not holds:
        raise BrokenRule(seen)


def _raises(kind: type[Exception], deed: Callable[[], object], what: str) -> None:
    try:
        deed()
    except kind:
        return
    raise BrokenRule(f"{what} did not raise {kind.__name__}")


def _gymnasium(rehearsal: Rehearsal) -> None:
    env = rehearsal.make()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def _same_seed(rehearsal: Rehearsal) -> None:
    for seed in rehearsal.seeds:
        env = rehearsal.make()
        trace = rehearsal.play(env, seed)
        for other, where in ((env, "in the same environment"), (rehearsal.make(), "in a fresh one")):
            for number, (want, got) in enumerate(zip(trace.steps, replay(other, trace), strict=True)):
                seen = difference(want, got, f"seed {seed}, once more {where}: entry {number}")
                _demand(not seen, seen)


def _isolation(rehearsal: Rehearsal) -> None:
    traces = [rehearsal.play(rehearsal.make(), seed) for seed in (*rehearsal.seeds, 12345)[:2]]
    together = zip_longest(*(replay(rehearsal.make(), trace) for trace in traces))
    for number, steps in enumerate(together):
        for trace, got in zip(traces, steps, strict=True):
            if got is not None:
                where = f"seed {trace.seed}, with another environment stepped in between: entry {number}"
                seen = difference(trace.steps[number], got, where)
                _demand(not seen, seen)


def _variety(rehearsal: Rehearsal) -> None:
    env = rehearsal.make()
    tasks = {env.reset(seed=seed)[1]["task_id"] for seed in range(SEEDS_FOR_VARIETY)}
    _demand(len(tasks) > 1, f"{SEEDS_FOR_VARIETY} seeds gave {tasks} alone")


def _observations(rehearsal: Rehearsal) -> None:
    env = rehearsal.make()
    given: list[tuple[Observation, str]] = []
    before: tuple[Message, ...] = ()
    for trace in [rehearsal.play(env, seed) for seed in rehearsal.seeds]:
        for action, step in zip(trace.actions, replay(env, trace), strict=True):
            now = step.observation
            _demand(now in env.observation_space, f"an observation is not in {env.observation_space}: {now!r:.200}")
            _demand(all(type(m) is Message for m in now["messages"]), "a message is not a types.Message: it can change")
            if action is not None and env.factory.settings.history == "full":
                grown = now["messages"] == [*before, *step.info["new_messages"]]
                _demand(grown, "the transcript is not the one before and info['new_messages'] after it")
            before = now["messages"]
            given.append((now, json.dumps(now)))
    changed = next((text for value, text in given if json.dumps(value) != text), "")
    _demand(not changed, f"an observation changed after it was given; it was {changed:.200}")


def _order(rehearsal: Rehearsal) -> None:
    env = rehearsal.make()
    _raises(ResetNeeded, lambda: env.step("hello"), "step() before reset()")
    env.reset(seed=0)
    for wrong in (None, 5, b"hello", ["hello"]):
        _raises(TypeError, lambda w=wrong: env.step(w), f"step({wrong!r})")  # type: ignore[misc]
    rehearsal.play(env, rehearsal.seeds[0], 1)
    _raises(ResetNeeded, lambda: env.step("hello"), "step() after the end")
    env.close()
    env.close()
    _raises(ResetNeeded, lambda: env.step("hello"), "step() after close()")


def _ending(rehearsal: Rehearsal) -> None:
    env = rehearsal.make()
    scalar = env.factory.rules.costs is not None
    for episode in [e for seed in rehearsal.seeds for e in rehearsal.play(env, seed).episodes()]:
        for step in episode[:-1]:
            early = [key for key in AT_THE_END if key in step.info]
            _demand(not early, f"info has {early} before the end")
            _demand(scalar or step.reward == 0.0, f"a reward of {step.reward} before the end")
        _check_last(episode[-1], scalar)


def _check_last(last: Step, scalar: bool) -> None:
    missing = [key for key in AT_THE_END if key not in last.info]
    _demand(not missing, f"the last info lacks {missing}")
    _demand(last.terminated != last.truncated, "the last step is not either terminated or truncated")
    why = last.info["truncated_by"]
    _demand(bool(why) == last.truncated, f"truncated is {last.truncated}, but truncated_by is {why!r}")
    _demand(len(last.observation["messages"]) > 1, "the last observation is not the transcript's")
    failed = bool(last.info["failed"])
    _demand(
        math.isnan(last.reward) == failed, f"the reward is {last.reward}, but failed is {last.info['failed']!r:.200}"
    )
    if not failed:
        value = last.info["outcome"]["value"]
        _demand(0.0 <= value <= 1.0, f"an outcome is worth 0 to 1, got {value}")
        told = value + sum(last.info.get("reward_terms", {}).values())
        _demand(scalar or told == last.reward, f"the reward is {last.reward}, the outcome and its terms come to {told}")


def _ledger(rehearsal: Rehearsal) -> None:
    env = rehearsal.make()
    for episode in [e for seed in rehearsal.seeds for e in rehearsal.play(env, seed).episodes()]:
        by_role: Counter[str] = Counter()
        nanoseconds = 0
        for number, step in enumerate(episode[1:], 1):
            charges, cost, ledger = step.info["charges"], step.info["cost"], step.info["ledger"]
            spent = sum(c["nano_usd"] for c in charges)
            by_role.update({role: 0 for role in (c["role"] for c in charges)})
            for charge in charges:
                by_role[charge["role"]] += charge["nano_usd"]
            nanoseconds += round(cost["seconds"] * NANO)
            tokens = {name: sum(c["tokens"][name] for c in charges) for name in cost["tokens"]}
            pairs = {
                "the step's dollars": (round(cost["usd"] * NANO), spent),
                "the step's tokens": (cost["tokens"], tokens),
                "the ledger's dollars": (round(ledger["usd"] * NANO), sum(by_role.values())),
                "the ledger's roles": ({r: round(u * NANO) for r, u in ledger["usd_by_role"].items()}, dict(by_role)),
                "the ledger's seconds": (round(ledger["seconds"] * NANO), nanoseconds),
            }
            for what, (shown, summed) in pairs.items():
                _demand(shown == summed, f"step {number}: {what} are {shown}, the charges come to {summed}")


def _reprice(rehearsal: Rehearsal) -> None:
    env = rehearsal.make()
    rehearsal.play(env, rehearsal.seeds[0], 1)
    episode = cast(Episode, env.episode)
    again = episode.ledger.reprice(episode.sheet)
    seen = difference(list(episode.ledger), list(again), "charge")
    _demand(not seen and again.summary() == episode.ledger.summary(), f"billed again by its own sheet, {seen}")


def _failure(rehearsal: Rehearsal) -> None:
    env = rehearsal.make()
    broken = twin(env, Sabotaged(env.factory.source))
    for seed in rehearsal.seeds:
        broken.reset(seed=seed)
        tools = cast(Episode, broken.episode).world.toolbox.tools
        made = ((tool, RandomCaller(seed).value(tool.parameters)) for tool in tools)
        for tool, arguments in islice(((tool, found) for tool, found in made if fits(tool, found)), 1):
            last = Step(*broken.step(render_call(tool.name, arguments)))
            what = f"tool {tool.name!r} raised, and the step has"
            _demand(math.isnan(last.reward), f"{what} a reward of {last.reward}: it must be nan")
            why = last.info.get("truncated_by")
            _demand(last.truncated and why == "failed", f"{what} truncated {last.truncated} by {why!r}")
            _demand("sabotaged" in str(last.info["failed"]), f"{what} info['failed'] {last.info['failed']!r:.200}")
            _demand(not last.info["outcome"], f"{what} an outcome: {last.info['outcome']!r:.200}")


def _unusable(rehearsal: Rehearsal) -> None:
    limits: dict[str, Any] = {"max_context_tokens": None, "budget": None, "max_seconds": None}
    env = rehearsal.make(max_turns=50, **limits)
    env.reset(seed=rehearsal.seeds[0])
    actions = list(unusable(cast(Episode, env.episode)))  # as many turns as a large toolbox takes
    env = rehearsal.make(max_turns=len(actions) + 1, **limits)
    env.reset(seed=rehearsal.seeds[0])
    for action in actions:
        step = Step(*env.step(action))
        _demand(not (step.terminated or step.truncated), f"the action {action!r} ends the episode")
        told = step.info["new_messages"][1:]
        _demand(
            any(m["content"].startswith("Error: ") for m in told), f"{action!r} is not answered by an error: {told}"
        )


def _turn_limit(rehearsal: Rehearsal) -> None:
    env = rehearsal.make(max_turns=2, max_context_tokens=None, budget=None, max_seconds=None)
    env.reset(seed=rehearsal.seeds[0])
    first, second = (Step(*env.step("<tool_call>")) for _ in range(2))
    _demand(not first.truncated, "max_turns=2 cuts off the first turn")
    _demand(second.truncated and not second.terminated, "max_turns=2 does not truncate the second turn")
    _demand(second.info["truncated_by"] == "turns", f"truncated by {second.info['truncated_by']!r}, not by 'turns'")


def _vector(rehearsal: Rehearsal) -> None:
    base, n = rehearsal.seeds[0], 3
    traces = [rehearsal.play(rehearsal.make(), base + i, 1) for i in range(n)]
    vector = rehearsal.make_vector(n)
    try:
        observations, infos = vector.reset(seed=base)
        for i, trace in enumerate(traces):
            first = trace.steps[0]
            _equal(i, 0, (first.observation, first.info), (observations[i], info_of(infos, i)))
        for number in range(1, max(len(t.steps) for t in traces)):
            alive = [i for i in range(n) if number < len(traces[i].steps)]
            vector.send([cast(str, traces[i].actions[number]) for i in alive], alive)
            received = vector.recv(len(alive), timeout=600.0)
            for i, *step in zip(*received, strict=True):
                _equal(i, number, traces[i].steps[number], step)
    finally:
        vector.close()


def _equal(i: int, number: int, want: Any, got: Any) -> None:
    seen = difference(tuple(want), tuple(got), f"environment {i} against a single one of its seed, entry {number}")
    _demand(not seen, seen)


def _secrets(rehearsal: Rehearsal) -> None:
    env = rehearsal.make()
    known: list[tuple[set[str], str]] = []
    for seed in rehearsal.seeds:
        for episode in rehearsal.play(env, seed, 1).episodes():
            world = cast(Episode, env.episode).world
            if secret := _answers(world):
                known.append((secret, world.system))
            for step in episode[:-1]:
                info = {key: value for key, value in step.info.items() if key not in ("new_messages", "task_id")}
                hidden = [v for v in leaves((step.observation, info)) if isinstance(v, Question | Answer)]
                _demand(not hidden, f"before the end the agent is handed {hidden!r:.200}")
                told = secret.intersection(v for v in leaves(info) if isinstance(v, str))
                _demand(not told, f"before the end info says the expected answer: {told}")
    if not known:
        raise NothingToCheck
    # A list of all answers that there are is in every task's message. An opening may show an answer rightly, among
    # choices or in a text to be read.
    listed = all(_says(system, secret) for secret, _ in known for _, system in known)
    told = {answer for secret, system in known for answer in secret if _says(system, {answer})}
    each = all(_says(system, secret) for secret, system in known)
    _demand(listed or not each, f"the system message says the expected answer: {told}")


def _answers(world: World) -> set[str]:
    """The texts of the answer that a world's question or task expects, where it has one."""
    held = [getattr(getattr(world, name, None), "answer", None) for name in ("question", "task")]
    texts = [(a.text, *a.aliases) if isinstance(a, Answer) else (a,) for a in held if isinstance(a, Answer | str)]
    return {text for some in texts for text in some if text.strip()}


def _says(message: str, answers: set[str]) -> bool:
    return any(re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", message) for answer in answers)


def _abandoned(rehearsal: Rehearsal) -> None:
    """Half in single environments, half in vector environments of eight; some reset in the middle, some dropped."""
    size = 8
    rehearsal.make().close()
    before = Held.now()
    env = rehearsal.make()
    for number in range(rehearsal.abandoned // 2):
        if number % 10 == 9:
            env = rehearsal.make()
        env.reset(seed=number)
        env.step(rehearsal.chooser(number)(cast(Episode, env.episode)))
    vector = rehearsal.make_vector(size)
    for number in range(rehearsal.abandoned // 2 // size):
        if number % 10 == 9:
            vector = rehearsal.make_vector(size)
        vector.reset(seed=number)
        choose = rehearsal.chooser(number)
        vector.send([choose(cast(Episode, episode)) for episode in vector.episodes], range(size))
    del env, vector
    leaked = before.leaked_since()
    _demand(not leaked, f"after {rehearsal.abandoned} abandoned episodes the process holds {leaked}")


RULES = {
    "gymnasium's own check passes without a warning": _gymnasium,
    "the same seed gives the same observations, rewards and infos": _same_seed,
    "an environment does not feel what happens in another": _isolation,
    "different seeds give different tasks": _variety,
    "observations fit their space, only grow, and stay as they were given": _observations,
    "step() before reset(), after the end and with a non-str is refused": _order,
    "the last step says how it ended, the others do not": _ending,
    "what steps cost is what the ledger holds, to the nano-dollar": _ledger,
    "the ledger billed again by its own sheet is the same": _reprice,
    "a tool that raises makes the episode failed, its reward nan": _failure,
    "unusable actions are answered by an error and end nothing": _unusable,
    "the turn limit truncates by its name": _turn_limit,
    "environment i of a vector is the single one with seed + i": _vector,
    "nothing before the end says the answer": _secrets,
    "abandoned episodes leave nothing behind": _abandoned,
}
