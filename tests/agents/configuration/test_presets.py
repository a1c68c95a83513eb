"""Every preset fits the machine that it names, with the longest prompts of what it can be trained on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from toolorchestra.agents.commands import memory_budget
from toolorchestra.agents.commands.memory_budget import shape_named
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.configuration.presets import MACHINES, PRESETS, preset
from toolorchestra.agents.engines.memory import Shape, budget, served_tokens
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.rollouts.tokens import Chat
from toolorchestra.agents.training.build import plan
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.runtime.driver import begin
from toolorchestra.envs.runtime.invoke import Gates

OPENINGS = json.loads((Path(__file__).parent / "openings.json").read_text(encoding="utf-8"))
"""Tokens that the longest episode of each environment begins with, by Qwen3's tokenizer and template:
`scripts/prompt_lengths.py --json` writes them."""
ON_A_GPU = [name for name, machine in MACHINES.items() if machine.gpus]


def test_every_preset_names_its_machine() -> None:
    assert list(MACHINES) == list(PRESETS)
    for name, config in PRESETS.items():
        assert bool(MACHINES[name].gpus) == config.model.device.startswith("cuda")


@pytest.mark.parametrize("name", ON_A_GPU)
def test_a_preset_fits_its_machine(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert memory_budget.main(["--preset", name]) == 0
    assert f"together, of {MACHINES[name].gigabytes:.1f}" in capsys.readouterr().out


@pytest.mark.parametrize("source", OPENINGS)
@pytest.mark.parametrize("name", ON_A_GPU)
def test_the_longest_prompt_leaves_room_for_two_whole_turns(name: str, source: str) -> None:
    config = preset(name)
    assert OPENINGS[source] + 2 * config.max_tokens <= config.max_context


@pytest.mark.parametrize("name", ON_A_GPU)
def test_episodes_of_full_length_fit_the_cache_side_by_side(name: str) -> None:
    """vLLM lets turns wait that do not fit; with fewer than four at a time it would hardly batch."""
    config, machine = preset(name), MACHINES[name]
    shape, size = shape_named(machine.shape), int(machine.gigabytes * 1e9)
    served = config.model.sampler == "served"
    held = served_tokens(Shape.read(shape), size) if served else budget(plan(config, shape, size)).cached_tokens
    assert held >= 4 * config.max_context


@pytest.mark.parametrize("name", ON_A_GPU)
def test_the_longest_rollout_counts_where_it_is_longer_than_a_batch(name: str) -> None:
    config, machine = preset(name), MACHINES[name]
    longer = replace(config, max_context=2 * config.model.tokens_per_batch)
    shape, size = shape_named(machine.shape), int(machine.gigabytes * 1e9)
    assert plan(longer, shape, size).tokens_per_batch == longer.max_context
    assert budget(plan(longer, shape, size)).total(training=True) > budget(plan(config, shape, size)).total(
        training=True
    )


def test_every_server_of_the_node_has_a_gpu() -> None:
    config, machine = preset("8b-node"), MACHINES["8b-node"]
    assert len(config.model.server.split(",")) == machine.sampling == machine.gpus - 1


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in ON_A_GPU])
def test_presets_for_a_cpu_have_room_for_their_own_environments(name: str) -> None:
    config = preset(name)
    chat = Chat(load_tokenizer())
    for mix in config.environments:
        for seed in range(20):
            episode = training(mix).start(seed, None).episode
            asyncio.run(begin(episode, Gates()))
            sequence, _ = chat.follow(None, episode.observation)
            # The tiny tokenizer has words of its own for this grammar; three characters are less than another's token.
            tokens = len(sequence.tokens) if not config.model.path else len(sequence.text) // 3
            assert tokens + 4 * config.max_tokens <= config.max_context


def test_settings_of_another_name_say_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert memory_budget.main(["--preset", "tiny"]) == 2
    assert "--shape says which model it is about: a config.json, or one of: qwen3-8b" in capsys.readouterr().err
    assert memory_budget.main(["--preset", "tiny", "--shape", "qwen3-8b"]) == 2
    assert "--gigabytes is above 0 and says how much memory" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"none\.json is no file; name a model's config\.json"):
        shape_named("none.json")
