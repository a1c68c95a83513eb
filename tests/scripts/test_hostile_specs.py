"""The script that plays hostile specs: what it says of those that are refused, and of one that is not in time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.paths import REPOSITORY

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits of a process are Linux's")


def played(*arguments: str) -> tuple[int, list[str]]:
    """The exit code and the lines of the table."""
    command = [sys.executable, "scripts/hostile_specs.py", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout.splitlines()


def test_a_sample_is_refused_within_the_limits_and_the_part_is_named() -> None:
    code, lines = played(
        "--only", "schema: indexes without end", "rows: no bounds", "tool: a query of", "a hidden name"
    )
    assert code == 0, lines
    assert lines[-1].startswith("6 variants, 6 refused, 0 got out; at most ")
    assert "| tools.yaml | 2 | 2 |" in "\n".join(lines)
    assert any("tool 'find_book'" in line for line in lines if line.startswith("| tool: a query"))


def test_what_takes_longer_than_it_may_has_got_out() -> None:
    code, lines = played("--only", "draw: endless", "--seconds", "1")
    assert code == 1
    assert lines[-1].startswith("1 variants, 0 refused, 1 got out")
