"""Generated questions belong to one split, whatever their number: what is trained on is never what is tested on."""

from __future__ import annotations

import hashlib

import pytest

from toolorchestra.envs.domains.frames.source import FramesSource
from toolorchestra.envs.domains.hle.source import HleSource
from toolorchestra.envs.domains.questions.source import QaSource

NUMBERS = 150
SHARES = {"train": range(80), "validation": range(80, 90), "test": range(90, 100)}
"""Of the hash of a question's text, in hundredths. Written again here: moving a border would move old questions."""


def belongs_to(text: str) -> str:
    share = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") % 100
    return next(split for split, part in SHARES.items() if share in part)


@pytest.mark.parametrize("made", [HleSource, FramesSource])
def test_no_generated_question_is_in_two_splits(made: type[QaSource]) -> None:
    source = made()
    assert tuple(source.splits) == tuple(SHARES)
    texts = {
        split: {source.question(f"{source.name}/{split}/{number}").text for number in range(NUMBERS)}
        for split in source.splits
    }
    for split, found in texts.items():
        assert len(found) > NUMBERS * 0.6, "too few different questions to say anything"
        assert {belongs_to(text) for text in found} == {split}
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]
    assert not texts["validation"] & texts["test"]
