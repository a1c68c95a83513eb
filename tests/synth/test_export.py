"""Exports of domain folders: one data set that reads back, and nobody's files are lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.domains import library
from tests.two_texts import raises
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.sql_domain import SqlDomain
from toolorchestra.synth import export


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def domain() -> SqlDomain:
    return loader.read(library())


def test_several_domains_are_one_data_set(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    assert export.main(["finance", "weather", "--out", str(hub)]) == 0
    for split in ("train", "validation", "test"):
        found = rows(hub / "data" / f"{split}.jsonl")
        wanted = {
            f"{name}/{task.task_id}"
            for name in ("finance", "weather")
            for task in loader.load(name).tasks.values()
            if task.split == split
        }
        assert {row["id"] for row in found} == wanted
        assert {row["domain"] for row in found} == {"finance", "weather"}
        assert all("toolscale" not in json.loads(str(row["task"])) for row in found)
    assert loader.read(hub / "domains" / "weather", verify=True).name == "weather"
    card = (hub / "README.md").read_text()
    assert loader.load("finance").manifest["content_hash"] in card
    assert "self-consistent" in card
    assert "SIMULATED" in card


def test_what_stands_in_the_exports_place_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert export.main([str(library()), "--out", str(tmp_path / "mine")]) == 2
    assert "mine is there already; name a new folder" in capsys.readouterr().err
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["years of work"]


def test_two_domains_of_one_name_are_refused(tmp_path: Path) -> None:
    with raises(ConfigError, "two domains are named 'library'", ""):
        export.write([domain(), domain()], tmp_path / "twice")
    assert not list(tmp_path.iterdir())
