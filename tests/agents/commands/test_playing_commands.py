"""`evaluate`, `play` and `train`, called in this process: what they print, what they write, and their exit codes."""

from __future__ import annotations

import io
import json
import random
import re
import signal
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from tests.agents.evaluation.test_endpoint_evaluation import expert, file_of
from tests.command_line import unboxed
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands import evaluate, play, train
from toolorchestra.agents.training import checkpoint
from toolorchestra.agents.training.metrics import read
from toolorchestra.envs.base.types import Question
from toolorchestra.envs.domains.frames.source import FramesSource
from toolorchestra.envs.factory import episode_seeds
from toolorchestra.envs.registration import register

Capture = pytest.CaptureFixture[str]
HLE = ["--env", "HLE-v0", "--split", "test"]
FRAMES = ["--env", "FRAMES-v0", "--split", "test"]


# -- evaluate ----------------------------------------------------------------------------------------------------------


def table(out: str, title: str) -> dict[str, list[str]]:
    """The first table below a title: its lines by policy."""
    below = out.split(f"{title}\n\n", 1)[1].split("\n\n")[0].splitlines()
    return {line.split()[0]: line.split() for line in below[1:]}


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
        assert evaluate.main([*common, f"{mode}={tape}"]) == 0
        said.append(capsys.readouterr().out)
    spent = [re.findall(r"^([\d.]+) \$ for the trials; digest (\w+)$", out, re.M) for out in said]
    assert len(spent[0]) == 1
    assert spent[0] == spent[1]
    assert evaluate.main([*common, f"replay={tape}", "--seed", "9"]) == 1
    assert re.search(r"^failed \d+ times: .*no recording of this", capsys.readouterr().out, re.M)


def test_real_questions_are_asked_in_their_order(tmp_path: Path, capsys: Capture) -> None:
    """Whose columns are called otherwise, by a model behind an endpoint."""
    rows = [{"key": f"q{n}", "ask": f"What is {n} + {n}?", "gold": str(2 * n)} for n in range(4)]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = ["--dataset", str(path), "id=key", "question=ask", "answer=gold"]
    with Loopback(expert) as server:
        words = ["--env", "HLE-v0", *fields, "--backends", file_of(tmp_path, server), "index=embedded"]
        assert evaluate.main([*words, "--tasks", "2", "--policy", "cheap", "--at-once", "1"]) == 0
        asked = [n for n in range(4) if any(f"What is {n} + {n}?" in seen.text for seen in server.seen)]
    assert asked == [0, 1]
    out = capsys.readouterr().out
    assert "SIMULATED" not in out
    assert table(out, "HLE-v0 all")["cheap"][1:3] == ["2", "2"]


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


def test_a_spend_cap_holds_over_all_environments(tmp_path: Path, capsys: Capture) -> None:
    words = ["--split", "test", "--tasks", "9", "--policy", "cheapest", "--spend-cap", "0.0000001"]
    assert evaluate.main([*words, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert table(out, "HLE-v0 test")["cheapest"][1:3] == ["9", "0"]
    assert table(out, "FRAMES-v0 test")["cheapest"][1:4] == ["9", "0", "0.0-100.0"]
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row["status"] for row in rows} == {"cut"}
    assert len(rows) < 9


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


def test_an_environment_that_takes_no_backends_is_not_played_over_real_ones(capsys: Capture) -> None:
    register("Tests/Adder-v0", "toolorchestra.envs.domains.toy:AdderSource")
    assert evaluate.main(["--env", "Tests/Adder-v0", "--backends", "index=embedded"]) == 2
    assert "no environment over real backends 'Tests/Adder-v0'; valid: ToolOrchestra/" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--env", "ToolScale-v0", "--backends", "index=embedded"], "no endpoint of a model; add [endpoints.NAME]"),
        (["--env", "CartPole-v1"], "no environment "),
        (["--resume"], "--resume goes on with a run's folder: name it with --out FOLDER"),
        (["--player", "fit_task=3"], "Did you mean 'fit_tasks'?"),
        ([*HLE, "--backends", "record=a", "replay=b"], "one cassette at a time; got record=, replay="),
        (
            [*HLE, "--backends", "judge=gpt-5-mini"],
            "the judge gpt-5-mini is a model: name its endpoint: --backends FILE",
        ),
        (
            [*HLE, "--backends", "index=embedded", "--policy", "chat"],
            "in a file, backends=FILE for gym.make. On the command line: --backends FILE\n",
        ),
        (
            [*HLE, "--backends", "index=embedded", "--policy", "oracle"],
            "policy 'oracle' plays questions to simulated experts, whose skills it knows; ",
        ),
        ([*HLE, "--policy", "cheep"], "no policy 'cheep'; valid: always:EXPERT, cascade, chat, "),
        ([*HLE, "--policy", "."], "It is a folder; a run's trained model is checkpoint:."),
        ([*HLE, "--dataset", "q.jsonl", "question"], "--dataset takes NAME=VALUE, got 'question'"),
        ([*HLE, "--backends", "indx=embedded"], "Did you mean 'index'?"),
        ([*HLE, "--backends", "sandbox=landlok"], "Did you mean 'landlock'?"),
        ([*HLE, "--backends", "web=perhaps"], "web=true or web=false expected, got 'perhaps'"),
        ([*HLE, "--env", "HLE-v0", "max_turns=3"], "--env HLE-v0 stands there twice; --each NAME=VALUE,VALUE"),
        ([*HLE, "--each", "max_turns"], "--each takes NAME=VALUE, got 'max_turns'"),
        (["--split", "dev", "--tasks", "1"], "dev"),
    ],
)
def test_what_cannot_be_evaluated_is_said_before_a_table(words: list[str], says: str, capsys: Capture) -> None:
    assert evaluate.main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err


