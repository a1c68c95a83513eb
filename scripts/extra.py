"""What an extra of setup.cfg asks for, in one line, to install it without the package itself.

pip install $(python scripts/extra.py docs)
"""

from __future__ import annotations

import argparse
import configparser
from pathlib import Path


def requirements(extra: str) -> list[str]:
    """The requirements of an extra."""
    read = configparser.ConfigParser(comment_prefixes=("#",), inline_comment_prefixes=None)
    read.read(Path(__file__).parents[1] / "setup.cfg", encoding="utf-8")
    return read["options.extras_require"][extra].split()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extra", help="its name in setup.cfg")
    print(*requirements(parser.parse_args().extra))
