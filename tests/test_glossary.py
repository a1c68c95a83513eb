"""The words of the documents: few, and each is one of the code's own."""

from __future__ import annotations

import re

from tests.paths import REPOSITORY


def test_the_glossary_is_short_and_its_words_are_the_codes() -> None:
    page = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([a-z][a-z -]+) \|", page, re.M)[1:]
    assert 30 <= len(words) <= 45
    code = "\n".join(
        file.read_text(encoding="utf-8").lower()
        for package in ("envs", "agents", "synth")
        for file in (REPOSITORY / package).rglob("*.py")
    )
    assert [word for word in words if word not in code] == []
