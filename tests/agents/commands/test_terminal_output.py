"""No command lets a server, a file or a task steer the terminal."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.loopback import Loopback, ServerReply
from toolorchestra.agents.commands import console, evaluate
from toolorchestra.agents.training.metrics import Progress
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.synth import lint, make_domain, prove

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\x9b1m\r"
FORBIDDEN = set("\x1b\x07\u202e\x9b\r")
COMMANDS = [
    *Path(console.__file__).parent.glob("*.py"),
    *(Path(str(m.__file__)) for m in (make_domain, prove, lint)),
]
OWN_COLOURS = ("render.opening", "render.turn")
"""What play prints with colours of its own, and with all else spelled."""


@dataclass(frozen=True)
class NoOptions:
    """A command's options: none."""


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.stem)
def test_commands_print_by_the_one_function_that_spells(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    printed = [ast.unparse(c) for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]
    bare = [one for one in printed if "spelled(" not in one and not any(own in one for own in OWN_COLOURS)]
    assert bare == []


@pytest.mark.parametrize("error", [ConfigError, Outage])
def test_an_error_is_spelled(error: type[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: NoOptions) -> int:
        raise error(HOSTILE)

    assert console.command(NoOptions, run, []) in (console.USAGE, console.FAILED)
    assert capsys.readouterr().err.startswith("error: \\x1b]0;owned")


def test_what_a_server_says_is_spelled_in_a_table_s_notes(capsys: pytest.CaptureFixture[str]) -> None:
    fault = ServerReply(body=HOSTILE + "\nforged line", status=500)
    with Loopback(lambda asked: ServerReply() if asked.path.endswith("health") else fault) as server:
        given = ["--env", "FRAMES-v0", "--split", "test", "--tasks", "1", "--policy", "cheap"]
        assert evaluate.main([*given, "--backends", f"index={server.base_url}"]) == console.FAILED
    out, err = capsys.readouterr()
    assert "\\x1b]0;owned" in out
    assert not FORBIDDEN & set(out + err)
    assert not any(line.startswith("forged") for line in out.splitlines())


def test_a_run_s_line_of_progress_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Progress(2).show(1, HOSTILE + "\nforged", always=True)
    err = capsys.readouterr().err
    assert not FORBIDDEN & set(err)
    assert err.count("\n") == 1
