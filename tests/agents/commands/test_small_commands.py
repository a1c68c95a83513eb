"""The commands that need no model, called in this process: ids, index, index serve, report, doctor, budget."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agents.reports.recorded_runs import training_run
from tests.command_line import ended, unboxed
from toolorchestra import cli
from toolorchestra.agents.commands import budget, doctor, ids, index, report, serve_index
from toolorchestra.agents.configuration.presets import MACHINES
from toolorchestra.agents.engines.gpu_arithmetic import SHAPES
from toolorchestra.envs.retrieval.index_and_hybrid import load
from toolorchestra.envs.retrieval.remote import Remote

Capture = pytest.CaptureFixture[str]
CORPUS = [{"id": str(n), "title": f"Title {n}", "text": f"river number{n}"} for n in range(20)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in CORPUS))
    return path


def test_every_id_is_told_with_its_splits(capsys: Capture) -> None:
    assert ids.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[::2]] == [
        f"ToolOrchestra/{name}-v0" for name in ("HLE", "FRAMES", "ToolScale", "Tau2")
    ]
    assert all(len(line.split()) > 5 for line in lines[::2])  # what it is, in words
    assert lines[5].strip() == "splits: train, validation, test, heldout"


# -- index -------------------------------------------------------------------------------------------------------------


def test_an_index_is_built_once_and_again_when_that_is_asked(corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    place = tmp_path / "made" / "index"
    assert index.main([str(corpus), str(place)]) == 0
    said = capsys.readouterr().out
    assert re.search(rf"^{re.escape(str(place))}: bm25, 20 passages, corpus \w+$", said, re.M)
    hits = asyncio.run(load(str(place)).search("number7", 1))
    assert [hit.passage.doc_id for hit in hits] == ["7"]
    assert index.main([str(corpus), str(place)]) == 2
    assert "--again" in capsys.readouterr().err
    corpus.write_text(json.dumps(CORPUS[0]) + "\n")
    assert index.main([str(corpus), str(place), "--again"]) == 0
    assert ": bm25, 1 passages, " in capsys.readouterr().out


def test_what_a_corpus_calls_its_fields_can_be_said(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps({"key": r["id"], "name": r["title"], "body": r["text"]}) + "\n" for r in CORPUS))
    assert index.main([str(path), str(tmp_path / "index")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    names = ["--id", "key", "--title", "name", "--text", "body"]
    assert index.main([str(path), str(tmp_path / "index"), *names]) == 0
    assert "20 passages" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["embedded:hl"], "no embedded corpus 'hl'; valid: frames, hle. Did you mean 'hle'?"),
        (["none.jsonl"], "none.jsonl"),
        (["none.jsonl", "--engine", "bm52"], "no engine 'bm52'; valid: bm25, dense, hybrid, lucene. Did you mean"),
        (["none.jsonl", "--faiss", "falt"], "no kind of FAISS index 'falt'; valid: "),
    ],
)
def test_what_cannot_be_indexed_is_said(words: list[str], says: str, tmp_path: Path, capsys: Capture) -> None:
    name, *options = words
    assert ended(index.main, [name, str(tmp_path / "index"), *options]) == 2
    assert says.replace(" ", "") in unboxed(capsys.readouterr().err).replace(" ", "")
    assert not list(tmp_path.rglob("*.json"))


# -- index serve -------------------------------------------------------------------------------------------------------


@contextmanager
def as_soon_as_it_answers(port: int, then: Callable[[str], None]) -> Iterator[None]:
    """Asks a server of this process from a thread, and then presses Ctrl-C."""

    def ask() -> None:
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 20
        try:
            while time.monotonic() < end:
                try:
                    urllib.request.urlopen(f"{url}/health", timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.01)
            then(url)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    hand = threading.Thread(target=ask, daemon=True)
    hand.start()
    try:
        yield
    finally:
        hand.join(30)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def test_an_index_is_served_until_ctrl_c(corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    assert index.main([str(corpus), str(tmp_path / "index")]) == 0
    port, found = free_port(), list[str]()

    def search(url: str) -> None:
        found.extend(hit.passage.doc_id for hit in asyncio.run(Remote(url).search("number7", 1)))

    with as_soon_as_it_answers(port, search):
        code = serve_index.main([str(tmp_path / "index"), "--port", str(port)])
    assert (code, found) == (130, ["7"])
    out, err = capsys.readouterr()
    assert out.endswith(f"{tmp_path / 'index'} at http://127.0.0.1:{port}\n")
    assert err == "stopped\n"


def test_what_cannot_be_served_is_said(corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    assert serve_index.main([str(tmp_path / "index")]) == 2
    assert f"toolorchestra index build CORPUS {tmp_path / 'index'}" in capsys.readouterr().err
    assert index.main([str(corpus), str(tmp_path / "index")]) == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve_index.main([str(tmp_path / "index"), "--port", str(port)]) == 2
    assert re.search(rf"error: cannot serve at 127.0.0.1:{port}: .*; name another with", capsys.readouterr().err)
    assert serve_index.main([str(tmp_path / "index"), "--port", "70000"]) == 2
    assert re.search("cannot serve at .*:70000: ", capsys.readouterr().err)


# -- report ------------------------------------------------------------------------------------------------------------


def test_runs_that_have_ended_stand_side_by_side(tmp_path: Path, capsys: Capture) -> None:
    runs = [str(training_run(tmp_path / str(seed), seed=seed, share=share)) for seed, share in ((0, 0.9), (1, 0.7))]
    assert report.main(runs) == 0
    said = capsys.readouterr().out
    assert said.startswith("|  | seed 0 | seed 1 | mean | spread |\n")
    assert "| share of the oracle's reward | 90.0% | 70.0% | 80.0% | 20.0% |" in said
    (tmp_path / "metrics.jsonl").touch()
    assert report.main([*runs, str(tmp_path)]) == 0
    assert f"{tmp_path} has not come to its report yet" in capsys.readouterr().err
    assert report.main([]) == 2
    assert "report takes folders of" in capsys.readouterr().err


# -- the command that leads to them ------------------------------------------------------------------------------------


def typed(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """`toolorchestra ...`, in this process."""
    monkeypatch.setattr("sys.argv", ["toolorchestra", *words])
    return cli.main()


def test_the_first_word_names_the_command(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert typed(monkeypatch, "ids") == 0
    assert capsys.readouterr().out.startswith("ToolOrchestra/HLE-v0 ")
    for words, says in (
        (["idz"], "no command 'idz'"),
        (
            ["synth", "mak", "parking"],
            "no command 'synth mak'; valid: synth export, synth lint, synth make, synth prove",
        ),
        (["budget", "--stops", "1"], "Unrecognized options: --stops"),
    ):
        assert ended(lambda words: typed(monkeypatch, *words), words) == 2
        assert says in unboxed(capsys.readouterr().err)
    assert typed(monkeypatch) == typed(monkeypatch, "help") == 0
    listed = capsys.readouterr().out
    assert all(listed.count(f"\n  {name} ") >= 2 for name in cli.COMMANDS)
    assert typed(monkeypatch, "--version") == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_doctor_says_what_is_missing_and_never_a_key(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-secret")
    monkeypatch.setattr(
        doctor, "PARTS", (doctor.PARTS[-1], doctor.Ability("fly", ("wings_of_wax",), "pip install wings"))
    )
    assert doctor.main([]) == 0
    told = capsys.readouterr().out
    assert "missing wings_of_wax: pip install wings" in told
    assert "keys seen: TAVILY_API_KEY" in told
    assert "tvly-secret" not in told


ON_A_GPU = [name for name, machine in MACHINES.items() if machine.gpus]


@pytest.mark.parametrize("name", ON_A_GPU)
def test_every_preset_for_a_gpu_fits_its_machine(name: str, capsys: Capture) -> None:
    assert budget.main(["--preset", name]) == 0
    said = capsys.readouterr().out
    assert f"| **together, of {MACHINES[name].gigabytes:.1f}** |" in said


def test_the_parts_of_the_default_are_told(capsys: Capture) -> None:
    assert budget.main([]) == 0
    said = capsys.readouterr().out
    assert "| trainer: weights | 16.4 | 16.4 | 16.4 |" in said
    assert "the sampler's cache holds 221,208 tokens, 32,000 are an episode's most\n" in said


def test_the_shape_is_that_of_a_named_model_or_of_a_config_json(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SHAPES["qwen3-0.6b"]))
    tables = []
    for shape in ("qwen3-0.6b", str(path)):
        assert budget.main(["--preset", "small-gpu", "--model.rows", "4", "--gigabytes", "24", "--shape", shape]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1]
    assert "| trainer: weights | 1.2 |" in tables[0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gigabytes", "24"], r"GB more than the device's 24.0 GB; (.|\n)*\| \*\*together, of 24.0\*\* \|"),
        (["--preset", "tiny"], "--shape says which model it is about: a config.json, or one of: qwen3-8b"),
        (["--shape", "none.json"], r"none\.json is no file; name a model's config\.json"),
        (["--shape", "{tmp}/cut.json"], "is not JSON: .*; name a model's config.json, or one of: qwen3-8b, "),
    ],
)
def test_what_cannot_be_reckoned_is_said(words: list[str], says: str, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "cut.json").write_text("{")
    assert budget.main([word.replace("{tmp}", str(tmp_path)) for word in words]) == 2
    assert re.search(says, capsys.readouterr().err)
