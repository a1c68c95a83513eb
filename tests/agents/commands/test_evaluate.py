"""`evaluate` and `compare`, called in this process: tables, files, new bills, exit codes, and what to type where
something is missing."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.agents.evaluation.made_rows import made_row, write_run
from tests.agents.evaluation.test_endpoint_evaluation import expert, file_of
from tests.command_line import ended
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.tau2_playing import needs_package
from toolorchestra.agents.commands import compare, evaluate, report
from toolorchestra.agents.commands.evaluate import EvaluationProgress
from toolorchestra.agents.commands.evaluation_setup import EvaluateOptions
from toolorchestra.agents.evaluation.rows import read_rows
from toolorchestra.agents.evaluation.trials import tasks_of
from toolorchestra.agents.policies.base import Move
from toolorchestra.agents.policies.players import FORMS
from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.frames.source import FramesSource
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import factory
from toolorchestra.envs.registration import register

Capture = pytest.CaptureFixture[str]
HLE = ["--env", "HLE-v0", "--split", "test"]
FRAMES = ["--env", "FRAMES-v0", "--split", "test"]


def table(out: str, title: str) -> dict[str, list[str]]:
    """The first table below a title: its lines by policy."""
    below = out.split(f"{title}\n\n", 1)[1].split("\n\n")[0].splitlines()
    return {line.split()[0]: line.split() for line in below[1:]}


def test_its_help_names_every_policy() -> None:
    assert set(FORMS) <= {word.strip(',;.()"') for word in inspect.getsource(EvaluateOptions).split()}


def test_policies_are_compared_on_each_environment_and_split(capsys: Capture) -> None:
    words = ["--tasks", "3", "--policy", "cheapest", "oracle", "--seed", "4"]
    assert evaluate.main([*words, "--split", "train", "test"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("prices paper-2025-11, SIMULATED\n")
    for title in ("HLE-v0 train", "HLE-v0 test", "FRAMES-v0 train", "FRAMES-v0 test"):
        rows = table(out, title)
        assert list(rows) == ["cheapest", "oracle"]
        assert [row[1:3] for row in rows.values()] == [["3", "3"]] * 2
        assert float(rows["oracle"][3]) >= float(rows["cheapest"][3])
    assert "subject: " not in out
    assert evaluate.main([*words, "--env", "HLE-v0", "--each", "tools=plain,paper"]) == 0
    out, err = capsys.readouterr()
    assert {"HLE-v0, tools=plain test", "HLE-v0, tools=paper test"} < set(out.splitlines())
    assert err == ""


def test_over_an_index_a_run_says_what_it_spent_and_its_replay_spends_the_same(tmp_path: Path, capsys: Capture) -> None:
    tape = str(tmp_path / "tape.jsonl")
    common = [*FRAMES, "--tasks", "2", "--policy", "cheap", "random", "--backends", "index=embedded"]
    said = []
    for mode in ("record", "replay"):
        out = tmp_path / mode
        assert evaluate.main([*common, f"{mode}={tape}", "--out", str(out)]) == 0
        said.append(capsys.readouterr().out)
        assert said[-1].startswith("prices paper-2025-11, models SIMULATED\n")  # whatever index is searched
        assert json.loads((out / "manifest.json").read_text())["simulated"] is True
    for command, more in ((report, []), (compare, []), (compare, ["--table", "figures", "--format", "markdown"])):
        assert command.main([str(tmp_path / "record"), *more]) == 0
        assert "The models are SIMULATED." in capsys.readouterr().out
    spent = [re.findall(r"^([\d.]+) \$ for the trials; digest (\w+)$", out, re.M) for out in said]
    assert len(spent[0]) == 1
    assert spent[0] == spent[1]
    assert evaluate.main([*common, f"replay={tape}", "--seed", "9"]) == 1
    assert re.search(r"^failed \d+ times: .*no recording of this", capsys.readouterr().out, re.M)


def test_real_questions_are_asked(tmp_path: Path, capsys: Capture) -> None:
    """Whose columns are called otherwise, by a model behind an endpoint."""
    rows = [{"key": f"q{n}", "ask": f"What is {n} + {n}?", "gold": str(2 * n)} for n in range(4)]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = ["--dataset", str(path), "id=key", "question=ask", "answer=gold"]
    with Loopback(expert) as server:
        words = ["--env", "HLE-v0", *fields, "--backends", file_of(tmp_path, server), "index=embedded"]
        assert evaluate.main([*words, "--tasks", "2", "--policy", "cheap", "--at-once", "1"]) == 0
        asked = [n for n in range(4) if any(f"What is {n} + {n}?" in seen.text for seen in server.seen)]
    assert len(asked) == 2
    out = capsys.readouterr().out
    assert "SIMULATED" not in out
    assert table(out, "HLE-v0 all")["cheap"][1:3] == ["2", "2"]


def questions(tmp_path: Path, subjects: list[str]) -> str:
    """A data set of sums, a question for each of these subjects."""
    rows = [{"id": f"q{n}", "question": f"What is {n} + {n}?", "answer": str(2 * n), "category": subject}
            for n, subject in enumerate(subjects)]  # fmt: skip
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_rows_with_an_image_are_counted_where_a_reader_looks(tmp_path: Path, capsys: Capture) -> None:
    rows = [{"id": n, "question": f"What of {n}?", "answer": n, "image": "x.png" * (n % 5 == 0)} for n in range(40)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["--env", "HLE-v0", "--dataset", str(tmp_path / "q.jsonl"), "--backends", "index=embedded"]
    assert evaluate.main([*asked, "--policy", "cheap", "--split", "all", "--out", str(tmp_path / "run")]) == 0
    assert "HLE-v0: rows of the data set that are left out: 8 with an image" in capsys.readouterr().out
    for name in ("manifest.json", "summary.json"):
        assert json.loads((tmp_path / "run" / name).read_text())["left_out"] == {"HLE-v0": {"images": 8}}


def test_tasks_of_a_data_set_are_a_sample_of_its_subjects(tmp_path: Path) -> None:
    """The seed draws it; whoever plays fewer plays its first ones; and the manifest says which they are."""
    made = factory(source="toolorchestra.envs.domains.hle.source:HleSource", tools="none", split="all",
                   dataset=questions(tmp_path, ["easy"] * 60 + ["hard"] * 30 + ["odd"] * 10))  # fmt: skip
    drawn = [tasks_of(made, 20, seed) for seed in (0, 0, 7)]
    assert drawn[0] == drawn[1]
    assert {task for task, _ in drawn[0]} != {task for task, _ in drawn[2]}
    for some in drawn:
        numbers = [int(task.rpartition("q")[2]) for task, _ in some]
        assert [sum(n < 60 for n in numbers), sum(60 <= n < 90 for n in numbers)] == [12, 6]
    assert tasks_of(made, 7, 0) == drawn[0][:7]
    assert len({task for task, _ in tasks_of(made, 1000, 0)}) == 100


@needs_package
def test_a_sample_of_all_domains_has_each_of_them() -> None:
    made = factory(
        source="toolorchestra.envs.domains.tau2.source:Tau2Source", domain="all", user="scripted", split="base"
    )
    counts = Counter(task.partition("/")[0] for task, _ in tasks_of(made, 30, 0))
    assert set(counts) == {"airline", "retail", "telecom"}
    assert min(counts.values()) >= 4


def test_what_was_learnt_from_is_not_played(tmp_path: Path, capsys: Capture) -> None:
    """All rows of a data set would hold those that knn has seen the answers of."""
    offers = [{"alias": alias, "model": f"gpt-5{size}", "seconds": 1} for alias, size in (("a", ""), ("b", "-mini"))]
    answer = {"kind": "answer", "name": "answer", "description": "Answers.", "offers": offers}
    tools = {"name": "two", "tools": [answer]}
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    words = ["--env", "HLE-v0", f"tools={tmp_path / 'tools.json'}", "--dataset", questions(tmp_path, ["sums"] * 40)]
    words += ["--tasks", "40", "--player", "fit_tasks=3", "--policy", "always:a"]
    with Loopback(expert) as server:
        words += ["knn", "--backends", file_of(tmp_path, server)]
        assert evaluate.main([*words, "--out", str(tmp_path / "run")]) == 0
        rows = table(capsys.readouterr().out, "HLE-v0 test")
        assert {"always:a", "knn"} == set(rows)
        manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
        assert len(manifest["tasks"]["HLE-v0 test"]) == int(rows["knn"][1])
        assert evaluate.main([*words, "--split", "all"]) == 2
    said = capsys.readouterr().err
    assert "policy 'knn' learns from train tasks, which split 'all' has; play it on test" in said


def test_what_failed_is_not_known_and_the_exit_code_says_so(tmp_path: Path, capsys: Capture) -> None:
    def gone(asked: ReceivedRequest) -> ServerReply:
        said = f"gone for {asked.number}" if asked.number % 2 else "gone"
        return ServerReply(said, 410) if "<answer>" in asked.text else expert(asked)

    with Loopback(gone) as server:
        file = file_of(tmp_path, server, retries=0, failures_to_open=1000)
        words = [*HLE, "--tasks", "16", "--policy", "cheap", "--backends", file, "--at-once", "1"]
        assert evaluate.main(words) == 1
    out = capsys.readouterr().out
    cheap = table(out, "HLE-v0 test")["cheap"]
    assert cheap[1:4] == ["16", "0", "0.0-100.0"]
    failed = re.findall(r"^failed (\d+) times: .*gone.*$", out, re.M)
    (more,) = re.findall(r"^and (\d+) more, of \d+ other kinds$", out, re.M)
    assert len(failed) == 5  # the commonest say enough
    assert sum(map(int, failed)) + int(more) == 16


def test_the_progress_line_leaves_no_failed_trial_out() -> None:
    """A dead judge is asked of the wrong answers alone: those that are known are all right."""
    progress = EvaluationProgress("here", 40)
    for number in range(19):
        progress.ended(made_row(str(number), 1.0 if number < 14 else None))
    line = progress.line()
    assert line.startswith("here: 19 of 40, right 14 to 19 of 19 (51% to 100%), ")
    assert line.endswith(", 5 failed")


def test_a_spend_cap_holds_over_all_environments(tmp_path: Path, capsys: Capture) -> None:
    words = ["--split", "test", "--tasks", "9", "--policy", "cheapest", "--spend-cap", "0.0000001"]
    assert evaluate.main([*words, "--out", str(tmp_path)]) == 1  # nothing is known
    out = capsys.readouterr().out
    assert "18 trials were cut or did not begin: the run has spent " in out
    assert table(out, "HLE-v0 test")["cheapest"][1:3] == ["9", "0"]
    assert table(out, "FRAMES-v0 test")["cheapest"][1:4] == ["9", "0", "0.0-100.0"]
    rows = list(read_rows(tmp_path))
    assert {row.status for row in rows} == {"cut"}
    assert len(rows) < 9


def test_a_cap_below_one_reply_says_so_first(tmp_path: Path, capsys: Capture) -> None:
    with Loopback(expert) as server:
        words = [*HLE, "--tasks", "4", "--policy", "always:answer-1", "--backends", file_of(tmp_path, server)]
        assert evaluate.main([*words, "--spend-cap", "0.005"]) == 1
        assert not [asked for asked in server.seen if "<answer>" in asked.text]
    out = capsys.readouterr().out
    assert out.startswith("one reply of gpt-5 may cost 0.04")
    assert "4 trials were cut or did not begin: the run has spent 0 $ of its cap" in out
    assert "and the next request may cost" in out


def test_a_policy_that_is_no_model_pays_for_none_over_real_backends(tmp_path: Path) -> None:
    with Loopback(expert) as server:
        words = [*HLE, "--tasks", "2", "--policy", "always:answer-1", "--backends", file_of(tmp_path, server)]
        assert evaluate.main([*words, "--out", str(tmp_path / "run")]) == 0
    for row in read_rows(tmp_path / "run"):
        assert row.nano_usd_by_role["orchestrator"] == 0 < row.nano_usd_by_role["expert"]


@pytest.mark.parametrize(
    ("status", "words", "begun", "says"),
    [
        (402, [], 9, "has no credit left for this account (402)"),
        (410, ["--stop-after-failures", "3"], 11, "3 of 11 trials failed, and after 3 the run is to stop"),
        (410, ["--stop-after-failures", "0.25"], 11, "3 of 11 trials failed, and after 0.25 the run is to stop"),
        (410, [], 30, ""),
    ],
)
def test_a_run_stops_when_it_would_only_go_on_failing(
    status: int, words: list[str], begun: int, says: str, tmp_path: Path, capsys: Capture
) -> None:
    answers = 0

    def reply(asked: ReceivedRequest) -> ServerReply:
        nonlocal answers
        answers += "<answer>" in asked.text
        return ServerReply("no more", status) if answers > 8 else expert(asked)

    with Loopback(reply) as server:
        file = file_of(tmp_path, server, retries=0, failures_to_open=1000)
        words += [*HLE, "--tasks", "30", "--policy", "always:answer-1", "--backends", file, "--at-once", "1"]
        assert evaluate.main([*words, "--out", str(tmp_path / "run")]) == 1
    assert len(list(read_rows(tmp_path / "run"))) == begun
    err = capsys.readouterr().err
    assert says in err
    assert ("go on with --resume" in err) == bool(says)


class InterruptedSource(FramesSource):
    """Ctrl-C is pressed while a task is drawn: the first whose text is long enough."""

    drawn = 0

    def generate(self, rng: random.Random) -> Question:
        type(self).drawn += 1
        if self.drawn == 40:
            signal.raise_signal(signal.SIGINT)
        return super().generate(rng)


@pytest.mark.parametrize(("real", "policy"), [([], "cheapest"), (["--backends", "index=embedded"], "cheap")])
def test_an_interrupt_shows_what_was_played_before_it(real: list[str], policy: str, capsys: Capture) -> None:
    register("Tests/Interrupted-v0", f"{__name__}:InterruptedSource")
    InterruptedSource.drawn = 0
    words = ["--env", "Tests/Interrupted-v0", "--split", "train", "--tasks", "100", "--policy", policy, *real]
    assert evaluate.main([*words, "--at-once", "1"]) == 130
    out, err = capsys.readouterr()
    assert err == "stopped\n"
    known = int(table(out, "Tests/Interrupted-v0 train")[policy][2])
    assert 10 < known < 40


class OwnPlayer:
    """A player with what a name of this package's own has under other meanings."""

    name, simulated = "own", True
    closed: ClassVar[list[str]] = []

    def prepare(self) -> None:
        raise AssertionError("nobody calls it")

    async def move(self, episode: Episode) -> Move:
        assert "close" not in self.closed
        return Move("<answer>7</answer>", None)

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed.append("close")


