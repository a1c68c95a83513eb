"""One data set over several domains, of folders that exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.two_texts import raises
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.synth import export_domain
from toolorchestra.synth.formats import export_sets


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_several_domains_are_one_data_set(tmp_path: Path) -> None:
    asked = ["--domain", "finance", "weather", "--together", "--out", str(tmp_path)]
    assert export_domain.main([*asked, "--form", "rows", "hf"]) == 0
    hub = tmp_path / "hf" / "all"
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
        kept = rows(tmp_path / "rows" / "all" / f"{split}.jsonl")
        assert len(kept) == len(found)
    assert loader.read(hub / "domains" / "weather", verify=True).name == "weather"
    card = (hub / "README.md").read_text()
    assert loader.load("finance").manifest["content_hash"] in card
    assert "self-consistent" in card


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "hf" / "all"
    place.mkdir(parents=True)
    (place / "thesis.txt").write_text("years of work")
    asked = ["--domain", "weather", "--together", "--form", "hf", "--out", str(tmp_path)]
    assert export_domain.main(asked) == 2
    assert "thesis.txt in it was not written by an export" in capsys.readouterr().err
    assert export_domain.main([*asked, "--overwrite"]) == 0
    assert not (place / "thesis.txt").exists()


def test_tau2_domains_have_folders_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--domain", "weather", "--form", "tau2", "--out", str(tmp_path)]
    with pytest.raises(SystemExit):
        export_domain.main([*asked, "--together"])
    with raises(ConfigError, "has format rows or hf, got tau2; .* with export.write", "the same without --together"):
        export_sets.write("tau2", [], tmp_path / "none")
    assert "--together is for rows, hf" in " ".join(capsys.readouterr().err.split())
    assert export_domain.main(asked) == 0
    assert (tmp_path / "tau2" / "weather" / "environment.py").is_file()
