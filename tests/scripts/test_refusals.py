"""What the smaller scripts cannot do is said in one line, with status 2, before anything is begun."""

from __future__ import annotations

import argparse
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from toolorchestra.agents.training.run_folder import claimed
from toolorchestra.envs.base.errors import ConfigError


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("scripts/train_agent.py --threads 0", "--threads: a whole number from 1 up expected, got '0'"),
        ("scripts/train_agent.py --out {file}", "a folder expected, but {file} is a file"),
        ("scripts/train_agent.py --out {file}/run", "a folder expected, but {file} is a file"),
        ("scripts/train_agent.py --set steps", "--set takes NAME=VALUE, got 'steps'"),
        ("scripts/train_agent.py --set stops=1 --set groups=4", "no field 'stops'"),
        ("scripts/memory_budget.py --set stops=1 --set groups=4", "no field 'stops'"),
        ("scripts/play.py --set turns --set max_turns=4", "--set takes NAME=VALUE, got 'turns'"),
        ("scripts/evaluate.py --env HEL-v0 --env HLE-v0", "no question environment 'HEL-v0'"),
        ("scripts/evaluate.py --dataset q.jsonl --field question --field id=i", "NAME=VALUE, got 'question'"),
        ("scripts/memory_budget.py --set x", "--set takes NAME=VALUE, got 'x'"),
        ("scripts/memory_budget.py --shape {file}", "{file} is not JSON"),
        ("scripts/evaluate.py --dataset q.jsonl --field question", "--field takes NAME=VALUE, got 'question'"),
        ("synth/generate.py --spec parking --out {file}", "a folder expected, but {file} is a file"),
        ("synth/generate.py --spec parking --out new --work {file}", "a folder expected, but {file} is a file"),
    ],
)
def test_what_cannot_be_is_refused(command: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = run(*command.format(file=file).split())
    assert done.returncode == 2
    assert says.format(file=file) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_needs_a_folder_that_it_can_write_and_has_alone(tmp_path: Path) -> None:
    """Noticed before a model is loaded. A lock that a killed process left is none."""
    (tmp_path / "checkpoints").touch()
    done = run("scripts/train_agent.py", "--out", tmp_path)
    assert done.returncode == 2
    assert "error: the run's folder cannot be written: [Errno 17] File exists: " in done.stderr
    (tmp_path / "checkpoints").unlink()
    holding = "import sys, pathlib, time; from toolorchestra.agents.training.run_folder import claimed\n"
    holding += "with claimed(pathlib.Path(sys.argv[1])): print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", holding, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        done = run("scripts/train_agent.py", "--out", tmp_path, "--resume", "auto")
        other.kill()
    assert done.returncode == 2
    assert f"error: another process is training in {tmp_path}; wait until it has ended" in done.stderr
    with claimed(tmp_path):
        assert not list((tmp_path / "checkpoints").iterdir())


def test_a_disk_that_is_full_is_said(tmp_path: Path) -> None:
    """Here from the first row of metrics on: /dev/full takes none."""
    (tmp_path / ".metrics.jsonl").symlink_to("/dev/full")
    small = ["model.processes=1", "model.hidden=8", "warm_start.steps=0", "evaluation_tasks=1"]
    done = run("scripts/train_agent.py", "--out", tmp_path, "--set", *small)
    assert done.returncode == 2
    assert done.stderr == "error: [Errno 28] No space left on device; free space, then go on with --resume auto\n"


def test_an_option_that_was_not_given_overrides_no_setting() -> None:
    configured = runpy.run_path(str(REPOSITORY / "scripts" / "train_agent.py"))["configured"]
    given = argparse.Namespace(
        preset="tiny", seed=3, threads=None, model="", env=None, set=["model.threads=4", "model.path=mine"]
    )
    config = configured(given)
    assert (config.seed, config.model.threads, config.model.path) == (3, 4, "mine")
    assert configured(argparse.Namespace(**{**vars(given), "threads": 2, "set": []})).model.threads == 2


def test_a_port_that_is_taken_or_is_none_is_said() -> None:
    serving = runpy.run_path(str(REPOSITORY / "scripts" / "serve_index.py"))["serving"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot serve at 127.0.0.1:{port}: .*; name another with --host or"):
            serving(None, "127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"cannot serve at .*:70000: "):
        serving(None, "127.0.0.1", 70000)
