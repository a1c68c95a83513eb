"""The commands that need no model, called in this process, and the one that leads to them."""

from __future__ import annotations

import asyncio
import configparser
import json
import os
import re
import runpy
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agents.reports.recorded_runs import training_run
from tests.command_line import ended
from tests.paths import REPOSITORY
from toolorchestra import cli
from toolorchestra.agents.commands import doctor, ids, index, new, report
from toolorchestra.agents.engines.tiny import load_tokenizer
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
        f"ToolOrchestra/{name}-v0" for name in ("HLE", "FRAMES", "ToolScale", "Tau2", "GAIA", "Recorded")
    ]
    assert all(len(line.split()) > 5 for line in lines[::2])  # what it is, in words
    assert lines[5].strip() == "splits: train, validation, test, heldout"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        *((name, "a module of Python in small letters") for name in ("class", "none", "_", "_1", "My_env")),
        *((name, "is the name of another module") for name in ("json", "test", "sys", "numpy", "tests", "record")),
    ],
)
def test_a_name_that_cannot_be_an_environment_of_ones_own_is_refused(
    tmp_path: Path, name: str, says: str, capsys: Capture
) -> None:
    assert new.main([name, "--out", str(tmp_path / "made")]) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("name", ["env", "box", "to", "observation"])
def test_the_test_of_an_environment_of_ones_own_passes_whatever_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert new.main([name, "--out", str(tmp_path)]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    runpy.run_path(str(tmp_path / f"test_{name}.py"))["test_looking_finds_the_coin"]()
    monkeypatch.delitem(sys.modules, name)


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


def test_passages_may_be_cut_by_the_tokens_of_a_tokenizer(tmp_path: Path) -> None:
    tokenizer, text = load_tokenizer(), " ".join(f"river number{n}" for n in range(40))
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "long.jsonl").write_text(json.dumps({"text": text}))
    words = ["--words", "12", "--tokenizer", str(tmp_path / "tokenizer")]
    assert index.main([str(tmp_path / "long.jsonl"), str(tmp_path / "index"), *words]) == 0
    texts = [json.loads(line)[2] for line in (tmp_path / "index" / "passages.jsonl").read_text().splitlines()]
    assert " ".join(texts) == text
    counts = [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    assert 8 < max(counts) <= 12 < sum(counts)


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
    assert says in capsys.readouterr().err
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
        code = index.serve([str(tmp_path / "index"), "--port", str(port)])
    assert (code, found) == (130, ["7"])
    out, err = capsys.readouterr()
    assert out.endswith(f"{tmp_path / 'index'} at http://127.0.0.1:{port}\n")
    assert err == "stopped\n"


def test_what_cannot_be_served_is_said(corpus: Path, tmp_path: Path, capsys: Capture) -> None:
    assert index.serve([str(tmp_path / "index")]) == 2
    assert f"toolorchestra index build CORPUS {tmp_path / 'index'}" in capsys.readouterr().err
    assert index.main([str(corpus), str(tmp_path / "index")]) == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert index.serve([str(tmp_path / "index"), "--port", str(port)]) == 2
    assert re.search(rf"error: cannot serve at 127.0.0.1:{port}: .*; name another with", capsys.readouterr().err)
    assert index.serve([str(tmp_path / "index"), "--port", "70000"]) == 2
    assert re.search("cannot serve at .*:70000: ", capsys.readouterr().err)


# -- report ------------------------------------------------------------------------------------------------------------


def test_runs_that_have_ended_stand_side_by_side(tmp_path: Path, capsys: Capture) -> None:
    runs = [str(training_run(tmp_path / str(seed), seed=seed, share=share)) for seed, share in ((0, 0.9), (1, 0.7))]
    assert report.main(runs) == 0
    said = capsys.readouterr().out
    assert said.startswith("The test\n\n| run | of the oracle's reward | held-out reward | right | ¢ a task |\n")
    assert "| 1 | 70.0% (64.0% to 77.0%) | 0.600 | 64.0% | 3.10 |" in said
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


WRONG = [
    ("evaluate --policies oracle", "no option '--policies'. Did you mean --policy; "),
    ("evaluate --tasks ten", "--tasks: a whole number expected, got 'ten'; "),
    ("evaluate --tasks", "--tasks: a whole number expected, got ''; "),
    ("evaluate --spend-cap=free", "--spend-cap: a number expected, got 'free'; "),
    ("evaluate --max-turns 5", "What gym.make takes stands behind the id: --env HLE-v0 max_turns=5; "),
    ("evaluate HLE-v0", "'HLE-v0' belongs to no option. An environment stands behind --env: --env HLE-v0; "),
    ("evaluate --env HLE-v1", "no environment 'HLE-v1'; valid: FRAMES-v0, "),
    ("evaluate --env Mine/X-v0", "One of your own is named with its module: my_env:Mine/MyEnv-v0"),
    ("export model runs/mine", "export model RUN FOLDER expected; FOLDER is missing: The new folder"),
    ("export prompts --split tst", "--split: no choice 'tst'; valid: test, train, validation. Did you mean 'test'; "),
    ("export prompts --env HLE-v0", "--out is missing: The file to write: .parquet, or .jsonl; "),
    ("recorded fit", "recorded fit OUTCOMES expected; OUTCOMES is missing: A table"),
    ("recorded fit .", "got .; a folder that evaluate wrote has form='evaluation'. On the command line: --form evalua"),
    ("serve experts no.toml", "no.toml: No such file or directory; docs/serving.md shows a file of servers"),
    ("serve cascde", "no policy 'cascde'; valid: "),
]


@pytest.mark.parametrize(("line", "says"), WRONG)
def test_a_wrong_command_line_is_told_in_a_sentence(
    line: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert typed(monkeypatch, *line.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert says in said
    assert said.count("help") <= 1


@pytest.mark.parametrize(
    "words",
    [
        "new other_env --out file",
        "new other_env --out file/below",
        "export prompts --env HLE-v0 --tasks 3 --out file/prompts.jsonl",
        "export prompts --env HLE-v0 --tasks 3 --out folder.jsonl",
        "evaluate --env HLE-v0 --tasks 2 --policy random --out not_there/../file",
        "serve experts experts.toml --out file/backends.toml",
        "recorded fit outcomes.csv --out file/fit.json",
        "recorded fit outcomes.csv --page folder.jsonl",
        "recorded replay outcomes.csv --out file/replay.md",
        f"evaluate --env HLE-v0 --tasks 2 --policy random --out {'x' * 300}",
    ],
)
def test_where_no_folder_can_be_made_is_said_in_a_line(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("folder.jsonl").mkdir()
    assert typed(monkeypatch, *words.split()) in (1, 2)
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.endswith(("name another\n", "name another place\n"))


def test_the_first_word_names_the_command(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    assert typed(monkeypatch, "ids") == 0
    assert capsys.readouterr().out.startswith("ToolOrchestra/HLE-v0 ")
    for words, says in (
        (["idz"], "no command 'idz'"),
        (
            ["synth", "mak", "parking"],
            "no command 'synth mak'; valid: synth export, synth lint, synth make, synth prove",
        ),
        (["index", "biuld"], "Did you mean 'index build'?"),
        (["budget", "--stops", "1"], "no option '--stops'. Did you mean --steps; "),
    ):
        assert ended(lambda words: typed(monkeypatch, *words), words) == 2
        assert says in capsys.readouterr().err
    assert typed(monkeypatch) == typed(monkeypatch, "help") == 0
    listed = capsys.readouterr().out
    assert all(listed.count(f"\n  {name} ") >= 2 for name in cli.COMMANDS)
    assert typed(monkeypatch, "index") == typed(monkeypatch, "index", "--help") == 0
    assert capsys.readouterr().out.count("\n  index build ") == 2
    assert typed(monkeypatch, "--version") == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_doctor_knows_every_extra() -> None:
    extras = configparser.ConfigParser()
    extras.read(REPOSITORY / "setup.cfg")
    told = " ".join(part.install for part in doctor.PARTS)
    for extra in extras["options.extras_require"]:
        assert f"[{extra}]" in told or f"{extra}.install" in told or extra == "dev", extra


def test_doctor_says_what_is_missing_and_never_a_key(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-secret")
    wings = ("wings_of_wax", "wings_in_a_folder")
    monkeypatch.setattr(doctor, "PARTS", (doctor.PARTS[-1], doctor.Ability("fly", wings, "pip install wings")))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "wings_in_a_folder").mkdir()
    assert doctor.main([]) == 0
    told = capsys.readouterr().out
    assert "missing wings_of_wax, wings_in_a_folder: pip install wings" in told
    assert "keys seen: TAVILY_API_KEY" in told
    assert "tvly-secret" not in told
