"""What a run has trained, on disk: exported and played elsewhere, and where another run starts from it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.agents.evaluation.played_episodes import evaluate, whole_digest
from tests.agents.training.test_trainer import COLD, run
from tests.agents.training.trained_models import SHORT, TOY, WHOLE, adapted, kept, write_base, write_run
from tests.two_texts import raises
from toolorchestra.agents.commands import export_model as command
from toolorchestra.agents.commands.console import read_options
from toolorchestra.agents.commands.train import TrainOptions, defaults, trained
from toolorchestra.agents.configuration.config import TrainConfig, WarmStart, as_json
from toolorchestra.agents.engines.base import LossParams, Sample, SamplingParams
from toolorchestra.agents.policies.base import PlayerOptions
from toolorchestra.agents.policies.players import player
from toolorchestra.agents.rollouts.rollout import factory_of
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.build import plan
from toolorchestra.agents.training.checkpoint_player import CheckpointPlayer
from toolorchestra.agents.training.saved_model import TrainedAs, base_name, config_of, export_model, saved_model
from toolorchestra.envs.base.errors import ConfigError

Turn = tuple[list[int], list[int]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = write_base(tmp_path_factory.mktemp("base"))
    return write_run(tmp_path_factory.mktemp("lora"), adapted(base))


def played(folder: Path) -> tuple[list[Turn], str]:
    """A few episodes, greedily: each turn's prompt and what was sampled, and a digest of all."""
    made = factory_of("HLE-v0", **SHORT)
    who = player(f"checkpoint:{folder}", made)
    assert isinstance(who, CheckpointPlayer)
    turns: list[Turn] = []
    sample = who.engine.sample

    async def noted(prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        got = await sample(prompt, params, session)
        turns.append((list(prompt), list(got.tokens)))
        return got

    who.engine.sample = noted  # type: ignore[method-assign]
    got = asyncio.run(evaluate(made, who.move, 3, 4, at_once=1))
    who.close()
    return turns, whole_digest(got)


def continued(model: Any, prompt: list[int], most: int) -> list[int]:
    """By transformers, greedily."""
    with torch.no_grad():
        made = model.generate(torch.tensor([prompt]), max_new_tokens=most, do_sample=False, temperature=None)
    return [int(token) for token in made[0, len(prompt) :]]


def assert_says_the_same(model: Any, turns: list[Turn]) -> None:
    assert len({tuple(said) for _, said in turns}) > 3  # else any model would do
    for prompt, said in turns:
        assert continued(model, prompt, WHOLE.max_tokens) == said


def test_transformers_says_what_the_checkpoint_says(whole: Path, tmp_path: Path) -> None:
    export_model(whole, tmp_path / "out")
    turns, digest = played(whole)
    assert_says_the_same(AutoModelForCausalLM.from_pretrained(tmp_path / "out"), turns)
    assert played(tmp_path / "out") == (turns, digest)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    observation = factory_of("HLE-v0", **SHORT).start(3).observation
    text = tokenizer.apply_chat_template(
        list(observation["messages"]), tools=list(observation["tools"]), add_generation_prompt=True, tokenize=False
    )
    assert tokenizer.encode(text, add_special_tokens=False) == turns[0][0]


def test_an_adapter_is_merged_or_written_alone(lora: Path, tmp_path: Path) -> None:
    from peft import AutoPeftModelForCausalLM

    merged, alone = export_model(lora, tmp_path / "merged"), export_model(lora, tmp_path / "alone", adapter=True)
    assert (merged.lora_rank, alone.lora_rank) == (0, 2)
    assert not list((tmp_path / "merged").glob("adapter*"))
    assert {path.name for path in (tmp_path / "alone").iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "chat_template.jinja",
        "tokenizer.json",
        "tokenizer_config.json",
        "toolorchestra.json",
    }
    turns, digest = played(lora)
    assert_says_the_same(AutoModelForCausalLM.from_pretrained(tmp_path / "merged"), turns)
    assert_says_the_same(AutoPeftModelForCausalLM.from_pretrained(tmp_path / "alone"), turns)
    for folder in ("merged", "alone"):
        assert played(tmp_path / folder) == (turns, digest)


def test_what_a_server_needs_stands_in_the_folder(tmp_path: Path) -> None:
    config = replace(WHOLE, evaluation_temperature=0.7)
    run = write_run(tmp_path / "run", config)
    export_model(run, tmp_path / "out", dtype="bfloat16")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert (model.dtype, model.config.use_cache) == (torch.bfloat16, True)
    tokenizer, defaults = AutoTokenizer.from_pretrained(tmp_path / "out"), model.generation_config
    assert tokenizer.decode([defaults.eos_token_id]) == "<|im_end|>"
    assert (defaults.temperature, defaults.top_k, defaults.top_p) == (0.7, 0, 1.0)
    greedy = write_run(tmp_path / "greedy", replace(WHOLE, evaluation_temperature=0.0))
    export_model(greedy, tmp_path / "greedy-out")
    defaults = AutoModelForCausalLM.from_pretrained(tmp_path / "greedy-out").generation_config
    assert (defaults.do_sample, tokenizer.decode([defaults.eos_token_id])) == (False, "<|im_end|>")


def test_how_it_was_trained_stands_beside_it(whole: Path, tmp_path: Path) -> None:
    written = export_model(whole, tmp_path / "out")
    assert TrainedAs.read(tmp_path / "out") == written == saved_model(tmp_path / "out").how
    assert (written.step, written.max_tokens, written.max_context) == (4, WHOLE.max_tokens, WHOLE.max_context)
    assert written.environments[0].arguments["style"] == "brief"
    assert str(tmp_path) not in (tmp_path / "out" / "toolorchestra.json").read_text()
    for text, said in (("{}", "missing 11 required"), ("[]", "an object expected"), ('{"x": 1}', "unexpected keyword")):
        (tmp_path / "out" / "toolorchestra.json").write_text(text)
        with pytest.raises(ConfigError, match=rf"does not say how the model was trained .*{said}.* export model"):
            saved_model(tmp_path / "out")


def test_what_cannot_be_exported_is_refused_and_nothing_is_left(whole: Path, lora: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").touch()
    with pytest.raises(ConfigError, match=r"a new or an empty folder expected, but .*full is not empty; name another"):
        export_model(whole, full)
    with pytest.raises(ConfigError, match=r"expected, but .*mine\.txt is a file"):
        export_model(whole, full / "mine.txt")
    option = "the same without --adapter"
    with raises(ConfigError, "trained all weights, so there is no adapter to write; leave adapter=True out", option):
        export_model(whole, tmp_path / "out", adapter=True)
    tiny = write_run(tmp_path / "tiny", replace(WHOLE, model=replace(WHOLE.model, lora_rank=2)))
    with raises(ConfigError, "an adapter on the tiny model, which is no folder .*; leave adapter=True out$", option):
        export_model(tiny, tmp_path / "out", adapter=True)
    with pytest.raises(ConfigError, match="no whole checkpoint in"):
        export_model(tmp_path / "nowhere", tmp_path / "out")
    export_model(tiny, tmp_path / "out")
    with pytest.raises(ConfigError, match="is such a folder already; name a run's folder"):
        export_model(tmp_path / "out", tmp_path / "again")
    assert {path.name for path in tmp_path.iterdir()} == {"full", "tiny", "out"}


def test_a_folder_is_there_when_it_is_whole(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(how: TrainedAs, folder: Path) -> None:
        assert (folder / "model.safetensors").exists()
        raise OSError("disk full")

    monkeypatch.setattr(TrainedAs, "write", broken)
    with pytest.raises(OSError, match="disk full"):
        export_model(whole, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_wrote(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()  # an empty one will do
    (checkpoint,) = (whole / "checkpoints").iterdir()
    assert command.main([str(checkpoint), str(out), "--dtype", "float16"]) == 0
    said, err = capsys.readouterr()
    assert said.splitlines() == [
        f"{out}: averaged weights of step 4",
        f"play it here: toolorchestra play --policy checkpoint:{out}",
    ]
    assert err == ""
    assert command.main([str(whole), str(out)]) == 2
    assert capsys.readouterr().err == (
        f"error: a new or an empty folder expected, but {out} is not empty; name another, or remove it\n"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, and a device that is missing is asked for")
def test_a_device_may_be_named(whole: Path, tmp_path: Path) -> None:
    export_model(whole, tmp_path / "out")
    for folder in (whole, tmp_path / "out"):
        with pytest.raises(ConfigError, match="device=cuda, and torch sees no GPU here"):
            player(f"checkpoint:{folder}", factory_of("HLE-v0", **SHORT), 0, PlayerOptions(device="cuda"))


# -- starting from another run -----------------------------------------------------------------------------------------


def starting(path: Path, model: TrainConfig = WHOLE) -> TrainConfig:
    return replace(
        COLD,
        environments=(TOY,),
        evaluation_tasks=1,
        groups=1,
        rollouts=2,
        average=0.5,
        model=model.model,
        init_from=str(path),
    )


def begun(folder: Path) -> dict[str, torch.Tensor]:
    """What the engine saved before its first step."""
    shutil.rmtree(folder / "checkpoints" / "step-000001")
    state = kept(folder)
    assert state["optimizer"]["state"] == {}
    assert set(state["average"]) <= set(state["weights"])
    assert all(torch.equal(mean, state["weights"][name]) for name, mean in state["average"].items())
    weights: dict[str, torch.Tensor] = state["weights"]
    return weights


@pytest.mark.parametrize("average", [0.5, 0.0])
def test_the_average_is_exported_and_gone_on_from_or_else_the_last_weights(average: float, tmp_path: Path) -> None:
    """By a run's folder, a checkpoint of it, and the exported one."""
    first, said = write_run(tmp_path / "first", replace(WHOLE, average=average, seed=5)), list[str]()
    state = kept(first)
    wanted = state["average"] or state["weights"]
    assert export_model(first, tmp_path / "exported").averaged == bool(average)
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "exported")
    assert all(torch.equal(model.get_parameter(name), value) for name, value in wanted.items())
    (path,) = (first / "checkpoints").iterdir()
    for number, source in enumerate((first, path, tmp_path / "exported")):
        run(tmp_path / str(number), starting(source), said=said)
        weights = begun(tmp_path / str(number))
        assert all(torch.equal(weights[name], value) for name, value in wanted.items())
    assert f"starting from the {'averaged ' if average else ''}weights of step 4 in {path}" in said


def test_an_adapter_goes_on_as_an_adapter(tmp_path: Path) -> None:
    config = adapted(write_base(tmp_path / "base"))
    write_run(tmp_path / "first", config)
    export_model(tmp_path / "first", tmp_path / "exported", adapter=True)
    for number, source in enumerate((tmp_path / "first", tmp_path / "exported")):
        run(tmp_path / str(number), starting(source, config))
        weights = begun(tmp_path / str(number))
        assert all("lora_" in name for name in weights)
        assert all(torch.equal(weights[name], mean) for name, mean in kept(tmp_path / "first")["average"].items())


def test_it_resumes_without_the_other_run_and_from_no_other(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "first")
    config = starting(tmp_path / "first")
    ended = run(tmp_path / "run", config)
    (path,) = (tmp_path / "first" / "checkpoints").iterdir()
    state = checkpoint.read_state(tmp_path / "run" / "checkpoints" / "step-000001")
    assert state["config"]["init_from"] == str(tmp_path / "first")
    shutil.rmtree(tmp_path / "first")
    with pytest.raises(ConfigError, match=r"trained with other settings \(init_from\)"):
        run(tmp_path / "run", replace(config, init_from=str(path)), resume=True)
    said: list[str] = []
    again = run(tmp_path / "run", replace(config, steps=2), resume=True, said=said)
    assert (ended.step, again.step) == (1, 2)
    assert not any("starting from" in line for line in said)


def test_the_command_goes_on_without_the_other_run(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "first")
    config = starting(tmp_path / "first")
    trained(config, tmp_path / "run", resume=False, report=False)
    shutil.rmtree(tmp_path / "first")
    assert trained(replace(config, steps=2), tmp_path / "run", resume=True, report=False).step == 2


def test_a_base_model_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a checkpoint of earlier versions, which has the path as it was given, from the run's own."""
    write_base(tmp_path / "base")
    monkeypatch.chdir(tmp_path)
    config = replace(starting(Path()), init_from="", model=adapted(Path("base")).model)
    trained(config, tmp_path / "run", resume=False, report=False)
    monkeypatch.chdir("/")
    saved = saved_model(tmp_path / "run")
    assert config_of(saved.path).model.path == saved.how.base == str(tmp_path / "base")
    whole = replace(config, model=adapted(tmp_path / "base").model, steps=2)
    assert trained(whole, tmp_path / "run", resume=True, report=False).step == 2
    monkeypatch.chdir(tmp_path)
    state = checkpoint.read_state(saved.path)
    old = {**state, "config": as_json(config)}

    def copied(draft: Path) -> None:
        shutil.copy(saved.path / "engine.pt", draft)

    checkpoint.save(tmp_path / "old" / "checkpoints", 1, old, copied)
    assert trained(replace(config, steps=2), tmp_path / "old", resume=True, report=False).step == 2
    assert base_name("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"  # a hub's


def test_the_warm_start_follows_and_is_said_to_be_needless(whole: Path, tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(ConfigError, match="did not reach what reinforcement learning needs"):
        run(tmp_path, replace(starting(whole), warm_start=WarmStart(steps=1, demonstrations=4)), said=said)
    assert "the warm start follows; a model that speaks the grammar already needs none: warm_start.steps=0" in said


def test_weights_of_another_kind_are_refused(whole: Path, tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    lora, wide = adapted(base), replace(WHOLE, model=replace(WHOLE.model, hidden=32))
    write_run(tmp_path / "lora", lora)
    other = replace(lora, model=replace(lora.model, lora_alpha=7))
    for source, config, said in (
        (whole, wide, r"step-000004 holds another model: 0 weights missing, 0 unknown, \d+ of another shape \(first: "),
        (whole, wide, r"16\) there and \(\d+, 32\) here\); give the configuration it was trained with"),
        (whole, lora, "holds all weights of a model, and this run trains an adapter; name a folder that"),
        (tmp_path / "lora", WHOLE, "holds an adapter of rank 2, and this run trains all weights; set model.lora_rank"),
        (
            tmp_path / "lora",
            other,
            r"adapter of rank 2 and alpha 32 on .*base, and this run trains one of rank 2 and a",
        ),
        (tmp_path / "none", WHOLE, "no whole checkpoint in .*none'; name a run's folder"),
        (base, WHOLE, "no whole checkpoint in .*base'; name a run's folder"),
    ):
        with pytest.raises(ConfigError, match=said):
            run(tmp_path / "run", starting(source, config))
    assert not list((tmp_path / "run").glob("checkpoints/*"))


def test_it_is_an_option_and_its_reference_is_counted() -> None:
    words = ["--init-from", "runs/one", "--warm-start.steps", "0"]
    config = read_options(TrainOptions, words, default=defaults(words)).config
    assert config.init_from == "runs/one"
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100, "intermediate_size": 128,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}  # fmt: skip
    lora = replace(config, loss=LossParams(kl_weight=1e-6), model=replace(config.model, lora_rank=4))
    assert plan(lora, shape, 1 << 34).reference
    assert not plan(replace(lora, init_from=""), shape, 1 << 34).reference
