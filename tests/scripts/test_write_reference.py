"""The reference pages say what the code says, and the page of troubles quotes texts that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache

import gymnasium as gym
import pytest

import toolorchestra
from tests.paths import REPOSITORY
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.episode.episode import Episode

REFERENCE = REPOSITORY / "docs" / "reference"
TROUBLES = REPOSITORY / "docs" / "troubleshooting.md"
OF_OTHERS = ("ModuleNotFoundError", "NamespaceNotFound")
"""Errors of Python and Gymnasium."""


def test_the_reference_is_what_the_code_says() -> None:
    command = [sys.executable, str(REPOSITORY / "scripts" / "write_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\nwrite the pages anew: make reference"


def keys_under(heading: str) -> set[str]:
    text = (REFERENCE / "info.md").read_text(encoding="utf-8")
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, re.M))


def len_of_transcript(episode: Episode) -> float:
    return float(len(episode.messages))


@pytest.mark.parametrize("budget", [None, 5.0])
def test_the_page_of_infos_has_every_key_and_no_other(budget: float | None) -> None:
    assert toolorchestra.__version__
    own = () if budget is None else len_of_transcript
    env = gym.make("ToolOrchestra/HLE-v0", budget=budget, reward_terms=own)
    _, info = env.reset(seed=1)
    optional = {"budget_rule", "least_usd", "budget_left_usd", "over_budget_usd", "reward_terms"}
    limited = optional if budget is None else set()
    assert set(info) == keys_under("At reset") - limited
    *_, info = env.step(render_call("search", {"model": "search-1"}))
    assert set(info) == keys_under("At every step") - limited
    assert set(info["charges"][0]) == keys_under("A charge")
    *_, terminated, _, info = env.step(render_call("answer", {"model": "answer-1"}))
    assert terminated
    assert set(info) == (keys_under("At every step") | keys_under("At the last step, besides")) - limited
    json.dumps(info)


@cache
def code_texts() -> str:
    """The list of errors, and all of the code, in which texts that are split over lines are put together."""
    files = (file for package in ("envs", "agents", "synth") for file in sorted((REPOSITORY / package).rglob("*.py")))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    listed = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    return listed + re.sub(r"[\"']\s*\n\s*[frb]*[\"']", "", text)


def quoted_troubles() -> list[str]:
    rows = re.findall(r"^\| (`[^|]+?) \|", TROUBLES.read_text(encoding="utf-8"), re.M)
    quoted = [match for row in rows for match in re.findall(r"^`([^`]+)`", row)]
    return [text for text in quoted if not text.startswith(OF_OTHERS) and "_" not in text.split(" ")[0]]


def test_every_trouble_quotes_words_of_the_code() -> None:
    quoted = quoted_troubles()
    assert len(quoted) > 60
    for text in quoted:
        for part in re.split(r"[…]|\\", text):
            words = part.strip(" :;,.'[]{}")
            assert words in code_texts(), f"docs/troubleshooting.md quotes {text!r}: no such words as {words!r}"
