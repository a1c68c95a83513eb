"""The report of a run that has ended: the best checkpoint plays the test split and the probes. What came out is kept as
numbers (report/summary.json), as episodes (report/trajectories.jsonl), and as the run's page (page.html)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

from toolorchestra.agents.configuration.config import EnvMix, TrainConfig, as_json
from toolorchestra.agents.configuration.environments import job_of, simulated
from toolorchestra.agents.evaluation.heldout import (
    POLICY,
    Evaluation,
    HeldOut,
    OracleShare,
    Standing,
    intervals,
)
from toolorchestra.agents.reports.page import write_page
from toolorchestra.agents.reports.training_data import SUMMARY, TESTED, reached
from toolorchestra.agents.rollouts.grpo import Trajectory
from toolorchestra.agents.rollouts.rollout import Job, Rollouts, factory_of
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.training_run import TrainingRun, rollout_params
from toolorchestra.envs.base.files import write_json
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.journal import require_money
from toolorchestra.envs.wrappers.record import trajectory_line

TESTED_MEGABYTES = 20.0
"""Megabytes that the test's episodes may take; beyond it every second one goes, until the rest fits."""


def write_report(run: TrainingRun, say: Callable[[str], None] = lambda _: None) -> Path:
    """Evaluate the best checkpoint on the test split, probe, draw, write, and say what it came to. Gives the page's
    path; the engine is left with that checkpoint's weights."""
    folder = run.folder / "report"
    folder.mkdir(parents=True, exist_ok=True)
    step = _take_best(run)
    config = run.config
    evaluating = run.rollouts.with_params(rollout_params(config, config.evaluation_temperature))
    with run.engine.averaged():
        held_out = HeldOut(config.environments, config.evaluation_tasks, "test", config.seed)
        say(f"playing {config.evaluation_tasks} test tasks of each environment for the report")
        for line in held_out.fewer():
            say(line)
        final = held_out.evaluate(evaluating, record=True)
        require_money()
        probes = standard_probes(evaluating, config.environments, _probed(config), say)
    summary = _as_summary(run, step, final, probes)
    write_json(run.folder / SUMMARY, summary)
    say(reached(summary))
    _keep_episodes(run.folder / TESTED, final)
    return write_page(run.folder).file


def _probed(config: TrainConfig) -> int:
    """Tasks on either side of a probe. Where an evaluation is short because the model is slow, so are they."""
    return min(PROBED, config.evaluation_tasks)


class _UnplayedRollouts(Rollouts):
    """Rollouts that are counted, and not made."""

    def __init__(self) -> None:
        self.count = 0

    def collect(self, jobs: Sequence[Job], watch: Callable[[Trajectory], None] | None = None) -> list[Trajectory]:
        """Count them."""
        del watch
        self.count += len(jobs)
        return []


def episodes_of_report(config: TrainConfig) -> int:
    """How many episodes the report of a run plays: the test, and the probes."""
    probed = _UnplayedRollouts()
    standard_probes(probed, config.environments, _probed(config))
    return config.evaluation_tasks * len(config.environments) + probed.count


def _keep_episodes(path: Path, final: Evaluation) -> None:
    """Keep the test's episodes, turn by turn. All of them, or an even sample: figures of the page are then of the
    sample, and of nothing that was picked."""
    lines = [
        trajectory_line({"policy": POLICY, "env": one.env_id.rpartition("/")[2], **one.record})
        for one in final.trajectories
        if one.record is not None
    ]
    while len(lines) > 1 and sum(map(len, lines)) > TESTED_MEGABYTES * 1e6:
        lines = lines[::2]
    path.write_bytes(b"".join(lines))


def _take_best(run: TrainingRun) -> int:
    """The weights that did best on the validation split, where their checkpoint is still whole. Gives their step."""
    best = run.folder / "checkpoints" / f"step-{run.best_step:06d}"
    if run.best_step in (-1, run.step):
        return run.step
    if wrong := checkpoint.check(best):
        lost = f"is damaged ({wrong})" if best.exists() else "is gone"
        run.say(f"reporting on the last step: {best.name}, which did best on the validation split, {lost}")
        return run.step
    run.engine.load(best)
    run.say(f"reporting on step {run.best_step}, which did best on the validation split")
    return run.best_step


