"""A corpus on disk: passages as JSON lines, read one by one when found; and the manifest of an index of them."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import os
import weakref
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Passage

FORMAT = 1
PASSAGES, MANIFEST, SOURCE = "passages.jsonl", "manifest.json", "source.json"
TOLD_LINES = 50_000
"""Lines of a corpus after which its progress is told."""
_UNPACKED: Mapping[str, Callable[[Any], Any]] = {".gz": gzip.open, ".bz2": bz2.open}
Pieces = Callable[[str], Iterator[str]]
"""What cuts a text."""
FIELDS: Mapping[str, str] = {"id": "id", "title": "title", "text": "text"}


def read_corpus(
    path: Path,
    fields: Mapping[str, str] = FIELDS,
    pieces: Pieces | None = None,
    told: Callable[[float], None] = lambda _: None,
) -> Iterator[Passage]:
    """Passages of a JSON-lines file, or of all files of a folder in the order of their names, packed as .gz or .bz2
    too. `fields` says what its keys are called; id and title may be missing: then a passage is called by its line, with
    the file's name where there are several. Of a dump of MediaWiki's search index
    (cirrussearch) the articles are read. `pieces` cuts texts into passages. `told` hears now and then which
    share of the bytes is read."""
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise ConfigError(f"no corpus {str(path)!r}; give a file with one JSON object a line: {{id, title, text}}")
    names, behind, size = {**FIELDS, **fields}, 0, max(1, sum(file.stat().st_size for file in files))
    for file in files:
        with file.open("rb") as raw, _UNPACKED.get(file.suffix, lambda raw: raw)(raw) as lines:
            for place, row in _rows(file, lines, f"{file.name}:" if len(files) > 1 else ""):
                if (page := _page(place, row, names)) is not None:
                    yield from cut(page, pieces)
                if place.number % TOLD_LINES == 0:
                    told((behind + raw.tell()) / size)
        behind += file.stat().st_size


class _Place(NamedTuple):
    file: Path
    number: int
    name: str
    """What a passage without an id is called."""
    article: str = ""
    """The id that a dump's own line before this one gives."""


