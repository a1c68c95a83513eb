"""Settings that contradict each other are refused when a configuration is made, with what to set instead."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from toolorchestra.agents.configuration.config import EnvMix, ModelConfig, TrainConfig
from toolorchestra.agents.configuration.environment_options import chosen_envs, pairs
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.base import LossParams
from toolorchestra.agents.rollouts.grpo import AdvantageParams
from toolorchestra.agents.training.build import default_folder
from toolorchestra.envs.base.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sampler": "vlm"}, "no model.sampler 'vlm'; valid: local, served, vllm. Did you mean 'vllm'?"),
        (
            {"sampler": "served"},
            "model.sampler=served needs model.server=http://HOST:PORT/v1 and model.handover=FOLDER",
        ),
        ({"sampler": "served", "server": "http://h/v1"}, "model.sampler=served needs model.server="),
        ({"memory_share": 1.0}, "model.memory_share is a share between 0 and 1, got 1.0"),
        ({"sampler": "vllm", "processes": 2}, "model.sampler=vllm batches all rollouts itself: set model.processes=1"),
        ({"kernels": "ligr"}, "no model.kernels 'ligr'; valid: auto, compiled, flash, torch"),
        ({"cache": "fp8"}, "model.cache=fp8 is of vLLM: set model.sampler=vllm or served"),
        ({"cache": "fp4"}, "no model.cache 'fp4'; valid: auto, fp8"),
        ({"dtype": "fp16"}, "no model.dtype 'fp16'; valid: bfloat16, float16, float32"),
        ({"dtype": "int8", "lora_rank": 2}, "no model.dtype 'int8'; valid: bfloat16, float16, float32"),
        ({"hidden": 12}, "model.hidden is a multiple of 8, for four heads of even width; got 12"),
    ],
)
def test_a_model_that_cannot_be_held_so_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(says)}"):
        ModelConfig(**settings)


def test_a_width_of_the_tiny_model_is_not_asked_of_another() -> None:
    assert ModelConfig(path="some/model", hidden=12).hidden == 12


def test_a_turn_is_shorter_than_its_episode() -> None:
    tiny = preset("tiny")
    with pytest.raises(ConfigError, match=r"^max_context \(256\) must exceed max_tokens \(256\)$"):
        replace(tiny, max_tokens=256)
    assert replace(tiny, max_tokens=255).max_tokens == 255


def test_vllm_on_the_trainers_gpu_is_not_sampled_from_while_it_sleeps() -> None:
    with pytest.raises(ConfigError, match=r"^max_staleness=1 samples while it trains, and vLLM beside .* sleeps then"):
        replace(preset("8b-h100"), max_staleness=1)
    assert replace(preset("8b-node"), max_staleness=1).max_staleness == 1


def test_words_that_nobody_knows_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^no loss\.kind 'x1'; valid: 'cross_entropy', 'ppo'"):
        LossParams("x1")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^no advantage\.unreadable 'x1'; valid: dropped, kept, wrong"):
        AdvantageParams(unreadable="x1")  # type: ignore[arg-type]


def test_a_run_has_at_most_58_settings() -> None:
    """A setting is one that a user's question answers to, or that a preset sets; everything else is a constant."""

    def count(kind: Any) -> int:
        hints = get_type_hints(kind)
        own = [
            f.name for f in fields(kind) if (kind, f.name) not in ((LossParams, "kind"), (LossParams, "temperature"))
        ]
        groups = [hints[name] for name in own if is_dataclass(hints[name])]
        return len(own) - len(groups) + sum(map(count, groups))

    assert count(TrainConfig) - 1 <= 58  # environments are named by --env


def test_an_environment_on_a_command_line_has_a_name() -> None:
    with pytest.raises(ConfigError, match=r"^--env takes an id and then NAME=VALUE, got nothing; for example"):
        chosen_envs([["HLE-v0"], []])
    (chosen,) = chosen_envs([["HLE-v0", "max_turns=3"]], ["max_turns=5", "style=brief"])
    assert chosen.env_id == "ToolOrchestra/HLE-v0"
    assert chosen.arguments == {"max_turns": 3, "style": "brief"}  # its own wins


def test_a_run_plays_the_splits_that_it_sets() -> None:
    with pytest.raises(ConfigError, match="HLE-v0: split is set by train, validation and test"):
        EnvMix("HLE-v0", 1.0, {"split": "test"})


@pytest.mark.parametrize("item", ["name", "=value", ""])
def test_a_pair_has_a_name_and_a_value(item: str) -> None:
    assert pairs("--set", ["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(ConfigError, match=f"^--set takes NAME=VALUE, got {item!r}$"):
        pairs("--set", [item])


@pytest.mark.parametrize(
    ("option", "do"),
    [("--each", "give it once as a=1,2"), ("--seeds", "give it once as a=1,2"), ("--env", "give it once")],
)
def test_a_name_given_twice_loses_no_value(option: str, do: str) -> None:
    with pytest.raises(ConfigError, match=f"^{option}: a stands there twice; {do}$"):
        pairs(option, ["a=1", "b=1", "a=2"])


def test_a_run_goes_into_a_folder_of_its_preset_and_seed() -> None:
    assert default_folder(replace(preset("tiny"), seed=3)) == Path("runs/tiny-seed3")


def test_the_pretrained_model_on_a_laptop_is_small_enough_for_one() -> None:
    config = preset("lm-cpu")
    assert (config.model.device, config.model.dtype, config.model.lora_rank > 0) == ("cpu", "bfloat16", True)
    start = config.warm_start
    learnt_from = start.steps * start.batch + config.steps * config.groups * config.rollouts
    assert learnt_from <= 1_600  # about four seconds each in bfloat16, thirteen on a slow core in float32
    assert config.model.rows >= config.groups * config.rollouts
    assert all(mix.arguments["style"] == "brief" and mix.arguments["max_turns"] == 6 for mix in config.environments)
