"""Every code block of the documents runs, is checked, or says why not; but for FIGURES and TESTED_ELSEWHERE.

A block names its language. Python blocks of a page run as one program, its shell blocks as one script, in a copy of the
repository's documents. What cannot run here has a title that says the reason, which the site shows above the block:

    ```sh title="Not run: needs a GPU"
    ```sh title="Options checked: takes ten minutes"
    ```python title="docs/examples/parcels/parcels.py"      a part of that file, word for word

Of all blocks, run or not, tests/test_docs.py checks that commands and options exist.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.paths import REPOSITORY
from tests.test_docs import PAGES, SPEC, named

REASONS = ("Not run: ", "Options checked: ")
LANGUAGES = ("python", "sh", "toml", "json", "yaml", "text")
FIGURES = "docs/results/"
"""Their blocks are the commands that made the figures, which take minutes to days, and what those printed."""
TESTED_ELSEWHERE = {
    "docs/calibrate.md": "tests/test_own_traffic.py runs its walk",
    "docs/domains.md": "tests/synth makes and proves its domains",
    "docs/synthesis.md": "tests/synth makes and proves its domains",
}
_BLOCK = re.compile(r'^( *)```(\w*)(?: title="([^"]*)")?[ ]*\n(.*?)^\1```', re.M | re.S)


class Block(NamedTuple):
    """One block of a page."""

    page: str
    language: str
    title: str
    text: str

    @property
    def excused(self) -> bool:
        return self.title.startswith(REASONS)


def blocks_of(page: Path) -> list[Block]:
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [Block(named(page), language, title, body) for _, language, title, body in found]


READ = [
    page
    for page in PAGES
    if not named(page).startswith(FIGURES) and named(page) not in {*SPEC, *TESTED_ELSEWHERE} and blocks_of(page)
]
RUN = [page for page in READ if any(b.language in ("python", "sh") and not b.title for b in blocks_of(page))]


@pytest.mark.parametrize("page", READ, ids=named)
def test_every_block_has_a_language_can_be_read_and_says_why_it_is_not_run(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = blocks_of(page)
    assert len(re.findall(r"^ *```", text, re.M)) == 2 * len(blocks), "a fence that no block was read from"
    readers = {"toml": tomllib.loads, "json": json.loads, "yaml": yaml.safe_load}
    for block in blocks:
        assert block.language in LANGUAGES, f"```{block.language} in {block.page}: {block.text[:60]!r}"
        if block.language in readers:
            assert readers[block.language](block.text), block.text
        if block.title and not block.excused:
            assert block.text in (REPOSITORY / block.title).read_text(encoding="utf-8"), f"{block.title}: {block.text}"
        assert not block.excused or len(block.title.split()) > 3, f"say why: {block.title!r} in {block.page}"


def copy_for_reading(folder: Path) -> Path:
    """What a reader has who stands in a clone: the documents as copies, all else as it is."""
    shutil.copytree(REPOSITORY / "docs", folder / "docs", ignore=shutil.ignore_patterns("*.png", "__pycache__"))
    for name in ("scripts", "deploy", "tests", "README.md"):
        (folder / name).symlink_to(REPOSITORY / name)
    return folder


def environment_of(folder: Path) -> dict[str, str]:
    """With `python` and `toolorchestra` of this run, also where a block sets PYTHONPATH."""
    programs = folder / "programs"
    programs.mkdir()
    for name, words in {"python": "", "toolorchestra": "-m toolorchestra"}.items():
        script = f'#!/bin/sh\nPYTHONPATH="{REPOSITORY}/src:$PYTHONPATH" exec "{sys.executable}" {words} "$@"\n'
        (programs / name).write_text(script, encoding="utf-8")
        (programs / name).chmod(0o755)
    own = {"PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY / "src")}
    return {**os.environ, **own}


@pytest.mark.parametrize("page", RUN, ids=named)
def test_the_blocks_run(page: Path, tmp_path: Path) -> None:
    folder, environment = copy_for_reading(tmp_path), environment_of(tmp_path)
    run = [block for block in blocks_of(page) if not block.title]
    program = "\n".join(block.text for block in run if block.language == "python")
    script = "\n".join(f"cd '{folder}'\n{block.text}" for block in run if block.language == "sh")
    for command in (["python", "-W", "error", "-c", program], ["bash", "-euo", "pipefail", "-c", script]):
        if command[-1]:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=1200
            )
            assert done.returncode == 0, f"{named(page)}: {done.stdout[-1500:]}\n{done.stderr[-3000:]}"
