"""The paper's settings by name: each can be made and played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import pytest

from toolorchestra.agents.configuration.evaluation_presets import PRESETS, fitting, preset, presets
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.envs.base.errors import ConfigError


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("env_id", ["ToolOrchestra/HLE-v0", "ToolOrchestra/FRAMES-v0"])
def test_every_setting_of_a_preset_makes_an_environment(name: str, env_id: str) -> None:
    settings = preset(name, env_id)
    assert len({setting.label for setting in settings}) == len(settings) >= 1
    for setting in settings:
        env = gym.make(env_id, split="test", **setting.arguments)
        observation, _info = env.reset(seed=0)
        assert observation["tools"]
        env.close()


def drawn(arguments: Mapping[str, Any]) -> set[str]:
    """Which model stands behind which alias, in forty tasks."""
    made = factory_of("HLE-v0", **arguments)
    return {str([tool.offers for tool in made.start(seed).episode.world.toolbox]) for seed in range(40)}


def test_what_the_settings_say_holds() -> None:
    def tools(name: str) -> list[str]:
        return [tool.name for tool in factory_of("HLE-v0", **preset(name)[0].arguments).start(0).episode.world.toolbox]

    assert tools("no-tools") == ["submit"]
    assert tools("basic-tools") == ["web_search", "local_search", "python", "submit"]
    assert tools("all-tools") == ["search", "enhance_reasoning", "answer"]
    assert [s.arguments["max_turns"] for s in preset("turns")] == [10, 20, 50, 100]
    wishes = {s.label: factory_of("HLE-v0", **s.arguments).start(0).episode.preference for s in preset("preferences")}
    assert all(label == f"wish: {wish.kind}" and wish.sentence for label, wish in wishes.items())
    (unseen,) = preset("unseen-tools")
    seen, held_out = (drawn({**unseen.arguments, "diversify": half}) for half in ("train", "heldout"))
    assert len(seen) > 20
    assert not seen & held_out
    prices = [factory_of("HLE-v0", **s.arguments).start(0).episode.sheet.sheet_id for s in preset("unseen-prices")]
    assert prices == ["unseen-2026-01"]


def test_presets_are_listed_and_refused_by_name_and_by_environment() -> None:
    assert list(presets()) == list(PRESETS)
    assert all(line.endswith(".") and "\n" not in line for line in presets().values())
    assert set(fitting("ToolOrchestra/Tau2-v0")) == {"unseen-prices", "turns", "preferences"}
    with pytest.raises(ConfigError, match=r"no evaluation preset 'turn'.*Did you mean 'turns'"):
        preset("turn")
    with pytest.raises(ConfigError, match=r"'basic-tools' sets tools, which .*Tau2-v0 does not take; presets that it"):
        preset("basic-tools", "ToolOrchestra/Tau2-v0")
