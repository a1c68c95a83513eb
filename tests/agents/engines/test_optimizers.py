"""Muon beside AdamW: who steps which weights, one rate for both, and a state that goes on as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.agents.engines.test_local import CONFIG, conversations, engine
from toolorchestra.agents.configuration.config import ModelConfig
from toolorchestra.agents.engines.base import LossParams
from toolorchestra.agents.engines.optimizers import BatchedMuon, MuonAndAdamW
from toolorchestra.agents.engines.tiny import build_model, load_tokenizer, numbers_of
from toolorchestra.envs.base.errors import ConfigError

MUON = replace(CONFIG, optimizer="muon")
SUPERVISED = LossParams("cross_entropy")


def test_muon_steps_the_layers_matrices_and_adamw_the_rest() -> None:
    made = engine(MUON)
    assert isinstance(made.optimizer, MuonAndAdamW)
    names = {id(p): name for name, p in made.model.named_parameters()}
    rest, muon = ([names[id(p)] for p in group["params"]] for group in made.optimizer.param_groups)
    assert sorted([*rest, *muon]) == sorted(names.values())
    assert all("proj" in name for name in muon)
    assert "model.embed_tokens.weight" in rest
    assert not any("proj" in name for name in rest)


def test_a_step_of_muon_turns_the_whole_matrix_evenly() -> None:
    """All directions alike, and about a fifth of what one rate moves each number by in AdamW's first step."""
    made = engine(MUON)
    weight = dict(made.model.named_parameters())["model.layers.0.mlp.up_proj.weight"]
    before = weight.detach().clone()
    made.train(conversations(made), SUPERVISED, 1e-3)
    moved = weight.detach() - before
    strengths = torch.linalg.svdvals(moved)
    assert float(strengths.max() / strengths.median()) < 2
    assert float(moved.pow(2).mean().sqrt()) == pytest.approx(0.2e-3, rel=0.2)


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


def test_it_learns() -> None:
    made = engine(MUON)
    data = conversations(made)
    losses = [made.train(data, SUPERVISED, 1e-2)["loss"] for _ in range(30)]
    assert losses[-1] < 0.5 * losses[0]


def test_a_saved_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    made = engine(MUON)
    data = conversations(made)
    made.train(data, SUPERVISED, 1e-2)
    made.save(tmp_path)
    other = engine(replace(MUON, seed=3), seed=3)
    other.load(tmp_path)
    for one in (made, other):
        one.train(data, SUPERVISED, 1e-2)
    assert all(torch.equal(a, b) for a, b in zip(made.trained, other.trained, strict=True))


def test_an_unknown_optimiser_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no model\.optimizer 'sgd'; valid: adamw, muon"):
        ModelConfig(optimizer="sgd")  # type: ignore[arg-type]


def test_near_prices_begin_alike_and_far_ones_do_not() -> None:
    tokenizer = load_tokenizer()
    numbers = numbers_of(tokenizer)
    assert len(numbers) > 360
    model = build_model(len(tokenizer), hidden=64, layers=1, numbers=numbers)
    by_value = {value: token for token, value in numbers.items()}
    weights = model.get_input_embeddings().weight.detach()

    def alike(left: float, right: float) -> float:
        return float(torch.cosine_similarity(weights[by_value[left]], weights[by_value[right]], dim=0))

    assert alike(0.64, 0.66) > 0.99
    assert alike(2.5, 3.0) > 0.9
    assert alike(0.12, 25.0) < 0.6
    others = [token for token in range(len(tokenizer)) if token not in numbers]
    assert float(weights[list(numbers)].std()) == pytest.approx(float(weights[others].std()), rel=0.1)
    plain = build_model(len(tokenizer), hidden=64, layers=1)
    assert torch.equal(plain.get_input_embeddings().weight.detach()[others], weights[others])
