"""Prints the versions that this environment has, as pins: `make lock` keeps them in requirements-dev.lock."""

from __future__ import annotations

import argparse
import re
import sys
from importlib import metadata

OWN = {"toolorchestra", "pip"}
HEADER = """\
# The versions that development and CI use; made by `make lock`, read by make as constraints.
# Not for users: setup.cfg says what works. torch and its parts are pinned in the Makefile, since the build that fits
# depends on the machine.
"""


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = {re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in metadata.distributions()}
    kept = {name: version for name, version in found.items() if name not in OWN and "+" not in version}
    kept = {name: version for name, version in kept.items() if not name.startswith(("nvidia-cu", "triton", "torch"))}
    print(HEADER + "\n".join(f"{name}=={version}" for name, version in sorted(kept.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
