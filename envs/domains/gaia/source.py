"""`ToolOrchestra/GAIA-v0`: the questions of your copy of GAIA, which is gated, with their attachments."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile

from toolorchestra.envs.base.errors import ConfigError, one_of
from toolorchestra.envs.base.files import inside
from toolorchestra.envs.base.types import Passage, Question
from toolorchestra.envs.domains.questions import datasets
from toolorchestra.envs.domains.questions.source import QaSource
from toolorchestra.envs.retrieval.bm25 import Bm25

METADATA = ("metadata.jsonl", "metadata.parquet")
LEVELS = (1, 2, 3)


@dataclass(eq=False)
class GaiaSource(QaSource):
    """GAIA's questions, graded by its quasi-exact match alone. The leaderboard keeps the answers of the test part: they
    are "?" here, so nobody's is right."""

    level: int | None = None
    """Take the questions of level 1, 2 or 3 alone."""

    real_name = "gaia"

    def __post_init__(self) -> None:
        if self.level is not None:
            one_of("level", self.level, LEVELS)
        if self.dataset is None:
            raise ConfigError(
                "GAIA is gated, so this suite has no copy of it; get yours and name the folder that its metadata file "
                'lies in with the attachments: dataset="GAIA/2023/validation"',
                command_line="--dataset GAIA/2023/validation",
            )
        super().__post_init__()
        self.judge = None

    def load_questions(self, wanted: str | datasets.Dataset) -> datasets.Loaded:
        spec = datasets.Dataset(str(wanted)) if not isinstance(wanted, datasets.Dataset) else wanted
        folder = Path(spec.where)
        if folder.is_dir():
            names = [folder / name for name in METADATA if (folder / name).is_file()]
            if not names:
                raise ConfigError(f"{folder} has none of {', '.join(METADATA)}; name the folder that has it")
            spec = replace(spec, where=str(names[0]))
        loaded, metadata = datasets.load(spec, "file_name"), Path(spec.where)
        chosen = {key: _question(asked, metadata, seen=self.takes_images) for key, asked in loaded.questions.items()
                  if self.level is None or asked.subject == str(self.level)}  # fmt: skip
        return replace(loaded, questions=chosen)

    def retriever(self) -> Bm25:
        return Bm25((Passage("gaia", "GAIA", "No index is named."),))


def _question(question: Question, metadata: Path, *, seen: bool) -> Question:
    """A row with what is attached to it: what can be read is a document that is there from the start."""
    made = replace(question, answer=replace(question.answer, kind="quasi"), subject=f"level {question.subject}")
    if not question.files:
        return made
    place = metadata.parent
    files = [place / Path(name).name for name in question.files]
    if missing := [file for file in files if not file.is_file()]:
        raise ConfigError(f"attachment {missing[0].name!r} is not in {place}; put it beside the metadata file")
    for file in files:
        if file.resolve().parent != metadata.resolve().parent:  # a hub's cache links all its files to one folder
            inside(place, file)
    texts = [Passage(f"attached:{file.name}", file.name, text) for file in files if (text := text_of(file))]
    told = f"{question.text}\n\nAttached file: {', '.join(file.name for file in files)}"
    shown = filter(None, (datasets.picture_url(file.read_bytes()) for file in files)) if seen else ()
    return replace(made, text=told, files=tuple(map(str, files)), attached=tuple(texts), images=tuple(shown))


# -- attachments as text -----------------------------------------------------------------------------------------------


PLAIN = frozenset((".txt .md .csv .tsv .json .jsonl .jsonld .xml .html .py .pdb").split())
OFFICE = frozenset((".docx", ".pptx", ".xlsx"))
MOST_BYTES = 16 << 20
"""Bytes of a file, unpacked, that are read."""
_PARTS = re.compile(r"word/document\.xml|ppt/slides/slide\d+\.xml|xl/worksheets/sheet\d+\.xml")
_SHARED = "xl/sharedStrings.xml"


def text_of(file: Path) -> str:
    """The text of a file; "" where it has none that can be read, such as a picture's."""
    if file.suffix.lower() in PLAIN:
        with file.open("rb") as found:
            return found.read(MOST_BYTES).decode("utf-8", "replace")
    if file.suffix.lower() not in OFFICE:
        return ""
    try:
        with ZipFile(file) as packed:
            sizes = {one.filename: one.file_size for one in packed.infolist()}
            if sum(sizes.values()) > MOST_BYTES:
                return ""
            shared = [_said(one) for one in _elements(packed, _SHARED, "si")] if _SHARED in sizes else []
            parts = sorted((name for name in sizes if _PARTS.fullmatch(name)), key=lambda name: (len(name), name))
            return "\n\n".join("\n".join(_lines(packed, name, shared)) for name in parts)
    except (BadZipFile, zlib.error, ElementTree.ParseError, NotImplementedError, RuntimeError, ValueError, LookupError):
        return ""


def _elements(packed: ZipFile, part: str, tag: str) -> Iterator[ElementTree.Element]:
    return (one for one in ElementTree.fromstring(packed.read(part)).iter() if one.tag.endswith(f"}}{tag}"))


def _said(element: ElementTree.Element) -> str:
    return "".join(one.text or "" for one in element.iter() if one.tag.endswith("}t"))


def _lines(packed: ZipFile, part: str, shared: list[str]) -> Iterator[str]:
    """A sheet's rows, each cell under its name, or the paragraphs of a text."""
    if not part.startswith("xl/"):
        yield from filter(None, map(_said, _elements(packed, part, "p")))
        return
    for row in _elements(packed, part, "row"):
        cells = []
        for cell in (one for one in row if one.tag.endswith("}c")):
            value = next((one.text or "" for one in cell if one.tag.endswith("}v")), "") or _said(cell)
            if cell.get("t") == "s" and value:
                value = shared[int(value)]
            if value:
                cells.append(f"{cell.get('r', '')}: {value}")
        if cells:
            yield "\t".join(cells)
