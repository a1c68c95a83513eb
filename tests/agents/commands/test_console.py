"""How a command ends: which exit code, and which sentence, for each way in which it can go wrong."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pickle
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import pytest

from tests.command_line import unboxed
from toolorchestra.agents.commands.console import check_counts, check_folder, check_spend_cap, command
from toolorchestra.agents.engines.base import TrainingFailed
from toolorchestra.agents.training.checkpoint import CheckpointError
from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached, WithOption


@dataclass(frozen=True)
class SomeOptions:
    """What some command takes."""

    number: int = 3
    """A number."""
    again: bool = False
    """Once more."""

    def __post_init__(self) -> None:
        check_counts(self, {"number": 2})


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

    with pytest.raises(SystemExit, match="2"):
        command(SomeOptions, run, ["--number", "1"])
    assert "--number: a whole number from 2 up expected, got 1" in unboxed(capsys.readouterr().err)
    with pytest.raises(SystemExit, match="2"):
        command(SomeOptions, run, ["--no-again"])
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


def test_an_option_is_named_on_the_command_line_alone(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ConfigError("it exists; give again=True", command_line="--again")
    assert str(pickle.loads(pickle.dumps(wrong))) == str(wrong) == "it exists; give again=True"
    assert ending(pickle.loads(pickle.dumps(wrong))) == 2
    assert capsys.readouterr().err == "error: it exists; give again=True. On the command line: --again\n"


@pytest.mark.parametrize("kind", [Outage, SpendCapReached, CheckpointError, TrainingFailed])
def test_what_broke_off_names_its_option_too(kind: type[WithOption], capsys: pytest.CaptureFixture[str]) -> None:
    broken = pickle.loads(pickle.dumps(kind("it is away; go on with resume=True", command_line="--resume")))
    assert str(broken) == "it is away; go on with resume=True"
    assert ending(broken) == 1
    said = "error: it is away; go on with resume=True. On the command line: --resume\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("end", [".", "?"])
def test_a_text_that_is_a_whole_sentence_gets_no_second_full_stop(end: str, capsys: pytest.CaptureFixture[str]) -> None:
    ending(ConfigError(f"no model 'x'; valid: y{end}", command_line="--model y"))
    assert capsys.readouterr().err == f"error: no model 'x'; valid: y{end} On the command line: --model y\n"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_without_room_on_the_disk_it_says_how_to_go_on(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(OSError(number, "no room")) == 1
    assert capsys.readouterr().err == f"error: [Errno {number}] no room; free space, then go on with --resume\n"


@pytest.mark.parametrize("error", [OSError(errno.EIO, "the disk is broken"), RuntimeError("a bug")])
def test_a_bug_is_not_dressed_up(error: Exception) -> None:
    with pytest.raises(type(error)):
        ending(error)


def test_an_interrupt_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "stopped\n"


class Terminal(io.StringIO):
    """Where a person looks on."""

    def isatty(self) -> bool:
        return True


def test_at_a_terminal_the_word_stands_below_the_line_that_was_being_written() -> None:
    with contextlib.redirect_stderr(Terminal()) as shown:
        assert ending(KeyboardInterrupt()) == 130
    assert shown.getvalue() == "\nstopped\n"


def test_once_the_reader_has_gone_nothing_more_is_written(tmp_path: Path) -> None:
    """What Python itself would still flush at its end goes nowhere."""
    with (tmp_path / "out").open("w") as out, contextlib.redirect_stdout(out):
        before = os.open(os.devnull, os.O_WRONLY)
        assert ending(BrokenPipeError()) == 1
        print("to whom?", flush=True)
        for number in (before, before + 1):  # the command keeps its own to its process's end
            os.close(number)
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
