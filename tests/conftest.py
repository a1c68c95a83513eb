"""For all tests: how torch's threads wait, that Ctrl-C reaches what tests start, and which tests are slow."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import hypothesis
import pytest

import toolorchestra.agents.engines  # noqa: F401 - sets how torch's threads wait, before any test imports torch
from tests.paths import REPOSITORY

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As under nohup, in a script's background and on some runners. Processes that tests start would inherit it, and
    # what they do at Ctrl-C could not be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("quick", max_examples=50, deadline=None)
hypothesis.settings.load_profile("quick")

KINDS = ("slow", "long")
"""Tests that took so when they were measured: `make measure-tests` writes tests/slow.txt and tests/long.txt."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow ones and the long ones."""
    for kind in KINDS:
        file = REPOSITORY / "tests" / f"{kind}.txt"
        names = set(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else set()
        for item in items:
            if item.nodeid in names:
                item.add_marker(getattr(pytest.mark, kind))


@pytest.fixture(scope="module", autouse=True)
def _what_lives_on_is_looked_at_once() -> None:
    """The checks for leaks collect garbage often, which takes a tenth of the time without the libraries' objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """A command that is called in this process must not leave its signal handlers to the next test's children."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _no_callback_swallows_an_interrupt(request: pytest.FixtureRequest) -> Iterator[None]:
    """Python drops what a callback of its garbage collector raises, and hypothesis has one, which counts the time.

    A Ctrl-C that a test sends to this process could arrive in it, and would be lost.
    """
    if getattr(request.function, "is_hypothesis_test", False):
        yield
        return
    set_aside = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:0] = set_aside
