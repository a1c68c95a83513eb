"""The walk of docs/own-tools.md, "From a clone to a policy of your own, served": its own command lines, on smaller
numbers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.paths import REPOSITORY
from tests.support.walk import lines_of, walked
from toolorchestra.agents.evaluation.rows import read_rows

pytestmark = pytest.mark.slow

SMALLER = {
    "--out mine/before": {"--tasks 100": "--tasks 10"},
    "train --env": {
        "--steps 40 --groups 32": "--steps 1 --groups 2 --model.processes 1 --warm-start.steps 40 "
        "--warm-start.batch 16 --warm-start.demonstrations 100 --warm-start.learning-rate 1e-2 "
        "--warm-start.gate 0 --evaluation-tasks 4"
    },
    "--out mine/after": {"--tasks 100": "--tasks 10"},
}
"""By a part of each line that has numbers, what is smaller in it."""


def from_a_wheel(folder: Path) -> Path:
    """An environment with the wheel of what stands here, beside an empty home; other packages are those of this one."""
    tree = folder / "tree"
    subprocess.run(["git", "checkout-index", "--all", f"--prefix={tree}/"], check=True, cwd=REPOSITORY)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w"]
    subprocess.run([*command, str(folder), str(tree)], check=True)
    (wheel,) = folder.glob("toolorchestra-*.whl")
    assert wheel.stat().st_size < 5e6
    venv.create(folder / "venv")
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "others.pth").write_text(sysconfig.get_paths()["purelib"])
    (folder / "home").mkdir()
    return folder / "venv"


@pytest.mark.parametrize("wheel", [False, True], ids=["clone", "wheel"])
def test_a_policy_over_own_tools_and_prices_is_trained_billed_served_and_asked(tmp_path: Path, wheel: bool) -> None:
    shutil.copytree(REPOSITORY / "docs" / "examples", tmp_path / "docs" / "examples")
    lines = lines_of("docs/own-tools.md", "## From a clone to a policy of your own, served", SMALLER)
    made = from_a_wheel(tmp_path) if wheel else None
    said = walked(lines, tmp_path, "8393", made)
    if made:
        place = [str(made / "bin" / "python"), "-c", "import toolorchestra; print(toolorchestra.__file__)"]
        assert subprocess.check_output(place, text=True, env={}).startswith(str(made))
        assert not list((tmp_path / "home").iterdir())
    assert (tmp_path / "mine" / "run" / "page.html").is_file()
    assert {row.sheet for row in read_rows(tmp_path / "mine" / "after")} == {"house-2026-11"}
    assert {row.policy for row in read_rows(tmp_path / "mine" / "after")} > {"cheapest", "oracle"}
    (answered,) = (text for line, text in said.items() if "ask.py" in line)
    (served,) = (tmp_path / "mine" / "served").glob("t*.jsonl")
    episodes = list(map(json.loads, served.read_text(encoding="utf-8").splitlines()))
    assert len(episodes) == len(answered.splitlines()) == 5
    for episode, line in zip(episodes, answered.splitlines(), strict=True):
        usd = episode["totals"]["nano_usd"] / 1e9
        assert 0 < usd <= 0.05 + 0.01  # one turn may pass the budget
        assert f" {usd} $" in line
