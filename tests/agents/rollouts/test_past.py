"""What a transcript adds to a past that it writes in another form; and pasts that are others."""

from __future__ import annotations

import random
import time

import pytest

from toolorchestra.agents.rollouts.past import new_behind


@pytest.mark.parametrize(
    ("past", "now", "new"),
    [
        ("user: a\nyou: b", "user: a\nyou: b!\nuser: c", "!\nuser: c"),
        ("<think>I see</think>\n<c>;", "<think>\nI see\n</think>\n\n<c>;\n{result}", "\n{result}"),
        ("<think>\n\n</think>\n\n<c>;", "<c>;\n{result}", "\n{result}"),
        ("<c>;", "<think></think><c>;\n{result}", "\n{result}"),
        (" <c> ;", "<c>;\n{result}", "\n{result}"),
        ("<c>;", " <c> ;", ""),
        ("  <c>\n\n", "<c>;\n{result}", ";\n{result}"),  # cut in white space, which the template trims
        ("  <c>\n\n", "<c>\n\n;\n{result}", ";\n{result}"),  # or keeps
        ("", "anything", "anything"),
        ("<think>I see</think><c>;", "<c>;\n{result}", None),
        ("<c>;", "<d>;", None),
        ("<c>; and more", "<c>;", None),
        ("<c>;", "", None),
    ],
)
def test_only_blanks_and_empty_thoughts_may_differ(past: str, now: str, new: str | None) -> None:
    assert new_behind(past, now) == new


@pytest.mark.parametrize("seed", range(20))
def test_what_is_new_is_found_wherever_blanks_are_others(seed: int) -> None:
    rng = random.Random(seed)
    blanks = ("", "", " ", "\n", "\n\n", "\t ", "<think>\n</think>")
    words = [rng.choice(("<c>", "word", "ü", "</think>", "{", "<|im_end|>", "1")) for _ in range(rng.randrange(1, 40))]
    past, now = ("".join(rng.choice(blanks) + word for word in words) for _ in range(2))
    new = rng.choice(("\n<|im_start|>user\n", "x", " ", ""))
    assert new_behind(past, now + new) == new


def test_a_long_past_costs_little() -> None:
    past = "word " * 40_000
    started = time.perf_counter()
    assert new_behind("<think>a</think>" + past, "<think>\na</think>" + past + "x") == "x"
    assert time.perf_counter() - started < 1.0
