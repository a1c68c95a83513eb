"""What a run is made with beside what was asked: a digest of each file whose content its rows depend on.

A price sheet, a tools file, a backends file, a data set or a checkpoint may change while its name stays. Rows from
before and after would then stand side by side as if they were of one run. Of a backends file that counts which says who
answers and how it is asked: not how fast an endpoint may be driven, how long a call may take, or who logs in.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolorchestra.envs.base.secrets import Address
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.models.endpoints import Served
from toolorchestra.envs.tools.backends import EMBEDDED, Wanted

if TYPE_CHECKING:
    from toolorchestra.agents.evaluation.runs import Contest

_NAMED_FILES = ("experts", "recordings", "tasks_path", "reference")
"""Arguments of task sources that name a file or a folder."""
_HOW_LONG = ("deadline_seconds", "patience_seconds", "queue_seconds", "retries", "reply_bytes")
_PASSED_OVER = ("__pycache__",)


def made_with(contests: Iterable[Contest]) -> dict[str, str]:
    """Digests by what they are of, in words that an error can name."""
    found: dict[str, str] = {}
    for contest in contests:
        found.update(_parts(contest))
    return dict(sorted(found.items()))


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What is not as it was."""
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


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
    """Of a JSON file, by its path or by the name of one that comes with the package; or of what was made of one."""
    if not isinstance(named, str | os.PathLike):
        return f"{kind} {getattr(named, 'sheet_id', getattr(named, 'name', '?'))}", _digest([repr(named).encode()])
    packaged = resources.files("toolorchestra.envs") / "data" / folder / f"{named}.json"
    content = Path(named).read_bytes() if str(named).endswith(".json") else packaged.read_bytes()
    return f"{kind} {named}", _digest([content])


def _of_path(path: Path) -> str:
    """Of a file, or of all files of a folder with their names."""
    if path.is_file():
        return _digest(_pieces(path))
    inside = sorted(one for one in path.rglob("*") if one.is_file() and not _passed_over(one.relative_to(path)))
    return _digest(part for one in inside for part in (f"\x1e{one.relative_to(path)}\x1f".encode(), *_pieces(one)))


def _passed_over(path: Path) -> bool:
    return any(part in _PASSED_OVER or part.startswith(".") for part in path.parts)


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


def _of_backends(wanted: Wanted) -> Iterator[tuple[str, str]]:
    """By model, endpoint and part, so that an error can name the one that is another."""
    endpoints = wanted.endpoints
    if endpoints is not None:
        for name, endpoint in endpoints.endpoints.items():
            yield f"backends: endpoint {name}", _digest([endpoint.address.url.encode()])
        for name, served in endpoints.models.items():
            yield f"backends: model {name}", _digest([_told(served).encode()])
    yield "backends: judge", _digest([repr(wanted.judges).encode()])
    box = {"kind": wanted.sandbox, "sessions": wanted.sessions, "bounds": _settings(wanted.bounds)}
    yield "backends: sandbox", _digest([repr(box).encode()])
    searched = [_place(wanted.index), _place(wanted.web_url), str(wanted.web)]
    manifest = Path(wanted.index) / "manifest.json"
    if wanted.index not in ("", EMBEDDED) and manifest.is_file():
        searched.append(_of_path(manifest))
    yield "backends: retrieval", _digest(part.encode() for part in searched)


def _told(served: Served) -> str:
    return repr({name: value for name, value in _settings(served).items() if name not in _HOW_LONG})


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
