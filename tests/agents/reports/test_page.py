"""The page's file: all data of a run are in it, exactly, and nothing of them is part of its HTML."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.evaluation.made_rows import made_row, write_run
from tests.agents.reports.recorded_runs import record, record_service, run_folder
from toolorchestra.agents.commands import report
from toolorchestra.agents.evaluation.rows import (
    MANIFEST,
    RETRIED,
    ROWS,
    SEAL,
    TRAJECTORIES,
    EvaluationRow,
    line_of,
    read_rows,
)
from toolorchestra.agents.reports import page
from toolorchestra.agents.reports.page import page_file, write_page
from toolorchestra.agents.reports.page_data import read_evaluations
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.wrappers import read_trajectories

HOSTILE = (
    "</script><script>globalThis.ran=1</script><img src=x onerror='globalThis.ran=1'>{{script}}${1}\u202e\x00\ud800"
)


def parts(file: Path, name: str) -> list[Any]:
    """The data of a page by the name of their part, unpacked."""
    found = re.findall(rf'<script type="text/plain" data-part="{name}">([^<]*)</script>', file.read_text())
    return [json.loads(gzip.decompress(base64.b64decode(one))) for one in found]


def transcripts(file: Path) -> list[Any]:
    """Every transcript, in the order of the list, with what is shared put back."""
    index, details, shared = parts(file, "index")[0], parts(file, "transcripts"), parts(file, "shared")
    found = []
    for trial in index["trials"]:
        one = details[trial["at"][0]][trial["at"][1]]
        part, place = one["tools"]["shared"]
        one["tools"] = shared[part][place]
        first = one["messages"][0]
        if isinstance(first["content"], dict):
            part, place = first["content"]["shared"]
            first["content"] = shared[part][place]
        found.append(one)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_folder(tmp_path_factory.mktemp("runs") / "small", 3)


def copied(run: Path, place: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A run with every row and every transcript changed."""
    place.mkdir(parents=True)
    for name in (ROWS, TRAJECTORIES):
        lines = [json.loads(line) for line in (run / name).read_text().splitlines()]
        for line in lines:
            change(line)
            line.pop(SEAL, None)
        (place / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return place


def test_the_page_holds_every_row_and_every_transcript(run: Path, tmp_path: Path) -> None:
    written = write_page(run, tmp_path / "page.html")
    assert (written.trials, written.transcripts, written.notes) == (24, 24, ())
    (index,) = parts(written.file, "index")
    rows = list(read_rows(run))
    assert [(t["env"], t["policy"], t["task"]) for t in index["trials"]] == [(r.env, r.policy, r.task) for r in rows]
    assert [t["nano_usd_by_role"] for t in index["trials"]] == [r.nano_usd_by_role for r in rows]
    assert all(
        t["question"] in r["messages"][1]["content"]
        for t, r in zip(index["trials"], read_trajectories(run / TRAJECTORIES), strict=True)
    )
    assert transcripts(written.file) == list(read_trajectories(run / TRAJECTORIES))
    assert index["manifest"]["tasks"] == 3


def test_parts_are_small_and_what_is_alike_is_kept_once(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PART_BYTES", 30_000)
    file = write_page(run, tmp_path / "page.html").file
    assert len(parts(file, "transcripts")) > 3
    assert transcripts(file) == list(read_trajectories(run / TRAJECTORIES))
    tools = [value for part in parts(file, "shared") for value in part if isinstance(value, list)]
    assert len(tools) < 24
    assert len(tools) == len({json.dumps(value) for value in tools})


def test_a_recording_of_real_episodes_is_a_run_too(tmp_path: Path) -> None:
    path = record(tmp_path / "mine.jsonl", "HLE-v0", "oracle", [4, 4])
    record_service(path, "<think>Who is it?</think>Which order?", "<tool_call>{broken", "Goodbye.")
    written = write_page(path)
    assert written.file == tmp_path / "mine.html"
    (index,) = parts(written.file, "index")
    first, again, service = index["trials"]
    assert (first["env"], first["policy"], first["trial"], first["status"]) == ("hle-sim", "recorded", 0, "ended")
    assert again["trial"] == 1
    assert service["env"] == "toolscale"
    lines = list(read_trajectories(path))
    assert [sum(t["nano_usd_by_role"].values()) for t in index["trials"]] == [r["totals"]["nano_usd"] for r in lines]
    assert first["elapsed_ns"] == round(lines[0]["totals"]["seconds"] * 1e9)
    assert first["right"] == lines[0]["outcome"]["value"]
    assert set(first["models"]) <= set(first["calls"])
    assert [str(one["seed"]) for one in lines] == [one["seed"] for one in transcripts(written.file)]


def test_an_episode_that_failed_says_where(tmp_path: Path) -> None:
    path = record(tmp_path / "one.jsonl", "HLE-v0", "oracle", [1])
    (line,) = read_trajectories(path)
    failed = {"where": "grade", "error": "KeyError: 'x'\nmore", "traceback": "Traceback"}
    path.write_text(json.dumps({**line, "outcome": None, "failed": failed, "truncated_by": "failed"}) + "\n")
    (index,) = parts(write_page(path).file, "index")
    assert (index["trials"][0]["status"], index["trials"][0]["failure"]) == ("failed", "grade: KeyError: 'x'")


def test_an_episode_of_which_nobody_knows_what_is_right_is_shown_without_texts_too(tmp_path: Path) -> None:
    path = record(tmp_path / "one.jsonl", "HLE-v0", "oracle", [1])
    (line,) = read_trajectories(path)
    del line["messages"]
    path.write_text(json.dumps({**line, "outcome": {"value": None, "evidence": {"answer": "42"}}}) + "\n")
    (index,) = parts(write_page(path).file, "index")
    (trial,) = index["trials"]
    assert (trial["status"], trial["failure"]) == ("failed", "nobody knows what is right")
    assert "right" not in trial
    assert trial["evidence"] == {"answer": "42"}


def test_a_page_of_several_runs_knows_what_each_has_planned_and_that_all_are_simulated(tmp_path: Path) -> None:
    for name in ("simulated", "planned"):
        told = {"simulated": True, "planned": [["HLE-v0", "test", "cheap", 10]]}
        (write_run(tmp_path / name, [made_row("1")]) / MANIFEST).write_text(json.dumps(told))
    write_run(tmp_path / "none", [made_row("1")])
    shown = read_evaluations([tmp_path / name for name in ("simulated", "planned")]).manifest
    assert shown["simulated"] is True
    assert shown["planned"] == [["HLE-v0", "test", f"cheap, {name}", 10] for name in ("simulated", "planned")]
    some = read_evaluations([tmp_path / name for name in ("none", "planned")]).manifest
    assert (some["simulated"], len(some["planned"])) == (False, 1)


def test_torn_lines_are_counted_and_the_rest_is_shown(run: Path, tmp_path: Path) -> None:
    place = copied(run, tmp_path / "torn", lambda line: None)
    lines = (place / TRAJECTORIES).read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:500] + b"\n"
    stranger = json.dumps({**json.loads(lines[0]), "key": ["HLE-v0", "test", "nobody", "t", 0]}).encode() + b"\n"
    (place / TRAJECTORIES).write_bytes(b"".join([*lines, stranger, lines[5], b"[1]\n", lines[4][:300]]))
    written = write_page(place)
    assert written.notes == (
        f"{TRAJECTORIES}: 3 lines could not be read: 3, 27, 28.",
        "1 of 24 trials have no transcript.",
        "1 transcripts belong to no row and are left out.",
    )
    (index,) = parts(written.file, "index")
    assert [place for place, trial in enumerate(index["trials"]) if trial["at"] is None] == [2]
    assert index["notes"] == list(written.notes)


def test_a_trial_that_was_played_again_is_shown_once(run: Path, tmp_path: Path) -> None:
    place = copied(run, tmp_path / "again", lambda line: None)
    last = {**json.loads((place / ROWS).read_text().splitlines()[0]), "turns": 77}
    with (place / ROWS).open("a") as file:
        file.write(json.dumps(last) + "\n")
    (index,) = parts(write_page(place).file, "index")
    assert [trial["turns"] for trial in index["trials"]].count(77) == 1
    assert len(index["trials"]) == 24
    shown = transcripts(place / "page.html")
    with (place / TRAJECTORIES).open("a") as file:  # a try that has another bill is not the row's
        file.write(json.dumps({**shown[0], "charges": []}) + "\n")
    write_page(place)
    assert transcripts(place / "page.html") == shown


def test_no_text_of_a_stranger_is_part_of_the_html(run: Path, tmp_path: Path) -> None:
    def spoil(line: dict[str, Any]) -> None:
        line["failure" if "status" in line else "seed"] = HOSTILE
        line["evidence" if "status" in line else "outcome"] = {HOSTILE: HOSTILE}

    place = copied(run, tmp_path / "<img src=x onerror=ran=1>{{script}}{{data}}", spoil)
    text = write_page(place).file.read_text()
    assert "globalThis.ran" not in text
    assert "<img" not in text
    assert '<h1 id="title"><span>Evaluation</span> &lt;img src=x onerror=ran=1&gt;{{script}}{{data}}</h1>' in text
    (index,) = parts(place / "page.html", "index")
    assert index["trials"][0]["evidence"] == {HOSTILE: HOSTILE}
    assert transcripts(place / "page.html")[0]["seed"] == HOSTILE


def test_the_policy_allows_the_pages_own_script_and_style_alone(run: Path, tmp_path: Path) -> None:
    text = write_page(run, tmp_path / "page.html").file.read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    for name, content in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert allowed[name] == f"'sha256-{digest}'"
    assert allowed["default-src"] == "'none'"
    assert "connect-src" not in allowed
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/2000/svg", "", text)


def test_the_pages_own_script_never_reads_data_as_html() -> None:
    for name in {*page.SCRIPTS, *page.LIVE_SCRIPTS}:
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function", page_file(f"{name}.js")
        )


