"""A corpus on disk: passages as JSON lines, read one by one when found; and the manifest of an index of them."""

from __future__ import annotations

import hashlib
import json
import os
import weakref
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Passage

FORMAT = 1
PASSAGES, MANIFEST = "passages.jsonl", "manifest.json"
FIELDS: Mapping[str, str] = {"id": "id", "title": "title", "text": "text"}


def read_corpus(path: Path, fields: Mapping[str, str] = FIELDS) -> Iterator[Passage]:
    """Passages of a JSON-lines file. `fields` says what its keys are called; id and title may be missing."""
    if not path.is_file():
        raise ConfigError(f"no corpus {str(path)!r}; give a file with one JSON object a line: {{id, title, text}}")
    names = {**FIELDS, **fields}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as err:
                raise ConfigError(f"{path}, line {number}: not JSON: {err}") from None
            if not isinstance(row, Mapping) or not isinstance(row.get(names["text"]), str):
                have = ", ".join(row) if isinstance(row, Mapping) else type(row).__name__
                raise ConfigError(
                    f"{path}, line {number}: no text under {names['text']!r}; it has {have}; name another key with "
                    'fields={"text": KEY}',
                    command_line="--text KEY",
                )
            text = row[names["text"]]
            yield Passage(str(row.get(names["id"], number)), str(row.get(names["title"]) or text[:60]), text)


def write_passages(folder: Path, passages: Iterable[Passage]) -> tuple[int, str]:
    """Write the index's own copy of the corpus, in place of another once it is whole. Gives how many, and the hash."""
    folder.mkdir(parents=True, exist_ok=True)
    digest, count, seen = hashlib.blake2b(digest_size=16), 0, set()
    draft = folder / f"{PASSAGES}.part"
    with draft.open("wb") as file:
        for passage in passages:
            if passage.doc_id in seen:
                raise ConfigError(f"two passages have the id {passage.doc_id!r}; ids must differ")
            seen.add(passage.doc_id)
            line = json.dumps([passage.doc_id, passage.title, passage.text]).encode() + b"\n"
            digest.update(line)
            file.write(line)
            count += 1
    if not count:
        raise ConfigError("the corpus is empty")
    (folder / MANIFEST).unlink(missing_ok=True)
    draft.replace(folder / PASSAGES)
    return count, digest.hexdigest()


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
            raise ConfigError(f"index {str(folder)!r} has no readable manifest ({err}); build anew: {line}") from None
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
