"""Writes tests/slow.txt, the list of tests that `make test` leaves to `make test-all`: `make measure-tests`.

Reads a JUnit report, which has the seconds of every test. A test is slow when it takes more than so many seconds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent


def seconds_by_test(report: Path) -> dict[str, float]:
    """Node id -> seconds, with set-up and tear-down."""
    found: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = f"{case.attrib['classname'].replace('.', '/')}.py"
        found[f"{file}::{case.attrib['name']}"] = float(case.attrib["time"])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="of pytest --junit-xml")
    parser.add_argument("--most-seconds", type=float, default=1.5, help="of a test that is not slow")
    args = parser.parse_args()
    found = seconds_by_test(args.report)
    slow = sorted(name for name, seconds in found.items() if seconds > args.most_seconds)
    (HERE / "slow.txt").write_text("\n".join([*slow, ""]), encoding="utf-8")
    rest = sum(seconds for name, seconds in found.items() if name not in slow)
    print(f"{len(slow)} of {len(found)} tests are slow: {sum(found.values()) - rest:.0f} s; the others: {rest:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
