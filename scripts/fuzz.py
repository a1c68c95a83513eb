"""Fuzzes what an agent may write: `make robustness`. See tests/support/fuzz.py for what must hold.

Prints what was tried; the exit status is 1 when anything was wrong, and each finding can be made again from the seed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time

import toolorchestra  # noqa: F401 - registers the ids
from tests.support.fuzz import LARGE, SMALL, FuzzReport, cases, fuzz_episodes, fuzz_parser, growth
from toolorchestra.envs.base.errors import ConfigError


def row(report: FuzzReport) -> bool:
    """Print one; whether nothing was wrong."""
    counts = f"{report.turns:>9,} {report.refused:>9,} {report.calls:>9,} {report.episodes:>9,} {report.seconds:>9.1f}"
    print(f"{report.what:38} {counts} {len(report.findings):>9}", flush=True)
    for finding in report.findings:
        print(f"  {finding}")
    return not report.findings


def linear() -> bool:
    """Print the hostile shapes' times; whether all grow as their size."""
    print(f"\ntime from {SMALL:,} to {LARGE:,} characters, ns of CPU per character at the larger size")
    wrong = 0
    for name, nanoseconds, fine in growth():
        wrong += not fine
        print(f"  {name:24} {nanoseconds:8.1f}{'' if fine else '  grows faster than the size'}", flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=1_000_000, help="read by the parser alone")
    parser.add_argument("--episode-turns", type=int, default=100_000, help="played in each environment")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    started = time.perf_counter()
    print(
        f"seed {asked.seed}; Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    print(f"{'':38} {'turns':>9} {'refused':>9} {'calls':>9} {'episodes':>9} {'CPU s':>9} {'findings':>9}")
    fine = row(fuzz_parser(asked.turns, asked.seed))
    for env_id, settings in cases():
        try:
            fine = row(fuzz_episodes(env_id, asked.episode_turns, asked.seed, settings)) and fine
        except ConfigError as err:  # a package is missing
            fine = False
            print(err)
    fine = linear() and fine
    print(f"\n{'nothing' if fine else 'something'} was wrong; {time.perf_counter() - started:.0f} s")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
