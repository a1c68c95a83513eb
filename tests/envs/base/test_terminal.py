"""What a stranger wrote cannot steer a terminal."""

from __future__ import annotations

import pytest

from toolorchestra.envs.base.errors import one_line, spelled


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe\t1\n2 表 😀", "größe\t1\n2 表 😀"),
        ("\x1b]0;title\x07\x1b[2J", "\\x1b]0;title\\x07\\x1b[2J"),
        ("a\r\nb\rc", "a\nb\\x0dc"),
        ("\x9b31m\x7f\x00", "\\x9b31m\\x7f\\x00"),
        ("\u202egnp.exe\u202c \u2066x\u2069 \u200f", "\\u202egnp.exe\\u202c \\u2066x\\u2069 \\u200f"),
        ("a\u2028b", "a\\u2028b"),
        ("half \ud800 a pair", "half \\ud800 a pair"),
    ],
)
def test_what_steers_is_spelled(text: str, shown: str) -> None:
    assert spelled(text) == shown
    assert one_line(text) == shown.replace("\n", "\\n")