def _as_summary(run: TrainingRun, best_step: int, final: Evaluation, probes: Sequence[Probe]) -> dict[str, Any]:
    """What the report says, as numbers; `best_step` is the step whose weights it is of."""
    known = [task for task in final.tasks if task is not None]

    def ends(name: str) -> dict[str, list[float]]:
        return {of: [found.low, found.high] for of, found in intervals(known, name).items()}

    return {
        "simulated": simulated(run.config.environments),
        "preset": run.config.preset,
        "seed": run.config.seed,
        "steps": run.step,
        "best_step": best_step,
        "of_oracle": _share_row(final.of_oracle),
        "by_preference": {
            preference: {"policy": _row(of.policy), "oracle": _row(of.oracle), "of_oracle": _share_row(of.share)}
            for preference, of in final.by_preference.items()
        },
        "failed": final.failed,
        "valid": final.valid,
        "standings": {name: {**_row(s), "intervals": ends(name)} for name, s in final.standings.items()},
        "by_environment": {e: {n: _row(s) for n, s in p.items()} for e, p in final.by_environment.items()},
        "probes": [{**p.__dict__, "shift": p.shift} for p in probes],
        "configuration": as_json(run.config),
    }


def _share_row(share: OracleShare | None) -> dict[str, float] | None:
    if share is None:
        return None
    return {"value": share.value, "low": share.interval.low, "high": share.interval.high}


def _row(s: Standing) -> dict[str, Any]:
    return {
        "reward": s.reward,
        "accuracy": s.accuracy,
        "cents": s.cents,
        "cents_per_solved": s.cents_per_solved if s.accuracy else None,
        "seconds": s.seconds,
        "calls": s.calls,
        "tasks": s.tasks,
    }


# -- counterfactual probes: the same task with one thing changed -------------------------------------------------------


FIRST_SEED = 3_000_000_019
PROBED = 60
"""Tasks on either side of a probe."""
CHEAP, EXPENSIVE = Decimal("0.3"), Decimal("3.3")
"""Factors on a model's price; neither is one that training sees."""


@dataclass(frozen=True)
class Probe:
    """One contrast: how often something was chosen on either side."""

    name: str
    left: str
    right: str
    left_rate: float
    right_rate: float
    tasks: int
    """Played on either side; where the sides differ, on the smaller."""

    @property
    def shift(self) -> float:
        return self.right_rate - self.left_rate


def _made(mix: EnvMix) -> EpisodeFactory:
    arguments = {k: v for k, v in mix.arguments.items() if k not in ("vary", "diversify")}
    return factory_of(mix.env_id, **{**arguments, "split": mix.test})


def _play(
    rollouts: Rollouts, mix: EnvMix, tasks: int, options: Mapping[str, Any], subject: str = ""
) -> list[Trajectory]:
    """Play tasks, of a subject where one is named."""
    made = _made(mix)
    seeds = range(FIRST_SEED, FIRST_SEED + tasks * 4)
    fitting = (s for s in seeds if not subject or made.start(s).info["task"]["subject"] == subject)
    return rollouts.collect([job_of(mix, made, s, options) for s in islice(fitting, tasks)])


def _rate(trajectories: Sequence[Trajectory], keys: Sequence[str]) -> float:
    """The share of episodes that used any of the keys."""
    used = sum(any(t.measure.calls.get(k, 0) for k in keys) for t in trajectories)
    return used / len(trajectories) if trajectories else 0.0


def price_swap(rollouts: Rollouts, mix: EnvMix, pair: tuple[str, str], tasks: int) -> Probe:
    """Two experts that can both do it: one cheap and one expensive, then the other way round."""
    made = _made(mix)
    behind = {o.alias: o.model for t in made.start(FIRST_SEED).episode.world.toolbox for o in t.offers}
    sides = []
    for factors in ((CHEAP, EXPENSIVE), (EXPENSIVE, CHEAP)):
        changed = {behind[alias]: factor for alias, factor in zip(pair, factors, strict=True)}
        sheet = made.sheet.with_factors(changed, f"probe-{factors[0]}")
        played = _play(rollouts, mix, tasks, {"prices": sheet, "preference": "frugal"})
        first, second = _rate(played, pair[:1]), _rate(played, pair[1:])
        sides.append(first / (first + second) if first + second else 0.0)
    return Probe(
        f"share of {pair[0]} among {' and '.join(pair)}",
        f"{pair[0]} expensive, {pair[1]} cheap",
        f"{pair[0]} cheap, {pair[1]} expensive",
        sides[1],
        sides[0],
        tasks,
    )


