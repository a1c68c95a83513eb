"""Logs of Inspect AI: what stands in them, and that Inspect itself reads it. The second part runs where inspect_ai is
installed: `make test-inspect` has an environment of its own for it."""

from __future__ import annotations

import importlib
import json
from importlib import util
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

from tests.agents.evaluation.made_rows import made_row, write_run
from tests.inspect_policies import TEXTS
from toolorchestra.agents.commands import compare, evaluate
from toolorchestra.agents.evaluation.rows import EvaluationRow, read_rows

Capture = pytest.CaptureFixture[str]
needs_inspect = pytest.mark.skipif(
    util.find_spec("inspect_ai") is None, reason="inspect_ai is not installed here: make test-inspect"
)
POLICY = "tests.inspect_policies:uneven"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tasks twice, some of which fail, and one policy whose trials are cut off by a limit."""
    folder = tmp_path_factory.mktemp("inspect") / "run"
    words = ["--env", "HLE-v0", "max_turns=3", "--tasks", "4", "--trials", "2", "--policy", POLICY, "cheapest"]
    assert evaluate.main([*words, "--out", str(folder)]) == 1
    return folder


def exported(run: Path, out: Path, *words: str) -> dict[str, Path]:
    """The logs, by policy."""
    assert compare.main([str(run), "--format", "inspect", "--out", str(out), *words]) == 0
    return {json.loads(path.read_text())["eval"]["solver"]: path for path in out.iterdir()}


def rows_of(run: Path, policy: str) -> dict[tuple[str, int], EvaluationRow]:
    return {(row.task, row.trial + 1): row for row in read_rows(run) if row.policy == policy}


def test_a_log_tells_the_trials(run: Path, tmp_path: Path) -> None:
    files = exported(run, tmp_path / "logs")
    assert set(files) == {POLICY, "cheapest"}
    log, rows = json.loads(files[POLICY].read_text()), rows_of(run, POLICY)
    assert {(one["id"], one["epoch"]) for one in log["samples"]} == set(rows)
    for one in log["samples"]:
        row = rows[one["id"], one["epoch"]]
        assert (one["metadata"]["seed"], one["total_time"]) == (row.seed, row.seconds)
        assert sum(used["total_cost"] for used in one["role_usage"].values()) == pytest.approx(row.usd)
        assert one["metadata"]["usd_by_role"].keys() == row.nano_usd_by_role.keys()
        if row.status == "failed":
            assert (one["scores"], one["error"]["message"]) == (None, "policy: Outage: nobody answers")
        else:
            assert (one["error"], one["scores"]["outcome"]["value"]) == (None, row.right)
            assert one["target"] == row.evidence["expected"]
    failed = sum(row.status == "failed" for row in rows.values())
    assert 0 < failed < len(rows)
    assert (log["results"]["total_samples"], log["results"]["completed_samples"]) == (8, 8 - failed)


def test_thoughts_and_calls_stand_apart_from_words(run: Path, tmp_path: Path) -> None:
    log = json.loads(exported(run, tmp_path / "logs", "--policy", POLICY)[POLICY].read_text())
    one = next(one for one in log["samples"] if one["error"] is None)
    assert [message["role"] for message in one["input"]] == ["system", "user"]
    said = [message for message in one["messages"] if message["role"] == "assistant"]
    thought, words = said[0]["content"]
    assert (thought["reasoning"], words["text"]) == ("Look first.", "I look it up.")
    calls = said[0]["tool_calls"]
    assert [call["function"] for call in calls] == ["search", "search"]
    told = [message for message in one["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in told[:2]] == [call["id"] for call in calls]
    assert said[1]["content"] == TEXTS[1]
    assert "tool_calls" not in said[1]
    assert one["output"]["choices"][0]["message"]["tool_calls"][0]["function"] == "answer"


def test_what_cut_a_trial_off_is_told(run: Path, tmp_path: Path) -> None:
    log = json.loads(exported(run, tmp_path / "logs")["cheapest"].read_text())
    cut = [one for one in log["samples"] if one["limit"]]
    assert cut
    assert {(one["limit"]["type"], one["limit"]["limit"]) for one in cut} == {("turn", 3)}


def test_a_run_that_is_not_whole_says_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [made_row("a", 0.5), made_row("b", None, status="cut", failure="")])
    keys = [list(row.key) for row in read_rows(folder)]
    charge = {"item": "gpt-5", "role": "expert", "tokens": dict.fromkeys(("input", "cached", "output", "reasoning"), 7)}
    lines = [{"key": key, "charges": [{**charge, "nano_usd": 30_000_000}], "messages": []} for key in keys]
    (folder / "trajectories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "manifest.json").write_text(json.dumps({"planned": [["HLE-v0", "test", "cheap", 3]]}))
    (file,) = exported(folder, tmp_path / "logs").values()
    log = json.loads(file.read_text())
    assert (log["status"], log["eval"]["model"]) == ("cancelled", "cheap")
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 0.5
    assert log["samples"][1]["error"]["message"] == "cut by the run's spend cap"
    used = log["stats"]["model_usage"]["gpt-5"]
    assert (used["input_tokens"], used["output_tokens"], used["reasoning_tokens"], used["total_tokens"]) == (
        14, 28, 14, 56,
    )  # fmt: skip
    assert used["total_cost"] == pytest.approx(0.06)


# -- Inspect itself ----------------------------------------------------------------------------------------------------


def inspect(name: str) -> Any:
    """A module of Inspect, which is not there where types are checked."""
    return importlib.import_module(f"inspect_ai.{name}")


@needs_inspect
def test_inspect_finds_and_reads_the_logs(run: Path, tmp_path: Path) -> None:
    exported(run, tmp_path / "logs")
    found = inspect("log").list_eval_logs(str(tmp_path / "logs"))
    logs = {log.eval.solver: log for log in map(inspect("log").read_eval_log, found)}
    assert set(logs) == {POLICY, "cheapest"}
    log, rows = logs[POLICY], rows_of(run, POLICY)
    assert (log.version, log.status, log.eval.task, log.eval.config.epochs) == (2, "success", "HLE-v0", 2)
    assert len(log.eval.dataset.sample_ids) == 4
    assert {(one.id, one.epoch) for one in log.samples} == set(rows)
    for one in log.samples:
        row = rows[one.id, one.epoch]
        assert (one.error is not None) == (row.right is None)
        if row.right is not None:
            score = one.scores["outcome"]
            assert (score.value, score.answer) == (row.right, row.evidence["answer"])
            assert one.messages[2].tool_calls[0].arguments == {"model": "search-3"}
            assert one.messages[3].tool_call_id == one.messages[2].tool_calls[0].id
            assert one.output.message.tool_calls[0].function == "answer"
        for role, tokens in row.tokens.items():
            assert one.role_usage[role].total_tokens == sum(tokens)


@needs_inspect
def test_its_figures_are_inspects_own(run: Path, tmp_path: Path) -> None:
    file = exported(run, tmp_path / "logs")["cheapest"]
    log = inspect("log").read_eval_log(str(file))
    told = {name: metric.value for name, metric in log.results.scores[0].metrics.items()}
    by_task: dict[str, list[float]] = {}
    for one in log.samples:
        by_task.setdefault(one.id, []).append(one.scores["outcome"].value)
    scorer = inspect("scorer")
    means = [fmean(values) for values in by_task.values()]
    scores = [scorer.SampleScore(score=scorer.Score(value=mean)) for mean in means]
    assert told["accuracy"] == pytest.approx(scorer.accuracy()(scores))
    assert told["stderr"] == pytest.approx(scorer.stderr()(scores))
    assert told["stderr"] == pytest.approx(stdev(means) / len(means) ** 0.5)


@needs_inspect
def test_inspect_writes_it_in_its_other_form(run: Path, tmp_path: Path) -> None:
    """Its own .eval files, which its viewer reads in parts."""
    log = inspect("log").read_eval_log(str(exported(run, tmp_path / "logs")[POLICY]))
    inspect("log").write_eval_log(log, str(tmp_path / "log.eval"))
    again = inspect("log").read_eval_log(str(tmp_path / "log.eval"))
    scores, kept = ({(one.id, one.epoch): one.scores for one in some.samples} for some in (log, again))
    assert kept == scores
    assert again.results == log.results
