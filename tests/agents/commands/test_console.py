"""How a command ends, and which sentence tells what went wrong; and no server, file or task steers the terminal."""

from __future__ import annotations

import ast
import contextlib
import errno
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import pytest
import tyro

from tests.support.loopback import Loopback, ServerReply
from toolorchestra.agents.commands import console, evaluate
from toolorchestra.agents.commands.console import check_counts, check_folder, check_spend_cap, command
from toolorchestra.agents.engines.base import TrainingFailed
from toolorchestra.agents.training.checkpoint import CheckpointError
from toolorchestra.agents.training.metrics import Progress
from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached, WithOption
from toolorchestra.synth import generate, lint, prove


@dataclass(frozen=True)
class SomeOptions:
    """What some command takes."""

    number: int = 3
    """A number."""
    again: bool = False
    """Once more."""

    def __post_init__(self) -> None:
        check_counts(self, {"number": 2})


@dataclass(frozen=True)
class ListOptions(SomeOptions):
    """What a command takes that takes lists."""

    policy: tuple[str, ...] = ()
    """Several."""
    env: tyro.conf.UseAppendAction[tuple[tuple[str, ...], ...]] = ()
    """Several, of several words."""


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("--policy a --number 5 --policy b c", ListOptions(5, policy=("a", "b", "c"))),
        ("--policy=a --policy=b --again", ListOptions(again=True, policy=("a", "b"))),
        ("--env a b --policy c --env d", ListOptions(policy=("c",), env=(("a", "b"), ("d",)))),
        ("--env a --policy c --env d --policy e", ListOptions(policy=("c", "e"), env=(("a",), ("d",)))),
    ],
)
def test_an_option_that_comes_again_adds_to_what_it_said(words: str, given: ListOptions) -> None:
    assert console.read_options(ListOptions, words.split()) == given


@pytest.mark.parametrize("words", ["--number 5 --number 6", "--number=5 --number=5", "--again --policy a --again"])
def test_an_option_of_one_value_is_refused_the_second_time(words: str) -> None:
    with pytest.raises(ConfigError, match=r"--(number|again) stands there twice, and takes one value; leave one out"):
        console.read_options(ListOptions, words.split())


def ending(error: BaseException) -> int:
    """The exit code of a command that breaks off with this."""

    def run(_: SomeOptions) -> int:
        raise error

    return command(SomeOptions, run, [])


def test_what_runs_gives_its_own_code_and_has_its_options() -> None:
    seen: list[SomeOptions] = []

    def run(given: SomeOptions) -> int:
        seen.append(given)
        return 7

    assert command(SomeOptions, run, ["--number", "5", "--again"]) == 7
    assert command(SomeOptions, run, [], default=lambda: SomeOptions(4, True)) == 7
    assert seen == [SomeOptions(5, True), SomeOptions(4, True)]


