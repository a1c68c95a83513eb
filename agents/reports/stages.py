"""What each stage of training brought: several checkpoints of a run on the same held-out tasks, beside baselines.

Everybody is scored as in the training report, beside the baselines. Tasks of several runs may be put together, for each
seed of training has test tasks of its own.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.evaluation.heldout import ORACLE, POLICY, Evaluation, HeldOut, Scored, TaskScores
from toolorchestra.agents.evaluation.statistics import Interval, mean_interval, ratio_interval
from toolorchestra.agents.policies.baselines import baseline
from toolorchestra.agents.reports.page_data import UNREADABLE
from toolorchestra.agents.reports.training_data import markdown
from toolorchestra.agents.rollouts.rollout import Chat, Rollouts
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.saved_model import checkpoint_of, config_of, saved_model
from toolorchestra.agents.training.training_run import rollout_params
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.files import write_whole

Say = Callable[[str], None]
BEFORE, WARM, TRAINED = "before training", "supervised start", "trained"
LAST = "trained, last step"
"""The end of a run whose best checkpoint is an earlier one. Of few validation tasks chance says which is best."""
BASELINES = ("cheapest", "strongest", "cascade")
TOLD = "told-oracle"
"""The oracle as far as an agent can know what it knows: about what a policy can reach."""


class TaskResult(NamedTuple):
    """What a player came to on one task."""

    reward: float
    right: float
    cents: float
    seconds: float


@dataclass(frozen=True)
class StagesPlayed:
    """Everybody's plays of the same tasks, in their order."""

    preferences: Sequence[str]
    """The kind of preference that each task has."""
    plays: Mapping[str, Sequence[TaskResult | None]]
    """Plays by player, stages first. None where the episode failed: the task then counts for nobody."""
    stages: Sequence[str]
    """Players that are stages of the training, in their order."""
    readable: Mapping[str, float]
    """The share of each stage's turns whose format was right."""

    def common(self) -> list[int]:
        """The tasks that nobody failed."""
        return [i for i in range(len(self.preferences)) if all(plays[i] is not None for plays in self.plays.values())]

    def with_last(self) -> StagesPlayed:
        """The same with the last step's plays, which are the best checkpoint's where that is the last."""
        if LAST in self.plays:
            return self
        stages = [*self.stages, LAST]
        plays = {name: self.plays[TRAINED if name == LAST else name] for name in stages}
        readable = {**self.readable, LAST: self.readable[TRAINED]}
        return replace(self, plays={**plays, **self.plays}, stages=stages, readable=readable)

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> StagesPlayed:
        """Reads back what was written."""
        plays = {name: [play and TaskResult(*play) for play in some] for name, some in row["plays"].items()}
        return cls(row["preferences"], plays, row["stages"], row["readable"])


def together(parts: Sequence[StagesPlayed]) -> StagesPlayed:
    """The tasks of several runs with the same players."""
    if any(LAST in part.plays for part in parts):
        parts = [part.with_last() for part in parts]
    first = parts[0]
    plays = {name: [play for part in parts for play in part.plays[name]] for name in first.plays}
    readable = {name: statistics.fmean(part.readable[name] for part in parts) for name in first.stages}
    return StagesPlayed(
        [preference for part in parts for preference in part.preferences], plays, first.stages, readable
    )


def plays_of(tasks: Sequence[TaskScores | None], name: str = POLICY) -> list[TaskResult | None]:
    """A player's plays among those of the baselines."""

    def result(scored: Scored) -> TaskResult:
        measure = scored.measure
        return TaskResult(scored.reward, measure.outcome, 100 * measure.usd, measure.seconds)

    return [result(task.players[name]) if task and name in task.players else None for task in tasks]


# -- playing ----------------------------------------------------------------------------------------------------------


