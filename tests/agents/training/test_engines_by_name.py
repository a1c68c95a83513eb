"""Engines by name: a class of anybody's trains a run, and what is no engine is refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.engines.tinker_standin import BASE, Door, StandIn
from toolorchestra.agents.commands.train import main
from toolorchestra.agents.configuration.config import ModelConfig, TrainConfig
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines import tinker_server
from toolorchestra.agents.engines.base import LossParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.settings import TinkerSettings
from toolorchestra.agents.engines.tiny import build_model, load_tokenizer
from toolorchestra.agents.rollouts.tokens import Chat
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.model_export import export_model
from toolorchestra.envs.base.errors import ConfigError

VOCABULARY = len(load_tokenizer())
ENGINE = f"{__name__}:Mine"
SMALL = [
    *("--warm-start.steps", "0", "--steps", "2", "--groups", "1", "--rollouts", "2", "--updates", "1", "--no-report"),
    *("--evaluation-tasks", "1", "--save-every", "1", "--model.processes", "1", "--average", "0", "--max-tokens", "4"),
    *("--env", "HLE-v0", "style=brief", "shown_characters=0", "max_turns=1"),
]


def tiny() -> Any:
    return build_model(VOCABULARY, hidden=16, layers=1)


class Mine(LocalEngine):
    """Somebody's engine."""

    def __init__(self, config: TrainConfig, chat: Chat) -> None:
        held = LocalConfig(length=config.max_context, seed=config.seed, rows=8)
        super().__init__(tiny(), [chat.stop], held)


class Half:
    def __init__(self, config: TrainConfig, chat: Chat) -> None: ...

    def train(self) -> None: ...


NUMBER = 3


def test_an_engine_of_ones_own_trains_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main([*SMALL, "--engine", ENGINE, "--out", out]) == 0
    assert main([*SMALL, "--engine", ENGINE, "--out", out, "--resume", "--steps", "3"]) == 0
    assert "resuming from step-000002" in capsys.readouterr().out
    assert main([*SMALL, "--out", out, "--resume"]) == 2
    assert "was trained with other settings (engine" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"was trained by engine .*:Mine, which keeps the weights itself"):
        export_model(tmp_path / "run", tmp_path / "model")


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ("nowhere:Mine", "engine=nowhere:Mine is not there (No module named 'nowhere')"),
        (f"{__name__}:Other", "has no attribute 'Other'); name it as your.module:YourEngine"),
        (f"{__name__}:NUMBER", "is int, and no class"),
        (f"{__name__}:Half", "has no averaged, close, load, release, sample, save, start_from, take_reference;"),
    ],
)
def test_what_is_no_engine_is_refused(engine: str, says: str) -> None:
    config = replace(preset("tiny"), engine=engine, model=ModelConfig())
    with pytest.raises(ConfigError) as seen:
        build(config)
    assert says in str(seen.value)


def test_losses_that_a_tinker_server_cannot_follow_are_refused_before_it_is_asked() -> None:
    config = replace(preset("tiny"), engine="tinker", model=ModelConfig(lora_rank=4), average=0.0)
    with pytest.raises(ConfigError, match=r"set loss\.entropy_weight=0"):
        build(replace(config, loss=LossParams(entropy_weight=0.01)))
    with pytest.raises(ConfigError, match=r"temperature is 0\.7; set temperature=1"):
        build(replace(config, loss=LossParams(), temperature=0.7))


def test_a_tinker_run_trains_goes_on_and_keeps_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line over the stand-in. A checkpoint holds no weights, and nothing that is written holds the key."""
    key, door = "tml-very-secret", Door()
    module = StandIn(tiny, key=key)
    monkeypatch.setitem(sys.modules, "tinker", module)  # type: ignore[arg-type]
    monkeypatch.setenv("TINKER_API_KEY", key)
    monkeypatch.setattr(tinker_server, "LOOK_SECONDS", 0.05)
    options = [*SMALL, "--engine", "tinker", "--tinker.url", door.url, "--model.lora-rank", "4"]
    options += ["--model.optimizer", "adamw"]
    options += ["--loss.entropy-weight", "0", "--tinker.patience-seconds", "0.2", "--out", str(tmp_path / "run")]
    assert main(options) == 0
    state = json.loads((tmp_path / "run" / "checkpoints" / "step-000002" / "tinker.json").read_text())
    assert state["path"] in module.states
    assert state["base_model"] == BASE
    assert main([*options, "--resume", "--steps", "3"]) == 0
    said = capsys.readouterr()
    assert "resuming from step-000002" in said.out
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if key.encode() in path.read_bytes()]
    assert key not in said.out + said.err
    module.states.clear()
    assert main([*options, "--resume", "--steps", "4"]) == 2
    assert "does not load tinker://" in capsys.readouterr().err
    door.shut()
    assert main([*options, "--resume", "--steps", "4"]) == 2
    assert "no Tinker server can be reached" in capsys.readouterr().err


def test_a_run_whose_server_forgets_it_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    door = Door()
    module = StandIn(tiny)
    module.fails["sample"] = []
    monkeypatch.setitem(sys.modules, "tinker", module)  # type: ignore[arg-type]
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    options = [*SMALL, "--engine", "tinker", "--tinker.url", door.url, "--model.lora-rank", "4"]
    options += ["--model.optimizer", "adamw"]
    options += ["--loss.entropy-weight", "0", "--out", str(tmp_path / "run")]
    assert main(options) == 0
    lost = ValueError("Error retrieving result: Model model_1 not loaded")
    module.fails["save"] = [lost]
    assert main([*options, "--resume", "--steps", "4"]) == 1
    assert "knows this run's model no more" in capsys.readouterr().err
    assert main([*options, "--resume", "--steps", "4"]) == 0
    door.shut()


def test_the_settings_of_a_server_may_change_when_a_run_goes_on() -> None:
    assert TinkerSettings("http://a").url != TinkerSettings("http://b").url
    from toolorchestra.agents.training.training_run import FREE

    assert "tinker.url" in FREE
    assert "tinker.backend" not in FREE
