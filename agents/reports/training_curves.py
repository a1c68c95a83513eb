"""Which curves a training report shows: what moves, smoothed where single steps are noise, each with its unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolorchestra.agents.evaluation.panel import ORACLE, POLICY
from toolorchestra.agents.reports.charts import Chart, Line, Point, line_chart, smoothed, stack_chart

Rows = Sequence[Mapping[str, Any]]
PLAYERS = ((ORACLE, "c1"), ("strongest", "c2"), ("cheapest", "c3"), ("random", "c7"))
"""Fixed players, and the colour of each."""
WISH, REWARD = "wish/", "/reward"
OF_ROLLOUTS, OF_TRAINER = ("sampling", "tokenisation", "tools"), ("training", "sync", "idle")


def curves(train: Rows, evaluations: Rows, warm: Rows) -> list[Chart]:
    """All that the run has numbers for, in the order of the report."""
    window = max(3, len(train) // 8 | 1)
    smooth = f"The line is the mean of {window} steps, each dot is one step." if len(train) > window else ""
    made = [
        _held_out_reward(evaluations),
        _wishes(evaluations),
        _smooth(train, "regret", "Regret in training", f"{_REGRET} {smooth}", "reward", window),
        _smooth(train, "cents", "Cost of a rollout", f"What one episode of training costs. {smooth}", "cents", window),
        _smooth(train, "accuracy", "Right answers in training", f"Of a step's rollouts. {smooth}", "%", window),
        _held_out(evaluations, "accuracy", "Right answers, held out", "%", 100),
        _held_out(evaluations, "cents", "Cost of a held-out task", "cents", 1),
        _smooth(train, "loss/entropy", "Entropy of the choices", f"In nats a token. {smooth}", "nats", window),
        _warm(warm),
        *_times(train),
    ]
    return [chart for chart in made if chart is not None]


_REGRET = (
    "How much held-out reward the rollouts left to the better of the fixed players on the same task. Below 0 they did "
    "better than both."
)


def _column(rows: Rows, name: str, times: float = 1.0) -> list[Point]:
    return [(row["step"], times * row[name]) for row in rows if isinstance(row.get(name), int | float)]


def _band(rows: Rows, name: str, times: float) -> list[tuple[float, float, float]]:
    """The interval of a held-out mean, where it was logged."""
    ends = [(row["step"], row.get(f"{name}_low"), row.get(f"{name}_high")) for row in rows]
    return [(step, times * low, times * high) for step, low, high in ends if low is not None and high is not None]


def _held_out_reward(evaluations: Rows) -> Chart | None:
    return _held_out(evaluations, "reward", "Held-out reward", "reward, 0 to 1", 1)


def _held_out(evaluations: Rows, name: str, title: str, unit: str, times: float) -> Chart | None:
    """The policy with its interval, beside the fixed players of the same tasks."""
    mine = f"{POLICY}/{name}"
    band = _band(evaluations, mine, times)
    lines = [Line("the trained policy", _column(evaluations, mine, times), "c0", band=band)]
    lines += [Line(who, _column(evaluations, f"{who}/{name}", times), colour, dashed=True) for who, colour in PLAYERS]
    about = "Tasks of the validation split." + (" The shade is the interval of 95 %." if band else "")
    return line_chart(title, about, lines, unit=unit) if lines[0].points else None


def _wishes(evaluations: Rows) -> Chart | None:
    names = [key[len(WISH) : -len(REWARD)] for key in (evaluations[0] if evaluations else {}) if _of_wish(key)]
    lines = [
        Line(name, _column(evaluations, f"{WISH}{name}{REWARD}"), f"c{place % 8}") for place, name in enumerate(names)
    ]
    about = "The trained policy on the validation split, by what the user asked for. Few tasks each: they waver."
    return line_chart("Held-out reward by wish", about, lines, unit="reward, 0 to 1")


def _of_wish(key: str) -> bool:
    return key.startswith(WISH) and key.endswith(REWARD)


def _smooth(train: Rows, name: str, title: str, about: str, unit: str, window: int) -> Chart | None:
    single = _column(train, name, 100.0 if unit == "%" else 1.0)
    line = Line(title, smoothed(single, window) if len(single) > window else single, "c0", faint=single)
    return line_chart(title, about.strip(), [line], unit=unit)


def _warm(warm: Rows) -> Chart | None:
    single = _column(warm, "loss")
    line = Line("loss", smoothed(single, max(3, len(single) // 20 | 1)), "c5")
    about = "Before reinforcement learning, the model imitates demonstrations. Its steps are counted apart."
    return line_chart("Loss of the supervised start", about, [line], unit="nats a token")


def _times(train: Rows) -> list[Chart | None]:
    """Where the seconds of each step went; where rollouts went on beside the training, those of both sides."""
    timed = [row for row in train if "time/step" in row]
    if not timed:  # of an earlier version
        return []
    if "time/rollouts_idle" not in timed[-1]:
        return [_stacked("Where the time of a step went", timed, (*OF_ROLLOUTS, *OF_TRAINER))]
    return [
        _stacked("Where the trainer's time went", timed, OF_TRAINER),
        _stacked("What the rollouts did meanwhile", timed, (*OF_ROLLOUTS, "rollouts_idle")),
    ]


def _stacked(title: str, timed: Rows, parts: Sequence[str]) -> Chart | None:
    columns = [
        (part.replace("_", " "), [(row["step"], float(row.get(f"time/{part}") or 0.0)) for row in timed])
        for part in parts
    ]
    return stack_chart(title, "Seconds of each step. Idle is waiting for other processes.", columns, unit="seconds")
