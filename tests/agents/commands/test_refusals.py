"""What the smaller scripts cannot do is said in one line, with status 2, before anything is begun."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import toolorchestra, unboxed
from toolorchestra.agents.commands.serve_index import serving
from toolorchestra.agents.training.training_run import claimed
from toolorchestra.envs.base.errors import ConfigError


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("train --model.threads 0", "model.threads must be at least 1, got 0"),
        ("train --out {file}", "--out: a folder expected, but {file} is a file"),
        ("train --out {file}/run", "--out: a folder expected, but {file} is a file"),
        ("train --set max_turns", "--set takes NAME=VALUE, got 'max_turns'"),
        ("train --env HLE-v0 max_turns", "--env takes NAME=VALUE, got 'max_turns'"),
        ("train --env", "--env takes an id and then NAME=VALUE, got nothing"),
        ("train --stops 1 --groups 4", "Unrecognized options: --stops"),
        ("train --model.hiden 8", "--model.hidden INT"),
        ("train --preset tinny", "no preset 'tinny'; valid: 8b-h100, 8b-node, lm-cpu, small-gpu, tiny."),
        ("budget --stops 1 --groups 4", "Unrecognized options: --stops"),
        ("budget --shape {file}", "{file} is not JSON"),
        ("play --set turns", "--set takes NAME=VALUE, got 'turns'"),
        ("evaluate --env HEL-v0 --env HLE-v0", "no environment 'HEL-v0'; valid: "),
        ("evaluate --dataset q.jsonl question", "--dataset takes NAME=VALUE, got 'question'"),
        ("evaluate --dataset q.jsonl id=i question", "NAME=VALUE, got 'question'"),
        ("synth make parking --out {file}", "--out: a folder expected, but {file} is a file"),
        ("synth make zoo", "no spec 'zoo'; name a folder, a YAML file or one of"),
        ("synth mak parking", "no command 'synth mak'; valid: synth lint, synth make, synth prove."),
    ],
)
def test_what_cannot_be_is_refused(command: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = toolorchestra(*command.format(file=file).split())
    assert done.returncode == 2
    assert says.format(file=file).replace(" ", "") in unboxed(done.stderr).replace(" ", "")
    assert "Traceback" not in done.stderr


def test_a_run_needs_a_folder_that_it_can_write_and_has_alone(tmp_path: Path) -> None:
    """Noticed before a model is loaded. A lock that a killed process left is none."""
    (tmp_path / "checkpoints").touch()
    done = toolorchestra("train", "--out", tmp_path)
    assert done.returncode == 2
    assert "error: the run's folder cannot be written: [Errno 17] File exists: " in done.stderr
    (tmp_path / "checkpoints").unlink()
    holding = "import sys, pathlib, time; from toolorchestra.agents.training.training_run import claimed\n"
    holding += "with claimed(pathlib.Path(sys.argv[1])): print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", holding, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        done = toolorchestra("train", "--out", tmp_path, "--resume")
        other.kill()
    assert done.returncode == 2
    assert f"error: another process is training in {tmp_path}; wait until it has ended" in done.stderr
    with claimed(tmp_path):
        assert not list((tmp_path / "checkpoints").iterdir())


def test_a_disk_that_is_full_is_said(tmp_path: Path) -> None:
    """Here from the first row of metrics on: /dev/full takes none."""
    (tmp_path / ".metrics.jsonl").symlink_to("/dev/full")
    small = "--model.processes 1 --model.hidden 8 --warm-start.steps 0 --evaluation-tasks 1".split()
    done = toolorchestra("train", "--out", tmp_path, *small)
    assert done.returncode == 1
    assert done.stderr == "error: [Errno 28] No space left on device; free space, then go on with --resume\n"


def test_a_port_that_is_taken_or_is_none_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot serve at 127.0.0.1:{port}: .*; name another with --host or"):
            serving(None, "127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"cannot serve at .*:70000: "):
        serving(None, "127.0.0.1", 70000)
