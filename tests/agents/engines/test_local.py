"""The local engine: the decoder equals transformers, sampled log-probabilities are the trainer's, and it learns."""

from __future__ import annotations

import asyncio
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.agents.engines.conformance import CONFIG as SHARED
from tests.agents.engines.conformance import STOP, VOCABULARY, SamplerConformance, conversations
from tests.two_texts import raises
from toolorchestra.agents.configuration.presets import PRESETS
from toolorchestra.agents.engines import update
from toolorchestra.agents.engines.base import Datum, LossParams, SamplingParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.update import batches, kl_to, token_losses
from toolorchestra.agents.training import checkpoint
from toolorchestra.envs.base.errors import ConfigError

CONFIG = LocalConfig(rows=12, length=160)


class TestLocalSampler(SamplerConformance):
    def engine(self, config: LocalConfig = SHARED, seed: int = 0) -> LocalEngine:
        return engine(config, seed)


def engine(config: LocalConfig = CONFIG, seed: int = 0, **shape: int) -> LocalEngine:
    return LocalEngine(build_model(VOCABULARY, hidden=32, layers=2, seed=seed, **shape), [STOP], config)


def test_the_average_is_sampled_from_while_it_is_asked_for(tmp_path: Path) -> None:
    made = engine(replace(CONFIG, average=0.5))
    first = [p.detach().clone() for p in made.trained]
    data = conversations(made)
    made.train(data, LossParams("cross_entropy"), 1e-2)
    last = [p.detach().clone() for p in made.trained]
    with made.averaged():
        for p, before, after in zip(made.trained, first, last, strict=True):
            assert torch.allclose(p, (before + after) / 2, atol=1e-6)
        inside = conversations(made)
        for d, trained in zip(inside, made.logprobs(inside), strict=True):
            assert [p for p, counts in zip(d.logprobs, d.mask, strict=True) if counts] == pytest.approx(
                trained, abs=1e-4
            )
    assert all(torch.equal(p, after) for p, after in zip(made.trained, last, strict=True))
    made.save(tmp_path)
    other = engine(replace(CONFIG, average=0.5, seed=3))
    other.load(tmp_path)
    with made.averaged(), other.averaged():
        assert all(torch.equal(a, b) for a, b in zip(made.trained, other.trained, strict=True))


def test_an_adapter_starts_where_its_seed_says() -> None:
    """Whatever was drawn before, and without a trace in what is drawn next."""
    config = replace(CONFIG, lora_rank=2)
    torch.rand(1)
    state = torch.get_rng_state()
    first, again, other = (engine(replace(config, seed=seed)).trained for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_without_an_average_nothing_changes() -> None:
    made = engine()
    last = [p.detach().clone() for p in made.trained]
    with made.averaged():
        assert all(torch.equal(p, kept) for p, kept in zip(made.trained, last, strict=True))


def test_batches_are_bounded_sorted_and_leave_out_what_teaches_nothing() -> None:
    data = [Datum([0] * n, [0.0] * n, [1.0] * n, [True] * n) for n in (5, 50, 7, 90)]
    data += [Datum([0] * 9, [0.0] * 9, [1.0] * 9, [False] * 9)]
    got = list(batches(data, 100))
    assert sorted(len(d.tokens) for b in got for d in b) == [5, 7, 50, 90]
    assert all(len(b) == 1 or max(len(d.tokens) for d in b) * len(b) <= 100 for b in got)


def test_the_loss_does_not_depend_on_the_batching() -> None:
    data = conversations(engine())
    results = [engine(replace(CONFIG, tokens_per_batch=n)).train(data, LossParams(), 1e-3) for n in (10, 100_000)]
    assert results[0]["loss"] == pytest.approx(results[1]["loss"], abs=1e-5)
    assert results[0]["gradient_norm"] == pytest.approx(results[1]["gradient_norm"], rel=1e-3)


def test_the_loss_does_not_depend_on_the_parts_of_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large vocabulary's logits are made in parts; three tokens at a time here."""
    data, results = conversations(engine()), []
    for most in (update.LOGIT_BYTES, 3 * 4 * VOCABULARY):
        monkeypatch.setattr(update, "LOGIT_BYTES", most)
        results.append(engine().train(data, LossParams(entropy_weight=0.1), 1e-3))
    for name in ("loss", "entropy", "gradient_norm"):
        assert results[0][name] == pytest.approx(results[1][name], rel=1e-3, abs=1e-5)


def test_clips() -> None:
    """Asymmetric, and bounded for what became likelier though it was bad."""
    old = torch.zeros(4)
    new = torch.tensor([1.0, -1.0, 1.0, 5.0])
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0])
    losses = token_losses(new, old, advantage, LossParams())
    assert losses.tolist() == pytest.approx([-1.28, -(2.718281828**-1), 2.718281828, 10.0], abs=1e-5)
    assert kl_to(torch.tensor([0.5]), torch.tensor([0.0])).item() == pytest.approx(0.125)


def test_the_clip_holds_a_policy_near_what_sampled() -> None:
    """What older weights sampled: a token that has moved far enough the right way pushes no further."""
    new = torch.tensor([0.5, -0.5], requires_grad=True)
    torch.autograd.backward(token_losses(new, torch.zeros(2), torch.tensor([1.0, -1.0]), LossParams()).sum())
    assert new.grad is not None
    assert new.grad.tolist() == [0.0, 0.0]


