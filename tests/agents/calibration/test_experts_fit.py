"""Fits find the truth again that outcomes were drawn from, and say what outcomes cannot tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.agents.calibration.made_outcomes import Truth, coverage, drawn, recovered
from tests.support.stand_in import recorded, truth
from toolorchestra.agents.calibration import goodness
from toolorchestra.agents.calibration.experts_fit import FitFile, as_json, fit, read_fit, shared, write
from toolorchestra.agents.calibration.goodness import facts, folds_left_out
from toolorchestra.agents.calibration.skills_and_lengths import Counts, fit_success
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.models.simulated import Skill, read_experts
from toolorchestra.envs.outcomes.table import Outcomes, OutcomesBuilder

TRUTH = Truth()


@pytest.fixture(scope="module")
def rows() -> Outcomes:
    return drawn(TRUTH)


def test_skills_and_deviations_are_found_again(rows: Outcomes) -> None:
    found = fit_success(Counts.of(rows))
    assert found.task_sd == pytest.approx(TRUTH.task_sd, abs=0.2)
    assert found.pair_sd == pytest.approx(TRUTH.pair_sd, abs=0.15)
    order = [rows.models.index(f"model {m}") for m in range(TRUTH.models)]
    assert np.abs(found.skill[:, order] - TRUTH.skill()).mean() < 0.3
    assert np.corrcoef(found.skill[:, order].ravel(), TRUTH.skill().ravel())[0, 1] > 0.95


def test_lengths_are_found_again(rows: Outcomes) -> None:
    made = fit(rows, draws=2)
    for name in ("tokens", "seconds"):
        one = made.lengths[name]
        assert one.run_sd == pytest.approx(TRUTH.length_run, abs=0.03)
        assert one.task_sd == pytest.approx(TRUTH.length_task, abs=0.07)
        assert one.pair_sd < 0.1
        assert one.with_difficulty == pytest.approx(TRUTH.with_difficulty, abs=0.15)
        assert one.spread == pytest.approx(np.ones(TRUTH.models), abs=0.15)
    assert made.together == pytest.approx(TRUTH.tie, abs=0.03)


def test_intervals_hold_the_truth_and_get_narrower_with_tasks() -> None:
    few, many = (fit(drawn(replace(TRUTH, tasks=n), seed=3), draws=60) for n in (40, 240))
    held = 0
    for made in (few, many):
        for name, true in (("task_sd", TRUTH.task_sd), ("seconds run_sd", TRUTH.length_run)):
            _, low, high = made.intervals[name]
            held += low <= true <= high
    assert held >= 3
    width = [one.intervals["task_sd"][2] - one.intervals["task_sd"][1] for one in (few, many)]
    assert width[1] < 0.7 * width[0]


def test_a_simulation_by_the_fit_has_the_facts_of_the_recording(rows: Outcomes) -> None:
    compared = goodness.compared(fit(rows, draws=2), simulations=40)
    assert len(compared) > 15
    outside = [one.fact for one in compared if not one.inside]
    assert len(outside) <= 3, outside


def test_a_world_without_shared_difficulty_is_found_out(rows: Outcomes) -> None:
    """What the fit is for: where difficulty is left out, models fail independently, and the facts do not hold."""
    made = fit(rows, draws=2)
    without = replace(made, success=replace(made.success, task_sd=0.0, pair_sd=0.0))
    outside = {one.fact for one in goodness.compared(without, simulations=20) if not one.inside}
    assert {"pairs that do now one, now the other", "share of variance: tasks"} <= outside


def test_luck_that_goes_with_strength_is_found_again_and_where_there_is_none_nothing(rows: Outcomes) -> None:
    truth = Truth(tasks=400, models=12, families=2, pair_sd=1.2, luck_by_strength=0.8)
    found = fit_success(Counts.of(drawn(truth)))
    strength = found.luck_by_strength
    assert np.abs(strength).max() == pytest.approx(0.8, abs=0.15)
    order = truth.skill().mean(0)
    assert np.corrcoef(strength, order)[0, 1] > 0.95
    assert np.abs(fit_success(Counts.of(rows)).luck_by_strength).max() < 0.4


def test_strong_models_that_fail_together_are_foretold_on_tasks_that_the_fit_has_not_seen() -> None:
    recorded = drawn(Truth(tasks=150, models=12, families=2, runs=3, task_sd=1.5, pair_sd=1.2, luck_by_strength=0.8))
    inside = folds_left_out(recorded)
    assert inside["where the best always fails, another is right half of the time"] >= 4
    assert inside["share of variance: runs"] >= 4


def test_facts_by_hand() -> None:
    made = OutcomesBuilder("hand")
    for task, model, values in (("a", "x", (1, 1)), ("a", "y", (0, 1)), ("b", "x", (0, 0)), ("b", "y", (0, 0))):
        for run, value in enumerate(values):
            made.add(task, model, value, run=run)
    found = facts(made.made())
    assert found["pairs of model and task that always fail"] == 0.5
    assert found["pairs that always succeed"] == 0.25
    assert found["pairs that do now one, now the other"] == 0.25
    assert found["best single model"] == 0.5
    assert found["task oracle: best model of each task"] == 0.5
    assert found["at least one of all models right, one run each"] == 0.5
    assert found["where the best always fails, another is right half of the time"] == 0.0


def test_warnings_say_what_the_rows_cannot(tmp_path: Path) -> None:
    made = fit(drawn(replace(TRUTH, tasks=12, models=3, runs=1), named=False), draws=5)
    text = "\n".join(made.warnings)
    assert "only 36 graded rows" in text
    assert "no model ran a task twice" in text
    assert "name no runs" in text
    assert "no usd are known" in text
    assert "3.0 tasks a family: task_sd and pair_sd come out too small" in text
    assert made.success.pair_sd == 0.0
    write(made, tmp_path / "experts.json", source="drawn, revision 1")
    told = json.loads((tmp_path / "experts.json").read_text())
    assert told["source"] == "drawn, revision 1"
    assert told["warnings"] == made.warnings
    assert "Warning: only 36 graded rows" in goodness.page(made, simulations=3)


def test_a_model_of_which_nothing_is_graded_is_left_out_and_said() -> None:
    made = OutcomesBuilder("here")
    for task in range(40):
        for model, right in (("nobody knows", None), ("weak", task % 4 == 0), ("strong", task % 4 > 0)):
            made.add(f"t{task}", model, None if task == 0 else right, seconds=1 + task)
    found = fit(made.made(), draws=2)
    assert found.rows.models == ("weak", "strong")
    assert "left out: 1 models of which no row is graded: nobody knows" in found.warnings
    assert not [sentence for sentence in found.warnings if sentence.startswith("never right")]
    told = facts(made.made())
    assert told["best single model"] == pytest.approx(30 / 39)
    assert told["task oracle: best model of each task"] == 1.0  # of the tasks that are graded


def test_the_file_has_numbers_with_intervals_and_no_row(rows: Outcomes) -> None:
    told = as_json(fit(rows, draws=5))
    assert set(told["shared"]) == set(shared(fit(rows, draws=2)))
    assert all(len(interval) == 3 for interval in told["shared"].values() if interval)
    assert set(told["models"]) == {f"model {m}" for m in range(TRUTH.models)}
    assert "task 1" not in json.dumps(told)


@pytest.mark.parametrize(
    ("models", "success", "says"), [(1, True, "all graded rows are of 'model 0'"), (2, None, "no row")]
)
def test_rows_that_nothing_can_be_fitted_to_are_refused(models: int, success: bool | None, says: str) -> None:
    made = OutcomesBuilder("few")
    for model in range(models):
        for task in range(5):
            made.add(f"t{task}", f"model {model}", success)
    with pytest.raises(ConfigError, match=says):
        fit(made.made(), draws=2)


def test_a_fit_is_the_same_each_time(rows: Outcomes) -> None:
    assert as_json(fit(rows, draws=4)) == as_json(fit(rows, draws=4))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> FitFile:
    file = tmp_path_factory.mktemp("fit") / "experts.json"
    write(fit(recorded(120, 3, seed=1), draws=60), file, "stand-in")
    return read_fit(file)


@pytest.fixture(scope="module")
def known() -> dict[str, Skill]:
    return dict(read_experts(truth(), "truth"))


def test_known_numbers_lie_in_their_intervals(found: FitFile, known: dict[str, Skill]) -> None:
    told = recovered(found, known)
    assert len(told) == 2 + 2 * 4 + 3 * 3
    assert coverage(told) >= 0.8, [one for one in told if not one.inside]
