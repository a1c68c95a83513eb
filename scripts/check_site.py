"""Whether the built site is whole: every link and anchor leads somewhere, and nothing is loaded from another host.

python scripts/check_site.py build/site
"""

from __future__ import annotations

import argparse
import sys
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "source": "srcset", "iframe": "src", "link": "href"}
"""Elements whose address a browser loads by itself."""


class Addresses(HTMLParser):
    """Where a page's links lead, what it loads, and which anchors it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADED and LOADED[tag] in found:
            self.loaded.append(found[LOADED[tag]])


@lru_cache
def addresses(page: Path) -> Addresses:
    read = Addresses()
    read.feed(page.read_text(encoding="utf-8"))
    return read


def faults(site: Path) -> list[str]:
    """What is wrong with the site, a line each."""
    found = []
    for page in sorted(site.rglob("*.html")):
        name = page.relative_to(site)
        if name.name == "404.html":  # its links are absolute: it is shown at any address
            continue
        read = addresses(page)
        for target in [*read.links, *read.loaded]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in read.loaded:
                    found.append(f"{name}: loads {target} from another host")
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            file = file / "index.html" if file.is_dir() else file
            if not file.is_relative_to(site.resolve()) or not file.exists():
                found.append(f"{name}: {target} leads nowhere")
            elif parts.fragment and file.suffix == ".html":
                anchor = unquote(parts.fragment)
                if not anchor.startswith("__") and anchor not in addresses(file).anchors:
                    found.append(f"{name}: {target} has no such anchor")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", nargs="?", default="build/site", help="the folder of the built site")
    site = Path(parser.parse_args().site).resolve()
    pages = list(site.rglob("*.html"))
    if not pages:
        print(f"error: {site} holds no page; build it first: make site", file=sys.stderr)
        return 2
    wrong = faults(site)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    links = sum(len(addresses(page).links) for page in pages if page.name != "404.html")
    print(f"{len(pages)} pages, {links} links, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
