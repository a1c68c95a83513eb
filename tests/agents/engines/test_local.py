"""The local engine: the decoder equals transformers, sampled log-probabilities are the trainer's, and it learns, by
AdamW and by Muon."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.agents.engines.conformance import SMALL as CONFIG
from tests.agents.engines.conformance import VOCABULARY, SamplerConformance, conversations, engine
from toolorchestra.agents.engines import update
from toolorchestra.agents.engines.base import LossParams
from toolorchestra.agents.engines.local import LocalConfig
from toolorchestra.agents.engines.optimizers import BatchedMuon, MuonAndAdamW
from toolorchestra.agents.engines.update import kl_to, token_losses
from toolorchestra.envs.base.errors import ConfigError

TestLocalSampler = SamplerConformance
SUPERVISED = LossParams("cross_entropy")
MUON = replace(CONFIG, optimizer="muon")


def test_the_average_is_sampled_from_while_it_is_asked_for(tmp_path: Path) -> None:
    made = engine(replace(CONFIG, average=0.5))
    first = [p.detach().clone() for p in made.trained]
    data = conversations(made)
    made.train(data, SUPERVISED, 1e-2)
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


def test_the_share_that_was_clipped_has_both_bounds_and_a_divergence_grows_both_ways() -> None:
    made, shares = engine(), []
    divergences: list[float] = []
    data = conversations(made, count=4)
    for ratio in (0.75, 0.85, 1.25, 1.35):
        moved = [replace(d, logprobs=[p - m * math.log(ratio) for p, m in zip(d.logprobs, d.mask, strict=True)])
                 for d in data]  # fmt: skip
        told = made.train(moved, LossParams(), 1e-12)
        shares.append(told["clipped"])
        divergences.append(told["kl_sampler"])
    assert shares == [1.0, 0.0, 0.0, 1.0]
    assert divergences == pytest.approx([r - 1 - math.log(r) for r in (0.75, 0.85, 1.25, 1.35)], rel=1e-3)


@pytest.mark.parametrize("config", [CONFIG, MUON])
def test_save_and_load_are_exact(config: LocalConfig, tmp_path: Path) -> None:
    made = engine(config)
    data = conversations(made)
    made.train(data, SUPERVISED, 1e-2)
    made.save(tmp_path)
    other = engine(replace(config, seed=3), seed=9)
    other.load(tmp_path)
    for one in (made, other):
        one.train(data, SUPERVISED, 1e-2)
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
        made.train(conversations(made, 0), SUPERVISED, 1e-2)
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
    made.train(data, SUPERVISED, 1e-2)
    made.take_reference()
    made.train(data, LEASHED, 1e-2)
    made.save(tmp_path)
    other = engine(config)
    other.load(tmp_path)
    metrics = [one.train(data, LEASHED, 1e-2)["kl_reference"] for one in (made, other)]
    assert metrics[0] == metrics[1]
    assert all(torch.equal(a, b) for a, b in zip(made.trained, other.trained, strict=True))


def test_weights_of_16_bits_are_trained_by_an_adapter_alone() -> None:
    """A step of 1e-6 is less than their last digit."""
    for dtype in ("bfloat16", "float16"):
        with pytest.raises(ConfigError, match=rf"model\.dtype={dtype} rounds .* model\.dtype=float32, or model\.lor"):
            engine(replace(CONFIG, dtype=dtype))
        made = engine(replace(CONFIG, dtype=dtype, lora_rank=2))
        assert {p.dtype for p in made.trained} == {torch.float32}


def test_muon_steps_the_layers_matrices_and_adamw_the_rest() -> None:
    made = engine(MUON)
    assert isinstance(made.optimizer, MuonAndAdamW)
    names = {id(p): name for name, p in made.model.named_parameters()}
    rest, muon = ([names[id(p)] for p in group["params"]] for group in made.optimizer.param_groups)
    assert sorted([*rest, *muon]) == sorted(names.values())
    assert all("proj" in name for name in muon)
    assert "model.embed_tokens.weight" in rest
    assert not any("proj" in name for name in rest)


def test_its_steps_are_those_of_torch_but_for_rounding() -> None:
    """torch's own rounds to bfloat16. A matrix without a gradient stays as it is."""
    drawn = torch.Generator().manual_seed(0)
    shapes = [(8, 24), (24, 8), (8, 24), (16, 16), (8, 24)]
    first = [torch.randn(shape, generator=drawn) for shape in shapes]
    mine, theirs = ([torch.nn.Parameter(w.clone()) for w in first] for _ in range(2))
    wanted: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}
    ours, torchs = BatchedMuon(mine, **wanted), torch.optim.Muon(theirs, **wanted)
    for _ in range(3):
        for one, other in zip(mine[:-1], theirs[:-1], strict=True):
            one.grad = torch.randn(one.shape, generator=drawn)
            other.grad = one.grad.clone()
        ours.step()
        torchs.step()
    for one, other, start in zip(mine[:-1], theirs[:-1], first, strict=False):
        moved = float((other - start).detach().norm())
        assert moved > 0.05
        assert float((one - other).detach().norm()) < 0.02 * moved
    assert torch.equal(mine[-1], first[-1])
    names = ours.state_dict()["state"][0].keys()
    assert names == torchs.state_dict()["state"][0].keys()
