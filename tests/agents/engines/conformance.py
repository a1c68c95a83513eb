"""What every sampler has to do, as tests to inherit: a subclass says how an engine with its sampler is made."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
import torch

from toolorchestra.agents.engines.base import Datum, LossParams, Sample, SamplingParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.weights import named_weights

VOCABULARY, STOP = 64, 1
CONFIG = LocalConfig(rows=64, length=192)
SMALL = LocalConfig(rows=12, length=160)


def engine(config: LocalConfig = SMALL, seed: int = 0, layers: int = 2) -> LocalEngine:
    return LocalEngine(build_model(VOCABULARY, 32, layers, seed), [STOP], config)


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(2, VOCABULARY) for _ in range(rng.choice((1, 5, 40, 61)))] for _ in range(count)]


def datum(prompt: list[int], sample: Sample, advantage: float = 1.0) -> Datum:
    given = len(prompt)
    return Datum(
        [*prompt, *sample.tokens],
        [*[0.0] * given, *sample.logprobs],
        [*[0.0] * given, *[advantage] * len(sample.tokens)],
        [*[False] * given, *[True] * len(sample.tokens)],
    )


async def converse(
    made: LocalEngine, prompt: list[int], session: str, turns: int, wait: float, temperature: float = 1.0
) -> Datum:
    """Several turns, each prompt the last one and some new tokens: as episodes do it."""
    tokens, logprobs, counts = list(prompt), [0.0] * len(prompt), [False] * len(prompt)
    rng = random.Random(session)
    for _ in range(turns):
        sample = await made.sample(tokens, SamplingParams(6, temperature), session)
        new = [rng.randrange(2, VOCABULARY) for _ in range(rng.choice((2, 9, 30)))]
        tokens += [*sample.tokens, *new]
        logprobs += [*sample.logprobs, *[0.0] * len(new)]
        counts += [*[True] * len(sample.tokens), *[False] * len(new)]
        await asyncio.sleep(0 if rng.random() < 0.5 else wait)  # a slow tool: the row leaves the batch
    made.release(session)
    return Datum(tokens, logprobs, [float(sampled) for sampled in counts], counts)


def conversations(made: LocalEngine, wait: float = 0.001, temperature: float = 1.0, count: int = 8) -> list[Datum]:
    async def all_of_them() -> list[Datum]:
        starts = [*prompts(count - 3), *[prompts(9)[3]] * 3]  # some share their prompt, as a group does
        async with asyncio.timeout(120):  # a test of a sampler that says nothing fails, and does not hang
            return list(
                await asyncio.gather(*(converse(made, p, f"s{i}", 3, wait, temperature) for i, p in enumerate(starts)))
            )

    return asyncio.run(all_of_them())


def draw(made: LocalEngine, prompt: list[int], count: int) -> list[Sample]:
    """One token each, at once."""

    async def all_of_them() -> list[Sample]:
        return list(await asyncio.gather(*(made.sample(prompt, SamplingParams(1), f"d{i}") for i in range(count))))

    drawn = asyncio.run(all_of_them())
    for i in range(count):
        made.release(f"d{i}")
    return drawn


def assert_agreement(made: LocalEngine, data: list[Datum], temperature: float = 1.0) -> None:
    """To 1e-4 in float32."""
    for d, trained in zip(data, made.logprobs(data, temperature), strict=True):
        assert [p for p, counts in zip(d.logprobs, d.mask, strict=True) if counts] == pytest.approx(trained, abs=1e-4)


class SamplerConformance:
    """Inherit, and say how an engine is made, where it is not this one."""

    def engine(self, config: LocalConfig = CONFIG, seed: int = 0) -> LocalEngine:
        return engine(config, seed)

    def test_sampled_logprobs_are_the_trainers(self) -> None:
        """Over several turns, rows that come and go, shared prompts and short and long new parts."""
        made = self.engine()
        for data in (conversations(made), conversations(made)):
            assert_agreement(made, data)

    def test_at_another_temperature_they_are_the_trainers_too(self) -> None:
        made = self.engine()
        data = conversations(made, temperature=0.5)
        assert_agreement(made, data, 0.5)
        assert made.train(data, LossParams(temperature=0.5), 1e-5)["mismatch"] < 1e-4
        assert made.train(data, LossParams(), 1e-5)["mismatch"] > 1e-2

    def test_greedy_is_the_likeliest_token_of_transformers(self) -> None:
        made = self.engine(seed=1)
        prompt = prompts(4)[3]
        sample = asyncio.run(made.sample(prompt, SamplingParams(8, 0.0)))
        tokens = list(prompt)
        for token in sample.tokens:
            with torch.no_grad():
                logits = made.model(torch.tensor([tokens])).logits[0, -1]
            assert token == int(logits.argmax())
            tokens.append(token)

    def test_after_a_step_the_sampler_uses_the_new_weights(self) -> None:
        made = self.engine()
        data = conversations(made)
        made.train(data, LossParams("cross_entropy"), 1e-2)
        with pytest.raises(AssertionError):
            assert_agreement(made, data)
        assert_agreement(made, conversations(made))

    def test_the_prefixes_of_old_weights_are_forgotten(self) -> None:
        """The same long prompt before and after a step: the second answer is the new model's."""
        made = self.engine()
        prompt = [2 + i % 60 for i in range(150)]
        params = SamplingParams(8)
        first = [datum(prompt, asyncio.run(made.sample(prompt, params))) for _ in range(2)]
        assert_agreement(made, first)
        made.train(first, LossParams("cross_entropy"), 1e-2)
        assert_agreement(made, [datum(prompt, asyncio.run(made.sample(prompt, params))) for _ in range(2)])

    def test_one_token_a_row_draws_from_the_distribution(self) -> None:
        made = self.engine()
        prompt = prompts(1)[0]
        drawn = [s for _ in range(7) for s in draw(made, prompt, 60)]
        with torch.no_grad():
            chances = made.model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
        token = int(chances.argmax())
        p = float(chances[token])
        share = sum(s.tokens[0] == token for s in drawn) / len(drawn)
        assert abs(share - p) < 4 * (p * (1 - p) / len(drawn)) ** 0.5

    def test_lora_trains_the_adapter_alone_and_the_sampler_sees_it(self) -> None:
        made = self.engine(replace(CONFIG, lora_rank=4))
        before = {k: v.clone() for k, v in made.model.state_dict().items()}
        data = conversations(made)
        made.train(data, LossParams("ppo", kl_weight=0.1), 1e-2)
        changed = {k for k, v in made.model.state_dict().items() if not torch.equal(v, before[k])}
        assert changed
        assert all("lora_" in k for k in changed)
        assert "model.layers.0.self_attn.q_proj.weight" in dict(named_weights(made.model))
        assert_agreement(made, conversations(made))

    def test_a_turn_ends_at_the_chats_stop(self) -> None:
        """The token that stopped it is kept, with its log-probability."""
        made = self.engine()

        async def turns() -> list[Sample]:
            return list(await asyncio.gather(*(made.sample([3, 4], SamplingParams(90), f"x{i}") for i in range(16))))

        got = asyncio.run(turns())
        assert any(sample.finished for sample in got)
        for sample in got:
            assert sample.finished == (sample.tokens[-1] == STOP)
            assert STOP not in sample.tokens[:-1]
            assert len(sample.tokens) == len(sample.logprobs)

    def test_what_does_not_fit_is_said(self) -> None:
        with pytest.raises(
            ValueError, match=r"too long for the sampler: 190 tokens of prompt and 20 to sample, of 192"
        ):
            asyncio.run(self.engine().sample([2] * 190, SamplingParams(20)))
