"""How long a page of many transcripts takes to write and to open, and the pictures of it in the documentation.

python -m tests.agents.reports.page_in_use --trials 1000
python -m tests.agents.reports.page_in_use --pictures docs/images
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.agents.reports.chromium import CHROMIUM, Chromium
from tests.agents.reports.recorded_runs import POLICIES, run_folder
from toolorchestra.agents.reports.evaluation_page import write_page

ENVS = ("HLE-v0", "FRAMES-v0")
OPENED = 7
"""Times that a page is opened for one figure."""


def measure(folder: Path, trials: int) -> None:
    """Print what a page of so many trials takes."""
    run = run_folder(folder / "run", -(-trials // (len(POLICIES) * len(ENVS))))
    began = time.perf_counter()
    written = write_page(run)
    wrote = time.perf_counter() - began
    print(f"{written.transcripts} transcripts: written in {wrote:.2f} s, {written.file.stat().st_size / 1e6:.2f} MB")
    with Chromium() as tab:
        for view in ("figures", "trials"):
            took = [tab.open(written.file, f"view={view}") for _ in range(OPENED)]
            print(f"{view} drawn after {statistics.median(took):.0f} ms (the longest of {OPENED}: {max(took):.0f} ms)")
        took = [tab.value(NEXT) for _ in range(50)]
        print(f"the next transcript after {statistics.median(took):.0f} ms (the longest of 50: {max(took):.0f} ms)")


NEXT = """
new Promise((done) => {
  const began = performance.now(), before = document.querySelector(".trial-head");
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "j" }));
  const look = () => {
    if (document.querySelector(".trial-head") === before) setTimeout(look);
    else done(performance.now() - began);
  };
  look();
})
"""


def draw(folder: Path, out: Path) -> None:
    """The pictures of the documentation."""
    page = write_page(run_folder(folder / "baselines", 100)).file
    out.mkdir(parents=True, exist_ok=True)
    with Chromium(1440, 1000) as tab:
        tab.dark(False)
        tab.open(page)
        tab.size(1440, tab.value("document.documentElement.scrollHeight") - 24)
        tab.picture(out / "evaluation-page.png")
        tab.size(1440, 1000)
        tab.open(page, "view=trials&policy=oracle&env=FRAMES-v0+%C2%B7+test&q=intersection")
        tab.key("j")
        tab.until("document.querySelector('.turn')")
        tab.picture(out / "evaluation-transcript.png")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--pictures", type=Path, help="draw the documentation's pictures into this folder instead")
    given = parser.parse_args()
    if CHROMIUM is None:
        print("no Chromium is installed", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        if given.pictures is not None:
            draw(Path(folder), given.pictures)
        else:
            measure(Path(folder), given.trials)
    return 0


if __name__ == "__main__":
    sys.exit(main())
