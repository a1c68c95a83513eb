"""Adapters on their way to a sampler: apart from the weights below them in 16 bits, and nothing of them lost; and each
preset's combination of dtype, adapter, loss and sampler, in tiny shapes."""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.agents.engines.conformance import STOP, VOCABULARY, conversations
from toolorchestra.agents.configuration.config import TrainConfig
from toolorchestra.agents.configuration.presets import PRESETS
from toolorchestra.agents.engines import agreement, pretrained
from toolorchestra.agents.engines.agreement import TOLERANCE, Agreement, Drift
from toolorchestra.agents.engines.base import Adapter, Datum, EngineSettings, LossParams, Sample, SamplingParams
from toolorchestra.agents.engines.decoder import Decoder
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.lora import NarrowLayer, adapter_of, write_adapter
from toolorchestra.agents.engines.pretrained import use_fused_kernels
from toolorchestra.agents.engines.sampler import LocalSampler
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.vllm_sampler import VllmConfig, engine_arguments, room_for_rank
from toolorchestra.agents.engines.weights import held_in, named_weights
from toolorchestra.envs.base.errors import ConfigError

CPU = torch.device("cpu")
CONFIG = LocalConfig(rows=16, length=192, lora_rank=16)
IMITATE = LossParams("cross_entropy")


class Apart(LocalSampler):
    """A sampler that is verified, as one in another process is. `merges`: it is handed whole models. It holds weights
    as 16 bits do, or as told, though it computes in 32."""

    suspends = True

    def __init__(self, model: Any, *, merges: bool, holds: torch.dtype = torch.bfloat16) -> None:
        super().__init__(Decoder(model.config, CONFIG.rows, CONFIG.length, CPU, torch.float32), [STOP], 0)
        self.takes_adapters, self.holds, self.read = not merges, holds, list[str]()

    def sync(self, weights: Iterable[tuple[str, Tensor]], version: int, adapter: Adapter | None = None) -> None:
        def each() -> Iterator[tuple[str, Tensor]]:
            for name, value in weights:
                self.read.append(name)
                yield name, value.to(self.holds).float()

        super().sync(each(), version, adapter)

    def probe(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Sample]:
        async def all_of_them() -> list[Sample]:
            return [await self.sample(prompt, params, "") for prompt in prompts]

        return asyncio.run(all_of_them())


def engine(*, merges: bool, hidden: int = 64) -> LocalEngine:
    """In float32, over weights that 16 bits hold exactly."""
    model = held_in(held_in(build_model(VOCABULARY, hidden, 2), CPU, torch.bfloat16), CPU, torch.float32)
    return LocalEngine(model, [STOP], CONFIG, Apart(model, merges=merges))


def lessons() -> list[Datum]:
    rng = random.Random(5)
    texts = [[rng.randrange(2, VOCABULARY) for _ in range(40)] for _ in range(2)]
    return [Datum(t, [0.0] * 40, [1.0] * 40, [False] * 8 + [True] * 32) for t in texts]


def trained(made: LocalEngine, rate: float, steps: int = 30) -> LocalEngine:
    for _ in range(steps):
        made.train(lessons(), IMITATE, rate)
    return made


def test_a_change_that_16_bits_round_away_stops_the_run_and_an_adapter_alone_does_not() -> None:
    """Though the gap between the two models is far within the tolerance of 16 bits."""
    alone, merged = (trained(engine(merges=merges), 1e-6) for merges in (False, True))
    alone._sync()
    assert abs(alone.drift.lost) < 0.01 < 1e-4 / alone.drift.moved < 1
    with pytest.raises(Drift, match=r"by 0.00\d+ nats, and the sampler lacks [6-9]\d% of this change; .* at most 20%"):
        merged._sync()
    assert merged.drift.mean < agreement.TOLERANCE["float32"]
    assert alone.train(lessons(), IMITATE, 0.0)["lost_change"] == alone.drift.lost


