"""A step over sequences that begin alike, and one with an adapter, are the steps of the plain way, for less work."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from tests.agents.engines.conformance import SMALL as CONFIG
from tests.agents.engines.conformance import VOCABULARY, engine
from toolorchestra.agents.engines import update
from toolorchestra.agents.engines.base import Datum, LossParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.update import LEAST_SHARED, alike, batches, can_share, rounded_up, run_once, shared
from toolorchestra.envs.base.errors import ConfigError


@pytest.fixture(autouse=True)
def _small_models_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "LEAST_PARAMETERS", 0)


def sequence(prompt: int, behind: int, seed: int, *, given: int = 7) -> Datum:
    """A prompt that its number tells, something sampled, a result, something sampled."""
    rng = random.Random(seed)
    asked = random.Random(f"prompt {prompt}")
    tokens = [asked.randrange(2, VOCABULARY) for _ in range(prompt)] + [rng.randrange(2, 60) for _ in range(behind)]
    mask = [i >= prompt and not prompt + 3 <= i < prompt + 3 + given for i in range(len(tokens))]
    return Datum(tokens, [-4.0 * m for m in mask], [rng.uniform(-1, 1) * m for m in mask], mask)


GROUPS = [sequence(prompt, 12 + n, 100 * prompt + n) for prompt in (90, 120) for n in range(4)]
OTHERS = [sequence(20 + n, 15, n) for n in range(4)]


def gradients(made: LocalEngine, data: Sequence[Datum], loss: LossParams, tokens: list[int]) -> list[torch.Tensor]:
    """Of one step, which is not taken; `tokens` hears how many went through the first layer."""
    base = made.model.get_base_model() if hasattr(made.model, "get_base_model") else made.model
    hook = base.model.layers[0].register_forward_pre_hook(lambda _, args: tokens.append(args[0].shape[:2].numel()))
    kept: list[torch.Tensor] = []
    step = made.optimizer.step
    made.optimizer.step = lambda: kept.extend(p.grad.clone() for p in made.trained)  # type: ignore[assignment,misc,union-attr]
    made.train(data, loss, 1e-3)
    made.optimizer.step = step  # type: ignore[method-assign]
    hook.remove()
    return kept


TWICE = replace(CONFIG, gradient_checkpointing=True)


@pytest.mark.parametrize("config", [CONFIG, TWICE, replace(CONFIG, lora_rank=4), replace(TWICE, lora_rank=4)])
@pytest.mark.parametrize("loss", [LossParams(entropy_weight=0.1), LossParams("cross_entropy")])
def test_a_common_prompt_is_run_once_and_the_gradient_is_the_same(
    config: LocalConfig, loss: LossParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = engine(config)
    monkeypatch.setattr(made._update, "_most_padding", 1.0)
    if config.lora_rank:
        made.train(OTHERS, LossParams("cross_entropy"), 1e-2)  # so that the adapter's B are not 0
    data, once, each = [*GROUPS, *OTHERS], list[int](), list[int]()
    mine = gradients(made, data, loss, once)
    monkeypatch.setattr(made._update, "_shares", False)
    plain = gradients(made, data, loss, each)
    assert sum(once) < 0.4 * (1 + config.gradient_checkpointing) * sum(each)  # the hook hears of the second run too
    for left, right in zip(mine, plain, strict=True):
        assert torch.allclose(left, right, atol=1e-5, rtol=1e-3)


def test_the_entropy_is_that_of_likely_tokens_and_pays_for_no_other() -> None:
    """By arithmetic apart: a choice of two and one of three, among a hundred words that are hardly ever said."""
    chances = torch.full((2, 103), 1e-5)
    chances[0, :2] = torch.tensor([0.7, 0.3])
    chances[1, :3] = torch.tensor([0.5, 0.3, 0.2])
    logits = torch.log(chances / chances.sum(1, keepdim=True)).requires_grad_()
    logprobs, entropies = update._head(torch.nn.Identity(), logits, torch.tensor([0, 50]), temperature=1.0, learnt=True)
    assert torch.allclose(logprobs, torch.stack([logits[0, 0], logits[1, 50]]))
    by_hand = [-sum(p * math.log(p) for p in row) for row in ((0.7, 0.3), (0.5, 0.3, 0.2))]
    assert entropies.tolist() == pytest.approx(by_hand, abs=1e-5)
    entropies.sum().backward()
    assert logits.grad is not None
    assert logits.grad[0, 2:].abs().max() < 1e-7
    assert logits.grad[1, 3:].abs().max() < 1e-7
    assert logits.grad[0, 1] == pytest.approx(0.3 * (-math.log(0.3) - by_hand[0]), abs=1e-5)
    # Where no token is likely, nothing is paid.
    flat = torch.zeros(1, 5_000, requires_grad=True)
    _, entropy = update._head(torch.nn.Identity(), flat, torch.tensor([7]), temperature=1.0, learnt=True)
    entropy.sum().backward()
    assert entropy.item() == 0
    assert flat.grad is not None
    assert not flat.grad.any()


def test_what_is_kept_apart() -> None:
    """Sequences with little in common, and a batch is bounded by what is run."""
    assert sorted(map(len, alike([*GROUPS, *OTHERS], long_prompts=True))) == [1, 1, 1, 1, 4, 4]
    long = [sequence(40, 200 + n, n) for n in range(3)]  # a prompt of a sixth, in common
    assert len(alike(long, long_prompts=True)) == 3
    assert len(alike(long, long_prompts=False)) == 1
    assert shared(GROUPS[:4]) == 89  # the last token of the prompt is needed: the first sampled one follows it
    got = list(batches([*GROUPS, *OTHERS], 160, share=True))
    assert sorted(id(d) for b in got for d in b) == sorted(id(d) for d in [*GROUPS, *OTHERS])
    for batch in got:
        common = shared(batch) if len(batch) > 1 and shared(batch) >= LEAST_SHARED else 0
        width = max(len(d.tokens) for d in batch)
        assert len(batch) == 1 or common + len(batch) * (width - common) <= 160
    assert max(map(len, got)) == 4


def test_on_a_gpu_a_prompt_is_run_once_where_it_is_half_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask takes slower kernels there. Two plays whose prompts are alike in a tenth are run as they are."""
    short = [sequence(70, 600 + n, n) for n in range(4)]
    halves = [sequence(80, 80, n) for n in range(4)]
    for data, worth, once in ((short, 0, 69), (halves, 79, 79)):
        assert run_once(data, long_prompts=True) == worth
        assert run_once(data, long_prompts=False) == once
    for data, most in (([*short, *halves], 700), (short, 1400)):
        for batch in batches(data, most, share=True, long_prompts=True):
            common, width = run_once(batch, long_prompts=True), max(len(d.tokens) for d in batch)
            assert len(batch) == 1 or common + len(batch) * (width - common) <= most
    made, once, each = engine(), list[int](), list[int]()
    monkeypatch.setattr(made._update, "_long_prompts", True)
    mine = gradients(made, [*short, *halves], LossParams(), once)
    monkeypatch.setattr(made._update, "_long_prompts", False)
    both = gradients(made, [*short, *halves], LossParams(), each)
    assert sum(once) > sum(each)  # only the halves' prompt is run once
    for left, right in zip(mine, both, strict=True):
        assert torch.allclose(left, right, atol=1e-5, rtol=1e-3)


