"""The wheel holds every package, importing it is light, and the README tells the truth."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import setuptools
from setuptools import find_packages

from tests.paths import REPOSITORY

HEAVY = tuple(
    "torch transformers bm25s faiss sentence_transformers numpy.testing asyncio.sslproto openai datasets pandas"
    " peft tau2 pydantic jsonschema_rs".split()
)


@pytest.mark.skipif(not (REPOSITORY / "envs").exists(), reason="a source distribution has the packages under src alone")
def test_every_package_folder_is_found() -> None:
    """Packages are found through the links of src/toolorchestra; a folder that is missed is absent from the wheel."""
    found = set(find_packages(str(REPOSITORY / "src")))
    wanted = {"toolorchestra"}
    for name in ("envs", "agents", "synth"):
        for init in (REPOSITORY / name).rglob("__init__.py"):
            wanted.add(".".join(("toolorchestra", *init.parent.relative_to(REPOSITORY).parts)))
    assert found == wanted


def test_importing_registers_the_ids_and_nothing_heavy() -> None:
    code = (
        "import sys, toolorchestra, gymnasium as gym; "
        "assert {'ToolOrchestra/HLE-v0', 'ToolOrchestra/FRAMES-v0', 'ToolOrchestra/Tau2-v0'} <= set(gym.registry); "
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == "[]"


def test_the_prefixed_id_works_alone() -> None:
    code = "import gymnasium as gym; print(gym.make('toolorchestra:ToolOrchestra/HLE-v0').reset(seed=1)[1]['task_id'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.startswith("hle-sim/train/")


def test_the_readme_example_prints_what_the_readme_says() -> None:
    blocks = re.findall(r"```(\w*)[^\n]*\n(.*?)```", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    at = next(i for i, (kind, _) in enumerate(blocks) if kind == "python")
    done = subprocess.run([sys.executable, "-c", blocks[at][1]], capture_output=True, text=True, check=True)
    assert done.stdout == blocks[at + 1][1]


USERS_FILE = """
import toolorchestra
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.money.prices import load_sheet
from toolorchestra.agents.rollouts.grpo import GroupReward
from toolorchestra.synth.formats.spec import load

reveal_type(render_call)
reveal_type(load_sheet)
"""


def test_an_editor_finds_every_import_of_an_editable_install(tmp_path: Path) -> None:
    """In a project of a user's own: every import resolves, and the types behind it are known."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    tools = tmp_path / "tools"  # setuptools, and nothing else of this environment
    tools.mkdir()
    packages = Path(setuptools.__file__).parents[1]
    for name in ("setuptools", "_distutils_hack", "pkg_resources"):
        if (packages / name).exists():
            (tools / name).symlink_to(packages / name)
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "-e", REPOSITORY]
    subprocess.run(install, check=True, env={**os.environ, "PYTHONPATH": str(tools)}, cwd=tmp_path)
    (tmp_path / "mine.py").write_text(USERS_FILE)
    found = unresolved("--pythonpath", python, tmp_path / "mine.py", cwd=tmp_path)
    assert found["errors"] == []
    assert len(found["types"]) == 2
    assert "Unknown" not in str(found["types"])
    bare = subprocess.run([python, "-c", "import envs"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "No module named 'envs'" in bare.stderr


def unresolved(*arguments: str | Path, cwd: Path) -> dict[str, list[str]]:
    """What pyright says of imports, and of the types that it is asked to reveal."""
    command = [sys.executable, "-m", "pyright", "--outputjson", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = [one["message"] for one in found if one.get("rule", "").startswith("reportMissing")]
    return {"errors": errors, "types": [one["message"] for one in found if one["severity"] == "information"]}


@pytest.mark.parametrize("links", ["files", "missing"])
def test_a_checkout_without_links_says_so(links: str, tmp_path: Path) -> None:
    """As Windows makes it without developer mode: a link is a small file with the path in it. Some tools that copy
    leave links out."""
    root = tmp_path / "src" / "toolorchestra"
    root.mkdir(parents=True)
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    shutil.copy(REPOSITORY / "src" / "toolorchestra" / "__init__.py", root)
    for name in ("envs", "agents", "synth") if links == "files" else ():
        (root / name).write_text(f"../../{name}")
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode != 0
    assert "made without symbolic links" in done.stderr


@pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="the tracked files are known to a clone alone")
def test_the_wheel_holds_every_package_and_every_data_file(tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=REPOSITORY).stdout

    tree = tmp_path / "tree"  # what is tracked: the working tree may hold an old build
    git("checkout-index", "--all", f"--prefix={tree}/")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w"]
    subprocess.run([*command, str(tmp_path), str(tree)], check=True)
    (wheel,) = tmp_path.glob("toolorchestra-*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("toolorchestra/")}
    listed = git("ls-files").splitlines()
    wanted = {f"toolorchestra/{name}" for name in listed if name.split("/")[0] in ("envs", "agents", "synth")}
    wanted |= {name.removeprefix("src/") for name in listed if re.match(r"src/toolorchestra/\w+\.\w+$", name)}
    assert held == wanted