def preference_flip(rollouts: Rollouts, mix: EnvMix, tasks: int) -> Probe:
    """Dollars spent when the user does not mind, and when the user pays; as the share of episodes above a cent."""
    sides = []
    for kind in ("accurate", "frugal"):
        played = _play(rollouts, mix, tasks, {"preference": kind})
        sides.append(sum(t.measure.usd for t in played) / max(1, len(played)) * 100)
    return Probe("cents a task", "user wants accuracy", "user wants to save", sides[0], sides[1], tasks)


def favoured_tool(rollouts: Rollouts, mix: EnvMix, key: str, tasks: int) -> Probe:
    """How often a tool is used when the user does not name it, and when the user asks for it."""
    sides = []
    for preference in (
        {"outcome": 1.0, "usd": 0.5, "sentence": "Keep the bill as small as you can while still getting it right."},
        {"outcome": 1.0, "usd": 0.5, key: 1.0, "sentence": f"If there is a choice, take {key}."},
    ):
        sides.append(_rate(_play(rollouts, mix, tasks, {"preference": preference}), [key]))
    return Probe(f"episodes that use {key}", "not named", "asked for", sides[0], sides[1], tasks)


def subject_contrast(
    rollouts: Rollouts, mix: EnvMix, subjects: tuple[str, str], keys: tuple[str, ...], tasks: int
) -> Probe:
    """How often an episode calls any of the keys, for one subject and for another."""
    sides, counts = [], []
    for subject in subjects:
        played = _play(rollouts, mix, tasks, {"preference": "balanced"}, subject)
        sides.append(sum(t.measure.calls.get(k, 0) for t in played for k in keys) / max(1, len(played)))
        counts.append(len(played))
    return Probe(f"calls of {', '.join(keys)} a task", *subjects, sides[0], sides[1], min(counts))


def standard_probes(
    rollouts: Rollouts, mixes: Sequence[EnvMix], tasks: int = PROBED, say: Callable[[str], None] = lambda _: None
) -> list[Probe]:
    """The probes of the embedded worlds, less those of keys that the mix's tools lack."""
    by_name = {m.env_id.rpartition("/")[2]: m for m in mixes}
    probes: list[Probe] = []
    for name, probes_of in (("FRAMES-v0", _frames_probes), ("HLE-v0", _hle_probes)):
        if mix := by_name.get(name):
            say(f"playing probes of {name}, several times {tasks} tasks")
            keys = _made(mix).start(FIRST_SEED).episode.world.toolbox.keys  # of every task, as nothing varies
            probes += probes_of(rollouts, mix, tasks, frozenset(keys).issuperset)
    return probes


Has = Callable[[Sequence[str]], bool]
"""Tells whether tools with these countable keys are offered."""


def _frames_probes(rollouts: Rollouts, mix: EnvMix, tasks: int, has: Has) -> Iterator[Probe]:
    if has(pair := ("answer-3", "answer-4")):
        yield price_swap(rollouts, mix, pair, tasks)
    if has(["search-1"]):
        yield favoured_tool(rollouts, mix, "search-1", tasks)


def _hle_probes(rollouts: Rollouts, mix: EnvMix, tasks: int, has: Has) -> Iterator[Probe]:
    pair = ("answer-1", "answer-2")
    if has(pair):
        yield price_swap(rollouts, mix, pair, 2 * tasks)
    yield preference_flip(rollouts, mix, tasks)
    if has(["answer-1"]):
        yield favoured_tool(rollouts, mix, "answer-1", tasks)
    for subjects, keys in (
        (("number theory", "chemistry"), ("search-1", "search-2", "search-3")),
        (("number theory", "logic"), pair),
        (("logic", "number theory"), ("answer-math-1", "answer-math-2")),
    ):
        if has(keys):
            yield subject_contrast(rollouts, mix, subjects, keys, tasks)
