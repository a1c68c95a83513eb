"""One command for everything: each command and each script says how it is used, and ends with the right code."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.command_line import TOOLORCHESTRA, helped, helped_by
from tests.paths import REPOSITORY
from toolorchestra.cli import COMMANDS

SCRIPTS = sorted(
    str(path.relative_to(REPOSITORY))
    for folder in ("scripts", "synth")
    for path in (REPOSITORY / folder).rglob("*.py")
    if "__main__" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_how_it_is_used(name: str) -> None:
    said = helped(*name.split())
    assert said.startswith(f"usage: toolorchestra {name} ")
    assert "(no help)" not in said


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_says_how_it_is_used(script: str) -> None:
    assert "usage: " in helped_by(script)


def test_there_are_at_most_fourteen_commands() -> None:
    assert len({name.split()[0] for name in COMMANDS}) <= 14


def test_each_field_of_a_configuration_has_a_help_text_and_its_default() -> None:
    said = helped("train", "--preset", "8b-h100")
    for shown in ("--model.lora-rank INT", "(default: 64)", "--advantage.unreadable {kept,wrong,dropped}"):
        assert shown in said
    options = re.split(r"^[│ ]+(?=--[\w.-]+ )", said, flags=re.M)[1:]
    assert len(options) > 50
    assert [one for one in options if one.partition("(default")[0].count(" ") < 4] == []


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


def test_ctrl_c_in_the_warm_start_is_answered_with_a_word(tmp_path: Path) -> None:
    """Nothing is saved yet."""
    small = "--model.hidden 16 --model.processes 1 --evaluation-tasks 2 --warm-start.steps 100000".split()
    command = [*TOOLORCHESTRA, "train", "--out", str(tmp_path), *small, "--no-report"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "warm start" in line:
                break
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopped" in out + err
    assert "Traceback" not in err
