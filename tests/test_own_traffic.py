"""The walk of docs/calibrate.md, "Your own traffic, from end to end": its own command lines, on smaller numbers.

A stand-in with known skills is recorded and fitted, the fit becomes a world, a policy is trained in it, and is judged
by recorded answers that the fit has not seen.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.agents.calibration.made_outcomes import coverage, recovered
from tests.command_line import made_smaller
from tests.paths import REPOSITORY
from tests.support.walk import walked
from toolorchestra.agents.calibration.experts_fit import read_fit
from toolorchestra.agents.evaluation.rows import EvaluationRow, read_rows
from toolorchestra.envs.models.simulated import load_experts

pytestmark = pytest.mark.slow

PAGE, SECTION = REPOSITORY / "docs" / "calibrate.md", "## Your own traffic, from end to end"
SMALLER = {
    "stand_in": {"walk": "walk --questions 400"},
    "--split train": {"--tasks 200": "--tasks 120"},
    "record=": {"--tasks 100": "--tasks 30"},
    "train --env": {
        "--warm-start.demonstrations 1000": "--warm-start.demonstrations 160",
        "--warm-start.steps 150": "--warm-start.steps 60 --warm-start.batch 16 --warm-start.learning-rate 1e-2",
        "--steps 60": "--steps 1",
        "--groups 8": "--groups 2 --model.processes 1 --model.threads 1",
        "--evaluation-tasks 100": "--evaluation-tasks 4",
    },
    "replay=": {"--tasks 100": "--tasks 30"},
}
"""By a part of each line that has numbers, what is smaller in it."""
LEAST_COVERED = 0.8
"""Of the numbers that are the same at each run. Of many recordings 93 % are: docs/calibrate.md."""


def page_lines() -> list[str]:
    """The section's command lines."""
    section = PAGE.read_text(encoding="utf-8").partition(SECTION)[2].partition("\n## ")[0]
    blocks = re.findall(r"^```\n(.*?)^```", section, re.M | re.S)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


def lines() -> list[str]:
    """The same on smaller numbers."""
    return made_smaller(page_lines(), SMALLER)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All lines, one after another. Before the last one the stand-in is stopped: judging asks no model."""
    folder = tmp_path_factory.mktemp("own")
    *before, last = lines()
    walked([*before, "kill %1", last], folder)
    return folder / "walk"


def rows(folder: Path) -> list[EvaluationRow]:
    return list(read_rows(folder))


def asked(row: EvaluationRow) -> str:
    """The expert that a trial asked."""
    (alias,) = row.calls
    return alias


def test_the_fit_finds_the_known_skills_again(walk: Path) -> None:
    found = recovered(read_fit(walk / "fit.json"), load_experts(walk / "truth.json"))
    same = [one for one in found if not one.fact.startswith("seconds")]  # those are of this machine's clock
    assert len(same) == 2 + 4 + 9
    said = "; ".join(
        f"{one.fact}: {one.recorded:g} not in {one.low:g} to {one.high:g}" for one in same if not one.inside
    )
    print(f"{sum(one.inside for one in same)} of {len(same)} covered; {said}")
    assert coverage(same) >= LEAST_COVERED, said


def test_other_skills_would_not_be_found(walk: Path) -> None:
    known = load_experts(walk / "truth.json")
    names = list(known)
    turned = {name: known[other] for name, other in zip(names, [*names[1:], names[0]], strict=True)}
    skills = [one for one in recovered(read_fit(walk / "fit.json"), turned) if one.fact.startswith("skill")]
    assert coverage(skills) < 0.5


def test_nothing_that_judges_was_fitted_or_trained_on(walk: Path) -> None:
    learnt, held = ({row.task.rpartition("/")[2] for row in rows(walk / name)} for name in ("traffic", "held-out"))
    assert len(learnt) == 120
    assert len(held) == 30
    assert not learnt & held
    judged = {row.task.rpartition("/")[2] for row in rows(walk / "judged")}
    assert judged == held


def test_each_choice_takes_the_recorded_answer(walk: Path) -> None:
    recorded = {(row.task, asked(row)): (row.right, row.tokens["expert"]) for row in rows(walk / "held-out")}
    judged = [row for row in rows(walk / "judged") if row.policy == "checkpoint:walk/run"]
    assert len(judged) == 30
    assert {row.status for row in judged} == {"ended"}
    chosen = [row for row in judged if row.calls]
    assert len(chosen) >= 25  # a policy of one step may end some episodes without a choice
    for row in chosen:
        right, tokens = recorded[row.task, asked(row)]
        assert (row.right, row.tokens["expert"]) == (right, tokens)


def test_the_lines_stay_in_the_walk_s_folder() -> None:
    for line in lines():
        for word in re.findall(r"[\w.-]*/[\w./-]+", line):
            assert word.startswith("walk/"), line