def test_how_much_is_lost_is_told_where_it_stands_out() -> None:
    moves, rng = [(-1) ** n * 0.01 * n for n in range(40)], random.Random(0)
    noise = [rng.gauss(0, 0.01) for _ in moves]
    assert agreement.lost_share([0.0] * 40, moves) == 0
    assert agreement.lost_share([-m for m in moves], moves) == pytest.approx(1)
    assert agreement.lost_share(moves, moves) == pytest.approx(-1)
    assert agreement.lost_share([e - 0.7 * m for e, m in zip(noise, moves, strict=True)], moves) == pytest.approx(
        0.7, abs=0.05
    )
    small = [m / 100 for m in moves]
    assert agreement.lost_share([e - m for e, m in zip(noise, small, strict=True)], small) == 0
    assert agreement.lost_share(noise, [0.0] * 40) == 0
    agreement.check(Agreement(0.0, 0.0, 1.0, 0.2), 1.0)
    for lost in (0.3, -0.3, float("nan")):
        with pytest.raises(Drift, match="round it away"):
            agreement.check(Agreement(0.0, 0.0, 1.0, lost), 1.0)


def test_the_weights_below_are_read_once() -> None:
    made = engine(merges=False)
    sampler: Any = made.sampler
    for _ in range(2):
        data = conversations(made)
        assert len(sampler.read) == len(set(sampler.read)) > 10
        made.train(data, IMITATE, 1e-3)
        assert made.drift.mean < 1e-5
    other = engine(merges=False)
    other.sampler = made.sampler
    conversations(other)
    assert len(sampler.read) == 2 * len(set(sampler.read))


def test_a_sampler_that_takes_whole_models_alone_is_refused_in_16_bits() -> None:
    def made(*, merges: bool) -> LocalEngine:
        model = build_model(VOCABULARY, 32, 2)
        return LocalEngine(model, [STOP], replace(CONFIG, dtype="bfloat16"), Apart(model, merges=merges))

    with pytest.raises(ConfigError, match=r"model\.dtype=bfloat16: .* merged weights alone would lose most of an ad"):
        made(merges=True)
    assert made(merges=False).sampler.takes_adapters


def test_an_adapters_folder_is_one_of_peft(tmp_path: Path) -> None:
    from peft import PeftModel

    made = trained(engine(merges=False, hidden=32), 1e-2, 3)
    write_adapter(adapter_of(made.model, 1), tmp_path / "adapter")
    load: Any = PeftModel.from_pretrained
    tokens = torch.tensor([[3, 4, 5, 6]])
    with torch.no_grad():
        expected = made.model(tokens).logits
        below = dict(named_weights(made.model, adapted=False))
        plain = build_model(VOCABULARY, 32, 2, seed=1)
        plain.load_state_dict(below)
        assert not torch.allclose(plain(tokens).logits, expected, atol=1e-3)
        assert torch.allclose(load(plain, tmp_path / "adapter")(tokens).logits, expected, atol=1e-5)


def test_an_adapter_over_16_bits_is_written_in_16_bits(tmp_path: Path) -> None:
    """It is multiplied in them: files of 32 would be twice as long in each hand-over."""
    made = LocalEngine(build_model(VOCABULARY, 32, 2), [STOP], replace(CONFIG, dtype="bfloat16"))
    write_adapter(adapter_of(made.model, 1), tmp_path / "adapter")
    assert {v.dtype for v in load_file(tmp_path / "adapter" / "adapter_model.safetensors").values()} == {torch.bfloat16}


def test_a_hand_over_is_verified_on_what_the_model_is_asked() -> None:
    """On the ends of the prompts of the run, against the noise of the trainer alone and in a batch."""
    asked, seen = [[5, 6, 7] * 30, [8, 9] * 40], []
    made = engine(merges=False)

    async def turns() -> None:
        await asyncio.gather(*(made.sample(prompt, SamplingParams(4), str(n)) for n, prompt in enumerate(asked)))

    asyncio.run(turns())
    probe = made.sampler.probe
    made.sampler.probe = lambda prompts, params: seen.extend(map(list, prompts)) or probe(prompts, params)
    trained(made, 1e-3, 1)
    asyncio.run(turns())
    assert seen
    assert all(any(prompt == whole[-len(prompt) :] for whole in asked) for prompt in seen)
    assert made.drift.noise > 0


