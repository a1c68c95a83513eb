"""`train`, called in this process: a run is made, resumed, stopped and reported; what it refuses, in one sentence each.

With Ray, `train --router` is tested in tests/integrations/test_rllib.py.
"""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.command_line import ended
from toolorchestra.agents.commands import train
from toolorchestra.agents.commands.train_router import TrainRouterOptions
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.router_training import RouterTraining
from toolorchestra.agents.training.training_run import claimed
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.registration import register

Capture = pytest.CaptureFixture[str]
SMALL = "--model.processes 1 --model.hidden 8 --warm-start.steps 0 --evaluation-tasks 1 --groups 1 --rollouts 2".split()
TOY = "--env Tests/ToyTrain-v0 max_turns=1 validation=train test=train".split()
"""An environment of which there are no probes to play for its report."""


def test_a_run_is_made_resumed_and_reported(tmp_path: Path, capsys: Capture) -> None:
    register("Tests/ToyTrain-v0", "tests.support.toy:AdderSource")
    words = ["--out", str(tmp_path), *SMALL, *TOY, "--steps", "1"]
    assert train.main([*words, "--no-report"]) == 0
    assert not (tmp_path / "page.html").exists()
    newest = checkpoint.latest(tmp_path / "checkpoints")
    assert newest is not None
    assert newest.name == "step-000001"
    assert [(r["kind"], r["step"]) for r in read(tmp_path / "metrics.jsonl")] == [
        ("eval", 0),
        ("train", 0),
        ("eval", 1),
    ]
    assert "held out, step 1: held-out reward " in capsys.readouterr().out
    other = '--out FOLDER begins another one (make train OPTIONS="--out FOLDER")\n'
    assert train.main(words) == 2
    told = capsys.readouterr().err
    assert f"error: {tmp_path} holds a run that has ended (step-000001) without a report: give resume=True, " in told
    assert told.endswith(f". On the command line: --resume writes its report, {other}")
    assert told.count("\n") == 1
    assert train.main([*words[:-1], "2"]) == 2
    told = capsys.readouterr().err
    assert f"error: {tmp_path} holds a run already (step-000001); go on with it: resume=True, or name another" in told
    more = "the same command and --resume go on with it (make train OPTIONS=--resume), "
    assert told.endswith(f" folder. On the command line: {more}{other}")
    assert train.main([*words, "--resume"]) == 0
    out = capsys.readouterr().out
    assert "resuming from step-000001\n" in out
    assert out.endswith(f"report: {tmp_path / 'page.html'}\n")
    played = "playing 1 test tasks of each environment for the report\n"
    assert f"{played}On prices, tools and wordings never trained on" in out
    assert json.loads((tmp_path / "report" / "summary.json").read_text())["steps"] == 1
    assert train.main(words) == 2
    told = capsys.readouterr().err
    assert told.endswith(f"{tmp_path / 'page.html'}; name another folder. On the command line: {other}")


