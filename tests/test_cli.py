"""One command for everything: each command and each script says how it is used, and ends with the right code."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command_line import TOOLORCHESTRA, toolorchestra
from tests.paths import REPOSITORY
from toolorchestra.cli import COMMANDS

SCRIPTS = sorted(
    str(path.relative_to(REPOSITORY))
    for folder in ("scripts", "synth")
    for path in (REPOSITORY / folder).rglob("*.py")
    if "__main__" in path.read_text(encoding="utf-8")
)


def helped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str, *words: str) -> str:
    """What a file prints of its usage, run in this process: a process each would take minutes."""
    monkeypatch.setattr(sys, "argv", [script, *words, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(REPOSITORY / script), run_name="__main__")
    out, err = capsys.readouterr()
    assert (ended.value.code or 0, err) == (0, "")
    return out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_how_it_is_used(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = helped(monkeypatch, capsys, "src/toolorchestra/__main__.py", *name.split())
    assert said.startswith(f"usage: toolorchestra {name} ")
    assert "(no help)" not in said


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_says_how_it_is_used(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "usage: " in helped(monkeypatch, capsys, script)


def test_the_commands_are_listed_and_guessed_at() -> None:
    listed = toolorchestra("--help")
    assert listed.returncode == 0
    assert all(f"\n  {name} " in listed.stdout for name in COMMANDS)
    assert toolorchestra().stdout == listed.stdout
    wrong = toolorchestra("trane")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no command 'trane'" in wrong.stderr
    assert "Did you mean 'train'?" in wrong.stderr
    parts = toolorchestra("index")
    assert parts.returncode == 0
    assert "index build" in parts.stdout
    assert toolorchestra("index", "--help").stdout == parts.stdout
    assert "Did you mean 'index build'?" in toolorchestra("index", "biuld").stderr


def test_there_are_at_most_fourteen_commands() -> None:
    assert len({name.split()[0] for name in COMMANDS}) <= 14


def test_the_ids_and_their_splits() -> None:
    done = toolorchestra("ids")
    assert done.returncode == 0
    assert "ToolOrchestra/HLE-v0" in done.stdout
    assert "splits: train, validation, test, heldout" in done.stdout


def test_the_doors_of_a_clone_lead_to_the_same_commands() -> None:
    for script, name in (("scripts/train_agent.py", "train"), ("synth/make_domain.py", "synth make")):
        done = subprocess.run(
            [sys.executable, script, "--help"], capture_output=True, text=True, cwd=REPOSITORY, check=False
        )
        same = toolorchestra(*name.split(), "--help").stdout
        assert done.stdout.partition("\n\n")[2] == same.partition("\n\n")[2]


def test_each_field_of_a_configuration_has_a_help_text_and_its_default() -> None:
    said = toolorchestra("train", "--preset", "8b-h100", "--help").stdout
    for shown in ("--model.lora-rank INT", "(default: 64)", "--advantage.unreadable {kept,wrong,dropped}"):
        assert shown in said
    options = [line for line in said.splitlines() if line.startswith("│ --")]
    assert len(options) > 50
    bare = [line for line in said.split("│ --")[1:] if line.partition("(default")[0].count(" ") < 4]
    assert bare == []


def test_a_reader_that_has_enough_ends_a_command_quietly() -> None:
    with subprocess.Popen(
        [*TOOLORCHESTRA, "train", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()


def test_a_terminal_without_the_sign_for_cents_shows_the_rest() -> None:
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [*TOOLORCHESTRA, "evaluate", "--env", "HLE-v0", "--split", "test", "--tasks", "1", "--policy", "cheapest"]
    done = subprocess.run(command, capture_output=True, env=plain, check=False)
    assert done.returncode == 0, done.stderr
    assert b"?/solved" in done.stdout


def test_ctrl_c_while_a_command_starts_is_answered_with_a_word() -> None:
    starts = (
        "import os, signal, sys, toolorchestra.cli as cli\n"
        "class Loading:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.endswith('commands.evaluate'): os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Loading()); sys.argv[1:] = ['evaluate']; sys.exit(cli.main())"
    )
    done = subprocess.run([sys.executable, "-c", starts], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "stopped\n", 130)


@pytest.mark.parametrize("where", ["warm start", "held out"])
def test_ctrl_c_is_answered_with_a_word(where: str, tmp_path: Path) -> None:
    """In the warm start nothing is saved yet; in a step the run stops behind it, saved."""
    small = "--steps 400 --model.hidden 16 --model.processes 1 --evaluation-tasks 2 --groups 2 --rollouts 2".split()
    warm = ["--warm-start.steps", "100000"] if where == "warm start" else ["--warm-start.steps", "0"]
    command = [*TOOLORCHESTRA, "train", "--out", str(tmp_path), *small, *warm, "--no-report"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if where in line:
                break
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopped" in out + err
    assert "Traceback" not in err