# -- play --------------------------------------------------------------------------------------------------------------


def typed(monkeypatch: pytest.MonkeyPatch, said: str, *words: str) -> int:
    """A person at the terminal who types these lines, and then ends the input."""
    monkeypatch.setattr("sys.stdin", io.StringIO(said))
    return play.main([*words])


def test_a_person_plays_by_shorthand(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    said = "?\nsearch search-2\n\nwhat now\ny\nanswer none-such\nanswer answer-4\n"
    assert typed(monkeypatch, said, "--env", "HLE-v0") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "model (search-1 | search-2 | search-3)" in out
    sent = re.findall(r"\[assistant\] (.*)$", out, re.M)
    assert sent == [
        '<tool_call>{"name": "search", "arguments": {"model": "search-2"}}</tool_call>',
        "what now",
        '<tool_call>{"name": "answer", "arguments": {"model": "answer-4"}}</tool_call>',
    ]
    assert "by role\n" in out
    assert re.search(r"^  \(own tokens\) +[\d.]+ ¢$", out, re.M)


def test_the_rest_of_a_line_is_the_tools_next_argument(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    said = "local_search river Thames\nask gpt-5 what is it?\nsubmit 42 km\n"
    assert typed(monkeypatch, said, "--env", "HLE-v0", "--tools", "plain") == 0
    sent = re.findall(r"\[assistant\] (.*)$", capsys.readouterr().out, re.M)
    calls = ['"local_search", "arguments": {"query": "river Thames"}', '"ask", "arguments": {"model": "gpt-5", "quest']
    for line, call in zip(sent, calls, strict=False):
        assert call in line
    assert '"submit", "arguments": {"answer": "42 km"}' in sent[2]


@pytest.mark.parametrize("said", ["", "q\n"])
def test_who_leaves_sees_the_bill_and_plays_no_other(
    said: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert typed(monkeypatch, f"search search-1\n{said}", "--env", "HLE-v0", "--episodes", "3") == 0
    out = capsys.readouterr().out
    assert len(re.findall(r"^task ", out, re.M)) == 1
    assert re.search(r"^(action .*> )*left; bill after turn 1: ", out, re.M)
    assert "by role" not in out


def test_a_policy_plays_the_tasks_of_the_seeds_that_follow(capsys: Capture) -> None:
    words = ["--policy", "cheapest", "--split", "test", "--env", "FRAMES-v0"]
    shown = []
    for episodes, seed in (("2", "3"), ("1", "3"), ("1", "4")):
        assert play.main([*words, "--seed", seed, "--episodes", episodes]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] + shown[2]
    assert len(re.findall(r"^done: outcome [01], ", shown[0], re.M)) == 2


def test_the_very_episode_of_a_record_is_played(capsys: Capture) -> None:
    words = ["--policy", "cheapest", "--split", "test", "--env", "FRAMES-v0"]
    shown = []
    for number in (["--seed", "3"], ["--episode-seed", str(next(episode_seeds(3)))], ["--episode-seed", "3"]):
        assert play.main([*words, *number]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]


def test_what_is_asked_for_reaches_the_environment(capsys: Capture) -> None:
    words = ["--task-id", "frames-sim/test/5", "--preference", "none", "--prices", "unseen-2026-01", "--split", "test"]
    assert play.main([*words, "--policy", "strongest", "--set", "max_turns=1", "--no-color"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("task frames-sim/test/5")
    assert "prices: unseen-2026-01" in out
    assert out.count("[assistant]") == 1
    assert "cut off by" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--env", "CartPole-v1"], "no environment 'CartPole-v1'; valid: ToolOrchestra/FRAMES-v0, "),
        (
            ["--env", "gymnasium.envs.classic_control:CartPole-v1"],
            "is not of this suite; valid: ToolOrchestra/HLE-v0, ",
        ),
        (["--env", "Tests/Strange-v0"], "--env Tests/Strange-v0 is not of this suite; valid: ToolOrchestra/HLE-v0, "),
        (["--policy", "guess"], "--policy guess cannot play FRAMES-v0: "),
        (["--policy", "guess"], "; who can: random, cheapest, strongest, oracle, you (no --policy)"),
        (["--policy", "oracle", "--env", "ToolScale-v0"], "; who can: random, you (no --policy)"),
        (["--policy", "best"], "no policy 'best'; valid: "),
    ],
)
def test_what_cannot_be_played_is_said(words: list[str], says: str, capsys: Capture) -> None:
    if "Tests/Strange-v0" in words:  # takes whatever it is given
        gym.register("Tests/Strange-v0", lambda **_: CartPoleEnv())
    assert play.main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert says in err


@pytest.mark.parametrize(("option", "says"), [("--delay=-1", "0 or more seconds, got -1"), ("--episodes=0", "got 0")])
def test_numbers_that_are_none_of_play(option: str, says: str, capsys: Capture) -> None:
    try:
        code = play.main([option])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 2
    assert says in unboxed(capsys.readouterr().err)


# -- train -------------------------------------------------------------------------------------------------------------

SMALL = "--model.processes 1 --model.hidden 8 --warm-start.steps 0 --evaluation-tasks 1 --groups 1 --rollouts 2".split()
TOY = "--env Tests/ToyTrain-v0 max_turns=1 validation=train test=train".split()
"""An environment of which there are no probes to play for its report."""


def test_a_run_is_made_resumed_and_reported(tmp_path: Path, capsys: Capture) -> None:
    register("Tests/ToyTrain-v0", "toolorchestra.envs.domains.toy:AdderSource")
    words = ["--out", str(tmp_path), *SMALL, *TOY, "--steps", "1"]
    assert train.main([*words, "--no-report"]) == 0
    assert not (tmp_path / "page.html").exists()
    newest = checkpoint.latest(tmp_path / "checkpoints")
    assert newest is not None
    assert newest.name == "step-000001"
    assert [(r["kind"], r["step"]) for r in read(tmp_path / "metrics.jsonl")] == [
        ("eval", 0),
        ("train", 0),
        ("eval", 1),
    ]
    assert "held out, step 1: held-out reward " in capsys.readouterr().out
    other = '--out FOLDER begins another one (make train OPTIONS="--out FOLDER")\n'
    assert train.main(words) == 2
    told = capsys.readouterr().err
    assert f"error: {tmp_path} holds a run that has ended (step-000001) without a report: give resume=True, " in told
    assert told.endswith(f". On the command line: --resume writes its report, {other}")
    assert told.count("\n") == 1
    assert train.main([*words[:-1], "2"]) == 2
    told = capsys.readouterr().err
    assert f"error: {tmp_path} holds a run already (step-000001); go on with it: resume=True, or name another" in told
    more = "the same command and --resume go on with it (make train OPTIONS=--resume), "
    assert told.endswith(f" folder. On the command line: {more}{other}")
    assert train.main([*words, "--resume"]) == 0
    out = capsys.readouterr().out
    assert "resuming from step-000001\n" in out
    assert out.endswith(f"report: {tmp_path / 'page.html'}\n")
    assert json.loads((tmp_path / "report" / "summary.json").read_text())["steps"] == 1
    assert train.main(words) == 2
    told = capsys.readouterr().err
    assert told.endswith(f"{tmp_path / 'page.html'}; name another folder. On the command line: {other}")


class InterruptingTerminal(io.StringIO):
    """Ctrl-C is pressed when the first line of progress is shown."""

    def write(self, text: str) -> int:
        if "1/3" in text:
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def test_a_run_that_was_stopped_says_how_it_goes_on(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    register("Tests/ToyTrain-v0", "toolorchestra.envs.domains.toy:AdderSource")
    words = ["--out", str(tmp_path), *SMALL, *TOY, "--steps", "3"]
    monkeypatch.setattr("sys.stderr", InterruptingTerminal())
    assert train.main(words) == 130
    assert capsys.readouterr().out.endswith("stopped after a whole step, which is saved; go on with --resume\n")
    assert not (tmp_path / "page.html").exists()
    newest = checkpoint.latest(tmp_path / "checkpoints")
    assert newest is not None
    assert checkpoint.read_state(newest)["step"] == 2


def test_settings_that_are_wrong_begin_nothing(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").touch()
    for words, says in (
        (["--preset", "tinny"], "no preset 'tinny'; valid: "),
        (["--set", "max_turns"], "--set takes NAME=VALUE, got 'max_turns'"),
        (["--env"], "--env takes an id and then NAME=VALUE, got nothing"),
        (["--out", str(tmp_path / "file" / "run")], f"--out: a folder expected, but {tmp_path / 'file'} is a file"),
    ):
        try:
            code = train.main(words)
        except SystemExit as left:
            code = int(left.code or 0)
        assert code == 2
        assert says.replace(" ", "") in unboxed(capsys.readouterr().err).replace(" ", "")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
