"""The rules of check_engine, each a function that uses an engine and demands."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from toolorchestra.agents.engines.base import Datum, Engine, LossParams, Sample, SamplingParams
from toolorchestra.envs.testing.conformance_rules import BrokenRule

TOKENS = 6
NEXT_TO_NOTHING = 1e-12
"""A learning rate: a step with it tells the loss, and leaves the weights."""
RATE, STEPS = 1e-2, 4
SAME = 1e-2
"""Nats between two losses of the same weights."""


@dataclass(frozen=True)
class EngineUnderTest:
    """What a rule has to work with."""

    engine: Engine
    make: Callable[[], Engine]
    vocabulary: int
    folder: Path

    def prompt(self, number: int) -> list[int]:
        """The same for a number, whatever the engine."""
        rng = random.Random(number)
        return [rng.randrange(self.vocabulary) for _ in range(2 + number % 7)]

    def datum(self, number: int, advantage: float = 1.0) -> Datum:
        """A prompt and three tokens to learn or to unlearn."""
        prompt, rng = self.prompt(number), random.Random(-1 - number)
        learnt = [rng.randrange(self.vocabulary) for _ in range(3)]
        given = len(prompt)
        return Datum(
            [*prompt, *learnt], [0.0] * (given + 3), [*[0.0] * given, *[advantage] * 3], [*[False] * given, *[True] * 3]
        )

    def loss_of(self, engine: Engine, datum: Datum) -> float:
        """The mean negative log-probability of what a datum learns."""
        return float(engine.train([datum], LossParams("cross_entropy"), NEXT_TO_NOTHING)["loss"])


def _demand(holds: bool, seen: str) -> None:
    if not holds:
        raise BrokenRule(seen)


def _turns(engine: Engine, asked: Mapping[str, list[int]], params: SamplingParams) -> dict[str, Sample]:
    """Turns of several sessions at once, on a loop of their own."""

    async def all_of_them() -> list[Sample]:
        return list(await asyncio.gather(*(engine.sample(p, params, session) for session, p in asked.items())))

    made = asyncio.run(all_of_them())
    for session in asked:
        engine.release(session)
    return dict(zip(asked, made, strict=True))


def _samples(trial: EngineUnderTest) -> None:
    params = SamplingParams(TOKENS)
    for _ in range(2):  # rollouts are collected on one loop after another
        for made in _turns(trial.engine, {f"s{n}": trial.prompt(n) for n in range(5)}, params).values():
            seen = f"{made}"
            _demand(1 <= len(made.tokens) <= TOKENS and len(made.tokens) == len(made.logprobs), seen)
            _demand(all(0 <= token < trial.vocabulary for token in made.tokens), seen)
            _demand(all(math.isfinite(p) and p <= 1e-6 for p in made.logprobs), seen)
            _demand(made.finished or len(made.tokens) == TOKENS, seen)


def _greedy(trial: EngineUnderTest) -> None:
    asked = {"g": trial.prompt(3)}
    first, again = (_turns(trial.engine, asked, SamplingParams(TOKENS, 0.0))["g"] for _ in range(2))
    _demand(first.tokens == again.tokens, f"{first.tokens} and then {again.tokens}")


def _draws(trial: EngineUnderTest) -> None:
    asked = {f"d{n}": trial.prompt(3) for n in range(8)}
    made = {tuple(one.tokens) for one in _turns(trial.engine, asked, SamplingParams(TOKENS)).values()}
    _demand(len(made) > 1, f"eight times {made}")


def _stops(trial: EngineUnderTest) -> None:
    stops = tuple(range(trial.vocabulary))
    asked = {f"t{n}": trial.prompt(n) for n in range(3)}
    for made in _turns(trial.engine, asked, SamplingParams(TOKENS, 1.0, stops)).values():
        _demand(len(made.tokens) == 1 and made.finished, f"{made} where any token was to end the turn")


def _cancelled(trial: EngineUnderTest) -> None:
    engine = trial.engine

    async def cancelled() -> Sample:
        await engine.sample(trial.prompt(1), SamplingParams(1), "first")
        task = asyncio.create_task(engine.sample(trial.prompt(2), SamplingParams(TOKENS), "gone"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        engine.release("gone")
        return await engine.sample(trial.prompt(2), SamplingParams(TOKENS, 0.0), "next")

    again = asyncio.run(cancelled())
    other = _turns(engine, {"other": trial.prompt(2)}, SamplingParams(TOKENS, 0.0))["other"]
    _demand(again.tokens == other.tokens, f"{again.tokens}, and later {other.tokens}")


def _imitates(trial: EngineUnderTest) -> None:
    data = [trial.datum(n) for n in range(4)]
    losses = [float(trial.engine.train(data, LossParams("cross_entropy"), RATE)["loss"]) for _ in range(STEPS)]
    _demand(losses[-1] < losses[0], f"losses of {losses}")


def _advantages(trial: EngineUnderTest) -> None:
    good, bad = trial.datum(0), trial.datum(1, -1.0)
    before = [trial.loss_of(trial.engine, d) for d in (good, trial.datum(1))]
    for _ in range(STEPS):
        trial.engine.train([good, bad], LossParams("cross_entropy"), RATE)
    after = [trial.loss_of(trial.engine, d) for d in (good, trial.datum(1))]
    _demand(after[0] < before[0] and after[1] > before[1], f"losses of {before} before and {after} after")


def _masks(trial: EngineUnderTest) -> None:
    datum = trial.datum(2)
    before = trial.loss_of(trial.engine, datum)
    hidden = Datum(datum.tokens, datum.logprobs, datum.advantages, [False] * len(datum.tokens))
    trial.engine.train([hidden], LossParams(), 1.0)
    trial.engine.train([], LossParams(), 1.0)
    after = trial.loss_of(trial.engine, datum)
    _demand(abs(after - before) < SAME, f"a loss of {before} before and {after} after nothing to learn from")


def _samples_follow(trial: EngineUnderTest) -> None:
    """What was learnt is what is sampled: greedy, after many steps on one sequence."""
    datum = trial.datum(4)
    for _ in range(60):
        if trial.engine.train([datum], LossParams("cross_entropy"), 2 * RATE)["loss"] < 0.05:
            break
    prompt, learnt = list(datum.tokens[:-3]), list(datum.tokens[-3:])
    made = _turns(trial.engine, {"l": prompt}, SamplingParams(3, 0.0))["l"].tokens
    _demand(made == learnt[: len(made)], f"{made} where {learnt} was learnt")


def _keeps(trial: EngineUnderTest) -> None:
    datum, engine = trial.datum(5), trial.engine
    for _ in range(STEPS):
        engine.train([datum], LossParams("cross_entropy"), RATE)
    kept = trial.loss_of(engine, datum)
    at = trial.folder / "checkpoint"
    at.mkdir()
    engine.save(at)
    _demand(any(at.iterdir()), "save() wrote nothing into its folder")
    engine.train([datum], LossParams("cross_entropy"), RATE)
    after = trial.loss_of(engine, datum)
    for how, taught, wanted in (("load", False, kept), ("start_from", False, kept), ("load", True, after)):
        other = trial.make()
        try:
            getattr(other, how)(at)
            if taught:
                other.train([datum], LossParams("cross_entropy"), RATE)
            found = trial.loss_of(other, datum)
        finally:
            other.close()
        step = " and one more step" if taught else ""
        _demand(abs(found - wanted) < SAME, f"a loss of {wanted} in the saved engine, {found} after {how}(){step}")


def _reference(trial: EngineUnderTest) -> None:
    trial.engine.take_reference()
    with trial.engine.averaged():
        _turns(trial.engine, {"a": trial.prompt(1)}, SamplingParams(1))


def _closes(trial: EngineUnderTest) -> None:
    trial.engine.close()  # and again by check_engine


RULES: Mapping[str, Callable[[EngineUnderTest], None]] = {
    "a turn has a log-probability for each token, and ends at a stop or at its limit": _samples,
    "temperature 0 takes the likeliest token": _greedy,
    "turns of one prompt are drawn, and differ": _draws,
    "a turn ends at its stops, and keeps the token that stopped it": _stops,
    "a cancelled turn leaves nothing behind": _cancelled,
    "imitation makes what is shown likelier": _imitates,
    "an advantage above 0 makes its tokens likelier, one below less likely": _advantages,
    "what the mask hides is not learnt from": _masks,
    "what is sampled follows what was learnt": _samples_follow,
    "a saved engine goes on as if it had not stopped, and others start from its weights": _keeps,
    "the reference is taken, and the average is sampled from, wherever they are kept or not": _reference,
    "it may be closed twice": _closes,
}
