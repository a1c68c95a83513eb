"""The page of an evaluation, of training runs or of a server: one HTML file with figures and transcripts.

The data are JSON, compressed and in base64, in parts that the page opens when they are looked at. So no text of a model
or a tool stands in the HTML itself, and a page of thousands of transcripts opens at once. The page's own script and
style are files of `agents/data/page/`; its Content-Security-Policy names them by their hashes and forbids
all else: other scripts, and the network. A server's page is the same over data of the server, which alone it may ask.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, BinaryIO

from toolorchestra import __version__
from toolorchestra.agents.evaluation.rows import PAGE, ROWS
from toolorchestra.agents.evaluation.summary import as_plain
from toolorchestra.agents.reports.page_data import (
    ShownRun,
    ShownTrial,
    for_browser,
    intervals_of,
    parsed,
    read_evaluation,
    read_evaluations,
    read_recording,
)
from toolorchestra.agents.reports.training_data import is_training, read_training
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.money.prices import REWARDED_ROLES, ROLES

SCRIPTS = tuple("text trials store measures charts tables figures training transcript filters browser main".split())
"""Scripts that are one in this order: each uses what stands above it."""
LIVE_SCRIPTS = tuple("live" if name == "store" else name for name in SCRIPTS)
"""The same over what a server tells."""
PART_BYTES = 300_000
"""Bytes of JSON in one part. Small enough to be opened between two key strokes."""
QUESTION_CHARACTERS = 240
"""Characters of a question, in the list of trials; the transcript has all of it."""
LONG_CHARACTERS = 400
"""A system message longer than this is kept once for all trials that have it."""


@dataclass(frozen=True)
class PageWritten:
    """What write_page() wrote: the file, how many trials and transcripts it has, and notes for the user."""

    file: Path
    trials: int
    transcripts: int
    notes: tuple[str, ...]


def write_page(run: Path, out: Path | None = None) -> PageWritten:
    """The page of a run's folder, of an evaluation or of training, or of a file of trajectories."""
    file = out or (run / PAGE if run.is_dir() else run.with_suffix(".html"))
    if file.resolve() == run.resolve():
        raise ConfigError(
            f"the page would replace what it is made of, {str(run)!r}; name another file, out=FILE",
            command_line="--out FILE",
        )
    return _written(read_run(run), file)


def write_page_of_runs(runs: Sequence[Path], out: Path) -> PageWritten:
    """One page of several training runs, or of several evaluations: their policies beside each other."""
    evaluated = [(run / ROWS).is_file() for run in runs]
    for run, rows in zip(runs, evaluated, strict=True):
        if run.is_file():
            raise ConfigError(
                f"{str(run)!r} is a file of trajectories, which has a page of its own: name each alone",
                command_line="leave --out away, or name one file",
            )
        if not rows and not is_training(run):
            raise _no_run(run)
    if any(evaluated) and not all(evaluated):
        raise ConfigError("one page is of runs of training, or of evaluations: name one kind alone")
    if len({run.resolve().name for run in runs}) < len(runs):
        raise ConfigError("two of these folders end alike, and a page names runs by their folders: rename one")
    return _written(read_evaluations(runs) if all(evaluated) else read_training(runs), out)


def read_run(path: Path) -> ShownRun:
    """A folder of an evaluation or of a training run, or a file of trajectories."""
    if path.is_file():
        return read_recording(path)
    if (path / ROWS).is_file():
        return read_evaluation(path)
    if is_training(path):
        return read_training([path])
    raise _no_run(path)


def _no_run(path: Path) -> ConfigError:
    return ConfigError(
        f"no run at {str(path)!r}; name a folder of `toolorchestra evaluate --out` or of `toolorchestra train`, or a "
        "file of RecordTrajectories"
    )


def _written(shown: ShownRun, file: Path) -> PageWritten:
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with half.open("wb") as stream:
            transcripts = _write(stream, shown)
        half.replace(file)
    finally:
        half.unlink(missing_ok=True)
    return PageWritten(file, sum(not one.retried for one in shown.trials), transcripts, shown.notes)


def _write(stream: BinaryIO, run: ShownRun) -> int:
    filled = _filled("Evaluation" if run.training is None else "Training", run.title, SCRIPTS)
    before, _, after = page_file("page.html").partition("{{data}}")
    stream.write(_fill(before, filled).encode())
    shared, details = PartWriter(stream, "shared"), PartWriter(stream, "transcripts")
    trials = [_listed(trial, line, shared, details) for trial, line in _with_lines(run)]
    shared.end()
    details.end()
    index = {"title": run.title, "version": __version__, "notes": run.notes, "manifest": run.manifest,
             "roles": ROLES, "agent_roles": REWARDED_ROLES, "controllability": as_plain(run.preferences),
             "intervals": intervals_of(run.trials),
             "training": for_browser(run.training), "trials": trials}  # fmt: skip
    write_part(stream, "index", index)
    stream.write(_fill(after, filled).encode())
    return sum(trial["at"] is not None for trial in trials)


