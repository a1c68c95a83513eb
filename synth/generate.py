"""Makes a domain folder from a spec, offline: `python synth/generate.py --spec finance --out DIR --seed 1`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from toolorchestra.envs.errors import ConfigError
from toolorchestra.envs.sqldomain import loader
from toolorchestra.synth import spec as specs
from toolorchestra.synth.making import make


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", nargs="+", required=True, help="folders, or names of: " + ", ".join(specs.shipped()))
    parser.add_argument("--tasks", type=int, default=450)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="the new domain's folder; by default among the shipped domains")
    args = parser.parse_args(argv)
    if args.out and len(args.spec) > 1:
        parser.error("--out names one folder; give one --spec with it")
    try:
        for name in args.spec:
            started = time.perf_counter()
            spec = specs.load(name)
            domain, report = make(spec, args.tasks, args.seed, args.out or loader.SHIPPED / spec.name)
            print(report.text())
            print(f"  written to {domain.folder}, {time.perf_counter() - started:.1f} s", flush=True)
    except ConfigError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
