"""The walk of docs/serving.md, "From traffic back to training": its own command lines, and for the one that is a
comment those of docs/calibrate.md, on smaller numbers.

A stand-in with known skills is served, its answers are rated, what was fitted of them becomes a world, a policy is
trained in it, is judged by recorded answers that the fit has not seen, and then answers a share of the old one's
requests, until it is stopped or promoted.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import test_own_traffic
from tests.agents.calibration.made_outcomes import coverage, recovered
from tests.command_line import made_smaller
from tests.support.walk import lines_of, walked
from toolorchestra.agents.calibration.experts_fit import read_fit
from toolorchestra.agents.evaluation.rows import read_rows
from toolorchestra.agents.serving.accounts import Accounts
from toolorchestra.envs.models.simulated import load_experts

pytestmark = pytest.mark.slow

SMALLER = {
    "stand_in": {"walk &": "walk --questions 240 &"},
    "8392 always:answer-1 always:answer-2": {"math-1": "math-1 --tasks 60"},
    "recorded fit": {"--page": "--draws 40 --simulations 10 --page"},
    "train --env": {
        "--warm-start.demonstrations 1000": "--warm-start.demonstrations 200",
        "--warm-start.steps 150": "--warm-start.steps 80",
        "--steps 60": "--steps 1",
        "--groups 8": "--groups 2 --model.processes 1 --model.threads 1",
        "--evaluation-tasks 100": "--evaluation-tasks 10",
    },
    "record=": {"--tasks 100": "--tasks 20"},
    "replay=": {"--tasks 100": "--tasks 20"},
    "--canary ": {"--canary-share 0.1": "--canary-share 0.4"},
    "--times 10": {"--tasks 100 --times 10": "--tasks 30 --times 6"},
}
"""By a part of each line that has numbers, what is smaller in it."""
LEAST_COVERED = 0.7
"""Of the numbers that are the same at each run."""


class Walked(NamedTuple):
    """What the lines left behind."""

    folder: Path
    said: dict[str, str]
    """What each line printed, by its beginning."""


def lines() -> list[str]:
    """The section's command lines, made smaller."""
    found = lines_of("docs/serving.md", "**From traffic back to training.**", {})
    at = next(number for number, line in enumerate(found) if line.startswith("# as there: "))
    there = [
        line
        for line in test_own_traffic.page_lines()
        if re.search(r"record=|replay=|recorded world|toolorchestra train", line)
    ]
    return made_smaller([*found[:at], *there, *found[at + 1 :]], SMALLER)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walked:
    """Play all lines, one after another."""
    folder = tmp_path_factory.mktemp("loop")
    return Walked(folder / "walk", walked(lines(), folder, "8392"))


def trajectories(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("t*.jsonl")) for line in file.read_text().splitlines()]


def test_rated_traffic_finds_the_known_skills_again(walk: Walked) -> None:
    found = recovered(read_fit(walk.folder / "fit.json"), load_experts(walk.folder / "truth.json"))
    same = [one for one in found if not one.fact.startswith("seconds")]  # those are of this machine's clock
    assert len(same) == 2 + 4 + 9
    assert coverage(same) >= LEAST_COVERED


def test_what_judges_was_neither_fitted_nor_trained_on(walk: Walked) -> None:
    served = {row["task"]["asked"] for row in trajectories(walk.folder / "served")}
    canary = {row["task"]["asked"] for row in trajectories(walk.folder / "canary")}
    held = {row.task for row in read_rows(walk.folder / "held-out")}
    judged = list(read_rows(walk.folder / "judged"))
    assert len(served) == 60
    assert not served & canary
    assert {row.task for row in judged} == held
    assert {row.status for row in judged} == {"ended"}


def test_the_canary_is_promoted_or_stopped_by_bills_with_intervals(walk: Walked) -> None:
    told = next(text for line, text in walk.said.items() if "rated_traffic" in line and "--split test" in line)
    arms = {name: json.loads(arm) for name, arm in re.findall(r"^(\S+): (\{.*\})$", told, re.M)}
    old, new = arms["always:answer-1"], arms["run"]
    rows = trajectories(walk.folder / "canary")
    assert old["requests"] + new["requests"] == len(rows) == 180
    assert old["rated"] + new["rated"] == 180
    assert min(old["requests"], new["requests"]) >= 50 or "stopped: no" not in told  # one look at least
    for arm in (old, new):
        low, high = arm["usd_interval"]
        assert 0 < low <= arm["usd"] <= high
    (stopped,) = re.findall(r"^stopped: (.*)$", told, re.M)
    assert stopped in ("no", "more of its requests fail or are cut off", "fewer of its answers are right") or (
        "times as much" in stopped and new["usd"] > 1.5 * old["usd"]
    )


@pytest.mark.parametrize("name", ["served", "canary"])
def test_bills_are_those_of_the_trajectories(walk: Walked, name: str) -> None:
    accounts = Accounts(database=str(walk.folder / name / "accounts.sqlite"), replica="other")
    (account,) = accounts.accounts()
    accounts.close()
    rows = trajectories(walk.folder / name)
    assert account.spent == sum(row["totals"]["nano_usd"] for row in rows) > 0
    assert account.held == 0


def test_the_lines_stay_in_the_walks_folder() -> None:
    for line in lines():
        for word in re.findall(r"[\w.-]*/[\w./-]+", line):
            assert word.startswith(("walk/", "//127.0.0.1", "127.0.0.1")), line