def test_what_shares_nothing() -> None:
    """Blocks that see a part, other kernels, other models."""
    made = engine()
    assert can_share(made.model)
    for name, other in (("model_type", "mamba"), ("layer_types", ["sliding_attention", "full_attention"])):
        config = made.model.config
        usual = getattr(config, name)
        setattr(config, name, other)
        assert not can_share(made.model), name
        setattr(config, name, usual)
    made.model.set_attn_implementation("eager")
    assert not can_share(made.model)


@pytest.mark.parametrize("share", [False, True])
def test_a_batch_is_cut_before_too_much_of_it_is_padding(share: bool) -> None:
    """Of any lengths: each batch keeps to the bound, nothing is lost, and without a bound they would not keep to it."""
    rng = random.Random(3)
    lengths = [rng.choice((20, 30, 90, 100, 104, 110, 400)) + n % 5 for n in range(60)]
    data = [
        replace(sequence(1, length - 1, 1000 + n), mask=[False, *[True] * (length - 1)])
        for n, length in enumerate(lengths)
    ]

    def padding(batch: Sequence[Datum]) -> float:
        return 1 - sum(len(d.tokens) for d in batch) / (len(batch) * max(len(d.tokens) for d in batch))

    bounded = list(batches(data, 2_000, share=share, most_padding=0.05))
    assert max(map(padding, bounded)) <= 0.05
    assert sorted(len(d.tokens) for batch in bounded for d in batch) == sorted(lengths)
    assert max(len(batch) * max(len(d.tokens) for d in batch) for batch in bounded) <= 2_000
    assert max(map(padding, batches(data, 2_000, share=share))) > 0.05
    assert max(map(len, bounded)) > 3


def test_lengths_are_rounded_up_to_few_widths() -> None:
    widths = {length: rounded_up(length) for length in range(1, 32_769)}
    assert all(length <= width <= length * 33 / 32 for length, width in widths.items())
    assert len({width for length, width in widths.items() if length >= 1_024}) <= 5 * 32 + 1


def test_an_adapter_has_nothing_for_adamw_beside_muon() -> None:
    with pytest.raises(ConfigError, match=r"only matrices are trained.*set model\.optimizer=adamw"):
        engine(replace(CONFIG, lora_rank=2, optimizer="muon"))
