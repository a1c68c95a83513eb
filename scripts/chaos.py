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
from tests.agents.evaluation.test_endpoint_evaluation import PRICE, expert, over_chaos
from tests.support.chaos_runs import MOST_FINDINGS, ChaosReport, chaos_run, covered
from tests.support.chaos_server import SERVER_FAULTS, SILENT, ChaosReplies
from toolorchestra.envs.money.prices import NANO
from toolorchestra.envs.money.spend_cap import SpendCap


def row(report: ChaosReport, seconds: float) -> str:
    """One line of the table."""
    cells = (report.episodes, report.failed, report.calls, report.faults.total(), f"{report.nano_usd / NANO:.9f}",
             len(report.findings), f"{seconds:.0f}")  # fmt: skip
    return f"| {report.env_id.removeprefix('ToolOrchestra/')} | {' | '.join(map(str, cells))} |"


def over_sockets(episodes: int, seed: int, rate: float) -> list[str]:
    """Half of them whole and half streamed, over a server that is paid for what nobody reads; what is wrong."""
    columns = "episodes | requests | unread | $ counted = in the ledgers | $ the server is paid | $ in ledgers = cap"
    print(f"\n| | {columns} |\n|---|---|---|---|---|---|---|")
    faults, wrong = [name for name in SERVER_FAULTS if name not in SILENT or name == "too late"], []
    for stream in (False, True):
        cap, chaos = SpendCap(1000), ChaosReplies(expert, seed, rate, faults)
        played = over_chaos(chaos, "FRAMES-v0", episodes // 2, cap, stream=stream, deadline_seconds=8.0)
        charges = [charge for one in played for charge in one.charges]
        models = [charge for charge in charges if charge.role != "tool"]
        sure = sum(charge.nano_usd for charge in models if not charge.usage.estimated)
        spent = sum(charge.nano_usd for charge in charges)
        real = chaos.real_nano_usd(PRICE)
        if not (sure == chaos.nano_usd(PRICE) and real <= sum(c.nano_usd for c in models)
                and spent == round(cap.spent_usd * NANO)):  # fmt: skip
            wrong.append(f"over a socket: counted {sure}, paid {real}, in ledgers {spent}, cap {cap.spent_usd}")
        cells = (len(played), chaos.made.total(), len(chaos.unread), *(f"{n / NANO:.9f}" for n in (sure, real, spent)))
        print(f"| {'streamed' if stream else 'in one piece'} | {' | '.join(map(str, cells))} |", flush=True)
    return wrong


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=2000, help="in all, over all environments")
    parser.add_argument("--rate", type=float, default=0.3, help="the share of calls with a fault")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sockets", type=int, default=0, help="so many more of FRAMES over a server on a real socket")
    given = parser.parse_args()
    envs = covered()
    print(f"{given.episodes} episodes, {given.rate:.0%} of the calls of backends with a fault, seed {given.seed}.")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores. SIMULATED models.\n")
    print("| | episodes | failed | calls | faults | $ paid to models = in the ledgers | findings | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    findings: list[str] = []
    for env_id in envs:
        began = time.monotonic()
        report = chaos_run(env_id, given.episodes // len(envs), given.seed, given.rate)
        print(row(report, time.monotonic() - began), flush=True)
        findings += [f"{env_id}: {finding}" for finding in report.findings]
    if given.sockets:
        findings += over_sockets(given.sockets, given.seed, given.rate)
    print("", *findings[:MOST_FINDINGS], sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
