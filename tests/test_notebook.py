"""The notebook runs from its first cell to its last, in their order, and is kept without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

FILE = REPOSITORY / "docs" / "examples" / "first_hour.ipynb"
CELLS = json.loads(FILE.read_text(encoding="utf-8"))["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]


def test_nothing_is_kept_of_what_it_printed() -> None:
    assert [cell["id"] for cell in CODE if cell["outputs"] or cell["execution_count"]] == []


@pytest.mark.slow
def test_each_cell_runs_and_shows_what_it_says(tmp_path: Path) -> None:
    """In one process of plain Python, inside a running loop, as a kernel does."""
    cells = "\nprint('#####')\n".join("".join(cell["source"]) for cell in CODE)
    program = f"import asyncio\nasync def main(): exec({cells!r}, {{}})\nasyncio.run(main())"
    env = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    _, bill, compared, _, curve, asked = done.stdout.split("#####\n")
    assert "answer-3" in bill
    assert "cheapest: " in compared
    assert [line.split()[1] for line in curve.splitlines() if line.startswith("step")] == ["0", "5", "10"]
    assert (tmp_path / "runs" / "notebook" / "page.html").is_file()
    assert asked.startswith("reward ")