def own_player(name: str, factory: Any, seed: int, options: Any) -> OwnPlayer:
    return OwnPlayer()


@pytest.mark.parametrize("more", [[], ["--estimate"]])
def test_a_player_of_ones_own_learns_nothing_and_is_closed_once(more: list[str]) -> None:
    OwnPlayer.closed.clear()
    assert evaluate.main([*HLE, "--tasks", "3", "--policy", f"{__name__}:own_player", *more]) == 0
    assert OwnPlayer.closed == ["close"]


def test_an_environment_that_takes_no_backends_is_not_played_over_real_ones(capsys: Capture) -> None:
    register("Tests/PlainAdder-v0", "tests.support.toy:AdderSource")
    assert evaluate.main(["--env", "Tests/PlainAdder-v0", "--backends", "index=embedded"]) == 2
    assert "no environment over real backends 'Tests/PlainAdder-v0'; valid: ToolOrchestra/" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--env", "CartPole-v1"], "no environment "),
        (["--env", "HEL-v0", "--env", "HLE-v0"], "no environment 'HEL-v0'; valid: "),
        (["--resume"], "name it, out=FOLDER. On the command line: --out FOLDER"),
        (["--player", "fit_task=3"], "Did you mean 'fit_tasks'?"),
        ([*HLE, "--backends", "record=a", "replay=b"], "one cassette at a time; got record=, replay="),
        ([*HLE, "--backends", "judge=gpt-5-mini"], "the judge gpt-5-mini is a model: say where it is served"),
        ([*HLE, "--backends", "index=embedded", "--policy", "chat"], "--backends FILE; of play, --set backends="),
        ([*HLE, "--backends", "sandbox=unsafe-exec"], "no sandbox 'unsafe-exec'"),
        ([*HLE, "--policy", "cheep"], "no policy 'cheep'; valid: always:EXPERT, cascade, chat, "),
        ([*HLE, "--dataset", "q.jsonl", "question"], "--dataset takes NAME=VALUE, got 'question'"),
        ([*HLE, "--backends", "indx=embedded"], "Did you mean 'index'?"),
        ([*HLE, "--backends", "web=perhaps"], "web=true or web=false expected, got 'perhaps'"),
        ([*HLE, "--env", "HLE-v0", "max_turns=3"], "--env HLE-v0 stands there twice; --each NAME=VALUE,VALUE"),
        (["--env", "HLE-v0", "split=all"], "--env HLE-v0: a run names its splits by --split all"),
        ([*HLE, "--each", "max_turns"], "--each takes NAME=VALUE, got 'max_turns'"),
    ],
)
def test_what_cannot_be_evaluated_is_said_before_a_table(words: list[str], says: str, capsys: Capture) -> None:
    assert evaluate.main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err


