"""A fit of a recording of known skills holds them in its intervals, and does not hold others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agents.calibration.recovered import recovered
from tests.support.stand_in import recorded, truth
from toolorchestra.agents.calibration.fit import fit, write
from toolorchestra.agents.calibration.fit_file import FitFile, read_fit
from toolorchestra.agents.calibration.held_out import coverage
from toolorchestra.envs.models.simulated import Skill, read_experts


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
    assert coverage(told) >= 0.8, [one for one in told if not one.covered]


def test_numbers_of_other_experts_do_not(found: FitFile, known: dict[str, Skill]) -> None:
    names = list(known)
    turned = {name: known[other] for name, other in zip(names, [*names[1:], names[0]], strict=True)}
    assert coverage([one for one in recovered(found, turned) if one.what.startswith("skill")]) < 0.5


def test_what_a_fit_does_not_know_is_left_out(known: dict[str, Skill], tmp_path: Path) -> None:
    rows = recorded(40, 1, seed=2)
    rows.measures["seconds"][:] = float("nan")
    write(fit(rows, draws=5), tmp_path / "experts.json")
    told = {one.what for one in recovered(read_fit(tmp_path / "experts.json"), known)}
    assert not any(name.startswith("seconds") for name in told)
    assert "tokens pair_sd" not in told  # one run of each model on each task
