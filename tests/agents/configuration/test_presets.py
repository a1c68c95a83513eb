"""Every preset fits the machine that it names, with the longest prompts of what it can be trained on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from toolorchestra.agents.commands.budget import shape_named
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.configuration.presets import MACHINES, PRESETS, preset
from toolorchestra.agents.engines.gpu_arithmetic import Shape, budget, served_tokens
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.rollouts.rollout import Chat
from toolorchestra.agents.training.build import plan
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.runtime.invoke import Gates, begin

LONGEST_OPENING = 9_942
"""Tokens that the longest episode of any environment begins with, by Qwen3's tokenizer and template: Tau2-v0's telecom
without a user. ToolScale-v0 begins with at most 6,527, HLE-v0 with 1,093."""
ON_A_GPU = list(MACHINES)


def test_every_preset_names_its_machine() -> None:
    assert [name for name, config in PRESETS.items() if config.model.device.startswith("cuda")] == ON_A_GPU


@pytest.mark.parametrize("name", ON_A_GPU)
def test_the_longest_prompt_leaves_room_for_two_whole_turns(name: str) -> None:
    config = preset(name)
    assert LONGEST_OPENING + 2 * config.max_tokens <= config.max_context


@pytest.mark.parametrize("name", ON_A_GPU)
def test_episodes_of_full_length_fit_the_cache_side_by_side(name: str) -> None:
    """vLLM lets turns wait that do not fit; with fewer than four at a time it would hardly batch."""
    config, machine = preset(name), MACHINES[name]
    shape, size = shape_named(machine.shape), int(machine.gigabytes * 1e9)
    served = config.model.sampler == "served"
    held = served_tokens(Shape.read(shape), size, 2) if served else budget(plan(config, shape, size)).cached_tokens
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


@pytest.mark.parametrize("name", ["8b-node", "paper"])
def test_every_server_of_a_node_has_a_gpu_and_the_trainer_fits_the_others(name: str) -> None:
    config, machine = preset(name), MACHINES[name]
    assert len(config.model.server.split(",")) == machine.sampling == machine.gpus - machine.training
    shape, size = shape_named(machine.shape), int(machine.gigabytes * 1e9)
    budget(plan(config, shape, size, machine.training)).check()


def test_the_paper_s_weights_do_not_fit_fewer_gpus() -> None:
    with pytest.raises(ConfigError, match=r"training would take .* GB more than the device's"):
        budget(plan(preset("paper"), shape_named("qwen3-8b"), 80 * 10**9, 2)).check()


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
