"""Proves Tau2-v0 by playing it: text in, observation out, with scripted and recorded users.

Prints the table of docs/tau2.md and what recorded runs return; the exit status is 1 when anything differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.testing.tau2_proof import EXPECTED, count, replay_all

RECORDINGS = Path(__file__).parents[2] / "shared" / "data" / "tau2_recordings_sample.jsonl.gz"


def table(*, strict: bool) -> bool:
    """Print it; whether every figure is as expected."""
    print(
        f"{'domain':17} {'split':6} {'user':9} {'tasks':>6} {'gold':>6} {'nothing':>8} {'transfer':>9} {'seconds':>8}"
    )
    right = True
    for case, expected in EXPECTED.items():
        started = time.perf_counter()
        found = count(case, strict=strict)
        right = right and found == expected
        wrong = "" if found == expected else f"  expected {tuple(expected)}"
        shown = "{:6} {:6} {:8} {:9}".format(*found)
        seconds = time.perf_counter() - started
        print(f"{case.domain:17} {case.split:6} {case.user:9} {shown} {seconds:8.1f}{wrong}", flush=True)
    return right


def recorded(path: Path, *, strict: bool) -> bool:
    """Replay and print; whether every reward came back."""
    agreement = replay_all(str(path), strict=strict)
    print(f"recorded runs: {agreement}")
    for run in agreement.runs:
        if not run.agrees:
            where = f"{run.run.domain} {run.run.task_id} {run.run.sim_id} ({run.run.ended})"
            print(f"  {where}: {run.reward:g} {dict(run.parts)}, recorded {run.run.reward:g} {run.run.parts}")
    return agreement.complete


def prove(recordings: Path | None, *, strict: bool) -> bool:
    """Print all of it, or what the named recordings return; whether everything is right."""
    if recordings:
        return recorded(recordings, strict=strict)
    right = table(strict=strict)
    if RECORDINGS.is_file():
        return recorded(RECORDINGS, strict=strict) and right
    print(f"no {RECORDINGS.name} beside the repository: recorded runs are not replayed")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=Path, help="replay this file of recorded runs, and print no table")
    parser.add_argument("--strict-compat", action="store_true", help="grade as the package does")
    args = parser.parse_args()
    try:
        return 0 if prove(args.recordings, strict=args.strict_compat) else 1
    except ConfigError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
