"""Episodes stay what they were: words, bills and rewards of recorded ones, played again."""

from __future__ import annotations

import pytest

from tests.recorded_episodes import check


def test_one_in_twelve_recorded_episodes_is_as_it_was() -> None:
    assert check(every=12) == []


@pytest.mark.slow
def test_all_recorded_episodes_are_as_they_were() -> None:
    assert check() == []
