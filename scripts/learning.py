"""How fast runs learnt: plays and minutes to shares of the oracle's reward, and the curves as a picture.

python scripts/learning.py runs/tiny-seed0 runs/tiny-seed1 runs/tiny-seed2 --svg docs/images/learning.svg
for a in grpo leave-one-out gated critic; do toolorchestra train --algorithm $a --out runs/$a-seed0; done
python scripts/learning.py runs/*-seed0                             # a table of algorithms

Everything is read from the runs' folders: the curve from metrics.jsonl (validation), the end from report/summary.json
(test), and the cascade, the best rule without training, from report/stages.json if `report --stages` has played it. Of
a run with --warm-start.planned True the start alone is drawn, as a level line. Runs that differ in their seed alone are
one row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
COLOURS = ("#2458a6", "#5b8fd6", "#123a73")


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
    rows = list(read(folder / "metrics.jsonl"))
    ended = json.loads((folder / "report" / "summary.json").read_text(encoding="utf-8"))
    config = ended["configuration"]
    each = config["groups"] * config["rollouts"]
    evaluations = [row for row in rows if row["kind"] == "eval"]
    steps = [row["time/step"] for row in rows if row["kind"] == "train"]
    levels = {name: evaluations[-1][f"{name}/reward"] for name in BASELINES if f"{name}/reward" in evaluations[-1]}
    if (stages := folder / "report" / "stages.json").is_file():
        played = StagesPlayed.from_json(json.loads(stages.read_text(encoding="utf-8"))).plays.get(CASCADE, [])
        levels[CASCADE] = statistics.fmean(play.reward for play in played if play is not None)
    planned = config["warm_start"]["planned"]
    if planned:
        levels[PLANNED] = evaluations[0]["policy/reward"]
    return Curve(
        f"{config['preset']}, {config['algorithm']}, {config['groups']} x {config['rollouts']}",
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
        ends = [one.summary["of_oracle"]["value"] for one in some if one.summary["of_oracle"]]
        cents = [one.summary["standings"]["policy"]["cents"] for one in some]
        start = statistics.fmean(one.points[0][1] for one in some)
        end = f"{statistics.fmean(ends):.1%} ({', '.join(f'{value:.1%}' for value in ends)})"
        rows.append(
            [name, str(len(some)), f"{start:.0%}", *reached, f"{minutes:.1f}", end, f"{statistics.fmean(cents):.2f}"]
        )
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

    parts = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    for name, colour in BASELINES.items():
        seen = [one.levels[name] for one in curves if name in one.levels]
        if seen:
            level = statistics.fmean(seen)
            x, y = at(most, level).split(",")
            parts.append(
                f'<polyline points="{at(0, level)} {x},{y}" stroke="{colour}" stroke-dasharray="5 4" fill="none"/>'
            )
            parts.append(f'<text x="{float(x) + 6}" y="{float(y) + 4}" fill="{colour}">{name}</text>')
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
    style = 'font-family="sans-serif" font-size="12" fill="#333333"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {style}>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def main(given: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of training runs that have ended")
    parser.add_argument("--svg", type=Path, help="where the picture goes")
    args = parser.parse_args(given)
    curves = [curve_of(folder) for folder in args.runs]
    print(table(curves))
    if args.svg:
        args.svg.write_text(picture(curves), encoding="utf-8")
        print(f"picture: {args.svg}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