@pytest.mark.parametrize("content", ["{}\n", "[" * 100_000 + "\n"])
def test_a_file_without_a_trajectory_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(ConfigError, match="no trajectory in"):
        write_page(tmp_path / "x.jsonl")


def test_the_command_says_what_it_wrote(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "made" / "there.html"
    assert report.main([str(run), "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert re.fullmatch(rf"{re.escape(str(out))}: 24 trials, 24 transcripts, \d\.\d MB\n", said.err)
    assert said.out.startswith(f"{run}\n\nHLE-v0 test\n\npolicy ")
    assert [path.name for path in out.parent.iterdir()] == ["there.html"]
    assert report.main([str(run), str(run), "--out", str(out)]) == 2
    assert "two of these folders end alike" in capsys.readouterr().err
    for wrong in ([str(tmp_path / "none")], [str(tmp_path)], [str(run), "--out", str(tmp_path)]):
        assert report.main(wrong) == 2
        assert capsys.readouterr().err.startswith("error: ")
    path = record(tmp_path / "mine.html", "HLE-v0", "cheapest", [1])
    for other, told in ((tmp_path / "none", "no run at "), (path, "is a file of trajectories, which has a page of")):
        assert report.main([str(run), str(other), "--out", str(tmp_path / "both.html")]) == 2
        assert told in capsys.readouterr().err
        assert report.main([str(other), str(other), "--out", str(tmp_path / "both.html")]) == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "both.html").exists()
    assert report.main([str(path)]) == 2
    assert capsys.readouterr().err.endswith("; name another file, out=FILE. On the command line: --out FILE\n")


# -- plays that were set aside ----------------------------------------------------------------------------------------

ENDED = [made_row(name, cents=3.0) for name in "ab"]
FAILED = replace(made_row("a", None, cents=1.0), failure="policy: TimeoutError: no reply in 60 s")
BROKEN_OFF = replace(made_row("a", None, cents=0.5), status="cut", failure="broken off")


def with_retried(folder: Path, retried: Sequence[EvaluationRow], *, cache: str = "") -> Path:
    write_run(folder, ENDED)
    (folder / RETRIED).write_bytes(b"".join(map(line_of, retried)) + b'{"env": "HLE-v0", "spl')  # torn by a kill
    (folder / MANIFEST).write_text(json.dumps({"asked": {"cache": cache}}))
    return folder


def test_each_play_is_listed_with_its_cause_and_bill_and_the_totals_say_what_they_cost(tmp_path: Path) -> None:
    written = write_page(with_retried(tmp_path, [BROKEN_OFF, FAILED]))
    assert written.trials == 2
    assert "2 of 2 trials have no transcript." in written.notes
    assert "1 trial was retried; the 2 plays that do not count cost 1.50 ¢, in no figure." in written.notes
    (index,) = parts(written.file, "index")
    assert index["notes"] == list(written.notes)
    assert [(t["task"], t.get("retried"), t.get("failure", "")) for t in index["trials"]] == [
        ("a", None, ""),
        ("b", None, ""),
        ("a", 1, "broken off"),
        ("a", 2, "policy: TimeoutError: no reply in 60 s"),
    ]
    assert index["trials"][3]["nano_usd_by_role"] == FAILED.nano_usd_by_role


def test_with_a_cache_the_last_play_is_billed_what_an_earlier_one_paid(tmp_path: Path) -> None:
    """Only what an earlier play paid above the bill of the last one was paid beside it."""
    expensive = replace(made_row("b", None, cents=5.0), failure="x")
    written = write_page(with_retried(tmp_path, [FAILED, expensive], cache="replies.jsonl"))
    assert written.notes[-1] == (
        "2 trials were retried; the 2 plays that do not count cost 6.00 ¢. As a cache answers, the last plays are "
        "billed that again; 2.00 ¢ is in no figure."
    )
