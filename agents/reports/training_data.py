"""What the page of training runs shows: what the test came to, the curves that matter, and every episode that was kept.

All of it is read from the runs' folders, so a page is drawn again without the model. Curves have MOST_POINTS points a
line at most, so the size of a page does not grow with the steps of a run. metrics.jsonl has every metric of every step.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.agents.configuration.config import from_json
from toolorchestra.agents.configuration.environments import simulated
from toolorchestra.agents.evaluation.heldout import POLICY
from toolorchestra.agents.reports.page_data import UNREADABLE, ShownRun, ShownTrial, read_recorded
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.group_dumps import ROLLOUTS
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.sessions import Session, counted, read_sessions, seconds_of
from toolorchestra.envs.base.errors import ConfigError

SUMMARY, METRICS = Path("report") / "summary.json", Path("metrics.jsonl")
TESTED = Path("report") / "trajectories.jsonl"
"""The episodes of the test, turn by turn."""
MINE = "trained"
MOST_POINTS = 240
WINDOW = 9
"""Steps that a smoothed value is the mean of, at least."""
REWARDS = (
    "The held-out reward goes from 0 to 1: it weighs right answers, cents, seconds and favoured tools by the user's "
    "preference, on the scale of the baselines. A wrong answer earns 0. Small figures are ends of intervals of 95 %."
)
Rows = Sequence[Mapping[str, Any]]
Point = tuple[float, float]
Cell = str | tuple[str, str]
"""A figure, and what stands below it in small letters."""


class Drawn(NamedTuple):
    """What a curve is of."""

    metric: str
    title: str
    unit: str
    times: float


HELD_OUT = (
    Drawn("reward", "Held-out reward", "reward, 0 to 1", 1.0),
    Drawn("accuracy", "Right answers, held out", "%", 100.0),
    Drawn("cents", "Cost of a held-out task", "cents", 1.0),
)
IN_TRAINING = (
    Drawn("accuracy", "Right answers in training", "%", 100.0),
    Drawn("cents", "Cost of a rollout in training", "cents", 1.0),
    Drawn("different", "Different trajectories in a group", "trajectories", 1.0),
)


@dataclass(frozen=True)
class KeptRun:
    """What the folder of one training run holds for its page."""

    folder: Path
    summary: Mapping[str, Any] | None
    """None where the run has not come to its report."""
    train: Rows
    """Rows of metrics.jsonl, one for each training step."""
    evaluations: Rows
    sessions: Sequence[Session]
    configuration: Mapping[str, Any] | None
    """None where neither the summary nor a checkpoint says it."""

    @property
    def simulated(self) -> bool | None:
        """Whether nothing real was asked; None where nothing says so."""
        if self.summary is not None:
            return bool(self.summary.get("simulated"))
        with suppress(*UNREADABLE, ConfigError):  # of another version, or of an environment that is not registered here
            return simulated(from_json(self.configuration).environments) if self.configuration else None
        return None


def is_training(folder: Path) -> bool:
    """Whether a folder is that of a training run."""
    return any((folder / name).exists() for name in (SUMMARY, METRICS, ROLLOUTS, "checkpoints"))


def read_kept(folder: Path) -> KeptRun:
    """What is there of a run."""
    summary = _summary(folder)
    rows: dict[str, list[Mapping[str, Any]]] = {"train": [], "eval": []}
    for row in read(folder / METRICS):
        rows.setdefault(str(row.get("kind")), []).append(row)
    configuration = (summary or {}).get("configuration") or _configuration(folder)
    return KeptRun(folder, summary, rows["train"], rows["eval"], read_sessions(folder), configuration)


def _summary(folder: Path) -> Mapping[str, Any] | None:
    """The numbers of the run's report. Raises ConfigError where the page cannot be drawn of them."""
    if not (path := folder / SUMMARY).is_file():
        return None
    try:
        found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        reached(found)
        _one(KeptRun(folder, found, (), (), (), None))
    except (OSError, IndexError, *UNREADABLE) as err:
        raise ConfigError(
            f"{path}: expected the figures of a report ({type(err).__name__}: {err!s:.80}); go on with the run, which "
            "writes it anew, or take the file out: the page then shows what else is there",
            command_line="toolorchestra train --resume",
        ) from None
    return found


