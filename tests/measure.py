"""Writes tests/slow.txt, which `make test` leaves to `make test-slow`, and tests/long.txt, which CI leaves out too:
`make measure-tests`.

Reads JUnit reports, which have the seconds of every test. A test is slow when it takes more than so many seconds, and
long when it takes many more.
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
    parser.add_argument("report", type=Path, nargs="+", help="of pytest --junit-xml")
    parser.add_argument("--most-seconds", type=float, default=1.0, help="of a test that is not slow")
    parser.add_argument("--most-seconds-slow", type=float, default=10.0, help="of a slow test that is not long")
    args = parser.parse_args()
    found = {name: seconds for report in args.report for name, seconds in seconds_by_test(report).items()}
    long = {name for name, seconds in found.items() if seconds > args.most_seconds_slow}
    slow = {name for name, seconds in found.items() if seconds > args.most_seconds} - long
    for kind, names in (("slow", slow), ("long", long)):
        (HERE / f"{kind}.txt").write_text("\n".join([*sorted(names), ""]), encoding="utf-8")
        print(f"{len(names)} of {len(found)} tests are {kind}: {sum(found[name] for name in names):.0f} s")
    print(f"the others: {sum(seconds for name, seconds in found.items() if name not in slow | long):.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
