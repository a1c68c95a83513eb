"""A test's own Ctrl-C arrives in the test, and in no callback that drops it."""

from __future__ import annotations

import gc

from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=1, database=None)
@given(st.integers())
def counts(_: int) -> None:
    """Playing it makes hypothesis add its callback."""


counts()


def test_no_callback_of_the_collector_runs_in_a_plain_test() -> None:
    assert gc.callbacks == []


@given(st.integers())
def test_hypothesis_keeps_its_own(number: int) -> None:
    assert gc.callbacks != [], number
