"""One table of several runs: `python scripts/summarise.py runs/tiny-seed*`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from toolorchestra.agents.reports.seeds_table import as_markdown, read_summaries
from toolorchestra.envs.base.errors import ConfigError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs that have ended")
    args = parser.parse_args()
    try:
        print(as_markdown(read_summaries(args.runs)))
    except ConfigError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
