"""For all tests: how torch's threads wait, that Ctrl-C reaches what tests start, and which tests are slow."""

from __future__ import annotations

import signal

import pytest

import toolorchestra.agents.engines  # noqa: F401 - sets how torch's threads wait, before any test imports torch
from tests.paths import REPOSITORY

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As under nohup, in a script's background and on some runners. Processes that tests start would inherit it, and
    # what they do at Ctrl-C could not be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW = REPOSITORY / "tests" / "slow.txt"
"""Tests that took long when they were measured: `make measure-tests` writes it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow ones."""
    slow = set(SLOW.read_text(encoding="utf-8").splitlines()) if SLOW.is_file() else set()
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)
