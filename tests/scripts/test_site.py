"""The pages that the site is built of, with what lies outside docs/ and links to where it is; and those that a newcomer
reads have what is run."""

from __future__ import annotations

import re

import toolorchestra as to
from scripts.newcomer import FENCE, PAGES, commands
from scripts.prepare_site import REFERENCE, SETTINGS, place_of, prepared
from tests.paths import REPOSITORY


def test_every_page_of_the_documents_is_on_the_site_and_in_its_navigation() -> None:
    navigation = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [file for file in (REPOSITORY / "docs").rglob("*.md") if "examples" not in file.parts]
    for file in [*pages, REPOSITORY / "README.md", REPOSITORY / "CHANGELOG.md"]:
        place = place_of(file.relative_to(REPOSITORY).as_posix())
        assert re.search(rf"(: |- ){re.escape(place)}$", navigation, re.M), f"mkdocs.yml's nav lacks {place}"


def test_links_out_of_the_documents_lead_to_pages() -> None:
    made = prepared()
    assert "(source/docs/examples/one_file_loop.py.md)" in made["about.md"]
    assert "](docs/" not in made["about.md"]
    assert "(about.md)" in made["index.md"]
    assert "(contributing.md)" in made["first-episode.md"]
    assert "def " in made["source/docs/examples/one_file_loop.py.md"]


def test_the_reference_has_every_public_name_and_nothing_that_is_not_there() -> None:
    told = re.findall(r"^::: (.+)$", prepared()[REFERENCE], re.M)
    assert {name.rpartition(".")[2] for name in told} >= set(to.__all__)
    for place, _, name in (setting.rpartition(".") for setting in SETTINGS):
        file = REPOSITORY / "src" / place.replace(".", "/")
        text = (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text(encoding="utf-8")
        assert re.search(rf"^class {name}\b", text, re.M), f"{place} has no {name}"


def test_code_stays_as_it_is() -> None:
    fences = re.compile(r"^```.*?^```", re.M | re.S)
    own = fences.findall((REPOSITORY / "docs" / "trainers.md").read_text(encoding="utf-8"))
    assert fences.findall(prepared()["trainers.md"]) == own


def test_the_pages_that_are_read_have_what_is_run() -> None:
    for name in PAGES:
        text = (REPOSITORY / name).read_text(encoding="utf-8")
        blocks = FENCE.findall(text)
        assert 2 * len(blocks) == text.count("\n```"), f"{name}: a fence that no block was read from"
        assert any(kind == "python" and not title for kind, title, _ in blocks) or "own-tools" in name
    assert commands("a \\\n  b\nc   # why\n\nd 'x\ny'") == ["a \\\n  b", "c", "d 'x\ny'"]