def _configuration(folder: Path) -> Mapping[str, Any] | None:
    """What was asked for, as the newest checkpoint has it."""
    for place in reversed(checkpoint.all_of(folder / "checkpoints")):
        with suppress(OSError, *UNREADABLE):
            found: Mapping[str, Any] = json.loads((place / checkpoint.STATE).read_text(encoding="utf-8"))["config"]
            return found
    return None


def read_training(folders: Sequence[Path]) -> ShownRun:
    """The page's data: of one run with its baselines, of several the trained policies beside each other."""
    runs, names = [read_kept(folder) for folder in folders], _names(folders)
    seen: Counter[tuple[str, ...]] = Counter()
    trials: list[ShownTrial] = []
    notes: list[str] = []
    for run, name in zip(runs, names, strict=True):
        found, said = _episodes(run.folder, name, seen, every=len(runs) == 1)
        trials += found
        notes += said
    told = {run.simulated for run in runs}
    alone = {"simulated": True} if told == {True} else {"simulated": False} if False in told else {}
    settings = {name: run.configuration for run, name in zip(runs, names, strict=True) if run.configuration}
    manifest = {**alone, "training": settings.get(MINE, settings)} if settings or alone else None
    title = folders[0].resolve().name if len(runs) == 1 else f"{len(runs)} training runs"
    return ShownRun(title, tuple(trials), manifest, tuple(notes), training=_shown(runs, names))