# -- the data ----------------------------------------------------------------------------------------------------------


def write_part(stream: BinaryIO, name: str, value: Any) -> None:
    """A value as compressed JSON in a block that no browser runs. base64 has no character that could end it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(text.encode(), 6, mtime=0))
    stream.write(b'<script type="text/plain" data-part="' + name.encode() + b'">' + packed + b"</script>\n")


class PartWriter:
    """Writes values in parts of about the same size, and says where each is: the part's number and the place in it."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream, self._name = stream, name
        self._number = self._size = 0
        self._held: list[Any] = []
        self._places: dict[bytes, tuple[int, int]] = {}

    def add(self, value: Any) -> tuple[int, int]:
        """Takes a value, and returns where it will be: the part's number and the place in it."""
        self._held.append(value)
        self._size += len(json.dumps(value))
        place = (self._number, len(self._held) - 1)
        if self._size >= PART_BYTES:
            self.end()
        return place

    def place(self, value: Any) -> tuple[int, int]:
        """Where the value is, which is kept once: tools, pictures and system messages are the same in many trials."""
        digest = hashlib.sha256(json.dumps(value).encode()).digest()
        if digest not in self._places:
            self._places[digest] = self.add(value)
        return self._places[digest]

    def end(self) -> None:
        """Writes the values that are held as one part. Does nothing where none are held."""
        if self._held:
            write_part(self._stream, self._name, self._held)
            self._number, self._size, self._held = self._number + 1, 0, []


def _with_lines(run: ShownRun) -> Iterator[tuple[ShownTrial, Any]]:
    """Each trial with its transcript, read again one by one: a run may be larger than the memory."""
    with ExitStack() as opened:
        files = {path: opened.enter_context(path.open("rb")) for path in {one.at[0] for one in run.trials if one.at}}
        for trial in run.trials:
            line = None
            if trial.at is not None:
                files[trial.at[0]].seek(trial.at[1])
                line = parsed(files[trial.at[0]].readline())
            yield trial, line


def _listed(trial: ShownTrial, line: Any, shared: PartWriter, details: PartWriter) -> dict[str, Any]:
    """A trial as the list has it; its transcript goes into a part."""
    row = {name: value for name, value in asdict(trial.row).items() if value not in ("", {}, None)}
    found = line.get("messages") if isinstance(line, Mapping) else None
    messages = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    at = details.add(_detail(line, messages, shared)) if isinstance(line, Mapping) else None
    more = {name: value for name in ("retried", "training") if (value := getattr(trial, name))}
    asked = next((str(one.get("content", "")) for one in messages if one.get("role") == "user"), "")
    listed: dict[str, Any] = for_browser({**row, **more, "question": asked[:QUESTION_CHARACTERS], "at": at})
    return listed


def _detail(line: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], shared: PartWriter) -> dict[str, Any]:
    detail = dict(line)
    if "tools" in detail:
        detail["tools"] = {"shared": shared.place(detail["tools"])}
    if isinstance(images := line.get("images"), list):
        detail["images"] = [{"shared": shared.place(image)} for image in images]
    if messages and messages[0].get("role") == "system" and len(str(messages[0].get("content"))) > LONG_CHARACTERS:
        first = {**messages[0], "content": {"shared": shared.place(messages[0]["content"])}}
        detail["messages"] = [first, *messages[1:]]
    return detail


# -- the page ----------------------------------------------------------------------------------------------------------


def page_of_server(title: str) -> tuple[str, str]:
    """The page that watches a server, and its Content-Security-Policy for the header."""
    filled = _filled("Serving", title, LIVE_SCRIPTS, **{"connect-src": "'self'"})
    return _fill(page_file("page.html"), {**filled, "data": ""}), f"{filled['policy']}; frame-ancestors 'none'"


def _filled(kind: str, title: str, scripts: Sequence[str], **more: str) -> dict[str, str]:
    """What stands in page.html; `more` goes into its policy: what the page may do beside running this script and using
    this style. Half a surrogate pair in the title, which a file cannot hold, is a question mark."""
    style = page_file("page.css")
    script = '(() => {\n"use strict";\n' + "\n".join(page_file(f"{name}.js") for name in scripts) + "})();\n"
    allowed = {
        "default-src": "'none'",
        "script-src": f"'sha256-{_hash(script)}'",
        "style-src": f"'sha256-{_hash(style)}'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
        **more,
    }
    return {
        "title": html.escape(title.encode("utf-8", "replace").decode("utf-8")),
        "kind": kind,
        "policy": "; ".join(f"{name} {value}" for name, value in allowed.items()),
        "style": style,
        "script": script,
    }


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Fill in one pass: what is filled in is not read again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)


def page_file(name: str) -> str:
    """A file of the page's own."""
    folder = resources.files("toolorchestra.agents") / "data" / "page"
    return (folder / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
