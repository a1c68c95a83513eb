"""Weights on their way to a sampler: all of them, in parts that fit; and noticing when other ones have arrived."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.agents.engines.conformance import CONFIG, STOP, VOCABULARY, engine
from toolorchestra.agents.engines import agreement, weights
from toolorchestra.agents.engines.agreement import Agreement, Drift
from toolorchestra.agents.engines.base import Probed, Sample, SamplingParams, TrainingFailed
from toolorchestra.agents.engines.decoder import Decoder
from toolorchestra.agents.engines.local import LocalEngine
from toolorchestra.agents.engines.sampler import LocalSampler
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.vllm_sampler import handover_bytes, handover_folder
from toolorchestra.agents.engines.weights import Handover, named_weights
from toolorchestra.envs.base.errors import ConfigError

MODEL = build_model(VOCABULARY, 32, 2)


@pytest.mark.parametrize(("dtype", "lora_rank"), [("float32", 0), ("bfloat16", 0), ("bfloat16", 4)])
def test_weights_take_the_room_that_was_counted_for_them(tmp_path: Path, dtype: str, lora_rank: int) -> None:
    """A trainer in float32 may have a sampler in 16 bits: files of twice the size would not fit."""
    made = engine(replace(CONFIG, lora_rank=lora_rank))
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


def test_all_weights_are_handed_over_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "SHARD_BYTES", 20_000)
    handover = Handover(tmp_path / "w", MODEL.config.to_dict())
    expected = MODEL.state_dict()
    for _ in range(2):  # the second takes the place of the first
        handover.write(named_weights(MODEL))
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
    assert "lm_head.weight" in found  # tied, and there
    assert json.loads((tmp_path / "w" / "config.json").read_text())["hidden_size"] == 32


def test_weights_are_handed_over_in_a_fresh_folder_with_room(tmp_path: Path) -> None:
    one, other = (handover_folder(str(tmp_path), 10) for _ in range(2))
    assert one != other
    assert {one.parent, other.parent} == {tmp_path}
    with pytest.raises(ConfigError, match=rf"takes 1000000000\.0 GB in a folder, and none of {tmp_path} has that much"):
        handover_folder(str(tmp_path), 10**18)
    with pytest.raises(ConfigError, match=r"name one with model\.handover=FOLDER"):
        handover_folder(str(tmp_path / "none"), 10)


class Separate:
    """A sampler apart: another engine's, asked as a separate process is."""

    def __init__(self, engine: LocalEngine, heat: float = 1.0) -> None:
        self.engine, self.heat = engine, heat

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        params = params._replace(temperature=params.temperature**self.heat)
        return [asyncio.run(self.engine.sample(p, params)) for p in prompts]


class Liar(LocalSampler):
    """Reports what it did not draw from."""

    suspends = True

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        del params
        return [Sample([STOP], [-9.0], True) for _ in prompts]


class Checked(LocalSampler):
    """Is asked for what it draws, as one apart is."""

    suspends = True

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        return [asyncio.run(self.sample(p, params, "")) for p in prompts]


def checked(kind: type[LocalSampler]) -> LocalEngine:
    """An engine whose sampler is verified."""
    model = build_model(VOCABULARY, 32, 2)
    decoder = Decoder(model.config, CONFIG.rows, CONFIG.length, torch.device("cpu"), torch.float32)
    return LocalEngine(model, [STOP], CONFIG, kind(decoder, [STOP], 0))


def measured(sampler: Separate, trainer: LocalEngine) -> Agreement:
    assert isinstance(sampler, Probed)
    return agreement.measure(sampler, trainer.logprobs, agreement.probe_prompts(VOCABULARY, CONFIG.length, 0))


def test_another_model_is_noticed() -> None:
    with pytest.raises(Drift, match=r"differ from the trainer's by .* expected at most 0.001. Check that every weight"):
        agreement.check(measured(Separate(engine(CONFIG, 1)), engine(CONFIG)), agreement.TOLERANCE["float32"])


def test_a_sync_is_verified_on_what_was_asked_and_after_a_resume_on_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are handed over at the beginning of a resumed run, before its first prompt."""
    probed: list[list[list[int]]] = []
    usual = agreement.measure

    def watched(sampler: Probed, scores: Any, prompts: Sequence[Sequence[int]], *more: Any) -> Agreement:
        probed.append([list(one) for one in prompts])
        return usual(sampler, scores, prompts, *more)

    monkeypatch.setattr(agreement, "measure", watched)
    made, other = checked(Checked), checked(Checked)
    asyncio.run(made.sample([5, 6, 7], SamplingParams(2)))
    made.save(tmp_path)
    other.load(tmp_path)
    other._sync()
    assert probed[0] == probed[1] == [[5, 6, 7]] * agreement.PROBES


def test_a_model_that_was_found_to_differ_is_never_sampled_from() -> None:
    """However often it is asked."""
    made = checked(Liar)
    for _ in range(2):
        with pytest.raises(Drift):
            asyncio.run(made.sample([3, 4], SamplingParams(2)))


def test_logprobs_of_another_temperature_are_noticed() -> None:
    """At temperature 1 such a sampler is right; the second temperature tells."""
    assert measured(Separate(engine(CONFIG), heat=0.0), engine(CONFIG)).mean > 1e-2


def test_what_16_bits_round_in_the_trainer_alone_is_no_drift() -> None:
    """The trainer differs from itself as much: in a batch, and alone. A gap beyond twice that is another model's."""
    found, tolerance = Agreement(0.079, 0.36, noise=0.056), agreement.TOLERANCE["bfloat16"]
    agreement.check(found, tolerance)
    with pytest.raises(TrainingFailed, match=r"by 0\.12 nats .*, and the trainer's in a batch .* by 0\.056; .* 0\.112"):
        agreement.check(found._replace(mean=0.12), tolerance)


def test_probes_are_the_ends_of_what_the_model_was_asked_for() -> None:
    """Of the first prompts, and the same ones after every later sync."""
    asked = [list(range(60)), [7, 8]]
    size = 20 - agreement.PROBE_TOKENS
    assert agreement.probe_prompts(64, 20, 0, asked) == [list(range(60))[-size:], [7, 8]] * (agreement.PROBES // 2)


def test_probes_need_room() -> None:
    assert all(len(p) == 20 - agreement.PROBE_TOKENS for p in agreement.probe_prompts(64, 20, 0))
    with pytest.raises(ConfigError, match="the context must hold 9 tokens to verify the sampler, got 8"):
        agreement.probe_prompts(64, 8, 0)
