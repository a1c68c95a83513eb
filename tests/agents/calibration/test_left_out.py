"""What a loader left out is said by the fit of what it took."""

from __future__ import annotations

from dataclasses import replace

from tests.agents.calibration.made_outcomes import Truth, drawn
from toolorchestra.agents.calibration.fit import fit


def test_the_fit_says_what_was_left_out() -> None:
    rows = drawn(Truth(tasks=20, models=2, runs=2, families=2))
    told = fit(replace(rows, left_out={"rows of several experts": 7}), draws=2).warnings
    assert "left out: 7 rows of several experts" in told
    assert not any("left out" in sentence for sentence in fit(rows, draws=2).warnings)
