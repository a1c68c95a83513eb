"""What models are shown of what was gathered: the end of it, within limits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from toolorchestra.envs.base.types import Passage
from toolorchestra.envs.models import ContextLimits
from toolorchestra.envs.tools.question_material import gathered

MATERIAL = SimpleNamespace(question=None, documents=[Passage("d", "A", "abcdef")], results=["12345"])


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        (ContextLimits(), "Documents:\n[A] abcdef\n\nOutput: 12345"),
        (ContextLimits(document=2, results=3), "Documents:\n[A] ab\n\n345"),
        (ContextLimits(document=0, results=0), "Documents:\n[A] "),
        (ContextLimits(total=4), "2345"),
        (ContextLimits(total=0), ""),
    ],
)
def test_a_limit_of_nothing_shows_nothing(limits: ContextLimits, shown: str) -> None:
    assert gathered(MATERIAL, limits) == shown
