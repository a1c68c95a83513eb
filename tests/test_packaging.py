"""The wheel holds every package, importing it is light, and the README tells the truth."""

from __future__ import annotations

import re
import subprocess
import sys

from setuptools import find_packages

from tests.paths import REPOSITORY

HEAVY = tuple(
    "torch transformers bm25s faiss sentence_transformers numpy.testing asyncio.sslproto openai datasets pandas"
    " peft tau2 pydantic".split()
)


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
    blocks = re.findall(r"```(\w*)\n(.*?)```", (REPOSITORY / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    at = next(i for i, (kind, _) in enumerate(blocks) if kind == "python")
    done = subprocess.run([sys.executable, "-c", blocks[at][1]], capture_output=True, text=True, check=True)
    assert done.stdout == blocks[at + 1][1]
