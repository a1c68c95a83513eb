"""How every command of the command line reads its options, reports what went wrong, and ends.

A command is a frozen dataclass of options and a function that takes it. tyro makes the options and `--help` from the
dataclass: each field's default and the text below it. Exit codes: 0 done, 2 the command line or a setting is wrong,
1 something failed, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import io
import itertools
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import fields
from pathlib import Path
from typing import Any, TextIO, TypeVar

import gymnasium as gym
import tyro

from toolorchestra.agents.engines.base import TrainingFailed
from toolorchestra.agents.training.checkpoint import CheckpointError
from toolorchestra.envs.base.errors import ConfigError, Outage, SpendCapReached, WithOption, no_such, spelled
from toolorchestra.envs.factory import EnvSettings

DONE, FAILED, USAGE, STOPPED = 0, 1, 2, 130
_FLAGS = (tyro.conf.FlagCreatePairsOff,)
"""Flags such as --resume, with no --no-resume beside them."""
Options = TypeVar("Options")


_CURES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free space, then go on with --resume"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "name a place where you may write"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENAMETOOLONG), "name another place"),
}


def command(
    kind: type[Options],
    run: Callable[[Options], int],
    given: Sequence[str] | None = None,
    *,
    about: str | None = None,
    default: Callable[[], Options] | None = None,
    stopped: str = "stopped",
) -> int:
    """Read the options, run the command, and give its exit code. `about` is what `--help` says of the command,
    `stopped` what is said after Ctrl-C."""
    _print_anything(sys.stdout)
    _print_anything(sys.stderr)
    try:
        with _all_stop_alike():
            return run(read_options(kind, given, about, default() if default is not None else tyro.MISSING_NONPROP))
    except ConfigError as err:
        return _say(f"error: {_with_option(err)}", USAGE)
    except (gym.error.Error, ModuleNotFoundError) as err:  # the last: `--env module:id`, or an extra
        return _say(f"error: {err}", USAGE)
    except (Outage, SpendCapReached, CheckpointError, TrainingFailed) as err:
        return _say(f"error: {_with_option(err)}", FAILED)
    except BrokenPipeError:  # `| head` has read enough
        _hush()
        return FAILED
    except OSError as err:
        if (cure := _CURES.get(err.errno or 0)) is None:
            raise
        return _say(f"error: {err}; {cure}", FAILED)
    except KeyboardInterrupt:
        return _say(f"\n{stopped}" if sys.stderr.isatty() else stopped, STOPPED)


@contextmanager
def _all_stop_alike() -> Iterator[None]:
    """A container or a scheduler ends a run by SIGTERM, a closed terminal by SIGHUP: both do what Ctrl-C does."""
    ours = threading.current_thread() is threading.main_thread()
    met = [one for one in (signal.SIGTERM, signal.SIGHUP) if ours and signal.getsignal(one) is signal.SIG_DFL]
    # A shell's script starts what runs beside it with SIGINT ignored: raising that would stop nothing.
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    for one in met:
        signal.signal(one, signal.default_int_handler if ignored else lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for one in met:
            signal.signal(one, signal.SIG_DFL)


def read_options(
    kind: type[Options], given: Sequence[str] | None, about: str | None = None, default: Any = tyro.MISSING_NONPROP
) -> Options:
    """The options of a command line. Raises ConfigError where they are wrong."""
    words, said = _gathered(kind, sys.argv[1:] if given is None else given, default), io.StringIO()
    try:
        with redirect_stderr(said):
            read: Options = tyro.cli(kind, args=words, description=about, default=default, config=_FLAGS)
    except SystemExit as left:
        if not left.code:  # --help
            raise
        behind = left.__context__
        while behind is not None:
            if isinstance(behind, ConfigError):  # what the options themselves refuse
                raise behind from None
            behind = behind.__context__
        text = " ".join(re.sub(r"[╭╮╰╯│─]", " ", said.getvalue()).partition("For full helptext")[0].split())
        raise ConfigError(f"{_wrong(_actions(kind, default), words, text)}; {sys.argv[0]} --help has all") from None
    return read


def _actions(kind: type[Options], default: Any) -> list[argparse.Action]:
    """What a command takes: options, and what stands without one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return tyro.extras.get_parser(kind, default=default, config=_FLAGS)._actions


def _wrong(takes: Sequence[argparse.Action], words: Sequence[str], text: str) -> str:
    """What is wrong with a command line, of which tyro says `text`."""
    flags = {flag: action for action in takes for flag in action.option_strings}
    given = [word.partition("=")[0].replace("_", "-") for word in words]
    if unknown := [flag for flag in given if re.match("--?[a-z]", flag) and flag not in flags]:
        return _no_option(unknown[0], flags)
    if found := re.search(r"(?:Error parsing |Missing value for argument ')(--[\w.-]+)", text):
        at, kind = given.index(found[1]), str(flags[found[1]].metavar)
        expected = "a whole number" if "INT" in kind else "a number" if "FLOAT" in kind else "a value"
        value = words[at].partition("=")[2] or next(iter(words[at + 1 :]), "")
        return f"{found[1]}: {expected} expected, got {value!r}"
    if found := re.search(r"invalid choice '(.*?)' for argument '(.*?)'. Expected one of \((.*?)\)", text):
        valid = re.findall("'(.*?)'", found[3])
        return f"{found[2]}: {no_such('choice', found[1], valid).rstrip('.?')}"
    if "Missing" in text and (alone := [action for action in takes if not action.option_strings]):
        return _missing(alone, words)
    if needed := [flag for flag, action in flags.items() if action.required and flag not in given]:
        return f"{needed[0]} is missing: {_about(flags[needed[0]])}"
    if found := re.search(r"Unrecognized options: (\S+)", text):
        named_by = ". An environment stands behind --env: --env HLE-v0" if "--env" in flags else ""
        return f"{found[1]!r} belongs to no option{named_by}"
    return text


