"""Exports of domain folders: each form reads back, a set over several is one, and nobody's files are lost."""

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
    asked = ["finance", "weather", "--together", "--out", str(tmp_path)]
    assert export.main([*asked, "--form", "rows", "hf"]) == 0
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
    assert "SIMULATED" in card


def test_tau2_domains_have_folders_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = [str(library()), "--form", "tau2", "--out", str(tmp_path)]
    assert export.main([*asked, "--together"]) == 2
    assert "--together is for rows, hf" in " ".join(capsys.readouterr().err.split())
    assert export.main(asked) == 0
    out = tmp_path / "tau2" / "library"
    assert (out / "environment.py").is_file()
    found = json.loads((out / "tasks.json").read_text())
    assert [row["id"] for row in found] == list(domain().tasks)
    assert "toolscale" not in found[0]
    splits = json.loads((out / "split_tasks.json").read_text())
    assert sorted(splits["train"] + splits["validation"] + splits["test"]) == sorted(splits["base"])


def test_rows_have_the_reference_s_fields_and_variants_that_can_be_solved(tmp_path: Path) -> None:
    found, tools = domain(), set()
    plain = rows(export.write("rows", [found], tmp_path / "plain") / "train.jsonl")
    varied = rows(export.write("rows", [found], tmp_path / "varied", variants=2) / "train.jsonl")
    assert len(varied) == 2 * len(plain)
    assert all(row["model_mapping"] == {} and len(row["tools"]) == len(found.tools) for row in plain)  # type: ignore[arg-type]
    for row in varied:
        assert list(row) == ("index category problem answer tools model_mapping tool_pricing pref_vec example".split())
        assert row["category"] == "func_call"
        task = found.tasks[str(row["index"]).partition("____")[2].partition("-")[0]]
        shown = {tool["function"]["name"] for tool in row["tools"]}  # type: ignore[attr-defined]
        assert {action.name for action in task.actions} <= shown
        aliases, weights = dict(row["model_mapping"]), dict(row["pref_vec"])  # type: ignore[call-overload]
        assert len(set(aliases.values())) == len(aliases) > 0
        assert set(aliases.values()) <= set(dict(row["tool_pricing"]))  # type: ignore[call-overload]
        named = set(weights) - {"accuracy", "cost", "latency"}
        assert weights
        assert all(name in shown and name in str(row["problem"]) for name in named)
        tools.add(frozenset(shown))
    assert len(tools) > 5
    price = plain[0]["tool_pricing"]["Qwen/Qwen3-8B"]  # type: ignore[index]
    assert price["input_tokens_per_million"] == pytest.approx(2e-7)


@pytest.mark.parametrize("form", export.FORMS)
def test_an_export_replaces_an_export_and_nothing_else_unless_that_is_said(tmp_path: Path, form: str) -> None:
    out = export.write(form, [domain()], tmp_path / "mine")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert export.write(form, [domain()], out) == out
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    name, *_ = sorted(path.relative_to(out).as_posix() for path in out.rglob("*.json*") if path.name != export.MARK)
    (out / name).write_text("years of work")
    other = tmp_path / "other"
    (other / name).parent.mkdir(parents=True)
    (other / name).write_text("years of work")
    changed = f": export {form} writes this folder anew, and {name} in it was changed since .* or say overwrite=True"
    for place, said in ((out, changed), (other, "was not written by an export; .* or say overwrite=True")):
        with raises(ConfigError, said, "another --out, or --overwrite"):
            export.write(form, [domain()], place)
        assert (place / name).read_text() == "years of work"
        assert (export.write(form, [domain()], place, overwrite=True) / name).read_bytes() == before[out / name]
    assert not list(tmp_path.glob(".*"))


def test_every_place_is_looked_at_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "hf" / "library"
    place.mkdir(parents=True)
    (place / "thesis.txt").write_text("years of work")
    asked = [str(library()), "--form", "rows", "hf", "--out", str(tmp_path)]
    assert export.main(asked) == 2
    assert "thesis.txt in it was not written by an export" in capsys.readouterr().err
    assert not (tmp_path / "rows").exists()
    assert export.main([*asked, "--overwrite"]) == 0
    assert not (place / "thesis.txt").exists()


def test_a_link_or_file_in_the_exports_place_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "else")
    (tmp_path / "file").write_text("x")
    for name in ("link", "file"):
        with raises(ConfigError, ": export rows makes this folder, and it is a file or a link; move it away$", ""):
            export.check_place("rows", tmp_path / name)