def test_vllm_makes_room_for_the_adapters_rank(tmp_path: Path) -> None:
    assert [room_for_rank(rank) for rank in (1, 8, 9, 64, 300)] == [8, 8, 16, 64, 320]
    with pytest.raises(ConfigError, match=r"rank 512 at most, and model\.lora_rank is 513"):
        room_for_rank(513)
    assert "enable_lora" not in engine_arguments(tmp_path, VllmConfig())
    told = engine_arguments(tmp_path, VllmConfig(lora_rank=20))
    assert (told["enable_lora"], told["max_lora_rank"]) == (True, 32)


# -- every dtype ------------------------------------------------------------------------------------------------------

COMBINATIONS = [("float32", 0, 1e-5), ("float32", 4, 1e-5), ("bfloat16", 4, 0.05)]
"""dtype, rank of the adapter, and the mean gap between the sampler's and the trainer's log-probabilities. Full weights
of 16 bits are refused."""


def of_dtype(dtype: str, rank: int, seed: int = 0) -> LocalEngine:
    model = build_model(VOCABULARY, hidden=32, layers=2, seed=seed)
    return LocalEngine(model, [STOP], replace(CONFIG, dtype=dtype, lora_rank=rank))


@pytest.mark.parametrize(("dtype", "rank", "gap"), COMBINATIONS)
def test_a_copy_in_another_process_and_a_resumed_run_sample_alike(
    dtype: str, rank: int, gap: float, tmp_path: Path
) -> None:
    made, copied, resumed = (of_dtype(dtype, rank) for _ in range(3))
    made.train(conversations(made), LossParams("cross_entropy"), 1e-2)
    made.save(tmp_path)
    resumed.load(tmp_path)
    expected = conversations(made, 0)
    assert [d.tokens for d in conversations(resumed, 0)] == [d.tokens for d in expected]
    copied.adopt(made.snapshot(), 3)
    made.adopt(made.snapshot(), 3)
    assert [d.tokens for d in conversations(copied, 0)] == [d.tokens for d in conversations(made, 0)]
    assert statistics.fmean(p for d in expected for p in d.logprobs) < 0


def test_positions_are_computed_in_float32() -> None:
    """As the decoder and vLLM compute them: rounded frequencies turn late positions into others."""
    made, exact = of_dtype("bfloat16", 4), of_dtype("float32", 4)
    found, expected = (dict(one.model.named_buffers()) for one in (made, exact))
    assert found.keys() == expected.keys() != set()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert {p.dtype for p in made.model.get_base_model().model.embed_tokens.parameters()} == {made.dtype}


def test_an_adapter_of_16_bits_is_multiplied_in_16_bits_and_errs_no_more_than_pefts() -> None:
    """Against the gradients of the same weights in float32. PEFT's own way makes float32 of what an adapter is given,
    and its sum is rounded all the same."""
    from peft.tuners.lora import Linear

    narrow, exact = of_dtype("bfloat16", 4), of_dtype("float32", 4)
    for name, p in narrow.model.named_parameters():
        if "lora_B" in name:
            p.data.normal_(0, 0.05, generator=torch.Generator().manual_seed(len(name)))
    exact.model.load_state_dict({name: value.float() for name, value in narrow.model.state_dict().items()})
    right, mine = gradients(exact), gradients(narrow)
    adapted = [m for m in narrow.model.modules() if isinstance(m, Linear)]
    assert {type(m.forward) for m in adapted} == {NarrowLayer}
    for m in adapted:
        del m.forward
    pefts = gradients(narrow)
    assert float((mine - right).norm()) < 1.2 * float((pefts - right).norm()) < 0.1 * float(right.norm())


def gradients(made: LocalEngine) -> Tensor:
    made.optimizer.zero_grad(set_to_none=True)
    made._update._backward(lessons(), IMITATE, 64)
    return torch.cat([p.grad.flatten() for p in made.trained if p.grad is not None])