def _no_option(name: str, flags: Mapping[str, object]) -> str:
    word = name.lstrip("-")
    of_make = {"set", "tools", "domain", *(one.name for one in fields(EnvSettings))}
    if "--env" in flags and word.replace("-", "_") in of_make:
        return f"no option {name!r}. What gym.make takes stands behind the id: --env HLE-v0 max_turns=5"
    close = [f"--{one}" for one in difflib.get_close_matches(word, [flag.lstrip("-") for flag in flags], 2)]
    close += [flag for flag in flags if flag.endswith(f".{word}") and flag not in close][:2]
    return f"no option {name!r}" + (f". Did you mean {' or '.join(close)}" if close else "")


def _missing(alone: Sequence[argparse.Action], words: Sequence[str]) -> str:
    """What stands without an option, and is not there."""
    first = len(list(itertools.takewhile(lambda word: not word.startswith("-"), words)))
    missing = alone[min(first, len(alone) - 1)]
    wants = " ".join(action.dest.upper() for action in alone)
    return f"{sys.argv[0]} {wants} expected; {missing.dest.upper()} is missing: {_about(missing)}"


def _about(action: argparse.Action) -> str:
    return str(action.help).partition(" (required)")[0].rstrip(".")


def _gathered(kind: type[Options], given: Sequence[str], default: Any) -> list[str]:
    """The words with each option once: of one that comes again and takes several values they stand together. tyro would
    drop the earlier ones. Raises ConfigError where one comes again that takes a single value."""
    parts: list[list[str]] = [[]]
    for word in given:
        flag, equals, value = word.partition("=")
        if word.startswith("--"):
            parts.append([flag.replace("_", "-"), *([value] if equals else [])])
        else:
            parts[-1].append(word)
    flags = [part[0] for part in parts[1:]]
    if len(set(flags)) == len(flags):  # by far the commonest, and reading the options once more takes a while
        return [*given]
    takes = {flag: action for action in _actions(kind, default) for flag in action.option_strings}
    kept: dict[str, list[str]] = {}
    apart = [*parts[0]]
    for flag, *values in parts[1:]:
        action = takes.get(flag)
        if flag in kept and action is not None and action.nargs == "*":
            kept[flag] += values
        elif flag in kept and action is not None:
            raise ConfigError(f"{flag} stands there twice, and takes one value; leave one out")
        elif type(action).__name__ == "_AppendAction":  # of tyro's own argparse
            apart += [flag, *values]
        else:
            kept[flag] = values
    return [*apart, *(word for flag, values in kept.items() for word in (flag, *values))]


def _with_option(err: WithOption) -> str:
    """What an error says to a user of the command line: its text, and then the option."""
    text = str(err)
    end = "" if text.endswith((".", "?")) else "."
    return f"{text}{end} On the command line: {err.command_line}" if err.command_line else text


def _say(text: str, code: int) -> int:
    print(spelled(text), file=sys.stderr, flush=True)
    return code


def _print_anything(stream: TextIO) -> None:
    """A terminal that has no ¢ shows a ? and does not end the command."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def say(text: str) -> None:
    """Print a line at once. Commands print by this alone: nothing that a stranger wrote may steer the terminal."""
    try:
        print(spelled(text), flush=True)
    except BrokenPipeError:  # the work goes on
        _hush()


def _hush() -> None:
    """Write to nobody from now on, not even what Python still flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say_aside(text: str) -> None:
    """The same on standard error: what is said of a command's work, beside its output."""
    print(spelled(text), file=sys.stderr, flush=True)


def check_folder(option: str, path: Path | None) -> None:
    """Refuse a place where no folder is and none can be made."""
    for place in (path, *path.parents) if path is not None else ():
        if place.exists() and not place.is_dir():
            raise ConfigError(f"{option}: a folder expected, but {place} is a file; name another")


def make_room(option: str, file: Path | None) -> None:
    """Make the folder of a file that is written last, before work that takes long. Refuse a place where none can be."""
    if file is not None:
        if file.is_dir():
            raise ConfigError(f"{option}: a file expected, but {file} is a folder; name another")
        check_folder(option, file.parent)
        file.parent.mkdir(parents=True, exist_ok=True)


def check_spend_cap(usd: float | None) -> None:
    """Refuse a cap that is no positive, finite number of dollars."""
    if usd is not None and not 0 < usd < float("inf"):
        raise ConfigError(f"--spend-cap: a number of dollars above 0 expected, got {usd!r}; leave it out to set no cap")


def check_counts(options: object, least: Mapping[str, int]) -> None:
    """Refuse a whole number that is too small; `least` has the smallest by the field's name. None is no number."""
    for name, smallest in least.items():
        value = getattr(options, name)
        if value is not None and value < smallest:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag}: a whole number from {smallest} up expected, got {value}")