def test_save_and_load_are_exact(tmp_path: Path) -> None:
    made = engine()
    data = conversations(made)
    made.train(data, LossParams("cross_entropy"), 1e-2)
    made.save(tmp_path)
    other = engine(seed=9)
    other.load(tmp_path)
    for one in (made, other):
        one.train(data, LossParams("cross_entropy"), 1e-2)
    for (name, left), right in zip(made.model.state_dict().items(), other.model.state_dict().values(), strict=True):
        assert torch.equal(left, right), name
    assert [d.tokens for d in conversations(made, 0)] == [d.tokens for d in conversations(other, 0)]


REFERRING = [replace(CONFIG, reference=True), replace(CONFIG, reference=True, lora_rank=2)]
LEASHED = LossParams(kl_weight=0.1)


@pytest.mark.parametrize("config", REFERRING)
def test_the_reference_is_what_was_taken(config: LocalConfig) -> None:
    """Not what the model was made of, which may be far away when reinforcement learning starts."""
    made = engine(config)
    for _ in range(5):
        made.train(conversations(made, 0), LossParams("cross_entropy"), 1e-2)
    data = conversations(made, 0)
    assert made.train(data, LEASHED, 0.0)["kl_reference"] > 1e-2
    made.take_reference()
    last = [p.detach().clone() for p in made.trained]
    assert made.train(data, LEASHED, 0.0)["kl_reference"] < 1e-8
    assert all(torch.equal(p, kept) for p, kept in zip(made.trained, last, strict=True))
    made.train(data, LEASHED, 1e-2)
    assert made.train(data, LEASHED, 0.0)["kl_reference"] > 1e-4


@pytest.mark.parametrize("config", REFERRING)
def test_the_reference_that_was_taken_is_saved(config: LocalConfig, tmp_path: Path) -> None:
    made = engine(config)
    data = conversations(made)
    made.train(data, LossParams("cross_entropy"), 1e-2)
    made.take_reference()
    made.train(data, LEASHED, 1e-2)
    made.save(tmp_path)
    other = engine(config)
    other.load(tmp_path)
    metrics = [one.train(data, LEASHED, 1e-2)["kl_reference"] for one in (made, other)]
    assert metrics[0] == metrics[1]
    assert all(torch.equal(a, b) for a, b in zip(made.trained, other.trained, strict=True))


@pytest.mark.parametrize("config", [*REFERRING, CONFIG])
def test_a_reference_that_construction_gives_is_not_saved(config: LocalConfig, tmp_path: Path) -> None:
    made = engine(config)
    made.take_reference()
    made.save(tmp_path)
    assert "reference" not in torch.load(tmp_path / "engine.pt", weights_only=True)


@pytest.mark.parametrize("limit", [5_000, 50_000])
def test_a_disk_that_is_full_half_way_leaves_the_last_checkpoint(tmp_path: Path, limit: int) -> None:
    made = engine()
    checkpoint.save(tmp_path, 1, {}, made.save)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))  # a longer write fails, as a full disk's does
    try:
        said = "the last good one is step-000001; free space, then go on with resume=True$"
        with raises(checkpoint.CheckpointError, said, "--resume"):
            checkpoint.save(tmp_path, 2, {}, made.save)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert checkpoint.check(tmp_path / "step-000001") == ""


def test_another_shape_is_refused(tmp_path: Path) -> None:
    engine().save(tmp_path)
    bigger: Any = LocalEngine(build_model(VOCABULARY, hidden=32, layers=3), [STOP], CONFIG)
    with pytest.raises(ConfigError, match="holds another model"):
        bigger.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("attention_bias", True), ("mlp_bias", True), ("use_sliding_window", True), ("hidden_act", "gelu")],
)
def test_what_the_decoder_would_leave_out_is_refused(name: str, value: Any) -> None:
    model = build_model(VOCABULARY, 32, 2)
    setattr(model.config, name, value)
    with pytest.raises(ConfigError, match=rf"the model has {name}={value!r}; set model\.sampler=vllm"):
        LocalEngine(model, [STOP], CONFIG)


def test_weights_of_16_bits_are_trained_by_an_adapter_alone() -> None:
    """A step of 1e-6 is less than their last digit."""
    for dtype in ("bfloat16", "float16"):
        with pytest.raises(ConfigError, match=rf"model\.dtype={dtype} rounds .* model\.dtype=float32, or model\.lor"):
            engine(replace(CONFIG, dtype=dtype))
        made = engine(replace(CONFIG, dtype=dtype, lora_rank=2))
        assert {p.dtype for p in made.trained} == {torch.float32}


def test_presets_train_in_32_bits() -> None:
    assert all(p.model.dtype == "float32" or p.model.lora_rank for p in PRESETS.values())


def test_more_turns_at_once_than_rows_are_refused() -> None:
    crowded = engine(replace(CONFIG, rows=1))

    async def two() -> None:
        await asyncio.gather(*(crowded.sample([2, 3], SamplingParams(4), f"s{i}") for i in range(2)))

    with pytest.raises(RuntimeError, match="all 1 rows of the sampler are in use"):
        asyncio.run(two())
