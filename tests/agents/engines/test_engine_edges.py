"""What an engine does at the edges: a copy of it, a step that must not be taken, a sampler that breaks, no GPU."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.agents.engines.conformance import SMALL as CONFIG
from tests.agents.engines.conformance import STOP, VOCABULARY, datum, engine
from tests.two_texts import raises
from toolorchestra.agents.configuration.config import ModelConfig
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines import tiny, update, weights
from toolorchestra.agents.engines.base import Datum, LossParams, Sample, SamplingParams, TrainingFailed
from toolorchestra.agents.engines.decoder import Decoder, check_shape
from toolorchestra.agents.engines.local import LocalEngine
from toolorchestra.agents.engines.pretrained import device_memory
from toolorchestra.agents.engines.sampler import LocalSampler
from toolorchestra.agents.engines.tiny import build_model, load_tokenizer
from toolorchestra.agents.training.build import build
from toolorchestra.envs.base.errors import ConfigError

MODEL = build_model(VOCABULARY, 32, 2)


# -- the local engine --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(
    "ignore:`gradient_checkpointing_enable` is deprecated:FutureWarning"
)  # until transformers 6
def test_with_activations_computed_twice_the_step_is_the_same() -> None:
    stepped = []
    for twice in (False, True):
        made = engine(replace(CONFIG, gradient_checkpointing=twice))
        assert made.model.is_gradient_checkpointing is twice
        data = [datum([2, 3, 4], Sample([5, 6, 7], [-3.0, -3.0, -3.0], False))]
        made.train(data, LossParams("cross_entropy"), 1e-2)
        stepped.append([p.detach().clone() for p in made.trained])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*stepped, strict=True))


def test_steps_whose_gradient_is_no_number_are_left_out_and_several_in_a_row_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "MOST_NOT_FINITE", 3)
    made = engine()
    before = [p.detach().clone() for p in made.trained]
    wrong = [datum([2, 3], Sample([4], [-1.0], False), advantage=float("inf"))]
    sound = [datum([2, 3], Sample([4], [-1.0], False))]
    loss = LossParams("cross_entropy")
    assert [made.train(wrong, loss, 1e-2)["not_finite"] for _ in range(2)] == [1.0, 1.0]
    assert all(torch.equal(a, b) for a, b in zip(before, made.trained, strict=True))
    assert all(p.grad is None for p in made.trained)
    assert made.train(sound, loss, 1e-2)["not_finite"] == 0.0
    assert not all(torch.equal(a, b) for a, b in zip(before, made.trained, strict=True))
    for _ in range(2):
        made.train(wrong, loss, 1e-2)
    made.save(tmp_path)
    again = engine()
    again.load(tmp_path)
    for one in (made, again):
        said = (
            r"the gradient's norm was (nan|inf) in 3 steps in a row, .* with a lower learning_rate, in another folder"
        )
        with raises(TrainingFailed, said, "--init-from FOLDER --learning-rate RATE --out ANOTHER"):
            one.train(wrong, loss, 1e-2)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"model_type": "gpt2"}, "runs models of type qwen3, qwen2, llama, not 'gpt2'; use vLLM for others"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "the model has rope_type='yarn'; set model.sampler=vllm"),
        ({"attention_bias": True}, "the model has attention_bias=True; set model.sampler=vllm"),
        ({"hidden_act": "gelu"}, "the model has hidden_act='gelu'; set model.sampler=vllm"),
    ],
)
def test_a_model_that_the_decoder_would_run_as_another_is_refused(changed: dict[str, object], says: str) -> None:
    shape = SimpleNamespace(**{**MODEL.config.to_dict(), "model_type": "qwen3"})
    check_shape(shape)
    vars(shape).update(changed)
    with pytest.raises(ConfigError, match=says):
        check_shape(shape)


def test_when_sampling_breaks_whoever_waits_hears_of_it_and_nobody_waits_for_ever() -> None:
    """Here a decoder that was never given weights."""
    decoder = Decoder(MODEL.config, 4, 64, torch.device("cpu"), torch.float32)
    sampler = LocalSampler(decoder, [STOP], 0)

    async def all_of_them() -> list[object]:
        turns = [sampler.sample([2, 3, n], SamplingParams(4), f"s{n}") for n in range(3)]
        async with asyncio.timeout(10):
            return list(await asyncio.gather(*turns, return_exceptions=True))

    assert [type(found) for found in asyncio.run(all_of_them())] == [AttributeError] * 3
    sampler.sync(weights.named_weights(MODEL), 1)
    for n in range(3):
        sampler.release(f"s{n}")
    assert len(asyncio.run(sampler.sample([2, 3], SamplingParams(4, 0.0), "s")).tokens) <= 4


# -- loops, weights in parts, tokenizers -------------------------------------------------------------------------------


def test_the_tokenizer_has_a_token_for_what_is_always_written_alike() -> None:
    made = load_tokenizer()
    call = '<tool_call>{"name": "search", "arguments": {"model": "'
    for text in ("<tool_call>", call, "search-1", " search-1", " 7.5", " new documents:", '"}}</tool_call>'):
        assert len(made.encode(text)) == 1, text
    assert made.decode(made.encode("größe ☃ 12.5\n\n x")) == "größe ☃ 12.5\n\n x"
    assert made.decode([made.eos_token_id]) == "<|im_end|>"


def test_a_name_that_is_asked_for_begins_as_the_name_and_a_mark_that_all_share() -> None:
    tokenizer = load_tokenizer()
    spoken = tiny.spoken_of(tokenizer)
    texts = {tokenizer.decode([token]) for token in spoken}
    assert {" search-1", " reasoner-3", " answer-math-2"} < texts
    assert tokenizer.encode("use search-1, not;search-1")[-1] in spoken.values()
    assert set(tokenizer.encode("use search-1")) & set(spoken)
    rows = build_model(len(tokenizer), 32, 1, 3, tokenizer).get_input_embeddings().weight.detach()
    marks = [rows[token] - rows[name] for token, name in spoken.items()]
    assert all(torch.allclose(mark, marks[0], atol=1e-6) for mark in marks)
    assert float(marks[0].norm()) > 0


def test_prices_stay_as_alike_as_they_began_whatever_is_learnt() -> None:
    tokenizer = load_tokenizer()
    model = build_model(len(tokenizer), 32, 1, 3, tokenizer)
    before, asked = model.get_input_embeddings().weight.detach().clone(), tokenizer.encode("search-1 7.5 of 0.34\n")
    engine = LocalEngine(model, [tokenizer.eos_token_id], CONFIG)
    mask = [False] * (len(asked) - 1) + [True]
    engine.train([Datum(asked, [0.0] * len(asked), [1.0] * len(asked), mask)], LossParams("cross_entropy"), 0.1)
    moved = (model.get_input_embeddings().weight - before).abs().sum(1) > 0
    prices = set(tiny.numbers_of(tokenizer))
    assert {tokenizer.decode([token]).strip() for token in prices & {*asked}} == {"7.5", "0.34"}
    assert {*moved.nonzero().flatten().tolist()} == {*asked[:-1]} - prices  # the head's rows are others


def test_a_checkpoint_from_before_the_head_had_weights_of_its_own_is_refused(tmp_path: Path) -> None:
    tokenizer = load_tokenizer()
    tied, own = (
        LocalEngine(build_model(len(tokenizer), 32, 1, 3, known), [tokenizer.eos_token_id], CONFIG)
        for known in (None, tokenizer)
    )
    tied.save(tmp_path)
    with pytest.raises(ConfigError, match=r"it trained 13 weights, this model has 14; play it with the version"):
        own.load(tmp_path)


# -- models of transformers, and a GPU that is not there ---------------------------------------------------------------


def saved(folder: Path) -> str:
    tokenizer = load_tokenizer()
    tokenizer.save_pretrained(folder)
    build_model(len(tokenizer), 32, 2).save_pretrained(folder)
    return str(folder)


def test_a_device_that_torch_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^model\.device is cpu, cuda, or .* such as cuda:1; got 'gpu'$"):
        build(replace(preset("tiny"), model=ModelConfig(device="gpu")))


@pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")
def test_a_gpu_that_is_not_there_is_said_before_a_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.device=cuda:1, and torch sees no GPU here; install its CUDA build"):
        device_memory("cuda:1")
    path = saved(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_text("torn")
    config = replace(preset("small-gpu"), model=replace(preset("small-gpu").model, path=path))
    with pytest.raises(ConfigError, match=r"model\.device=cuda, and torch sees no GPU here"):
        build(config)


# -- samplers apart from the trainer -----------------------------------------------------------------------------------


@pytest.mark.skipif(find_spec("vllm") is not None, reason="of machines without vLLM")
def test_without_vllm_it_is_said_how_it_is_installed() -> None:
    with pytest.raises(ConfigError, match=r'^vLLM rollouts need vllm, and vllm is missing: pip install ".*"'):
        build(replace(preset("tiny"), model=ModelConfig(hidden=128, sampler="vllm")))
