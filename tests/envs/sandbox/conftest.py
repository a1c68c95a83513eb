"""Sandboxes of a test's own, closed when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from toolorchestra.envs.sandbox.landlock import LandlockSandbox


@pytest.fixture
def opened() -> Iterator[Callable[..., LandlockSandbox]]:
    """Makes a sandbox, which is closed when the test ends."""
    with ExitStack() as stack:
        yield lambda *bounds, **settings: stack.enter_context(closing(LandlockSandbox(*bounds, **settings)))
