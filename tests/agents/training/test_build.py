"""Engines by name: a class of anybody's trains a run, and what is no engine is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolorchestra.agents.commands.train import main
from toolorchestra.agents.configuration.config import ModelConfig, TrainConfig
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.tiny import build_model, load_tokenizer
from toolorchestra.agents.rollouts.rollout import Chat
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.saved_model import export_model
from toolorchestra.envs.base.errors import ConfigError

VOCABULARY = len(load_tokenizer())
ENGINE = f"{__name__}:Mine"
SMALL = [
    *("--warm-start.steps", "0", "--groups", "1", "--rollouts", "2", "--updates", "1", "--no-report"),
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
    assert main([*SMALL, "--engine", ENGINE, "--out", out, "--steps", "2"]) == 0
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
