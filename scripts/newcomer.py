"""A newcomer's first hour, as a test: clones the repository into an empty folder with an empty home, does what README
and the first two guides say, in their order, and fails on any surprise: `python scripts/newcomer.py`.

A surprise is an exit code other than 0, a word on stderr, or an output that differs from the one that is shown. Blocks
whose title says that they are not run are named and left out, and so are lines that need a key, a GPU or torch. Needs
nothing but Python and git. pip's own settings and cache are kept.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/first-episode.md", "docs/own-tools.md")
"""Pages in the order in which they are read."""
WHEEL_MB, MOST_MB = 5, 100
FENCE = re.compile(r'^```(\w*)(?: title="([^"]*)")?[ ]*\n(.*?)^```[ ]*$', re.M | re.S)
INSTALLS = "Not run: installs packages"
"""The title of blocks that tests of the documents leave out, and that are run here."""
LEFT_OUT = {
    "--backends": "needs a server with a model",
    "source .venv": "the commands of the environment are found already",
    "toolorchestra train": "needs torch",
    "make ": "sets up an environment with torch",
    'pip install ".[': "downloads an extra",
}
"""The part of a line -> why it is not run."""
TALKS = ("evaluate", "toolorchestra train", "pip install", "toolorchestra report")
"""Commands that say on stderr how far they are or which page they wrote, and pip what is newer."""


class Surprise(Exception):
    """What a newcomer would not expect."""


def run(command: str, folder: Path, home: Path, venv: Path | None = None) -> str:
    """A line of a shell, with nothing of the user's but the path and what pip needs; gives what it printed."""
    known = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LC_", "LANG"))}
    cache = os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    path = os.pathsep.join([*([str(venv / "bin")] if venv else []), os.environ["PATH"]])
    known |= {"PATH": path, "HOME": str(home), "PIP_CACHE_DIR": cache, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    began = time.monotonic()
    done = subprocess.run(
        ["/bin/bash", "-c", command], cwd=folder, env=known, input="q\n", capture_output=True, text=True, check=False
    )
    print(f"  {time.monotonic() - began:5.1f} s  {command.splitlines()[0][:110]}", flush=True)
    told = done.stderr.strip() and not any(part in command for part in TALKS)
    if done.returncode or told or "Traceback" in done.stdout:
        raise Surprise(f"{command}\nexit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def size(venv: Path) -> float:
    """Megabytes of what was installed, without the environment's own pip."""
    (packages,) = venv.glob("lib/python*/site-packages")
    own = ("pip", "setuptools", "_distutils_hack", "pkg_resources")
    files = (path for path in packages.rglob("*") if path.is_file() and not path.is_symlink())
    counted = (path for path in files if path.relative_to(packages).parts[0].partition("-")[0] not in own)
    return sum(path.stat().st_size for path in counted if path.suffix != ".pyc") / 1e6


def read_page(text: str, clone: Path, home: Path, venv: Path) -> None:
    """Every block of a page, in its order. A block behind "prints" is what the one before it prints."""
    printed, program, end = "", "", 0
    for block in FENCE.finditer(text):
        kind, title, body = block.groups()
        before = text[end : block.start()].strip().rpartition("\n")[2]
        end = block.end()
        if before.startswith("prints"):
            have = [" ".join(line.split()) for line in printed.splitlines()]
            if missing := [line for line in body.splitlines() if line.strip() and " ".join(line.split()) not in have]:
                raise Surprise(f"a line is shown that was not printed:\n{missing[0]}\n{printed[-3000:]}")
        elif kind in ("python", "sh") and title and title != INSTALLS:
            print(f"   left out  {body.splitlines()[0][:70]} ({title})", flush=True)
        elif kind == "python":
            program = body if body.startswith(("import ", "from ")) else program + body
            printed = run(f"python -c {shlex.quote(program)}", clone, home, venv)
        elif kind == "sh":
            printed = do_lines(body, clone, home, venv)


def do_lines(body: str, folder: Path, home: Path, venv: Path) -> str:
    """The lines of a block, each in the folder where the one before it was."""
    printed = ""
    for line in commands(body):
        if why := next((why for part, why in LEFT_OUT.items() if part in line), ""):
            print(f"   left out  {line.splitlines()[0][:70]} ({why})", flush=True)
        elif line.startswith("cd "):
            folder = folder / line.removeprefix("cd ").strip()
        else:
            printed += run(line, folder, home, venv)
            written = re.search(r"toolorchestra (evaluate|report) .*--out (\S+)", line)
            if written and not (folder / written[2] / ("page.html" if written[1] == "evaluate" else "")).exists():
                raise Surprise(f"{written[2]} was named, and its page is not there")
    return printed


def commands(body: str) -> list[str]:
    """The commands of a block: a line each, with those that go on behind a backslash or inside quotes."""
    made: list[str] = []
    open_one = ""
    for line in body.splitlines():
        open_one += line
        if line.endswith("\\") or len(re.findall(r"(?<!\\)'", open_one.partition("#")[0])) % 2:
            open_one += "\n"
            continue
        if open_one.strip():
            made.append(re.sub(r"\s+#.*$", "", open_one) if "\n" not in open_one else open_one)
        open_one = ""
    return made


def main() -> int:
    """Play the hour."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as place:
        folder = Path(place)
        home, clone, venv = (folder / name for name in ("home", "toolorchestra", "venv"))
        home.mkdir()
        try:
            run(f"git -c advice.detachedHead=false clone --quiet '{REPOSITORY}' '{clone}'", folder, home)
            run(f"'{sys.executable}' -m venv '{venv}'", folder, home)
            run("pip wheel --quiet --no-deps --wheel-dir .. .", clone, home, venv)
            (wheel,) = folder.glob("*.whl")
            if (wheel_mb := wheel.stat().st_size / 1e6) > WHEEL_MB:
                raise Surprise(f"the wheel has {wheel_mb:.1f} MB, and the limit is {WHEEL_MB}")
            run(f"pip install --quiet '{wheel}'", folder, home, venv)
            if (megabytes := size(venv)) > MOST_MB:
                raise Surprise(f"the core install takes {megabytes:.0f} MB, and the limit is {MOST_MB}")
            for name in PAGES:
                print(f"{name}:", flush=True)
                read_page((clone / name).read_text(encoding="utf-8"), clone, home, venv)
        except Surprise as err:
            print(f"\nA surprise:\n{err}", file=sys.stderr)
            return 1
    print(f"wheel: {wheel_mb:.1f} MB; core install: {megabytes:.0f} MB of packages")
    print(f"no surprise in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
