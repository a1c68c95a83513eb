"""An error with a text for Python and one for the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from toolorchestra.envs.base.errors import WithOption

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z.-]+")
"""An option of a command line, such as --model.processes."""
OTHERS = {
    *("--generation-config", "--logprobs-mode", "--enable-lora", "--max-lora-rank", "--port", "--backend-config"),
    "--head",
}
"""Those of servers that other programs start."""


def options_in(text: str) -> set[str]:
    """Options of this package's own command line that a text names."""
    return set(OPTION.findall(text)) - OTHERS


@contextmanager
def raises(kind: type[WithOption], match: str, command_line: str) -> Iterator[pytest.ExceptionInfo[WithOption]]:
    """As pytest.raises: the text names no option, and `command_line` is what the command line says beside it."""
    with pytest.raises(kind, match=match) as told:
        yield told
    assert not options_in(str(told.value)), str(told.value)
    assert told.value.command_line == command_line
