"""Keeps keys and passwords out of every text: one scrubber for the whole, its encoded forms, and pieces of it.

A text is scrubbed before it is cut, so that no cut leaves half a key that nobody finds any more. A server that sends
half a key is met by the pieces: any run of PIECE characters of a secret goes.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from toolorchestra.envs.base.errors import ConfigError

MARK = "[key]"
HTTP_FORM = "http://127.0.0.1:8000/v1 (a host beyond ASCII as xn--..., other characters and a / of a password as %..)"
PIECE = 12
"""Length from which characters in a row of a secret are taken for a piece of it; what is shorter may be chance."""
_HALF = PIECE // 2
_SHORTEST = 4
"""A shorter password is left alone: its letters stand in every text."""


class Address(NamedTuple):
    """A URL in two parts: what may be shown, and what may not."""

    url: str
    """The address without a login."""
    login: str
    """USER:PASSWORD as it is sent, or ""."""

    @classmethod
    def of(cls, url: str) -> Address:
        """Take a URL apart. One without a scheme is taken apart too, for errors that show it."""
        scheme, mark, rest = url.rpartition("://") if "://" in url else ("", "", url)
        place, slash, path = rest.partition("/")
        login, at, host = place.rpartition("@")
        return cls(f"{scheme}{mark}{host}{slash}{path}", urllib.parse.unquote(login) if at else "")

    @property
    def is_http(self) -> bool:
        """Whether it is an http(s) address: with a host, with a number where a port stands, and as it can be sent."""
        if not self.url.isascii() or any(ch.isspace() or not ch.isprintable() for ch in self.url):
            return False
        try:
            parts = urllib.parse.urlsplit(self.url)
            return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            return False

    @property
    def shown(self) -> str:
        """The URL for an error: what stands before a later "@" may be a password that holds a "/"."""
        scheme, mark, rest = self.url.rpartition("://")
        _, at, host = rest.rpartition("@")
        return f"{scheme}{mark}{MARK}@{host}" if at else self.url

    @property
    def basic(self) -> str:
        """What an Authorization header says for the login; "" for none."""
        return f"Basic {base64.b64encode(self.login.encode()).decode()}" if self.login else ""


class Secrets:
    """Knows some secrets, and takes them out of texts. It shows none of them."""

    def __init__(self, *secrets: str) -> None:
        """Take keys and logins: USER:PASSWORD, whose password alone is a secret too."""
        parts = [part for secret in secrets for part in (secret, secret.partition(":")[2])]
        forms = {form for part in parts if len(part) >= _SHORTEST for form in _forms(part)}
        self._forms = sorted(forms, key=lambda form: (-len(form), form))
        self._pieces = _runs(forms, PIECE)
        self._halves = _runs(self._pieces, _HALF)

    def scrubbed(self, text: str) -> str:
        """The text without any of them."""
        for form in self._forms:
            text = text.replace(form, MARK)
        kept: list[str] = []
        done = 0
        for start in self._places(text):
            if start > done or not kept:
                kept += [text[done:start], MARK]
            done = start + PIECE
        return "".join([*kept, text[done:]])

    def _places(self, text: str) -> Iterator[int]:
        """Where pieces begin, in order. The work grows with the text alone, however long the secrets are: of the blocks
        that a text is cut into, each piece holds a whole one."""
        if self._pieces:
            for block in range(0, len(text), _HALF):
                if text[block : block + _HALF] in self._halves:
                    for at in range(max(0, block - _HALF + 1), block + 1):
                        if text[at : at + PIECE] in self._pieces:
                            yield at

    def scrubbed_json(self, text: str) -> str:
        """A JSON text without any of them, also where its escapes spell one. What is no JSON is scrubbed as text."""
        text = self.scrubbed(text)
        if self._forms and ("\\u" in text or "\\/" in text):
            try:
                plain = json.dumps(json.loads(text), ensure_ascii=False)
            except (ValueError, RecursionError):
                return text
            if (scrubbed := self.scrubbed(plain)) != plain:
                return scrubbed
        return text


def _forms(secret: str) -> Iterator[str]:
    """A secret as servers and libraries write it."""
    yield secret
    yield json.dumps(secret)[1:-1]
    for safe in ("", "/"):
        yield (quoted := urllib.parse.quote(secret, safe=safe))
        yield quoted.lower() if "%" in quoted else quoted
    yield urllib.parse.quote_plus(secret)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield encode(secret.encode()).decode().rstrip("=")


def _runs(texts: Iterable[str], size: int) -> frozenset[str]:
    return frozenset(text[at : at + size] for text in texts for at in range(len(text) - size + 1))


def key_in(variable: str) -> str:
    """The key that an environment variable holds, without the line end of the file that it came from; "" for none."""
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):  # an HTTP library would quote the whole of it in its error
        raise ConfigError(f"the key in ${variable} has characters that no header takes; export it anew: {variable}=...")
    return key
