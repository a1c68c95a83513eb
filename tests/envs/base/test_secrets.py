"""What a scrubber takes out, and what it leaves."""

from __future__ import annotations

import hashlib
import time

import pytest

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.http_client import HttpPoster
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


def test_long_keys_cost_no_more_than_short_ones() -> None:
    token = hashlib.sha512(b"seed").hexdigest() * 16
    text = f"{'The river rises in the mountains. ' * 30_000}{token[700:720]} and {token[5:16]}"

    def seconds(key: str) -> float:
        scrubber, started = Secrets(key), time.process_time()
        left = scrubber.scrubbed(text)
        assert left.endswith(f" {'[key]' if key == token else token[700:720]} and {token[5:16]}")
        return time.process_time() - started

    assert seconds(token) < 5 * seconds(KEY) + 0.1


@pytest.mark.parametrize("text", ["a/b+c d%e", "a%2Fb%2Bc%20d%25e", "a%2fb%2bc%20d%25e", "YS9iK2MgZCVl"])
def test_encoded_forms_go(text: str) -> None:
    assert Secrets("a/b+c d%e").scrubbed(f"<{text}>") == "<[key]>"


def test_an_address_comes_apart() -> None:
    assert Address.of("http://u:p%40w@host:80/v1?x=a@b") == ("http://host:80/v1?x=a@b", "u:p@w")
    assert Address.of("http://host/v1") == ("http://host/v1", "")
    assert Address.of("http://u:p@w@host").url == "http://host"
    assert Address.of("u:p@host/v1").url == "host/v1"


@pytest.mark.parametrize(
    "url", ["http://b\u00fccher.example:8000", "http://127.0.0.1:9/gr\u00f6\u00dfe", "http://u:pa/ss@host/v1"]
)
def test_an_address_that_cannot_be_sent_is_none_and_shows_no_password(url: str) -> None:
    assert not Address.of(url).is_http
    assert "pa/ss" not in Address.of(url).shown
    with pytest.raises(ConfigError, match=r"as %\.\.\); got ") as refused:
        HttpPoster(url, "", 2.0)
    assert "ss@" not in str(refused.value)
    assert Address.of("http://host/v1").shown == "http://host/v1"
