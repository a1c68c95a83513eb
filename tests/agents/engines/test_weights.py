"""Weights on their way to a sampler: all of them, in parts that fit, in a folder with room."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.agents.engines.conformance import STOP, VOCABULARY
from toolorchestra.agents.engines import weights
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.vllm_sampler import handover_bytes, handover_folder
from toolorchestra.agents.engines.weights import Handover, named_weights
from toolorchestra.envs.base.errors import ConfigError

CONFIG = LocalConfig(rows=8, length=192)
MODEL = build_model(VOCABULARY, 32, 2)


def test_all_weights_are_handed_over_a_tied_head_too(tmp_path: Path) -> None:
    model = build_model(VOCABULARY, 32, 2)
    handover = Handover(tmp_path / "weights", model.config.to_dict())
    for _ in range(2):  # what an earlier version left is replaced
        handover.write(named_weights(model))
    (part,) = (tmp_path / "weights").glob("*.safetensors")
    found = load_file(part)
    assert found.keys() == model.state_dict().keys()
    assert torch.equal(found["lm_head.weight"], found["model.embed_tokens.weight"])
    assert json.loads((tmp_path / "weights" / "config.json").read_text())["hidden_size"] == 32


@pytest.mark.parametrize(("dtype", "lora_rank"), [("float32", 0), ("bfloat16", 0), ("bfloat16", 4)])
def test_weights_take_the_room_that_was_counted_for_them(tmp_path: Path, dtype: str, lora_rank: int) -> None:
    """A trainer in float32 may have a sampler in 16 bits: files of twice the size would not fit."""
    config = replace(CONFIG, lora_rank=lora_rank)
    made = LocalEngine(build_model(VOCABULARY, 32, 2), [STOP], config)
    shape = made.model.config.to_dict()
    Handover(tmp_path, shape, getattr(torch, dtype)).write(named_weights(made.model))
    (part,) = tmp_path.glob("*.safetensors")
    found = load_file(part)
    assert {value.dtype for value in found.values()} == {getattr(torch, dtype)}
    assert sum(value.nbytes for value in found.values()) == handover_bytes(shape, dtype)


def test_without_the_head_nothing_is_handed_over(tmp_path: Path) -> None:
    weights = [(k, v) for k, v in named_weights(build_model(VOCABULARY, 32, 2)) if k != "lm_head.weight"]
    with pytest.raises(
        ConfigError, match=r"lack lm_head.weight \(\d+ came\): without it the sampler keeps an old head"
    ):
        Handover(tmp_path, {}).write(weights)


def test_many_weights_are_handed_over_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "SHARD_BYTES", 20_000)
    handover = weights.Handover(tmp_path / "w", {"a": 1})
    expected = dict(weights.named_weights(MODEL))
    for _ in range(2):  # the second takes the place of the first
        handover.write(expected.items())
        parts = sorted((tmp_path / "w").glob("*.safetensors"))
        assert len(parts) > 1
        found: dict[str, Tensor] = {}
        for part in parts:
            held = load_file(part)
            assert len(held) == 1 or sum(value.nbytes for value in held.values()) <= 20_000
            assert not found.keys() & held.keys()
            found |= held
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_weights_are_handed_over_in_a_fresh_folder_with_room(tmp_path: Path) -> None:
    one, other = (handover_folder(str(tmp_path), 10) for _ in range(2))
    assert one != other
    assert {one.parent, other.parent} == {tmp_path}
    with pytest.raises(ConfigError, match=rf"takes 1000000000\.0 GB in a folder, and none of {tmp_path} has that much"):
        handover_folder(str(tmp_path), 10**18)
    with pytest.raises(ConfigError, match=r"name one with model\.handover=FOLDER"):
        handover_folder(str(tmp_path / "none"), 10)
