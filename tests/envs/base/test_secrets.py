"""What a scrubber takes out, and what it leaves."""

from __future__ import annotations

import pytest

from toolorchestra.envs.base.secrets import Address, Secrets

KEY = "sk-0123456789abcdefghij"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"a {KEY} b", "a [key] b"),
        (f"{KEY[:15]}", "[key]"),
        (f"x{KEY[4:20]}y", "x[key]y"),
        (f"{KEY[:11]} is too short to know", f"{KEY[:11]} is too short to know"),
        (f"{KEY[:13]}-{KEY[-13:]}", "[key]-[key]"),
        ("nothing", "nothing"),
        ("", ""),
    ],
)
def test_a_key_and_its_pieces_go(text: str, left: str) -> None:
    assert Secrets(KEY, "", "abc").scrubbed(text) == left


@pytest.mark.parametrize("text", ["a/b+c d%e", "a%2Fb%2Bc%20d%25e", "a%2fb%2bc%20d%25e", "YS9iK2MgZCVl"])
def test_encoded_forms_go(text: str) -> None:
    assert Secrets("a/b+c d%e").scrubbed(f"<{text}>") == "<[key]>"


def test_an_address_comes_apart() -> None:
    assert Address.of("http://u:p%40w@host:80/v1?x=a@b") == ("http://host:80/v1?x=a@b", "u:p@w")
    assert Address.of("http://host/v1") == ("http://host/v1", "")
    assert Address.of("http://u:p@w@host").url == "http://host"
    assert Address.of("u:p@host/v1").url == "host/v1"


def test_a_scrubber_shows_nothing() -> None:
    assert KEY not in repr(Secrets(KEY))
