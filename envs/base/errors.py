"""The error classes. ActionError and ToolError become observations; any other exception is a bug or a wrong set-up."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

_LEAST_PART = 3
"""Letters of a name that are enough to guess it by."""


class ActionError(ValueError):
    """The assistant's text breaks the action grammar. Shown to the agent, which may try again."""


class ToolError(Exception):
    """A tool refuses or cannot do what was asked. Shown to the agent. What it cost all the same stands on the bill."""


class WithOption(Exception):
    """An error that both a Python caller and a user of the command line can meet: the text is for Python, and
    `command_line` says it as an option, such as "--again"; commands print it too."""

    def __init__(self, text: str = "", *, command_line: str = "") -> None:
        super().__init__(text)
        self.command_line = command_line


class Outage(WithOption, RuntimeError):
    """A backend is away, or broke off, after all that may be tried. The episode fails, and still pays what was used."""


class ConfigError(WithOption, ValueError):
    """A wrong setting: the text says what was expected, what came, and what to do."""


class WrongSetting(ConfigError):
    """A backend refuses the key, the address or the model that a setting names. It would refuse every episode alike."""


class PriceError(ConfigError):
    """A price is missing, negative, or finer than the ledger can hold."""


class ResetNeeded(RuntimeError):
    """step() was called before reset() or after the episode's end."""


class SpendCapReached(WithOption, RuntimeError):
    """The run's spend cap is used up. Raised before a paid call, never after it."""


def no_such(kind: str, name: object, valid: Iterable[object]) -> str:
    """The one wording for an unknown name: the valid ones, and a guess at the one that was meant."""
    import difflib

    names = sorted(str(v) for v in valid)
    close = difflib.get_close_matches(str(name)[:80], names, n=1)
    if not close and len(part := str(name).lower()) >= _LEAST_PART:  # "frames" is in one of them alone
        found = [one for one in names if part in one.lower()]
        close = found if len(found) == 1 else []
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"no {kind} {name!r:.80}; valid: {', '.join(names) or 'none'}.{hint}"


def one_of(kind: str, name: object, valid: Collection[object], where: str = "", behind: str = "") -> None:
    """Raise ConfigError where the name is none of the valid ones."""
    if name not in valid:
        raise ConfigError(f"{where}{no_such(kind, name, valid)}{behind}")


def install(extra: str) -> str:
    """The line that installs an extra of this package: `pip install "toolorchestra[models]"`.

    pip takes the installed copy's own list of packages, in a clone too. Where no copy is installed and the code is read
    from a clone's folder, the line is the one that works there."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version("toolorchestra")
    except PackageNotFoundError:
        return f'pip install ".[{extra}]" in the folder of the clone'
    return f'pip install "toolorchestra[{extra}]"'


class Span(NamedTuple):
    """What a number may be."""

    words: str
    holds: Callable[[float], bool]


POSITIVE = Span("a number above 0", lambda value: value > 0)
NOT_NEGATIVE = Span("a number from 0 up", lambda value: value >= 0)
AT_LEAST_ONE = Span("at least 1", lambda value: value >= 1)
SHARE = Span("a number from 0 to 1", lambda value: 0 <= value <= 1)


def require(config: object, span: Span, *names: str, where: str = "") -> None:
    """Raise ConfigError for the first of these fields that is not such a number; nan and infinity never are."""
    for name in names:
        value = getattr(config, name)
        if not (isinstance(value, int | float) and math.isfinite(value) and span.holds(value)):
            raise ConfigError(f"{where}{name} must be {span.words}, got {value!r}")


_KEPT = (9, 10)
"""Tab and newline."""
_LEADING = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Marks that turn the direction of writing, so that a line reads otherwise than it is, and lines that end unseen."""
_CONTROL = {c: f"\\x{c:02x}" for c in [*range(32), *range(127, 160)] if c not in _KEPT}
_SPELLED = {**_CONTROL, **{c: f"\\u{c:04x}" for c in _LEADING}}


def spelled(text: str) -> str:
    """The text with every character spelled that steers a terminal, hides what stands there or breaks an encoder."""
    return text.replace("\r\n", "\n").encode("utf-8", "backslashreplace").decode().translate(_SPELLED)


def one_line(text: str) -> str:
    """The same, on one line."""
    return spelled(text).replace("\n", "\\n")
