"""A newcomer's first hour, as a test: clones the repository into an empty folder with an empty home, does what README
and the first two guides say, in their order, and fails on any surprise: `python scripts/newcomer.py`.

A surprise is an exit code other than 0, a word on stderr, or an output that differs from the one that is shown. Blocks
whose title says that they are not run are named and left out, and so are lines that need a key, a GPU or torch.
`--short` plays fewer tasks, and so compares no table. Needs nothing but Python and git. pip's own settings and cache
are kept.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/first-episode.md", "docs/own-tools.md")
"""Pages in the order in which they are read."""
MOST_MB, MOST_SECONDS = 120, 60
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
SHORT_TASKS = 20
"""Tasks of an evaluation, with --short."""


class Surprise(Exception):
    """What a newcomer would not expect."""


@dataclass
class Hour:
    """The folders of one newcomer, and what was seen so far."""

    folder: Path
    began: float = field(default_factory=time.monotonic)
    first_bill: float = 0.0
    short: bool = False

    @property
    def clone(self) -> Path:
        return self.folder / "toolorchestra"

    def billed(self) -> None:
        """A bill was printed; the first one is timed."""
        if not self.first_bill:
            self.first_bill = time.monotonic() - self.began
            print(f"first printed bill {self.first_bill:.0f} s after the clone began (aim {MOST_SECONDS})", flush=True)

    def environment(self, venv: Path | None = None) -> dict[str, str]:
        """Nothing of the user's but the path, and what pip needs to find its packages."""
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LC_", "LANG"))}
        cache = os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        path = os.environ["PATH"] if venv is None else f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return {**kept, "PATH": path, "HOME": str(home), "PIP_CACHE_DIR": cache, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(
        self, command: str | list[str], *, cwd: Path, venv: Path | None = None, said: str = "", quiet: bool = True
    ) -> str:
        """A command to its end; gives what it printed."""
        shown = command if isinstance(command, str) else shlex.join(command)
        began = time.monotonic()
        done = subprocess.run(
            command, shell=isinstance(command, str), executable="/bin/bash" if isinstance(command, str) else None,
            cwd=cwd, env=self.environment(venv), input=said, capture_output=True, text=True, check=False,
        )  # fmt: skip
        print(f"  {time.monotonic() - began:5.1f} s  {shown.splitlines()[0][:110]}", flush=True)
        told = [line for line in done.stderr.splitlines() if line.strip()]
        if done.returncode or (quiet and told) or "Traceback" in done.stdout:
            raise Surprise(f"{shown}\nexit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return done.stdout


def main() -> int:
    """Play the hour."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="fewer tasks, no wheel: whether it works at all")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="newcomer-"))
    hour = Hour(folder, short=given.short)
    try:
        play(hour)
    except Surprise as err:
        print(f"\nA surprise:\n{err}", file=sys.stderr)
        return 1
    finally:
        if given.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"no surprise in {time.monotonic() - hour.began:.0f} s")
    return 0


def play(hour: Hour) -> None:
    """Clone, install, read, and do as it is written."""
    hour.run(["git", "clone", "--quiet", str(REPOSITORY), str(hour.clone)], cwd=hour.folder)
    clone = installed(hour, "from-clone", ["."])
    megabytes = size(clone)
    print(f"core install: {megabytes:.0f} MB of packages (limit {MOST_MB})")
    if megabytes > MOST_MB:
        raise Surprise(f"the core install takes {megabytes:.0f} MB, and the limit is {MOST_MB}")
    for name in PAGES:
        page(hour, name, clone)
    if not hour.short:
        hour.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(hour.folder / "dist"), "."],
                 cwd=hour.clone, quiet=False)  # fmt: skip
        (wheel,) = (hour.folder / "dist").glob("*.whl")
        from_wheel(hour, installed(hour, "from-wheel", [str(wheel)]))


def installed(hour: Hour, name: str, what: list[str]) -> Path:
    """A new virtual environment with the package, installed as the README says."""
    venv = hour.folder / name
    hour.run([sys.executable, "-m", "venv", str(venv)], cwd=hour.folder)
    hour.run(["pip", "install", "--quiet", *what], cwd=hour.clone, venv=venv, quiet=False)
    return venv


def size(venv: Path) -> float:
    """Megabytes of what was installed, without the environment's own pip."""
    (packages,) = venv.glob("lib/python*/site-packages")
    own = ("pip", "setuptools", "_distutils_hack", "pkg_resources")
    files = (path for path in packages.rglob("*") if path.is_file() and not path.is_symlink())
    counted = (path for path in files if path.relative_to(packages).parts[0].partition("-")[0] not in own)
    return sum(path.stat().st_size for path in counted if path.suffix != ".pyc") / 1e6


def from_wheel(hour: Hour, venv: Path) -> None:
    """What a user of pip does, far from any clone."""
    away = hour.folder / "away"
    away.mkdir()
    if "play an episode" not in hour.run("toolorchestra --help", cwd=away, venv=venv):
        raise Surprise("toolorchestra --help does not list the commands")
    hour.run("toolorchestra play --policy cheapest", cwd=away, venv=venv)
    table = hour.run(
        "toolorchestra evaluate --env FRAMES-v0 --policy cheapest --tasks 3", cwd=away, venv=venv, quiet=False
    )
    if "cheapest" not in table:
        raise Surprise(f"evaluate shows no row of its policy:\n{table}")
    code = first_episode((hour.clone / "README.md").read_text(encoding="utf-8"))
    hour.run([str(venv / "bin" / "python"), "-c", code], cwd=away)


def first_episode(text: str) -> str:
    """The first Python of a page."""
    return next(body for kind, title, body in FENCE.findall(text) if kind == "python" and not title)


def page(hour: Hour, name: str, venv: Path) -> None:
    """Every block of a page, in its order. A block behind "prints" is what the one before it prints."""
    print(f"{name}:", flush=True)
    text = (hour.clone / name).read_text(encoding="utf-8")
    printed, program, end = "", "", 0
    for block in FENCE.finditer(text):
        kind, title, body = block.groups()
        before = text[end : block.start()].strip().rpartition("\n")[2]
        end = block.end()
        if before.startswith("prints"):
            compare(hour, name, printed, body)
        elif kind in ("python", "sh") and title and title != INSTALLS:
            print(f"   left out  {body.splitlines()[0][:70]} ({title})", flush=True)
        elif kind == "python":
            program = body if body.startswith(("import ", "from ")) else program + body
            printed = hour.run([str(venv / "bin" / "python"), "-c", program], cwd=hour.clone, venv=venv)
            hour.billed()
        elif kind == "sh":
            printed = shell(hour, body, venv)


def shell(hour: Hour, body: str, venv: Path) -> str:
    """The lines of a block, each in the folder where the one before it was."""
    printed, folder = "", hour.clone
    for line in commands(body):
        why = next((why for part, why in LEFT_OUT.items() if part in line), "")
        if hour.short and line == "pip install .":
            why = "it is installed already"
        if why:
            print(f"   left out  {line.splitlines()[0][:70]} ({why})", flush=True)
        elif line.startswith("cd "):
            folder = hour.clone / line.removeprefix("cd ").strip()
        else:
            if hour.short and "toolorchestra evaluate" in line:
                line = f"{re.sub(r' --tasks [0-9]+', '', line)} --tasks {SHORT_TASKS}"
            printed += hour.run(line, cwd=folder, venv=venv, said="q\n", quiet=not tells_progress(line))
            if "toolorchestra play" in line:
                hour.billed()
            if run := re.search(r"toolorchestra evaluate .*--out (\S+)", line):
                must_exist(folder / run[1] / "page.html")
            if written := re.search(r"toolorchestra report .*--out (\S+)", line):
                must_exist(folder / written[1])
    return printed


def tells_progress(line: str) -> bool:
    """Whether a command says on stderr how far it is or which page it wrote, and pip what is newer."""
    return any(part in line for part in ("evaluate", "toolorchestra train", "pip install", "toolorchestra report"))


def must_exist(path: Path) -> None:
    """A file that the page names."""
    if not path.is_file():
        raise Surprise(f"{path} was named, and is not there")


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


def compare(hour: Hour, name: str, printed: str, shown: str) -> None:
    """Every line that is shown was printed. With fewer tasks, a table has its head and its rows' names alone."""
    have = [" ".join(line.split()) for line in printed.splitlines()]
    table = shown.startswith("policy ")
    for line in filter(str.strip, shown.splitlines()):
        wanted = " ".join(line.split())
        found = wanted in have
        if hour.short and table:
            found = any(one.split()[:1] == wanted.split()[:1] for one in have)
        if not found:
            raise Surprise(f"{name} shows the line\n{line}\nwhich was not printed:\n{printed[-3000:]}")


if __name__ == "__main__":
    sys.exit(main())
