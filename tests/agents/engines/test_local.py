"""The local engine: the decoder equals transformers, sampled log-probabilities are the trainer's, and it learns."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from toolorchestra.agents.engines.base import Datum, LossParams, Sample, SamplingParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine, batches, merged_weights
from toolorchestra.agents.engines.losses import kl_to, token_losses
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.envs.errors import ConfigError

VOCABULARY, STOP = 64, 1
CONFIG = LocalConfig(rows=12, length=160)


def engine(config: LocalConfig = CONFIG, seed: int = 0, **shape: int) -> LocalEngine:
    return LocalEngine(build_model(VOCABULARY, hidden=32, layers=2, seed=seed, **shape), [STOP], config)


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(2, VOCABULARY) for _ in range(rng.choice((1, 5, 40, 61)))] for _ in range(count)]


def datum(prompt: list[int], sample: Sample, advantage: float = 1.0) -> Datum:
    given = len(prompt)
    return Datum(
        [*prompt, *sample.tokens],
        [*[0.0] * given, *sample.logprobs],
        [*[0.0] * given, *[advantage] * len(sample.tokens)],
    )


async def converse(
    made: LocalEngine, prompt: list[int], session: str, turns: int, wait: float, temperature: float = 1.0
) -> Datum:
    """Several turns, each prompt the last one and some new tokens: as episodes do it."""
    tokens, logprobs, counts = list(prompt), [0.0] * len(prompt), [0.0] * len(prompt)
    rng = random.Random(session)
    for _ in range(turns):
        sample = await made.sample(tokens, SamplingParams(6, temperature), session)
        new = [rng.randrange(2, VOCABULARY) for _ in range(rng.choice((2, 9, 30)))]
        tokens += [*sample.tokens, *new]
        logprobs += [*sample.logprobs, *[0.0] * len(new)]
        counts += [*[1.0] * len(sample.tokens), *[0.0] * len(new)]
        await asyncio.sleep(0 if rng.random() < 0.5 else wait)  # a slow tool: the row leaves the batch
    made.release(session)
    return Datum(tokens, logprobs, counts)


def conversations(made: LocalEngine, wait: float = 0.001, temperature: float = 1.0) -> list[Datum]:
    async def all_of_them() -> list[Datum]:
        starts = [*prompts(9), *[prompts(9)[3]] * 3]  # some share their prompt, as a group does
        return list(
            await asyncio.gather(*(converse(made, p, f"s{i}", 3, wait, temperature) for i, p in enumerate(starts)))
        )

    return asyncio.run(all_of_them())


def test_sampled_logprobs_are_the_trainers() -> None:
    """To 1e-4 in float32, over several turns, rows that come and go, shared prompts and short and long new parts."""
    made = engine()
    for data in (conversations(made), conversations(made)):
        for d, trained in zip(data, made.logprobs(data), strict=True):
            sampled = [p for p, a in zip(d.logprobs, d.advantages, strict=True) if a]
            assert sampled == pytest.approx(trained, abs=1e-4)


def test_at_another_temperature_they_are_the_trainers_too() -> None:
    made = engine()
    data = conversations(made, temperature=0.5)
    for d, trained in zip(data, made.logprobs(data, 0.5), strict=True):
        assert [p for p, a in zip(d.logprobs, d.advantages, strict=True) if a] == pytest.approx(trained, abs=1e-4)
    first = made.train(data, LossParams(temperature=0.5), 1e-5)
    assert first["mismatch"] < 1e-4
    assert made.train(data, LossParams(), 1e-5)["mismatch"] > 1e-2


def test_greedy_is_the_likeliest_token_of_transformers() -> None:
    made = engine()
    prompt = prompts(4)[3]
    sample = asyncio.run(made.sample(prompt, SamplingParams(8, 0.0)))
    tokens = list(prompt)
    for token in sample.tokens:
        with torch.no_grad():
            logits = made.model(torch.tensor([tokens])).logits[0, -1]
        assert token == int(logits.argmax())
        tokens.append(token)


def test_after_a_step_the_sampler_uses_the_new_weights() -> None:
    made = engine()
    data = conversations(made)
    made.train(data, LossParams("cross_entropy"), 1e-2)
    for d, trained in zip(data, made.logprobs(data), strict=True):
        assert [p for p, a in zip(d.logprobs, d.advantages, strict=True) if a] != pytest.approx(trained, abs=1e-4)
    again = conversations(made)
    for d, trained in zip(again, made.logprobs(again), strict=True):
        assert [p for p, a in zip(d.logprobs, d.advantages, strict=True) if a] == pytest.approx(trained, abs=1e-4)


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
            assert [p for p, a in zip(d.logprobs, d.advantages, strict=True) if a] == pytest.approx(trained, abs=1e-4)
    assert all(torch.equal(p, after) for p, after in zip(made.trained, last, strict=True))
    made.save(tmp_path)
    other = engine(replace(CONFIG, average=0.5, seed=3))
    other.load(tmp_path)
    with made.averaged(), other.averaged():
        assert all(torch.equal(a, b) for a, b in zip(made.trained, other.trained, strict=True))


def test_without_an_average_nothing_changes() -> None:
    made = engine()
    last = [p.detach().clone() for p in made.trained]
    with made.averaged():
        assert all(torch.equal(p, kept) for p, kept in zip(made.trained, last, strict=True))


def test_one_token_a_row_draws_from_the_distribution() -> None:
    made = engine(replace(CONFIG, rows=400))
    prompt = prompts(1)[0]

    async def draw() -> list[Sample]:
        return list(await asyncio.gather(*(made.sample(prompt, SamplingParams(1), f"d{i}") for i in range(400))))

    drawn = asyncio.run(draw())
    with torch.no_grad():
        chances = made.model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    token = int(chances.argmax())
    p = float(chances[token])
    share = sum(s.tokens[0] == token for s in drawn) / 400
    assert abs(share - p) < 4 * (p * (1 - p) / 400) ** 0.5


@pytest.mark.parametrize("heads", ["grouped"])
def test_learns_to_prefer_what_is_rewarded(heads: str) -> None:
    """Policy gradient on one token: reward for token 7, its probability must rise far."""
    del heads
    made = engine(replace(CONFIG, rows=64))
    prompt = [5, 6, 7]

    async def draw() -> list[Sample]:
        return list(await asyncio.gather(*(made.sample(prompt, SamplingParams(1), f"d{i}") for i in range(64))))

    def share() -> float:
        return sum(s.tokens[0] == 7 for s in asyncio.run(draw())) / 64

    for _ in range(60):
        samples = asyncio.run(draw())
        for i in range(64):
            made.release(f"d{i}")
        hits = [float(s.tokens[0] == 7) for s in samples]
        mean = sum(hits) / 64
        data = [datum(prompt, s, h - mean) for s, h in zip(samples, hits, strict=True) if h != mean]
        made.train(data, LossParams(), 1e-2)
    assert share() > 0.8


def test_lora_trains_the_adapter_alone_and_the_sampler_sees_it() -> None:
    made = engine(replace(CONFIG, lora_rank=4))
    before = {k: v.clone() for k, v in made.model.state_dict().items()}
    data = conversations(made)
    made.train(data, LossParams("ppo", kl="k3", kl_weight=0.1), 1e-2)
    changed = {k for k, v in made.model.state_dict().items() if not torch.equal(v, before[k])}
    assert changed
    assert all("lora_" in k for k in changed)
    assert "model.layers.0.self_attn.q_proj.weight" in merged_weights(made.model)
    again = conversations(made)
    for d, trained in zip(again, made.logprobs(again), strict=True):
        assert [p for p, a in zip(d.logprobs, d.advantages, strict=True) if a] == pytest.approx(trained, abs=1e-4)


def test_batches_are_bounded_sorted_and_leave_out_what_teaches_nothing() -> None:
    data = [Datum([0] * n, [0.0] * n, [1.0] * n) for n in (5, 50, 7, 90)] + [Datum([0] * 9, [0.0] * 9, [0.0] * 9)]
    got = list(batches(data, 100))
    assert sorted(len(d.tokens) for b in got for d in b) == [5, 7, 50, 90]
    assert all(len(b) == 1 or max(len(d.tokens) for d in b) * len(b) <= 100 for b in got)


def test_the_loss_does_not_depend_on_the_batching() -> None:
    data = conversations(engine())
    results = [engine(replace(CONFIG, tokens_per_batch=n)).train(data, LossParams(), 1e-3) for n in (10, 100_000)]
    assert results[0]["loss"] == pytest.approx(results[1]["loss"], abs=1e-5)
    assert results[0]["gradient_norm"] == pytest.approx(results[1]["gradient_norm"], rel=1e-3)


def test_clips() -> None:
    """Asymmetric, and bounded for what became likelier though it was bad."""
    old = torch.zeros(4)
    new = torch.tensor([1.0, -1.0, 1.0, 5.0])
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0])
    losses = token_losses(new, old, advantage, LossParams())
    assert losses.tolist() == pytest.approx([-1.28, -(2.718281828**-1), 2.718281828, 10.0], abs=1e-5)
    assert kl_to(torch.tensor([0.5]), torch.tensor([0.0]), "k2").item() == pytest.approx(0.125)
    assert kl_to(torch.tensor([0.0]), torch.tensor([0.0]), "k3").item() == 0.0


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


def test_another_shape_is_refused(tmp_path: Path) -> None:
    engine().save(tmp_path)
    bigger: Any = LocalEngine(build_model(VOCABULARY, hidden=32, layers=3), [STOP], CONFIG)
    with pytest.raises(ConfigError, match="holds another model"):
        bigger.load(tmp_path)


def test_what_does_not_fit_is_said() -> None:
    made = engine()
    with pytest.raises(ValueError, match=r"too long for the sampler: 150 tokens of prompt and 20 to sample, of 160"):
        asyncio.run(made.sample([2] * 150, SamplingParams(20)))
    crowded = engine(replace(CONFIG, rows=1))

    async def two() -> None:
        await asyncio.gather(*(crowded.sample([2, 3], SamplingParams(4), f"s{i}") for i in range(2)))

    with pytest.raises(RuntimeError, match="all 1 rows of the sampler are in use"):
        asyncio.run(two())


def test_a_cancelled_request_leaves_no_trace() -> None:
    made = engine()

    async def cancelled() -> Sample:
        task = asyncio.create_task(made.sample([2, 3, 4], SamplingParams(100), "gone"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        made.release("gone")
        return await made.sample([2, 3, 4], SamplingParams(3, 0.0), "next")

    assert asyncio.run(cancelled()).tokens == asyncio.run(engine().sample([2, 3, 4], SamplingParams(3, 0.0))).tokens