def _lines(file: Path, lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    try:
        yield from enumerate(lines, 1)
    except (EOFError, OSError, zlib.error) as err:
        raise ConfigError(f"{file} cannot be read to its end ({err}); fetch it anew, or unpack it first") from None


def _rows(file: Path, lines: Iterable[bytes], before: str) -> Iterator[tuple[_Place, Any]]:
    """The rows of a file. A search index's dump has a line before each document that says where it belongs."""
    article = ""
    for number, line in _lines(file, lines):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as err:
            raise ConfigError(f"{file}, line {number}: not JSON: {err}") from None
        if isinstance(row, Mapping) and isinstance(row.get("index"), Mapping) and len(row) == 1:
            article = str(row["index"].get("_id", number))
            continue
        yield _Place(file, number, f"{before}{number}", article), row
        article = ""


def _page(place: _Place, row: Any, names: Mapping[str, str]) -> Passage | None:
    """A row's text. None: a dump's page that is no article, or has no text."""
    if isinstance(row, Mapping) and isinstance(row.get("_source"), Mapping):
        place, row = place._replace(article=str(row.get("_id", place.article))), row["_source"]
    if place.article and isinstance(row, Mapping) and (row.get("namespace", 0) != 0 or not row.get(names["text"])):
        return None
    if not isinstance(row, Mapping) or not isinstance(row.get(names["text"]), str):
        have = ", ".join(row) if isinstance(row, Mapping) else type(row).__name__
        raise ConfigError(
            f"{place.file}, line {place.number}: no text under {names['text']!r}; it has {have}; name another key with "
            'fields={"text": KEY}',
            command_line="--text KEY",
        )
    text, known = row[names["text"]], row.get(names["id"])
    known = place.article or place.name if known is None else known
    return Passage(str(known), str(row.get(names["title"]) or text[:60]), text)


def cut(page: Passage, pieces: Pieces | None) -> Iterator[Passage]:
    """Passages of the pieces of a longer one; None: the text as it is."""
    if pieces is None:
        yield page
        return
    for number, text in enumerate(pieces(page.text)):
        yield Passage(f"{page.doc_id}-{number}", page.title, text)


def of_words(most: int) -> Pieces:
    """What cuts a text into pieces of so many words, the last with what is left."""

    def pieces(text: str) -> Iterator[str]:
        said = text.split()
        return (" ".join(said[start : start + most]) for start in range(0, len(said), most))

    return pieces


def of_tokens(begin: Callable[[str], Sequence[int]], most: int) -> Pieces:
    """What cuts a text into pieces of whole words with so many tokens at most; `begin` says at which characters tokens
    begin. A word of more tokens is cut in its middle."""

    def pieces(text: str) -> Iterator[str]:
        starts, at = begin(text), 0
        while at < len(starts):
            end = full = min(at + most, len(starts))
            while at < end < len(starts) and not (text[starts[end]].isspace() or text[starts[end] - 1].isspace()):
                end -= 1
            end = end if end > at else full
            yield text[starts[at] : starts[end] if end < len(starts) else None].strip()
            at = end

    return pieces


def write_passages(
    folder: Path,
    passages: Iterable[Passage],
    source: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Write the index's own copy of the corpus, in place of another once it is whole. `source` says where the passages
    come from: what a stopped build wrote of the same is kept, and gone on with."""
    folder.mkdir(parents=True, exist_ok=True)
    draft, marked, mark = folder / f"{PASSAGES}.part", folder / SOURCE, json.dumps(source, sort_keys=True)
    if source is None or not marked.exists() or marked.read_text(encoding="utf-8") != mark:
        draft.unlink(missing_ok=True)
    elif not draft.exists() and (folder / PASSAGES).exists() and not (folder / MANIFEST).exists():
        return
    seen: set[str] = set()
    with draft.open("ab") as file:
        there = _whole_lines(draft)
        file.truncate(there.size)
        for number, passage in enumerate(passages, 1):
            if number == 1:
                marked.write_text(mark, encoding="utf-8")
            if passage.doc_id in seen:
                raise ConfigError(f"two passages have the id {passage.doc_id!r}; ids must differ")
            seen.add(passage.doc_id)
            if number > there.lines:
                file.write(json.dumps([passage.doc_id, passage.title, passage.text]).encode() + b"\n")
            if number % TOLD_LINES == 0:
                progress(f"read {number} passages")
    if not seen:
        raise ConfigError("the corpus is empty")
    (folder / MANIFEST).unlink(missing_ok=True)
    draft.replace(folder / PASSAGES)


class _Lines(NamedTuple):
    lines: int
    size: int


def _whole_lines(file: Path) -> _Lines:
    """The lines of a file that end, and their bytes."""
    lines = size = 0
    with file.open("rb") as found:
        for line in found:
            if line.endswith(b"\n"):
                lines, size = lines + 1, size + len(line)
    return _Lines(lines, size)


class Passages:
    """The passages of an index folder, by number. Threads may read at once."""

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / PASSAGES, os.O_RDONLY)
        weakref.finalize(self, os.close, self._fd).atexit = False
        self._starts = array("q", [0])
        digest, at = hashlib.blake2b(digest_size=16), 0
        with open(folder / PASSAGES, "rb") as file:
            for line in file:
                digest.update(line)
                at += len(line)
                self._starts.append(at)
        self.digest = digest.hexdigest()

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> Passage:
        if not 0 <= number < len(self):
            raise IndexError(number)
        start = self._starts[number]
        return Passage(*json.loads(os.pread(self._fd, self._starts[number + 1] - start, start)))


@dataclass(frozen=True)
class Manifest:
    """What an index folder says of itself. Written last, so a folder without one is unfinished."""

    engine: str
    passages: int
    corpus: str
    """Hash of the passages."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        """Write it, all or nothing."""
        part = folder / f"{MANIFEST}.part"
        part.write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")
        part.replace(folder / MANIFEST)

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Reads the manifest of an index folder and checks its format. Raises ConfigError where there is none to
        use."""
        line = f"toolorchestra index build CORPUS {folder}"
        if not folder.is_dir():
            raise ConfigError(f"no index folder {str(folder)!r}; build one: {line}")
        try:
            made = cls(**json.loads((folder / MANIFEST).read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise ConfigError(f"index {str(folder)!r} is unfinished; build on: {line}") from None
        except (ValueError, TypeError, RecursionError) as err:
            why = "it is none of an index" if isinstance(err, TypeError) else err
            raise ConfigError(f"index {str(folder)!r} has no readable manifest ({why}); build anew: {line}") from None
        if made.format != FORMAT:
            raise ConfigError(
                f"index {str(folder)!r} is of format {made.format}, this version reads {FORMAT}; build it anew: {line}"
            )
        return made

    def check(self, passages: Passages, folder: Path) -> None:
        """Refuse an index whose corpus has changed under it."""
        if passages.digest != self.corpus or len(passages) != self.passages:
            raise ConfigError(
                f"index {str(folder)!r}: {PASSAGES} is not what was indexed ({len(passages)} passages, hash "
                f"{passages.digest[:8]}, indexed were {self.passages}, {self.corpus[:8]}); build it anew: "
                f"toolorchestra index build CORPUS {folder} --again"
            )