def test_fused_kernels_are_taken_where_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head stays as it is: it is run in parts, on the tokens that count. On a CPU none are put on."""
    given: list[dict[str, Any]] = []
    library = ModuleType("liger_kernel.transformers.monkey_patch")
    vars(library)["_apply_liger_kernel_to_instance"] = lambda model, **words: given.append(words)
    vars(library)["MODEL_TYPE_TO_APPLY_LIGER_FN"] = {"qwen3": None}
    monkeypatch.setitem(sys.modules, library.__name__, library)
    model = build_model(VOCABULARY, 32, 2)
    assert not LocalEngine(model, [STOP], CONFIG).fused
    assert not given
    assert use_fused_kernels(model)
    off = {"cross_entropy": False, "fused_linear_cross_entropy": False}
    assert given == [{"rope": True, "rms_norm": True, "swiglu": True, **off}]
    model.config.model_type = "another"
    assert not use_fused_kernels(model)


@pytest.mark.filterwarnings("ignore")  # torch.compile warns of what it looks at itself
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_compiled_blocks_compute_what_torch_does(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under an adapter and checkpointing, as it is trained on a GPU."""
    monkeypatch.setattr(pretrained, "COMPILER", "aot_eager")
    made = {
        kernels: LocalEngine(
            build_model(VOCABULARY, 32, 2),
            [STOP],
            replace(CONFIG, dtype=dtype, lora_rank=4, gradient_checkpointing=True, kernels=kernels),
        )
        for kernels in ("torch", "compiled")
    }
    plain, compiled = map(gradients, made.values())
    assert torch.allclose(compiled, plain, atol=1e-6 if dtype == "float32" else 1e-3)
    assert plain.norm() > 0
    assert all(block._compiled_call_impl for block in made["compiled"].model.get_base_model().model.layers)


def test_flash_attention_that_is_not_installed_is_said() -> None:
    """Nor does it fall back unheard to torch's."""
    with pytest.raises(ConfigError, match=r"^model\.kernels=flash needs FlashAttention, .*: pip install flash-attn"):
        LocalEngine(build_model(VOCABULARY, 32, 2), [STOP], replace(CONFIG, kernels="flash"))


RATE = 1e-3


def as_built(config: TrainConfig) -> LocalEngine:
    """As build() makes it, but for its size, its device and the process of the sampler."""
    wanted = {setting.name: getattr(config.model, setting.name) for setting in fields(EngineSettings)}
    small = {"device": "cpu", "rows": 16, "tokens_per_batch": 512, "lora_rank": min(4, config.model.lora_rank)}
    held = LocalConfig(**{**wanted, **small}, length=192, average=config.average, reference=bool(config.loss.kl_weight))
    model = build_model(VOCABULARY, hidden=32, layers=2)
    sampler = (
        None
        if config.model.sampler == "local"
        else Apart(model, merges=False, holds=getattr(torch, config.model.dtype))
    )
    return LocalEngine(model, [STOP], held, sampler)


@pytest.mark.parametrize("name", PRESETS)
def test_what_a_preset_combines_samples_trains_and_agrees(name: str) -> None:
    config = PRESETS[name]
    made = as_built(config)
    assert type(made.sampler) is (LocalSampler if config.model.sampler == "local" else Apart)
    before = [p.detach().clone() for p in made.trained]
    loss = replace(config.loss, temperature=config.temperature)
    for _ in range(2):
        data = conversations(made, temperature=config.temperature)
        told = made.train(data, loss, RATE)
        assert all(math.isfinite(value) for value in told.values())
        assert told["not_finite"] == 0
        assert told["mismatch"] < TOLERANCE[config.model.dtype]
        assert ("kl_reference" in told) == bool(config.loss.kl_weight)
    assert any(not torch.equal(p, was) for p, was in zip(made.trained, before, strict=True))
    if config.model.lora_rank:
        assert {p.dtype for p in made.trained} == {torch.float32}
    with made.averaged():
        assert conversations(made, temperature=config.evaluation_temperature)
