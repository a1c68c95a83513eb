"""A newcomer's first hour, as a test: clones the repository into an empty folder with an empty home, does what README
and the first guide say, in their order, and fails on any surprise: `python scripts/newcomer.py`.

A surprise is an exit code other than 0, a word on stderr, or an output that differs from the one that is shown. What
takes minutes is done with short settings, and lines that need a key, a GPU or torch are named and left out; `--whole`
trains too. Needs nothing but Python and git. pip's own settings and cache are kept.
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
GUIDES = ("docs/first-episode.md", "docs/own-tools.md")
"""The first guide is the first of these that there is."""
MOST_MB, MOST_SECONDS = 120, 60
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
SHORTER = {
    "--delay 1": "--delay 0",
    "--tasks 300": "--tasks 20",
    " --steps 40": " --steps 1",
    " --steps 300": " --steps 2",
}
"""What takes minutes -> what takes seconds."""
LEFT_OUT = {
    "--backends": "needs a server with a model",
    "source ": "the commands of the environment are found already",
    "record.py": "writes what the training reads",
    "toolorchestra train": "needs torch",
    "make ": "sets up an environment with torch",
    'pip install ".[': "downloads an extra",
}
"""The part of a line -> why it is not run."""
CORPUS = '{"id": "1", "title": "Thames", "text": "The Thames flows through London."}\n'


class Surprise(Exception):
    """What a newcomer would not expect."""


@dataclass
class Hour:
    """The folders of one newcomer, and what was seen so far."""

    folder: Path
    began: float = field(default_factory=time.monotonic)
    first_bill: float = 0.0
    whole: bool = False

    @property
    def clone(self) -> Path:
        return self.folder / "toolorchestra"

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
    parser.add_argument("--whole", action="store_true", help="make the environment with torch and train a little, too")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="newcomer-"))
    hour = Hour(folder, whole=given.whole)
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
    page(hour, "README.md", clone)
    megabytes = size(clone)
    print(f"core install: {megabytes:.0f} MB of packages (limit {MOST_MB})")
    print(f"first printed bill {hour.first_bill:.0f} s after the clone began (aim {MOST_SECONDS})", flush=True)
    if megabytes > MOST_MB:
        raise Surprise(f"the core install takes {megabytes:.0f} MB, and the limit is {MOST_MB}")
    guide = next(name for name in GUIDES if (hour.clone / name).exists())
    page(hour, guide, clone)
    hour.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(hour.folder / "dist"), "."],
             cwd=hour.clone, quiet=False)  # fmt: skip
    (wheel,) = (hour.folder / "dist").glob("*.whl")
    from_wheel(hour, installed(hour, "from-wheel", [str(wheel)]))
    if hour.whole:
        hour.run("make environment && make train OPTIONS='--steps 1 --evaluation-tasks 4 --warm-start.steps 2'",
                 cwd=hour.clone, quiet=False)  # fmt: skip


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
    return next(body for kind, body in FENCE.findall(text) if kind == "python")


def page(hour: Hour, name: str, venv: Path) -> None:
    """Every block of a page, in its order. A block behind "prints" is what the one before it prints."""
    print(f"{name}:", flush=True)
    text = (hour.clone / name).read_text(encoding="utf-8")
    (hour.clone / "corpus.jsonl").write_text(CORPUS)
    printed, end = "", 0
    for block in FENCE.finditer(text):
        kind, body = block.groups()
        before = text[end : block.start()].strip().rpartition("\n")[2]
        end = block.end()
        if before.startswith("prints"):
            compare(name, printed, body)
        elif kind == "python" and runs_alone(body):
            printed = hour.run([str(venv / "bin" / "python"), "-c", body], cwd=hour.clone, venv=venv)
            hour.first_bill = hour.first_bill or time.monotonic() - hour.began
        elif kind in ("", "sh", "bash", "console") and re.match(r"(cd|make|pip|python|source|toolorchestra) ", body):
            printed = shell(hour, body, venv)


def runs_alone(body: str) -> bool:
    """Whether a block of Python is a whole program and no excerpt."""
    return body.startswith(("import ", "from "))


def shell(hour: Hour, body: str, venv: Path) -> str:
    """The lines of a block, each in the folder where the one before it was."""
    printed, folder = "", hour.clone
    for line in commands(body):
        why = next((why for part, why in LEFT_OUT.items() if part in line), "")
        if why:
            print(f"   left out  {line.splitlines()[0][:70]} ({why})", flush=True)
        elif line.startswith("cd "):
            folder = hour.clone / line.removeprefix("cd ").strip()
        else:
            for long, short in SHORTER.items():
                line = line.replace(long, short)
            printed += hour.run(line, cwd=folder, venv=venv, said="q\n", quiet="evaluate" not in line)
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


def compare(name: str, printed: str, shown: str) -> None:
    """Every line that is shown was printed."""
    have = [" ".join(line.split()) for line in printed.splitlines()]
    for line in shown.splitlines():
        if line.strip() and " ".join(line.split()) not in have:
            raise Surprise(f"{name} shows the line\n{line}\nwhich was not printed:\n{printed[-3000:]}")


if __name__ == "__main__":
    sys.exit(main())
