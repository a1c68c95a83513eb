"""What can be read of a question's attachment as text: plain files, and the texts and tables of Office files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree
from zipfile import BadZipFile, ZipFile

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
    except (BadZipFile, ElementTree.ParseError, NotImplementedError, RuntimeError, ValueError, LookupError):
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
