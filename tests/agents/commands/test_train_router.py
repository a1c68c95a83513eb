"""What `toolorchestra train --router` refuses, in one sentence each. With Ray: tests/integrations/test_rllib.py."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.command_line import toolorchestra
from toolorchestra.agents.commands.train_router import TrainRouterOptions
from toolorchestra.agents.training.router_training import RouterTraining
from toolorchestra.envs.base.errors import ConfigError


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"runners": 0}, "runners must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "learning_rate must be a number above 0, got 0.0"),
        ({"hidden": ()}, r"hidden lists the widths of the layers, each at least 1, got \(\)"),
    ],
)
def test_wrong_settings_are_refused(changed: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RouterTraining(**changed)  # type: ignore[arg-type]


def test_wrong_environments_are_refused() -> None:
    with pytest.raises(ConfigError, match="no environment 'HEL-v0'; valid: "):
        assert TrainRouterOptions(env=(("HEL-v0",),)).training
    with pytest.raises(ConfigError, match="--env names an environment twice"):
        assert TrainRouterOptions(env=(("HLE-v0",), ("HLE-v0",))).training


def test_settings_reach_the_environments() -> None:
    given = TrainRouterOptions(env=(("HLE-v0", "max_turns=5"),), set=('reward={"usd": 3}',))
    assert given.training == RouterTraining(
        environments={"ToolOrchestra/HLE-v0": {"reward": {"usd": 3}, "max_turns": 5}}
    )


@pytest.mark.skipif(find_spec("ray") is not None, reason="of environments without Ray")
def test_the_extra_that_is_missing_is_named(tmp_path: Path) -> None:
    done = toolorchestra("train", "--router", "--out", tmp_path / "r")
    assert done.returncode == 2
    assert 'pip install "toolorchestra[rllib]", in an environment of its own: it pins gymnasium 1.2.2' in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "r").exists()
