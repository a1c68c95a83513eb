"""A run that starts from the weights of another: they are taken, the optimiser is fresh, it resumes without them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.agents.training.test_trainer import COLD, run
from tests.agents.training.trained_models import WHOLE, adapted, kept, write_base, write_run
from toolorchestra.agents.commands.train import options
from toolorchestra.agents.configuration.config import EnvMix, TrainConfig, WarmStart
from toolorchestra.agents.engines.base import LossParams
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.build import plan
from toolorchestra.agents.training.model_export import export_model
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.registration import register

TOY = EnvMix("Tests/ToyTrain-v0", 1.0, {"max_turns": 1}, validation="train", test="train")


@pytest.fixture(autouse=True)
def _registered() -> None:
    register("Tests/ToyTrain-v0", "toolorchestra.envs.domains.toy:AdderSource")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run whose weights are taken."""
    return write_run(tmp_path_factory.mktemp("first"))


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


def test_the_averaged_weights_of_a_run_are_taken(first: Path, tmp_path: Path) -> None:
    said: list[str] = []
    run(tmp_path / "run", starting(first), said=said)
    assert f"starting from the averaged weights of step 4 in {first / 'checkpoints' / 'step-000004'}" in said
    weights, wanted = begun(tmp_path / "run"), kept(first)
    assert all(torch.equal(weights[name], mean) for name, mean in wanted["average"].items())
    assert torch.equal(weights["lm_head.weight"], wanted["average"]["model.embed_tokens.weight"])  # two names of one


def test_a_checkpoint_or_an_exported_folder_will_do_too(first: Path, tmp_path: Path) -> None:
    export_model(first, tmp_path / "exported")
    (path,) = (first / "checkpoints").iterdir()
    for number, source in enumerate((path, tmp_path / "exported")):
        run(tmp_path / str(number), starting(source))
        weights = begun(tmp_path / str(number))
        assert all(torch.equal(weights[name], mean) for name, mean in kept(first)["average"].items())


def test_the_last_weights_are_taken_where_there_is_no_average(tmp_path: Path) -> None:
    write_run(tmp_path / "first", replace(WHOLE, average=0.0, seed=5))
    run(tmp_path / "run", starting(tmp_path / "first"))
    weights, wanted = begun(tmp_path / "run"), kept(tmp_path / "first")["weights"]
    assert all(torch.equal(weights[name], wanted[name]) for name in wanted)


def test_an_adapter_goes_on_as_an_adapter(tmp_path: Path) -> None:
    config = adapted(write_base(tmp_path / "base"))
    write_run(tmp_path / "first", config)
    export_model(tmp_path / "first", tmp_path / "exported", adapter=True)
    for number, source in enumerate((tmp_path / "first", tmp_path / "exported")):
        run(tmp_path / str(number), starting(source, config))
        weights = begun(tmp_path / str(number))
        assert all("lora_" in name for name in weights)
        assert all(torch.equal(weights[name], mean) for name, mean in kept(tmp_path / "first")["average"].items())


def test_it_resumes_without_the_other_run_and_from_no_other(first: Path, tmp_path: Path) -> None:
    shutil.copytree(first, tmp_path / "first")
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


def test_a_run_of_a_version_that_knew_no_init_from_is_resumed(tmp_path: Path) -> None:
    config = replace(starting(tmp_path), init_from="")
    run(tmp_path, config)
    for path in checkpoint.all_of(tmp_path / "checkpoints"):
        state = checkpoint.read_state(path)
        del state["config"]["init_from"]
        (path / "state.json").write_text(json.dumps(state))
        (path / "manifest.json").write_text(
            json.dumps({"files": {"state.json": checkpoint._digest(path / "state.json")}})
        )
    assert run(tmp_path, config, resume=True).step == 1


def test_a_kl_term_is_to_what_was_started_from(first: Path, tmp_path: Path) -> None:
    config = replace(starting(first), loss=LossParams(kl_weight=0.1))
    made = run(tmp_path, config)
    drawn = kept(first)["average"]["model.norm.weight"]
    references = [value for value in kept(tmp_path)["reference"] if value.shape == drawn.shape]
    assert any(torch.equal(value, drawn) for value in references)
    assert made.step == 1


def test_the_warm_start_follows_and_is_said_to_be_needless(first: Path, tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(ConfigError, match="random routes through the paper's tools"):
        run(tmp_path, replace(starting(first), warm_start=WarmStart(steps=1)), said=said)
    assert "the warm start follows; a model that speaks the grammar already needs none: warm_start.steps=0" in said


def test_weights_of_another_kind_are_refused(first: Path, tmp_path: Path) -> None:
    base = write_base(tmp_path / "base")
    lora, wide = adapted(base), replace(WHOLE, model=replace(WHOLE.model, hidden=32))
    write_run(tmp_path / "lora", lora)
    other = replace(lora, model=replace(lora.model, lora_alpha=7))
    for source, config, said in (
        (first, wide, r"step-000004 holds another model: 0 weights missing, 0 unknown, \d+ of another shape \(first: "),
        (first, wide, r"16\) there and \(\d+, 32\) here\); give the configuration it was trained with"),
        (first, lora, "holds all weights of a model, and this run trains an adapter; name a folder that"),
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
    config = options(["--init-from", "runs/one", "--warm-start.steps", "0"]).config
    assert config.init_from == "runs/one"
    shape = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100, "intermediate_size": 128,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}  # fmt: skip
    lora = replace(config, loss=LossParams(kl_weight=1e-6), model=replace(config.model, lora_rank=4))
    assert plan(lora, shape, 1 << 34).reference
    assert not plan(replace(lora, init_from=""), shape, 1 << 34).reference
