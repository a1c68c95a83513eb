"""Pictures of the pages for the documentation, each wide and of a phone, light and dark.

    python scripts/screenshots.py --report runs/tiny-seed0 --evaluation runs/players --out docs/images

It needs Chromium (`apt-get install chromium`) and Pillow, which matplotlib brings. A picture keeps its 256 commonest
colours, to be small. The window is sized by Chromium's emulation: a real one is not narrower than 500 pixels.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.agents.reports.chromium import CHROMIUM, Chromium

SIZES = {"desktop": (1280, 1500), "phone": (390, 844)}
COLOURS = 256
MOST_BYTES = 150_000
DRAWN = (
    "document.documentElement?.dataset.ready || "
    "(document.URL !== 'about:blank' && document.readyState === 'complete' && !document.scripts.length)"
)


def main() -> int:
    """Take the pictures that are asked for, and say how large each is."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    asked.add_argument("--report", type=Path, help="folder of a training run that has a report")
    asked.add_argument("--evaluation", type=Path, help="folder of `toolorchestra evaluate --out`")
    asked.add_argument("--out", type=Path, default=Path("docs/images"), help="folder of the pictures")
    given = asked.parse_args()
    if CHROMIUM is None:
        print("error: Chromium is needed: apt-get install chromium", file=sys.stderr)
        return 2
    pages = {"report": given.report and given.report / "report" / "index.html",
             "evaluation": given.evaluation and given.evaluation / "page.html"}  # fmt: skip
    given.out.mkdir(parents=True, exist_ok=True)
    too_large = False
    for name, page in pages.items():
        for size, (width, height) in SIZES.items() if page else ():
            for dark in (False, True):
                file = given.out / f"{name}-{size}-{'dark' if dark else 'light'}.png"
                taken = take(page, file, width, height, dark=dark)
                too_large |= taken > MOST_BYTES
                print(f"{file}: {taken / 1000:.0f} kB")
    return int(too_large)


def take(page: Path, file: Path, width: int, height: int, *, dark: bool) -> int:
    """One picture. Gives its size in bytes."""
    from PIL import Image

    with Chromium(width, height) as tab:
        tab.dark(dark)
        tab.navigate(page)
        tab.until(DRAWN)
        time.sleep(0.5)  # fonts and pictures within the page
        wide = tab.value("document.documentElement.scrollWidth")
        if wide > width:
            raise SystemExit(f"error: {page} is {wide} pixels wide in a window of {width}: something is cut off")
        tab.picture(file)
    with Image.open(file) as seen:
        whole = seen.convert("RGB")
    often = sorted(whole.getcolors(whole.width * whole.height), reverse=True)[:COLOURS]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, colour in often for part in colour])
    whole.quantize(palette=palette, dither=Image.Dither.NONE).save(file, optimize=True)
    return file.stat().st_size


if __name__ == "__main__":
    raise SystemExit(main())