def stages_of(folder: Path, tasks: int, *, again: bool, say: Say) -> StagesPlayed:
    """Take stages from the run's report/stages.json where the same was played before, or played now. Each stage is kept
    as soon as it was played, for one of a real model takes an hour on a laptop."""
    best = checkpoint_of(folder)
    kept, checkpoints = folder / "report" / "stages.json", _checkpoints(folder, best)
    weights = {name: path and (path / checkpoint.MANIFEST).read_text("utf-8") for name, path in checkpoints.items()}
    made_of = {"tasks": tasks, "checkpoints": weights, "beside": [*BASELINES, TOLD]}
    played = None if again else _kept(kept, made_of)
    for name, path in checkpoints.items():
        if played is None or name not in played.plays:
            ends = name == [*checkpoints][-1]
            played = _played(config_of(best), name, path, tasks, played, baselines=ends)
            say(f"{name}: {len(played.preferences)} tasks played")
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, (json.dumps({"made_of": made_of, **vars(played)}) + "\n").encode())
    assert played is not None
    return played


def _kept(file: Path, made_of: Mapping[str, Any]) -> StagesPlayed | None:
    """What was played of the same: all of it, or the first stages of a run that has gone on since. What cannot be read
    is played anew, as for other weights and tasks."""
    with suppress(OSError, *UNREADABLE):
        row = json.loads(file.read_text(encoding="utf-8"))
        played, before, now = StagesPlayed.from_json(row), row["made_of"]["checkpoints"], made_of["checkpoints"]
        if row["made_of"] == made_of:
            return played
        same = [*takewhile(lambda name: name in played.plays and before[name] == now[name], [*now][:-1])]
        if same and row["made_of"] | {"checkpoints": now} == made_of:
            plays = {name: played.plays[name] for name in same}
            return StagesPlayed(played.preferences, plays, same, {name: played.readable[name] for name in same})
    return None


def _checkpoints(folder: Path, best: Path) -> dict[str, Path | None]:
    """Checkpoints by stage: where reinforcement learning began, the best one, and the last if that is another. A run
    without a supervised start began with another's weights, or with the model itself."""
    last = checkpoint.latest(folder / "checkpoints")
    trained = {TRAINED: best} | ({LAST: last} if last and last != best else {})
    if not config_of(best).warm_start.steps:
        return {BEFORE: None, **trained}
    warm = folder / "checkpoints" / "step-000000"
    if not warm.is_dir() or checkpoint.check(warm):
        raise ConfigError(f"{warm} is gone or damaged; the weights after the supervised start are played from it")
    return {WARM: warm, **trained}


def _played(
    config: TrainConfig, name: str, path: Path | None, tasks: int, before: StagesPlayed | None, *, baselines: bool
) -> StagesPlayed:
    """What was played before, and this stage; the baselines beside it, if they are asked for."""
    config = replace(config, model=replace(config.model, processes=1))
    held_out = HeldOut(config.environments, tasks, "test", config.seed)
    engine, chat = build(config, lambda _line: None)
    try:
        if path is not None:
            engine.load(path)
        elif config.init_from:
            engine.start_from(saved_model(Path(config.init_from)).path)
        rollouts = Rollouts(engine, chat, rollout_params(config, config.evaluation_temperature))
        with engine.averaged():
            evaluation = held_out.evaluate(rollouts)
        rollouts.close()
    finally:
        engine.close()
    plays = {**(before.plays if before else {}), name: plays_of(evaluation.tasks)}
    readable = {**(before.readable if before else {}), name: evaluation.valid}
    if baselines:
        plays |= _beside(held_out, evaluation, chat)
    return StagesPlayed([one.preference.kind for one in evaluation.trajectories], plays, list(readable), readable)


def _beside(held_out: HeldOut, last: Evaluation, chat: Chat) -> dict[str, list[TaskResult | None]]:
    """The plays of the baselines, and of the oracles where the world has one."""
    with_oracle = all(ORACLE in players for players in last.by_environment.values())
    names = [*BASELINES, *((TOLD,) if with_oracle else ())]
    plays = {name: plays_of(held_out.beside(partial(baseline, name), last, chat)) for name in names}
    return plays | ({ORACLE: plays_of(last.tasks, ORACLE)} if with_oracle else {})


# -- as Markdown -------------------------------------------------------------------------------------------------------