class InterruptingTerminal(io.StringIO):
    """Ctrl-C is pressed when the first line of progress is shown."""

    def write(self, text: str) -> int:
        if "1/3" in text:
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def test_a_run_that_was_stopped_says_how_it_goes_on(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    register("Tests/ToyTrain-v0", "tests.support.toy:AdderSource")
    words = ["--out", str(tmp_path), *SMALL, *TOY, "--steps", "3"]
    monkeypatch.setattr("sys.stderr", InterruptingTerminal())
    assert train.main(words) == 130
    assert capsys.readouterr().out.endswith("stopped after a whole step, which is saved; go on with --resume\n")
    assert not (tmp_path / "page.html").exists()
    newest = checkpoint.latest(tmp_path / "checkpoints")
    assert newest is not None
    assert checkpoint.read_state(newest)["step"] == 2


def test_settings_that_are_wrong_begin_nothing(tmp_path: Path, capsys: Capture) -> None:
    (file := tmp_path / "file").touch()
    for words, says in (
        ("--preset tinny", "no preset 'tinny'; valid: 8b-h100, 8b-node, lm-cpu, paper, small-gpu, tiny."),
        ("--steps 1 --preset", "no preset ''; valid: 8b-h100, 8b-node, lm-cpu, paper, small-gpu, tiny."),
        ("--set max_turns", "--set takes NAME=VALUE, got 'max_turns'"),
        ("--env HLE-v0 max_turns", "--env takes NAME=VALUE, got 'max_turns'"),
        ("--env", "--env takes an id and then NAME=VALUE, got nothing"),
        ("--model.threads 0", "model.threads must be at least 1, got 0"),
        ("--model.hiden 8", "no option '--model.hiden'. Did you mean --model.hidden"),
        ("--stops 1 --groups 4", "no option '--stops'. Did you mean --steps"),
        ("--env HLE-v0 wieght=2", "no part of the mix 'wieght'; valid: max_context, "),
        (
            f"--preset lm-cpu --model.path {file}s --out {tmp_path}/new",
            "s' is not a folder; name a folder with a model of transformers",
        ),
        (f"--init-from {file} --out {tmp_path}/new", "no whole checkpoint in "),
        (f"--warm-start.trajectories {file}s --out {tmp_path}/new", "warm_start.trajectories: no file "),
        (f"--out {file}/run", f"--out: a folder expected, but {file} is a file"),
    ):
        assert ended(train.main, words) == 2
        assert says in capsys.readouterr().err
    assert not any(tmp_path.rglob("step-*"))
    assert not (tmp_path / "new" / "sessions.jsonl").exists()


def test_a_run_needs_a_folder_that_it_can_write_and_has_alone(tmp_path: Path, capsys: Capture) -> None:
    """Noticed before a model is loaded. A lock that a killed process left is none."""
    (tmp_path / "checkpoints").touch()
    assert train.main(["--out", str(tmp_path)]) == 2
    assert "error: the run's folder cannot be written: [Errno 17] File exists: " in capsys.readouterr().err
    (tmp_path / "checkpoints").unlink()
    holding = "import sys, pathlib, time; from toolorchestra.agents.training.training_run import claimed\n"
    holding += "with claimed(pathlib.Path(sys.argv[1])): print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", holding, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        code = train.main(["--out", str(tmp_path), "--resume"])
        other.kill()
    assert code == 2
    assert f"error: another process is training in {tmp_path}; wait until it has ended" in capsys.readouterr().err
    with claimed(tmp_path):
        assert not list((tmp_path / "checkpoints").iterdir())


def test_a_disk_that_is_full_is_said(tmp_path: Path, capsys: Capture) -> None:
    """Here from the first row of metrics on: /dev/full takes none."""
    register("Tests/ToyTrain-v0", "tests.support.toy:AdderSource")
    (tmp_path / ".metrics.jsonl").symlink_to("/dev/full")
    assert train.main(["--out", str(tmp_path), *SMALL, *TOY, "--steps", "1"]) == 1
    said = "error: [Errno 28] No space left on device; free space, then go on with --resume\n"
    assert capsys.readouterr().err == said


# -- routers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"runners": 0}, "runners must be at least 1, got 0"),
        ({"hidden": ()}, r"hidden lists the widths of the layers, each at least 1, got \(\)"),
    ],
)
def test_wrong_settings_of_a_router_are_refused(changed: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RouterTraining(**changed)  # type: ignore[arg-type]


def test_a_routers_environments_have_their_settings_and_wrong_ones_are_refused() -> None:
    given = TrainRouterOptions(env=(("HLE-v0", "max_turns=5"),), set=('reward={"usd": 3}',))
    assert given.training == RouterTraining(
        environments={"ToolOrchestra/HLE-v0": {"reward": {"usd": 3}, "max_turns": 5}}
    )
    with pytest.raises(ConfigError, match="no environment 'HEL-v0'; valid: "):
        assert TrainRouterOptions(env=(("HEL-v0",),)).training
    with pytest.raises(ConfigError, match="--env names an environment twice"):
        assert TrainRouterOptions(env=(("HLE-v0",), ("HLE-v0",))).training


@pytest.mark.skipif(find_spec("ray") is not None, reason="of environments without Ray")
def test_the_extra_that_is_missing_is_named(tmp_path: Path, capsys: Capture) -> None:
    assert ended(train.main, ["--router", "--out", str(tmp_path / "r")]) == 2
    told = capsys.readouterr().err
    assert 'pip install "toolorchestra[rllib]", in an environment of its own: it pins gymnasium 1.2.2' in told
    assert told.count("\n") == 1
    assert not (tmp_path / "r").exists()