def test_an_option_that_is_wrong_ends_before_the_command_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[SomeOptions] = []

    def run(given: SomeOptions) -> int:
        ran.append(given)
        return 0

    assert command(SomeOptions, run, ["--number", "1"]) == 2
    assert "--number: a whole number from 2 up expected, got 1" in capsys.readouterr().err
    assert command(SomeOptions, run, ["--no-again"]) == 2
    assert ran == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x is wrong"), 2),
        (gym.error.NameNotFound("x is wrong"), 2),
        (ModuleNotFoundError("x is wrong"), 2),
        (Outage("x is wrong"), 1),
        (SpendCapReached("x is wrong"), 1),
        (CheckpointError("x is wrong"), 1),
    ],
)
def test_what_went_wrong_is_said_in_a_line(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(error) == code
    assert capsys.readouterr() == ("", "error: x is wrong\n")


@pytest.mark.parametrize(
    ("kind", "code"), [(ConfigError, 2), (Outage, 1), (SpendCapReached, 1), (CheckpointError, 1), (TrainingFailed, 1)]
)
def test_an_option_is_named_on_the_command_line_alone(
    kind: type[WithOption], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = pickle.loads(pickle.dumps(kind("it is away; go on with resume=True", command_line="--resume")))
    assert str(broken) == "it is away; go on with resume=True"
    assert ending(broken) == code
    said = "error: it is away; go on with resume=True. On the command line: --resume\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "no room"), "[Errno 28] no room; free space, then go on with --resume"),
        (PermissionError(errno.EACCES, "no", "/run"), "[Errno 13] no: '/run'; name a place where you may write"),
        (FileExistsError(errno.EEXIST, "is there", "/f"), "[Errno 17] is there: '/f'; name another place"),
    ],
)
def test_what_a_disk_refuses_is_said_with_its_cure(
    error: OSError, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ending(error) == 1
    assert capsys.readouterr().err == f"error: {says}\n"


def test_work_goes_on_when_the_reader_has_gone(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from toolorchestra.agents.commands.console import say\n"
        "sys.stdin.read(); say('one'); say('two'); Path(sys.argv[1]).write_text('done')"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out")]
    with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate()
    assert (err, process.returncode, (tmp_path / "out").read_text()) == (b"", 0, "done")


@pytest.mark.parametrize("error", [OSError(errno.EIO, "the disk is broken"), RuntimeError("a bug")])
def test_a_bug_is_not_dressed_up(error: Exception) -> None:
    with pytest.raises(type(error)):
        ending(error)


def test_an_interrupt_is_no_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """At a terminal the word stands below the line that was being written."""
    for at_terminal, said in ((False, "stopped\n"), (True, "\nstopped\n")):
        monkeypatch.setattr(sys.stderr, "isatty", lambda told=at_terminal: told)
        assert ending(KeyboardInterrupt()) == 130
        assert capsys.readouterr().err == said


def test_once_the_reader_has_gone_nothing_more_is_written(tmp_path: Path) -> None:
    """What Python itself would still flush at its end goes nowhere."""
    with (tmp_path / "out").open("w") as out, contextlib.redirect_stdout(out):
        os.close(lowest := os.open(os.devnull, os.O_WRONLY))
        assert ending(BrokenPipeError()) == 1
        print("to whom?", flush=True)
        os.close(lowest)  # which the command keeps to its process's end
    assert (tmp_path / "out").read_text() == ""


def test_a_letter_that_a_terminal_lacks_is_shown_as_a_question_mark(tmp_path: Path) -> None:
    def run(_: SomeOptions) -> int:
        print("5 ¢", flush=True)
        return 0

    with (tmp_path / "out").open("w", encoding="ascii") as out, contextlib.redirect_stdout(out):
        assert command(SomeOptions, run, []) == 0
    assert (tmp_path / "out").read_text() == "5 ?\n"


def test_a_folder_may_be_made_but_not_where_a_file_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (None, tmp_path, tmp_path / "new" / "newer"):
        check_folder("--out", path)
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=f"^--out: a folder expected, but {tmp_path / 'file'} is a file; name"):
            check_folder("--out", path)


@pytest.mark.parametrize("usd", [0.0, -1.0, float("nan"), float("inf")])
def test_a_spend_cap_is_an_amount(usd: float) -> None:
    check_spend_cap(None)
    check_spend_cap(0.01)
    with pytest.raises(ConfigError, match=rf"--spend-cap: a number of dollars above 0 expected, got {usd!r}"):
        check_spend_cap(usd)


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\x9b1m\r"
FORBIDDEN = set("\x1b\x07\u202e\x9b\r")
COMMANDS = [
    *Path(console.__file__).parent.glob("*.py"),
    *(Path(str(m.__file__)) for m in (generate, prove, lint)),
]
OWN_COLOURS = ("render.opening", "render.turn")
"""What play prints with colours of its own, and with all else spelled."""


def test_commands_print_by_the_one_function_that_spells() -> None:
    nodes = [node for path in COMMANDS for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    calls = [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "print"]
    bare = [one for one in map(ast.unparse, calls) if "spelled(" not in one and not any(o in one for o in OWN_COLOURS)]
    assert calls
    assert bare == []


def test_an_error_is_spelled(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(ConfigError(HOSTILE)) == console.USAGE
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


SLEEPS = """
import time
from dataclasses import dataclass
from toolorchestra.agents.commands.console import command

@dataclass(frozen=True)
class Options:
    pass

def run(given):
    print("ready", flush=True)
    time.sleep(60)
    return 0

raise SystemExit(command(Options, run, []))
"""


@pytest.mark.parametrize("ignored", [False, True])
def test_sigterm_stops_what_a_script_started_with_sigint_ignored(ignored: bool) -> None:
    """A shell's script ignores SIGINT for what it starts with &."""
    trap = "trap '' INT;" if ignored else ""
    words = ["sh", "-c", f"{trap} exec {sys.executable} -c '{SLEEPS}'"]
    started = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    started.terminate()
    try:
        _, told = started.communicate(timeout=10)
    finally:
        started.kill()
    assert (started.returncode, told) == (console.STOPPED, "stopped\n")