def as_markdown(played: StagesPlayed) -> str:
    """Everybody over all tasks; each preference; where the oracle plays the share of its reward by preference; and what
    each stage changed, task by task."""
    tables = [_overall(played)]
    tables.append(f"Reward / right / ¢ a task, by preference:\n\n{_preferences(played, [*played.plays], _short)}")
    if ORACLE in played.plays:
        told = [name for name in (*played.stages, TOLD) if name in played.plays]
        shares = _preferences(played, told, _of_oracle)
        tables.append(f"Share of the oracle's reward, by preference:\n\n{shares}")
    return "\n\n".join([*tables, _changes(played)])


def _overall(played: StagesPlayed) -> str:
    tasks = played.common()
    rows = [["", "reward", "share of the oracle's", "right", "¢ a task", "s a task", "readable plays"]]
    for name, plays in played.plays.items():
        mine = [play for i in tasks if (play := plays[i]) is not None]
        reward, share = _mean([p.reward for p in mine], "{:.3f}", outcomes=True), _of_oracle(played, name, tasks)
        right = _mean([p.right for p in mine], "{:.1%}", outcomes=True)
        bills = [right, _mean([p.cents for p in mine], "{:.2f}")]
        seconds = f"{statistics.fmean(p.seconds for p in mine):.0f}" if mine else "-"
        readable = f"{played.readable[name]:.1%}" if name in played.readable else ""
        rows.append([name, reward, share, *bills, seconds, readable])
    return f"{len(tasks)} tasks.\n\n{markdown(rows)}"


def _preferences(
    played: StagesPlayed, names: Sequence[str], cell: Callable[[StagesPlayed, str, Sequence[int]], str]
) -> str:
    """A row for each kind of preference, with a cell of each of these players."""
    tasks = played.common()
    rows = [["preference", "tasks", *names]]
    for preference in dict.fromkeys(played.preferences):
        some = [i for i in tasks if played.preferences[i] == preference]
        rows.append([preference, str(len(some)), *(cell(played, name, some) for name in names)])
    return markdown(rows)


def _short(played: StagesPlayed, name: str, tasks: Sequence[int]) -> str:
    mine = [play for i in tasks if (play := played.plays[name][i]) is not None]
    if not mine:
        return "-"
    reward, right, cents = (statistics.fmean(p[k] for p in mine) for k in range(3))
    return f"{reward:.2f} / {right:.0%} / {cents:.2f}"


def _changes(played: StagesPlayed) -> str:
    tasks = played.common()
    rows = [["change", "reward", "right", "¢ a task"]]
    before = played.stages[0]
    for after in played.stages[1:]:
        pairs = [(a, b) for i in tasks if (a := played.plays[before][i]) and (b := played.plays[after][i])]
        apart = [[then - first for first, then in zip(a, b, strict=True)] for a, b in pairs]
        forms = (("{:+.3f}", True), ("{:+.1%}", True), ("{:+.2f}", False))
        cells = [_mean([one[n] for one in apart], form, outcomes=o) for n, (form, o) in enumerate(forms)]
        rows.append([f"{before} → {after}", *cells])
    return f"Task by task, the mean of the differences:\n\n{markdown(rows)}"


def _of_oracle(played: StagesPlayed, name: str, tasks: Sequence[int]) -> str:
    if name == ORACLE or ORACLE not in played.plays:
        return ""
    mine, best = ([p.reward for i in tasks if (p := played.plays[who][i])] for who in (name, ORACLE))
    if not sum(best):
        return "-"
    return f"{sum(mine) / sum(best):.1%} {_ends(ratio_interval(mine, best), '{:.1%}')}"


def _mean(values: Sequence[float], form: str, *, outcomes: bool = False) -> str:
    found = mean_interval(values, outcomes=outcomes)
    return "-" if found is None else f"{form.format(statistics.fmean(values))} {_ends(found, form)}"


def _ends(found: Interval, form: str) -> str:
    return f"[{form.format(found.low)}, {form.format(found.high)}]"
