"""Plays every environment over backends that fail, hang, break off, garble, answer late or twice: `make robustness`.

See tests/support/chaos_runs.py for what must hold, and tests/agents/evaluation/test_endpoint_evaluation.py for the same
over a real socket. The exit code is 1 when anything was wrong; the same seed makes the same faults again.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time

import toolorchestra  # noqa: F401 - registers the ids
from tests.support.chaos_runs import MOST_FINDINGS, ChaosReport, chaos_run, covered
from toolorchestra.envs.money.prices import NANO


def row(report: ChaosReport, seconds: float) -> str:
    """One line of the table."""
    cells = (report.episodes, report.failed, report.calls, report.faults.total(), f"{report.nano_usd / NANO:.9f}",
             len(report.findings), f"{seconds:.0f}")  # fmt: skip
    return f"| {report.env_id.removeprefix('ToolOrchestra/')} | {' | '.join(map(str, cells))} |"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=2000, help="in all, over all environments")
    parser.add_argument("--rate", type=float, default=0.3, help="the share of calls with a fault")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    envs = covered()
    print(
        f"{given.episodes} episodes, {given.rate:.0%} of the calls of backends with a fault, seed {given.seed}. ",
        end="",
    )
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores. SIMULATED models.\n")
    print("| | episodes | failed | calls | faults | $ paid to models = in the ledgers | findings | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    findings: list[str] = []
    for env_id in envs:
        began = time.monotonic()
        report = chaos_run(env_id, given.episodes // len(envs), given.seed, given.rate)
        print(row(report, time.monotonic() - began), flush=True)
        findings += [f"{env_id}: {finding}" for finding in report.findings]
    print("", *findings[:MOST_FINDINGS], sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