def _names(folders: Sequence[Path]) -> list[str]:
    if len(folders) == 1:
        return [MINE]
    short = [folder.resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def _shown(runs: Sequence[KeptRun], names: Sequence[str]) -> dict[str, Any]:
    return _one(runs[0]) if len(runs) == 1 else _several(runs, names)


def _episodes(
    folder: Path, name: str, seen: Counter[tuple[str, ...]], *, every: bool
) -> tuple[list[ShownTrial], list[str]]:
    """The episodes of a run's test; and its rollouts that were dumped, where all are wanted or there is no test."""
    tested, notes = read_recorded(folder / TESTED, seen)
    dumped: list[ShownTrial] = []
    if every or not tested:
        dumped, said = read_recorded(folder / ROLLOUTS, seen)
        notes += [*_about(dumped, tested=bool(tested)), *said]
    return [replace(one, row=replace(one.row, policy=name)) for one in (*tested, *dumped)], notes


def _about(dumped: Sequence[ShownTrial], *, tested: bool) -> list[str]:
    """What is to be known of rollouts: each step's are sampled by other weights, to learn from."""
    if not dumped:
        return []
    steps = len({one.training.get("step") for one in dumped})
    told = f"{len(dumped)} rollouts of {steps} steps of training"
    if tested:
        return [f"{told} are among the trajectories. They are by weights that change, and in no figure."]
    return [f"These are {told}, by weights that change: no evaluation. The run has no test yet."]


# -- one run -----------------------------------------------------------------------------------------------------------


def _one(run: KeptRun) -> dict[str, Any]:
    standings = run.summary["standings"] if run.summary else {}
    players = [_player(_called(name), one) for name, one in standings.items()]
    names = [one["policy"] for one in players] or [MINE]
    curves = [_held_out(run.evaluations, names, drawn) for drawn in HELD_OUT]
    window = max(WINDOW, len(run.train) // 8 | 1)
    curves += [_in_training([run], [MINE], window, drawn) for drawn in IN_TRAINING]
    return {
        "lead": reached(run.summary) if run.summary else "",
        "facts": _facts(run),
        "players": players,
        "about": "On the test split. Whiskers are 95% intervals over tasks; the line joins what no other beats.",
        "curves": [one for one in curves if one["lines"]],
        "tables": list(_tables(run.summary)) if run.summary else [],
    }


def _called(name: str) -> str:
    return MINE if name == POLICY else name


def _player(name: str, one: Mapping[str, Any]) -> dict[str, Any]:
    """A point of the plane."""
    ends = one.get("intervals") or {}
    right, cents = ([one[of], *(ends.get(of) or [one[of]] * 2)] for of in ("accuracy", "cents"))
    return {"policy": name, "tasks": one["tasks"], "accuracy": right, "cents": cents}


def reached(summary: Mapping[str, Any]) -> str:
    """What the policy came to on the test tasks, in a sentence or two."""
    seen, chosen = _with_test_of(summary, "train"), _with_test_of(summary, "validation")
    new = "prices, tools and wordings" if seen else "tasks, prices, tools and wordings"
    mine, share = summary["standings"][POLICY], summary.get("of_oracle")
    where = f"On {new} never trained on, as far as the environments vary them, the policy"
    solved = f"{where} solves {mine['accuracy']:.1%} at {mine['cents']:.2f} ¢ a task"
    if seen:
        solved += f". The test tasks of {seen} are from the split that was trained on"
    if chosen:
        solved += f". The checkpoint was chosen on tasks of the same split of {chosen}"
    if not share:
        return f"{solved}. No baseline can play them."
    only = [name for name, panel in (summary.get("by_environment") or {}).items() if "oracle" not in panel]
    note = f" Baselines do not play {', '.join(sorted(only))}." if only else ""
    return (
        f"{solved}. It earns {share['value']:.1%} [{share['low']:.1%}, {share['high']:.1%}] of the held-out reward of "
        f"an oracle that knows questions, skills and the preference.{note}"
    )


def _with_test_of(summary: Mapping[str, Any], split: str) -> str:
    """The environments whose test split is the one of training, or of validation, by name."""
    mixes = (summary.get("configuration") or {}).get("environments") or ()
    same = [one["env_id"] for one in mixes if one.get("test", "test") == one.get(split, split)]
    return ", ".join(dict.fromkeys(env_id.rpartition("/")[2] for env_id in same))


def _facts(run: KeptRun) -> list[tuple[str, str]]:
    facts = []
    if run.summary:
        facts.append(("steps", f"{run.summary['steps']}; the weights are those of step {run.summary['best_step']}"))
        if run.summary["failed"]:
            facts.append(("failed in the test", str(run.summary["failed"])))
    if not run.sessions:
        return facts
    first, last = run.sessions[0], run.sessions[-1]
    trained = "all" if last.size.trained == last.size.parameters else counted(last.size.trained)
    facts.append(("parameters", f"{counted(last.size.parameters)}, {trained} trained"))
    times = f" in {len(run.sessions)} sessions" if len(run.sessions) > 1 else ""
    took = f"not recorded up to step {first.step}" if first.step else _duration(seconds_of([*run.sessions])) + times
    facts += [("training took", took), ("went on" if first.step else "began", first.date)]
    return [*facts, ("machine", last.machine), ("trained by", f"toolorchestra {last.version}")]


def _duration(seconds: float) -> str:
    """Seconds, minutes or hours in words, such as "5 min"."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# -- tables ------------------------------------------------------------------------------------------------------------


def _tables(summary: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The test's tables: all together, by environment, by preference, and the probes."""
    yield _standings("The test", summary["standings"], REWARDS)
    if preferences := summary.get("by_preference"):
        head = ["preference", "tasks", "of the oracle's reward", "held-out reward", "right", "¢ a task"]
        rows = [_preference(*one) for one in preferences.items()]
        yield {"title": "By the user's preference", "head": head, "rows": rows}
    if len(found := summary.get("by_environment") or {}) > 1:
        for name, standings in found.items():
            yield _standings(name.replace("ToolOrchestra/", ""), standings)
    if probes := summary.get("probes"):
        about = "The same task with one thing changed: how often each side was chosen."
        head, rows = ["what", "one side", "other side", "shift"], [_probe(one) for one in probes]
        yield {"title": "Counterfactual probes", "about": about, "head": head, "rows": rows}


def _standings(title: str, standings: Mapping[str, Mapping[str, Any]], about: str = "") -> dict[str, Any]:
    head = ["player", "reward", "right", "¢ a task", "¢ a solved", "s a task"]
    rows = []
    for name, one in standings.items():
        solved = one["cents_per_solved"]
        cells = [_with_ends(one, "reward", ".3f"), _with_ends(one, "accuracy", ".1%"), _with_ends(one, "cents", ".2f")]
        rows.append([_called(name), *cells, "–" if solved is None else f"{solved:.2f}", f"{one['seconds']:.0f}"])
    if len(rows) == 1:
        about = f"{about} No baseline can play here.".strip()
    return {"title": title, "about": about, "head": head, "rows": rows}


def _with_ends(one: Mapping[str, Any], name: str, form: str) -> Cell:
    ends = (one.get("intervals") or {}).get(name)
    value = f"{one[name]:{form}}"
    return (value, f"{ends[0]:{form}} to {ends[1]:{form}}") if ends else value


def _preference(name: str, one: Mapping[str, Any]) -> list[Cell]:
    mine, best = one["policy"], one["oracle"]
    beside = [
        (f"{mine[of]:{form}}", f"oracle {best[of]:{form}}") for of, form in (("accuracy", ".0%"), ("cents", ".2f"))
    ]
    return [name, str(mine["tasks"]), _share(one["of_oracle"], ".0%"), f"{mine['reward']:.3f}", *beside]


def _share(found: Mapping[str, float] | None, form: str) -> Cell:
    if not found:
        return "–"
    return f"{found['value']:{form}}", f"{found['low']:{form}} to {found['high']:{form}}"


def _probe(one: Mapping[str, Any]) -> list[Cell]:
    sides: list[Cell] = [(f"{one[f'{side}_rate']:.2f}", one[side]) for side in ("left", "right")]
    return [one["name"], *sides, f"{one['shift']:+.2f}"]


# -- several runs ------------------------------------------------------------------------------------------------------


def _several(runs: Sequence[KeptRun], names: Sequence[str]) -> dict[str, Any]:
    ended = [(run.summary, name) for run, name in zip(runs, names, strict=True) if run.summary is not None]
    curves = []
    for drawn in HELD_OUT:
        lines = [
            _line(name, place, _column(run.evaluations, f"{POLICY}/{drawn.metric}", drawn.times))
            for place, (run, name) in enumerate(zip(runs, names, strict=True))
        ]
        curves.append(_curve(drawn, "The trained policy on the validation split of each run.", lines))
    curves += [_in_training(runs, names, WINDOW, drawn) for drawn in IN_TRAINING]
    head, rows = ["run", "of the oracle's reward", "held-out reward", "right", "¢ a task"], []
    for summary, name in ended:
        one, share = summary["standings"][POLICY], _share(summary.get("of_oracle"), ".1%")
        rows.append([name, share, f"{one['reward']:.3f}", f"{one['accuracy']:.1%}", f"{one['cents']:.2f}"])
    return {
        "lead": "",
        "facts": [],
        "players": [_player(name, summary["standings"][POLICY]) for summary, name in ended],
        "about": "The trained policy of each run, on its own test tasks. Whiskers are 95% intervals over tasks.",
        "curves": [one for one in curves if one["lines"]],
        "tables": [{"title": "The test", "about": REWARDS, "head": head, "rows": rows}] if rows else [],
    }


# -- curves ------------------------------------------------------------------------------------------------------------


def _held_out(evaluations: Rows, names: Sequence[str], drawn: Drawn) -> dict[str, Any]:
    """The policy with its interval, beside the baselines of the same tasks."""
    lines, times = [], drawn.times
    for place, name in enumerate(names):
        key = f"{POLICY if name == MINE else name}/{drawn.metric}"
        ends = [(row["step"], row.get(f"{key}_low"), row.get(f"{key}_high")) for row in evaluations]
        band = [(step, times * low, times * high) for step, low, high in ends if low is not None and high is not None]
        lines.append(_line(name, place, _column(evaluations, key, times), band=band, dashed=name != MINE))
    about = "On the validation split." + (" The shade is the interval of 95 %." if lines[0]["band"] else "")
    return _curve(drawn, about, lines)


def _in_training(runs: Sequence[KeptRun], names: Sequence[str], window: int, drawn: Drawn) -> dict[str, Any]:
    """A line for each run; of one run alone the single steps too."""
    lines = []
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        single = _column(run.train, drawn.metric, drawn.times)
        faint = single if len(runs) == 1 and len(single) > window else []
        lines.append(_line(name, place, smoothed(single, window) if len(single) > window else single, faint=faint))
    about = f"The mean of {window} steps" + ("; each dot is one step." if any(one["faint"] for one in lines) else ".")
    return _curve(drawn, about, lines)


def _curve(drawn: Drawn, about: str, lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    kept = [one for one in lines if one["points"]]
    return {"title": drawn.title, "about": about, "unit": drawn.unit, "lines": kept}


def _line(
    name: str,
    place: int,
    points: Sequence[Point],
    *,
    band: Sequence[tuple[float, float, float]] = (),
    faint: Sequence[Point] = (),
    dashed: bool = False,
) -> dict[str, Any]:
    """A line of a curve; `place` is its colour."""
    shown = list(band)[:: 1 + len(band) // MOST_POINTS]
    return {"name": name, "place": place, "dashed": dashed, "points": thinned(points), "band": shown,
            "faint": thinned(faint)}  # fmt: skip


def _column(rows: Rows, name: str, times: float) -> list[Point]:
    found = [(row["step"], row.get(name)) for row in rows]
    return [(step, times * y) for step, y in found if isinstance(y, int | float) and math.isfinite(y)]


def thinned(points: Sequence[Point]) -> list[Point]:
    """Keep MOST_POINTS at most, each the mean of its neighbours."""
    if len(points) <= MOST_POINTS:
        return list(points)
    edges = [round(place * len(points) / MOST_POINTS) for place in range(MOST_POINTS + 1)]
    parts = [points[start:end] for start, end in pairwise(edges)]
    return [(statistics.fmean(x for x, _ in part), statistics.fmean(y for _, y in part)) for part in parts]


def smoothed(points: Sequence[Point], window: int) -> list[Point]:
    """Each value as the mean of `window` steps around it; of fewer at the ends."""
    half, made = window // 2, []
    sums = [0.0, *accumulate(y for _, y in points)]
    for place, (x, _) in enumerate(points):
        first, end = max(0, place - half), min(len(points), place + half + 1)
        made.append((x, (sums[end] - sums[first]) / (end - first)))
    return made


# -- the same for the terminal -----------------------------------------------------------------------------------------


def figures(folders: Sequence[Path]) -> str:
    """The page's tables of these runs, as Markdown."""
    tables = _shown([read_kept(folder) for folder in folders], _names(folders))["tables"]
    parts = []
    for table in tables:
        rows = [[cell if isinstance(cell, str) else f"{cell[0]} ({cell[1]})" for cell in row] for row in table["rows"]]
        parts.append(f"{table['title']}\n\n{markdown([table['head'], *rows])}")
    return "\n\n".join(parts)


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table of cells as they are; the first row is its head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)
