"""One word, one thing: no name of a class or a file stands twice, and texts begin with what they speak of."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.paths import PACKAGE, REPOSITORY

ROLES = {
    "__init__": "a room",
    "base": "what a room's other files build on",
    "source": "a benchmark's tasks",
    "world": "a benchmark's task in play",
    "grading": "a benchmark's rules of the outcome",
}
"""File names that may stand twice, each with what it means wherever it stands."""
NO_BEGINNING = re.compile(
    r"(?:Of|By|That|Those|These|See|With|Without|In|On|From|For|As|At|Which|Who|Whose|Whom|To|It|Its|Their|Under|Over"
    r"|Between|Beside|Before|After|When|While|If|So)\b"
)
"""First words of a docstring that leans on the name above it."""
NO_WORDS = {r"wish(?:es)?": "preference, or a request", r"dear(?:er|est)?": "expensive", r"doors?": "integration"}
SAID = ("The user's wish", "will wish with word", "opened its doors", "Avoid anything dear", r"cheapest|dearest")
"""What prompts, users and authors say."""


def sources() -> dict[str, str]:
    files = (file for package in ("envs", "agents", "synth") for file in (PACKAGE / package).rglob("*.py"))
    return {file.relative_to(PACKAGE).as_posix(): file.read_text(encoding="utf-8") for file in files}


def standing_twice(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    places = defaultdict(list)
    for name, place in names:
        places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1}


def nodes(files: Mapping[str, str]) -> Iterable[tuple[str, ast.AST]]:
    return ((file, node) for file, text in files.items() for node in ast.walk(ast.parse(text)))


def classes(files: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((node.name.lstrip("_"), file) for file, node in nodes(files) if isinstance(node, ast.ClassDef))


def leaning(files: Mapping[str, str]) -> list[str]:
    """Docstrings, of attributes too, that do not begin with a noun or a verb."""
    values = ((file, node.value) for file, node in nodes(files) if isinstance(node, ast.Expr))
    texts = ((file, value.value) for file, value in values if isinstance(value, ast.Constant))
    return [f"{file}: {text[:60]}" for file, text in texts if isinstance(text, str) and NO_BEGINNING.match(text)]


def wrong_words(files: Mapping[str, str]) -> list[str]:
    said = re.compile("|".join(map(re.escape, SAID)))
    plain = {file: said.sub("", text) for file, text in files.items()}
    words = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(NO_WORDS)})(?![a-z])", re.I)
    return [f"{file}: {found[0]}" for file, text in plain.items() for found in words.finditer(text)]


def test_names_and_words() -> None:
    files = sources()
    assert standing_twice(classes(files)) == {}
    stems = standing_twice((Path(file).stem, file) for file in files)
    assert {name: places for name, places in stems.items() if name not in ROLES} == {}
    assert leaning(files) == []
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    assert wrong_words(files | {file.name: file.read_text(encoding="utf-8") for file in pages}) == []


def test_what_is_wrong_is_found() -> None:
    files = {"a.py": 'class Play:\n    n = 1\n    """Of a game."""\n', "b.py": "class _Play: ...\nNO_WISH = 1\n"}
    assert standing_twice(classes(files)) == {"Play": ["a.py", "b.py"]}
    assert leaning(files) == ["a.py: Of a game."]
    assert wrong_words(files) == ["b.py: WISH"]
