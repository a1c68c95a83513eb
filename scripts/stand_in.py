"""Serve a stand-in for real models, with known skills, for the walk of docs/calibrate.md:

    python scripts/stand_in.py walk

writes walk/questions.jsonl, walk/tools.json and walk/backends.toml, which with real models are yours, and
walk/truth.json, the skills that the stand-in answers by. Ctrl-C stops it. SIMULATED.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from toolorchestra.envs.testing.stand_in import serve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("--questions", type=int, default=1000)
    args = parser.parse_args()
    try:
        serve(args.folder, args.questions)
    except KeyboardInterrupt:
        print("stopped")


if __name__ == "__main__":
    main()
