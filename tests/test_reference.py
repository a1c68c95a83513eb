"""The page of infos has every key that an episode gives."""

from __future__ import annotations

import json
import re

import gymnasium as gym
import pytest

import toolorchestra
from tests.paths import REPOSITORY
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.episode.episode import Episode

REFERENCE = REPOSITORY / "docs" / "reference"


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
