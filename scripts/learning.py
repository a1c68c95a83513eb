"""How fast runs learnt: plays and minutes to shares of the oracle's reward, and the curves as a picture.

python scripts/learning.py runs/tiny-seed0 runs/tiny-seed1 runs/tiny-seed2 --svg docs/images/learning.svg
python scripts/learning.py runs/*-seed?        # a table: runs that differ in their seed alone are one row
python scripts/learning.py runs/tiny-seed0 --plane runs/e2 --plane-svg docs/images/plane.svg

Everything is read from the runs' folders: the curve from metrics.jsonl (validation), the end from report/summary.json
(test), and the cascade, the best rule without training, from report/stages.json if `report --stages` has played it. Of
a run with --warm-start.planned True the start alone is drawn, as a level line. The plane of accuracy and cost is of a
run of `evaluate`; its checkpoints are called by their seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolorchestra.agents.reports.stages import StagesPlayed
from toolorchestra.agents.training.metrics import read

SHARES = (0.8, 0.9, 0.95)
WIDTH, HEIGHT, LEFT, TOP = 720, 380, 60, 24
PLANNED = "planned start"
CASCADE = "cascade"
BASELINES = {
    "oracle": "#8a8f98", PLANNED: "#7a5aa0", CASCADE: "#3b8a8a", "strongest": "#b3793b", "cheapest": "#6a8d5a",
    "random": "#a05a6a",
}  # fmt: skip
COLOURS = ("#2f6cc9", "#5b8fd6", "#4a5fb0")
STYLE = """
.c { fill: #2458a6; stroke: #2458a6 } .t { fill: #c2571a; stroke: #c2571a } text { fill: #333; stroke: none }
.g { stroke: #ddd } .b { fill: #fff }
@media (prefers-color-scheme: dark) {
  .c { fill: #7fb0f0; stroke: #7fb0f0 } .t { fill: #f09a5a; stroke: #f09a5a } text { fill: #ddd } .g { stroke: #444 }
  .b { fill: #0d1117 }
}"""
"""Colours by day and by night."""


@dataclass(frozen=True)
class Curve:
    """One run: its validation evaluations and its end."""

    name: str
    seed: int
    points: Sequence[tuple[int, float]]
    """Plays, and the share of the oracle's reward."""
    rewards: Sequence[tuple[int, float]]
    """Plays, and the held-out reward."""
    levels: Mapping[str, float]
    """The held-out rewards of those who do not learn."""
    minutes_a_play: float
    summary: Mapping[str, Any]
    planned: bool
    """Whether its start imitated plans: then that alone is of interest."""

    def plays_to(self, share: float) -> int | None:
        """The plays after which the first evaluation has this share of the oracle's reward."""
        return next((plays for plays, value in self.points if value >= share), None)


def curve_of(folder: Path) -> Curve:
    """What the folder of a run says."""
    if not (report := folder / "report" / "summary.json").is_file():
        sys.exit(f"{folder} has no report: wait for its end, or run toolorchestra report {folder}")
    rows, ended = list(read(folder / "metrics.jsonl")), json.loads(report.read_text(encoding="utf-8"))
    config = ended["configuration"]
    each = config["groups"] * config["rollouts"]
    evaluations = [row for row in rows if row["kind"] == "eval"]
    steps = [row["time/step"] for row in rows if row["kind"] == "train"]
    levels = {name: evaluations[-1][f"{name}/reward"] for name in BASELINES if f"{name}/reward" in evaluations[-1]}
    if (stages := folder / "report" / "stages.json").is_file():
        played = StagesPlayed.from_json(json.loads(stages.read_text(encoding="utf-8"))).plays.get(CASCADE, [])
        if rewards := [play.reward for play in played if play is not None]:
            levels[CASCADE] = statistics.fmean(rewards)
    planned = config["warm_start"]["planned"]
    if planned:
        levels[PLANNED] = evaluations[0]["policy/reward"]
    return Curve(
        f"{config['preset']}, {config['algorithm']}, {config['groups']} x {config['rollouts']}"
        + f", staleness {config['max_staleness']}" * bool(config["max_staleness"]),
        config["seed"],
        [(row["step"] * each, row["of_oracle"]) for row in evaluations if row.get("of_oracle") is not None],
        [(row["step"] * each, row["policy/reward"]) for row in evaluations],
        levels,
        sum(steps) / 60 / max(1, len(steps) * each),
        ended,
        planned,
    )


def table(curves: Sequence[Curve]) -> str:
    """One row for the runs of each name."""
    by_name: dict[str, list[Curve]] = defaultdict(list)
    for one in curves:
        by_name[f"{one.name}, {PLANNED}" if one.planned else one.name].append(one)
    head = ["runs", "seeds", "start", *(f"plays to {share:.0%}" for share in SHARES), "minutes", "end (test)", "¢"]
    rows = [head, ["---"] * len(head)]
    for name, some in by_name.items():
        reached = [_together([one.plays_to(share) for one in some]) for share in SHARES]
        minutes = statistics.fmean(one.points[-1][0] * one.minutes_a_play for one in some)
        ends = [one.summary["of_oracle"] for one in some if one.summary["of_oracle"]]
        reach = math.hypot(*((one["high"] - one["low"]) / 2 for one in ends)) / len(ends)
        cents = statistics.fmean(one.summary["standings"]["policy"]["cents"] for one in some)
        start, end = statistics.fmean(one.points[0][1] for one in some), statistics.fmean(one["value"] for one in ends)
        each = f"{end:.1%} ± {100 * reach:.1f} (" + ", ".join(f"{one['value']:.1%}" for one in ends) + ")"
        rows.append([name, str(len(some)), f"{start:.0%}", *reached, f"{minutes:.1f}", each, f"{cents:.2f}"])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _together(found: Sequence[int | None]) -> str:
    """The mean where all came so far; else how many did."""
    came = [plays for plays in found if plays is not None]
    if len(came) == len(found):
        return f"{statistics.fmean(came):,.0f}"
    return f"{len(came)} of {len(found)}" if came else "-"


def picture(curves: Sequence[Curve]) -> str:
    """Reward over plays: one line a run, and those who do not learn as level lines."""
    drawn = [one for one in curves if not one.planned]
    most = max(plays for one in drawn for plays, _ in one.rewards)
    top = 1.1 * max(value for one in curves for value in (*one.levels.values(), *(r for _, r in one.rewards)))

    def at(plays: float, reward: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - 110) * plays / most:.1f},{TOP + (HEIGHT - TOP - 50) * (1 - reward / top):.1f}"

    parts = [f"<style>{STYLE}</style>", f'<rect class="b" width="{WIDTH}" height="{HEIGHT}"/>']
    for name, colour in BASELINES.items():
        seen = [one.levels[name] for one in curves if name in one.levels]
        if seen:
            level = statistics.fmean(seen)
            x, y = at(most, level).split(",")
            parts.append(
                f'<polyline points="{at(0, level)} {x},{y}" stroke="{colour}" stroke-dasharray="5 4" fill="none"/>'
            )
            parts.append(f'<text x="{float(x) + 6}" y="{float(y) + 4}" style="fill: {colour}">{name}</text>')
    for number, one in enumerate(drawn):
        points = " ".join(at(*point) for point in one.rewards)
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline points="{points}" stroke="{colour}" stroke-width="2.2" fill="none"/>')
    for share in range(5):
        plays = most * share / 4
        x, y = at(plays, 0).split(",")
        parts.append(f'<text x="{x}" y="{float(y) + 18}" text-anchor="middle">{plays:,.0f}</text>')
        reward = top * share / 4
        x, y = at(0, reward).split(",")
        parts.append(f'<text x="{float(x) - 6}" y="{float(y) + 4}" text-anchor="end">{reward:.2f}</text>')
    seeds = ", ".join(str(one.seed) for one in drawn)
    parts.append(f'<text x="{LEFT}" y="14">held-out reward (validation, simulated) over plays; seeds {seeds}</text>')
    return _drawn(parts)


def _drawn(parts: Sequence[str]) -> str:
    about, body = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12"', "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" {about}>\n{body}\n</svg>\n'


def plane(run: Path) -> str:
    """Accuracy over cents on a logarithmic scale, a panel for each environment, with intervals of 95 %."""
    told = json.loads((run / "summary.json").read_text(encoding="utf-8"))["policies"]
    policies = [one for one in told if one["accuracy"]["interval"] and min(one["cents"]["interval"] or [0]) > 0]
    if left_out := [f"{one['policy']} on {one['env']}" for one in told if one not in policies]:
        print(f"left out of the plane, without intervals or with cents of 0: {', '.join(left_out)}")
    if not policies:
        sys.exit(f"{run} has no policy for the plane")
    envs = list(dict.fromkeys(one["env"] for one in policies))
    cents = [end for one in policies for end in one["cents"]["interval"]]
    low, high, width = math.log10(min(cents) / 1.3), math.log10(max(cents) * 3.4), WIDTH / len(envs)
    parts = [f"<style>{STYLE}</style>", f'<rect class="b" width="{WIDTH}" height="{HEIGHT}"/>']
    for number, env in enumerate(envs):
        left, right = width * number + 44, width * (number + 1) - 8

        def x(value: float, left: float = left, right: float = right) -> float:
            return left + (right - left) * (math.log10(value) - low) / (high - low)

        parts.append(f'<text x="{left}" y="14">{env}, {_tasks_of(policies, env)} tasks (simulated)</text>')
        parts += _grid(left, right, x, low, high)
        parts += _points([one for one in policies if one["env"] == env], x)
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 4}" text-anchor="middle">right answers, % over ¢ a task</text>')
    return _drawn(parts)


def _tasks_of(policies: Sequence[Mapping[str, Any]], env: str) -> int:
    return max(int(one["tasks"]) for one in policies if one["env"] == env)


def _height(share: float) -> float:
    return TOP + (HEIGHT - TOP - 50) * (1 - share)


def _grid(left: float, right: float, x: Callable[[float], float], low: float, high: float) -> list[str]:
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _height(share)
        parts.append(f'<line class="g" x1="{left}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{100 * share:.0f}</text>')
    for power in range(math.ceil(low), math.floor(high) + 1):
        place = x(10.0**power)
        parts.append(f'<text x="{place:.1f}" y="{_height(0) + 18:.1f}" text-anchor="middle">{10.0**power:g}</text>')
    return parts


def _points(some: Sequence[Mapping[str, Any]], x: Callable[[float], float]) -> list[str]:
    """Each policy with its intervals, and its name where no other name or point stands."""
    parts, taken = [], [(x(one["cents"]["mean"]), _height(one["accuracy"]["value"]), 5.0, 5.0) for one in some]
    for one in some:
        trained = re.search(r"checkpoint:.*seed(\d+)", one["policy"])
        name, kind = (f"trained {trained[1]}", "t") if trained else (one["policy"], "c")
        (cheap, dear), (least, most) = one["cents"]["interval"], one["accuracy"]["interval"]
        at, y = x(one["cents"]["mean"]), _height(one["accuracy"]["value"])
        half = 3.2 * len(name)
        places = [
            (at + side * (half + 8), y + lower) for lower in (-8, 8, -20, 20, -32, 32, -44, 44) for side in (1, -1)
        ]
        free = [place for place in places if not any(_meet((*place, half, 5.0), other) for other in taken)]
        middle, base = (free or places)[0]
        taken.append((middle, base, half, 5.0))
        parts += [
            f'<line class="{kind}" x1="{x(cheap):.1f}" x2="{x(dear):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>',
            f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{_height(least):.1f}" y2="{_height(most):.1f}"/>',
            f'<circle class="{kind}" cx="{at:.1f}" cy="{y:.1f}" r="4"/>',
            f'<text x="{middle:.1f}" y="{base + 4:.1f}" text-anchor="middle">{name}</text>',
        ]
    return parts


Box = tuple[float, float, float, float]
"""Middle, and half of width and height."""


def _meet(one: Box, other: Box) -> bool:
    return abs(one[0] - other[0]) < one[2] + other[2] and abs(one[1] - other[1]) < one[3] + other[3]


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of training runs that have ended")
    parser.add_argument("--svg", type=Path, help="where the picture goes")
    parser.add_argument("--plane", type=Path, help="a folder of evaluate, for the plane of accuracy and cost")
    parser.add_argument("--plane-svg", type=Path, help="where the plane goes")
    args = parser.parse_args(given)
    curves = [curve_of(folder) for folder in args.runs]
    print(table(curves))
    if args.svg:
        args.svg.write_text(picture(curves), encoding="utf-8")
        print(f"picture: {args.svg}")
    if args.plane and args.plane_svg:
        args.plane_svg.write_text(plane(args.plane), encoding="utf-8")
        print(f"picture: {args.plane_svg}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