@needs_package
def test_every_environment_is_evaluated_and_several_in_one_run(tmp_path: Path, capsys: Capture) -> None:
    envs = ("HLE-v0", "FRAMES-v0", "ToolScale-v0", "Tau2-v0")
    words = [word for env in envs for word in ("--env", env)]
    assert evaluate.main([*words, "--tasks", "2", "--policy", "random", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert [f"{env} test" in out for env in envs] == [True] * 4
    assert [row.env for row in read_rows(tmp_path)] == [env for env in envs for _ in range(2)]
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert json.loads((tmp_path / "manifest.json").read_text())["simulated"] is True


def test_arguments_of_one_environment_and_values_for_each(tmp_path: Path) -> None:
    """`--each` is for all environments, what stands behind an id for that one; both go to gym.make."""
    common = ["--split", "test", "--tasks", "2", "--policy", "cheapest"]
    both = ["--env", "HLE-v0", "--env", "FRAMES-v0", "--each", "max_turns=1,2"]
    for words, cut in (
        (["--env", "HLE-v0", "max_turns=1", "--env", "FRAMES-v0"], {"HLE-v0"}),
        (both, {f"{env}, max_turns=1" for env in ("HLE-v0", "FRAMES-v0")}),
    ):
        folder = tmp_path / str(len(cut))
        assert evaluate.main([*words, *common, "--out", str(folder)]) == 0
        assert {row.env for row in read_rows(folder) if row.turns == 1} == cut


@pytest.fixture
def a_run(tmp_path: Path) -> Path:
    charge = {"item": "gpt-5", "role": "expert", "tool": "answer-1", "tokens": {"input": 1000, "output": 100}}
    charge |= {"units": 0, "seconds": 1.0, "estimated": False, "nano_usd": 2_250_000, "sheet": "paper-2025-11"}
    rows = [made_row(str(n), float(n > 0), nano_usd_by_role={"expert": 2_250_000}) for n in range(3)]
    folder = write_run(tmp_path / "run", rows)
    lines = [{"key": list(row.key), "charges": [charge], "messages": [], "tools": []} for row in rows]
    (folder / "trajectories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "manifest.json").write_text(json.dumps({"planned": [["HLE-v0", "test", "cheap", 5]]}))
    return folder


def test_runs_are_compared(a_run: Path, tmp_path: Path, capsys: Capture) -> None:
    other = write_run(tmp_path / "other", [made_row(str(n), 1.0, cents=9.0) for n in range(3)])
    assert compare.main([str(a_run), str(other)]) == 0
    assert "other: cheap" in capsys.readouterr().out
    assert compare.main([str(a_run), str(other), "--format", "markdown"]) == 0
    assert capsys.readouterr().out.startswith("### HLE-v0 test (paper-2025-11)")
    assert compare.main([str(a_run), str(other), "--format", "json", "--against", "cheap"]) == 0
    (section,) = json.loads(capsys.readouterr().out)["sections"]
    assert section["comparisons"][0]["better"] == 1
    assert compare.main([str(a_run), str(other), "--against", "nobody"]) == 2
    assert "no policy 'nobody'" in capsys.readouterr().err
    assert compare.main([str(tmp_path / "nowhere")]) == 2
    assert "no rows of an evaluation" in capsys.readouterr().err


def test_a_run_is_billed_anew(a_run: Path, tmp_path: Path, capsys: Capture) -> None:
    sheet = tmp_path / "mine.json"
    price = {"usd_per_mtok": {"input": 10, "output": 100}}
    sheet.write_text(json.dumps({"id": "mine", "date": "2026", "source": "made up", "prices": {"gpt-5": price}}))
    assert compare.main([str(a_run), "--reprice", str(sheet)]) == 0
    said = capsys.readouterr().out
    assert "3 trials: 0.006750 $ under paper-2025-11, 0.060000 $ under mine." in said
    assert [row.nano_usd for row in read_rows(tmp_path / "run-mine")] == [20_000_000] * 3
    assert compare.main([str(a_run), "--reprice", str(sheet)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert compare.main([str(a_run), "--reprice", str(sheet), "--out", str(tmp_path / "b")]) == 0
    assert compare.main([str(a_run), "--reprice", "no-such-sheet"]) == 2


def test_runs_under_other_prices_are_compared_under_one_sheet(a_run: Path, tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other"
    assert compare.main([str(a_run), "--reprice", "unseen-2026-01", "--out", str(other)]) == 0
    capsys.readouterr()
    assert compare.main([str(a_run), str(other)]) == 0
    assert "`toolorchestra compare RUN RUN --reprice SHEET` bills them anew" in capsys.readouterr().out
    words = ["--reprice", "paper-2025-11", "--format", "json", "--out", str(tmp_path / "same")]
    assert compare.main([str(a_run), str(other), *words]) == 0
    said = capsys.readouterr()
    (section,) = json.loads(said.out)["sections"]
    assert section["comparisons"][0]["cents"]["difference"] == 0
    assert f"written: {tmp_path / 'same' / 'other'}" in said.err
    assert (tmp_path / "same" / "run" / "page.html").is_file()


def test_a_run_is_exported(a_run: Path, tmp_path: Path, capsys: Capture) -> None:
    figures = ["--table", "figures"]
    assert compare.main([str(a_run), *figures]) == 0
    assert "2 right, 2 not known (2 not played), of 5: 40-80 %." in capsys.readouterr().out
    assert compare.main([str(a_run), "--format", "json", *figures]) == 0
    assert json.loads(capsys.readouterr().out)["policies"][0]["trials"]["unplayed"] == 2
    out = tmp_path / "figures.md"
    assert compare.main([str(a_run), "--format", "markdown", *figures, "--out", str(out)]) == 0
    assert "| cheap |" in out.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--policy", "cheap"], "--policy goes with --format tau2, tau2-submission, gaia, got --format text"),
        (["--out", "."], "--out: a file in a folder that is there expected, got ."),
        (["--table", "figures", "--against", "nobody"], "no rows of a policy 'nobody'"),
        (["--reprice", "paper-2025-11", "--rescore"], "--reprice and --rescore: one after the other"),
        (["--backends", "judge=gpt-5"], "--backends goes with --rescore; leave it out"),
        (["--rescore", "--spend-cap", "-1"], "--spend-cap: a number of dollars above 0 expected"),
        ([".", "--table", "figures"], "are of one run, got 2"),
    ],
)
def test_options_that_do_not_go_together_are_refused(a_run: Path, words: list[str], says: str, capsys: Capture) -> None:
    assert ended(compare.main, [str(a_run), *words]) == 2
    assert says in capsys.readouterr().err
