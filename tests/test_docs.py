"""The documents: every link leads somewhere, every page can be found, every command line is one that exists."""

from __future__ import annotations

import json
import re
import shlex
from functools import lru_cache
from pathlib import Path

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.command_line import helped
from tests.paths import PACKAGE, REPOSITORY
from toolorchestra.cli import COMMANDS
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.models import ContextLimits
from toolorchestra.envs.models.endpoints import Endpoint, Served
from toolorchestra.envs.sandbox import Bounds
from toolorchestra.envs.tools.backends import _RetrievalTable, _SandboxTable

PAGES = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")] + sorted(
    (REPOSITORY / "docs").rglob("*.md")
)
SPEC = {"docs/examples/library/policy.md"}
"""Part of an example, and no page of the documentation."""
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.M | re.S)
_PATH = re.compile(r"`((?:envs|agents|synth|scripts|tests|docs)/[\w/.-]+\.\w+)`")


def named(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as hosting pages make them."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head).lower() for head in heads]
    return {re.sub(r"[^\w\- ]", "", head).strip().replace(" ", "-") for head in plain}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere_and_every_named_file_is_there(page: Path) -> None:
    for target in _LINK.findall(prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target} in {named(page)}"
        assert not anchor or anchor in anchors(file), f"#{anchor} in {named(page)}"
    for path in _PATH.findall(prose(page)):
        assert (REPOSITORY / path).exists(), f"{path} in {named(page)}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_tables_have_a_head_and_end_with_a_blank_line_as_what_is_above_a_heading_does(page: Path) -> None:
    lines = ["", *prose(page).splitlines(), ""]
    for above, line, below in zip(lines, lines[1:], lines[2:], strict=False):
        assert not (re.match("#+ ", line) and above), f"no blank line above {line!r} in {named(page)}"
        if line.startswith("|"):
            assert below.startswith("|") or not below, f"no row of a table: {below!r} in {named(page)}"
            assert above.startswith("|") or re.fullmatch(r"[|: -]+", below), f"no head: {line!r} in {named(page)}"


def test_real_tools_has_every_key_of_the_backends_file() -> None:
    page = (REPOSITORY / "docs" / "real-tools.md").read_text(encoding="utf-8")
    told = {word.strip("[]`") for word in re.findall(r"`[^`\n]+`", page)}
    for table in (Endpoint, Served, ContextLimits, Bounds, _RetrievalTable, _SandboxTable):
        assert {*table.__annotations__} - {"name"} <= told, table


def test_the_index_has_every_page() -> None:
    linked = {
        (REPOSITORY / "docs" / target.partition("#")[0]).resolve()
        for target in _LINK.findall((REPOSITORY / "docs" / "README.md").read_text(encoding="utf-8"))
    }
    for page in sorted((REPOSITORY / "docs").rglob("*.md")):
        if page.name != "README.md" and named(page) not in SPEC:
            assert page.resolve() in linked, f"docs/README.md has no link to {named(page)}"


def command_lines() -> list[tuple[str, str]]:
    """Each `toolorchestra ...` in a block of a page, as one line."""
    found = []
    for page in PAGES:
        for block in _FENCE.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                if match := re.match(r"\s*(?:\w+=\S+ )*(toolorchestra .*)", line):
                    found.append((named(page), match[1]))
    return found


@lru_cache
def options_of(name: str) -> set[str]:
    preset = ("--preset", "8b-h100") if name == "train" else ()
    return set(re.findall(r"(--[\w.-]+)", helped(*name.split(), *preset)))


def test_every_command_line_is_one_that_exists() -> None:
    lines = command_lines()
    assert len(lines) > 20
    for page, line in lines:
        words = shlex.split(line, comments=True)
        if words[1].startswith("-") or words[1] == "COMMAND":
            continue
        name = " ".join(words[1:3]) if " ".join(words[1:3]) in COMMANDS else words[1]
        assert name in COMMANDS, f"{page}: {line}"
        for word in words[2:]:
            if word.startswith("--"):
                assert word.partition("=")[0] in options_of(name), f"{page}: {word} of {line}"


def test_the_glossary_is_short_and_its_words_are_the_codes() -> None:
    page = (REPOSITORY / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([a-z][a-z -]+) \|", page, re.M)[1:]
    assert 30 <= len(words) <= 45
    code = "\n".join(
        file.read_text(encoding="utf-8").lower()
        for package in ("envs", "agents", "synth")
        for file in (PACKAGE / package).rglob("*.py")
    )
    assert [word for word in words if word not in code] == []


def keys_under(heading: str) -> set[str]:
    """Keys of info that the page of episodes has in a table."""
    text = (REPOSITORY / "docs" / "episodes.md").read_text(encoding="utf-8")
    section = re.split(r"\n##+ ", text.split(f"### {heading}\n")[1])[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, re.M))


def len_of_transcript(episode: Episode) -> float:
    return float(len(episode.messages))


@pytest.mark.parametrize("budget", [None, 5.0])
def test_the_page_of_infos_has_every_key_and_no_other(budget: float | None) -> None:
    own = () if budget is None else len_of_transcript
    env = gym.make("ToolOrchestra/HLE-v0", budget=budget, reward_terms=own)
    _, info = env.reset(seed=1)
    optional = {"least_usd", "budget_left_usd", "over_budget_usd", "reward_terms"}
    limited = optional if budget is None else set()
    assert set(info) == keys_under("At reset") - limited
    *_, info = env.step(render_call("search", {"model": "search-1"}))
    assert set(info) == keys_under("At every step") - limited
    assert set(info["charges"][0]) == keys_under("A charge")
    *_, terminated, _, info = env.step(render_call("answer", {"model": "answer-1"}))
    assert terminated
    assert set(info) == (keys_under("At every step") | keys_under("At the last step, besides")) - limited
    json.dumps(info)
