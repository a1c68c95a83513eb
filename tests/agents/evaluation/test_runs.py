"""A run of an evaluation: kept as it goes, resumed with true costs, under a cap that buys results, nothing left out."""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import toolorchestra as to
from tests.agents.evaluation.test_endpoint_evaluation import expert, file_of
from tests.command_line import TOOLORCHESTRA
from tests.command_line import toolorchestra as command
from tests.paths import REPOSITORY
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.two_texts import raises
from toolorchestra.agents.commands import evaluate
from toolorchestra.agents.evaluation.estimate import _range
from toolorchestra.agents.evaluation.rescoring import rescore
from toolorchestra.agents.evaluation.rows import (
    LEARNT,
    RETRIED,
    ROWS,
    TRAJECTORIES,
    EvaluationRow,
    chained,
    line_of,
    read_rows,
)
from toolorchestra.agents.evaluation.runs import Contest, EvaluationRun, digest_of_run
from toolorchestra.agents.evaluation.trials import trials_of
from toolorchestra.agents.policies.base import Player
from toolorchestra.agents.policies.players import player
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import Outcome
from toolorchestra.envs.domains.source import TaskWorld
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR, Usage
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import full_id
from toolorchestra.envs.tools.backends import Backing, read
from toolorchestra.envs.wrappers.record import read_trajectories

pytest.importorskip("httpcore2", reason='needs pip install ".[models]"')
ASKED = {"env": ["HLE-v0"], "seed": 0}


def made(env: str = "HLE-v0", **settings: Any) -> EpisodeFactory:
    given = {"preference": "none", "split": "test", **settings}
    return factory(**{**gym.spec(full_id(env)).kwargs, **given})


@dataclass
class Plays:
    """A player of one move function."""

    move: Any
    name: str = "one"
    simulated: bool = True


def plain(name: str) -> Player:
    return player(name, made())


def contest(factory: EpisodeFactory, one: Player, tasks: int, trials: int = 1) -> Contest:
    return Contest("HLE-v0", "test", "one", factory, one, trials_of("HLE-v0", factory, "one", tasks, 0, trials))


def played(one: Contest, at_once: int = 16, folder: Path | None = None, **more: Any) -> EvaluationRun:
    run = EvaluationRun.open(folder, ASKED, resume=more.pop("resume", False))
    asyncio.run(run.play(one, at_once, **more))
    return run


# -- the folder --------------------------------------------------------------------------------------------------------


def test_a_run_keeps_each_trial_as_it_ends(tmp_path: Path) -> None:
    seen: list[EvaluationRow] = []
    run = played(contest(made(), plain("cheapest"), 6, trials=2), folder=tmp_path / "run", watch=seen.append)
    rows = list(read_rows(tmp_path / "run"))
    assert rows == list(run.rows.values()) == seen
    assert len({row.key for row in rows}) == 12
    assert {row.trial for row in rows} == {0, 1}
    trajectories = {tuple(t["key"]): t for t in read_trajectories(tmp_path / "run" / TRAJECTORIES)}
    for row in rows:
        kept = trajectories[row.key]
        assert kept["totals"]["nano_usd"] == row.nano_usd == sum(c["nano_usd"] for c in kept["charges"])
        assert kept["outcome"]["value"] == row.right
        assert row.groups.keys() == {"subject"}
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["asked"] == ASKED
    assert {"run_id", "begun", "versions", "revision", "machine"} <= set(manifest)


def test_trials_of_a_task_differ_and_are_the_same_again() -> None:
    one = played(contest(made(), plain("random"), 4, trials=3))
    again = played(contest(made(), plain("random"), 4, trials=3), at_once=1)
    assert {key: row.digest for key, row in one.rows.items()}.keys() == again.rows.keys()
    of_one_task = [row.digest for row in one.rows.values() if row.task == next(iter(one.rows.values())).task]
    assert len(set(of_one_task)) > 1


def test_a_folder_is_not_written_over_and_a_resumed_run_is_asked_the_same(tmp_path: Path) -> None:
    played(contest(made(), plain("cheapest"), 2), folder=tmp_path)
    with raises(ConfigError, "already; go on with it: resume=True, or name", "--resume, or another --out FOLDER"):
        EvaluationRun.open(tmp_path, ASKED, resume=False)
    with raises(ConfigError, "seed was 0 and is 1; ask", "--resume with the same options, or another --out FOLDER"):
        EvaluationRun.open(tmp_path, {**ASKED, "seed": 1}, resume=True)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match="is no manifest of an evaluation"):
        EvaluationRun.open(tmp_path, ASKED, resume=True)


def test_a_torn_line_goes_and_its_trial_is_played_again(tmp_path: Path) -> None:
    one = contest(made(), plain("cheapest"), 5)
    whole = played(one, folder=tmp_path)
    rows, trajectories = tmp_path / ROWS, tmp_path / TRAJECTORIES
    rows.write_bytes(rows.read_bytes()[:-40])
    trajectories.write_bytes(trajectories.read_bytes() + b'{"key": ["HLE')
    resumed = played(one, folder=tmp_path, resume=True)
    assert resumed.rows == whole.rows
    assert sorted(map(line_of, read_rows(tmp_path))) == sorted(map(line_of, whole.rows.values()))
    assert len(list(read_trajectories(trajectories))) == 5


def test_rows_that_are_none_are_named(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_text('{"env": 1}\n{}\n')
    with pytest.raises(ConfigError, match=r"rows\.jsonl, line 1: expected a row of an evaluation"):
        list(read_rows(tmp_path))
    with pytest.raises(ConfigError, match="no rows of an evaluation at"):
        list(read_rows(tmp_path / "none"))


# -- what fails --------------------------------------------------------------------------------------------------------


Lines = list[bytes]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda lines, other: [*lines[:2], other[0], *lines[2:]], id="put in"),
        pytest.param(lambda lines, other: [*lines[:2], *lines[3:]], id="taken out"),
        pytest.param(lambda lines, other: lines[1:], id="first taken out"),
        pytest.param(lambda lines, other: [lines[1], lines[0], *lines[2:]], id="moved"),
        pytest.param(lambda lines, other: [*lines, other[0]], id="put at the end"),
        pytest.param(lambda lines, other: [*lines, other[0].partition(b', "after"')[0] + b"}\n"], id="without a seal"),
        pytest.param(lambda lines, other: other[:3] + lines[3:], id="another run's"),
    ],
)
def test_lines_that_were_put_in_taken_out_or_moved_are_noticed(
    tmp_path: Path, change: Callable[[Lines, Lines], Lines]
) -> None:
    one, two = contest(made(), plain("random"), 6), contest(made(), plain("cheapest"), 6)
    played(one, folder=tmp_path / "mine")
    played(two, folder=tmp_path / "other")
    path = tmp_path / "mine" / ROWS
    lines, other = ((tmp_path / name / ROWS).read_bytes().splitlines(keepends=True) for name in ("mine", "other"))
    path.write_bytes(b"".join(change(lines, other)))
    with pytest.raises(ConfigError, match="a line was put in, taken out or moved here"):
        played(one, folder=tmp_path / "mine", resume=True)


def test_a_run_goes_on_after_lines_were_set_aside(tmp_path: Path) -> None:
    """What failed leaves the file, and the lines that stay are a chain again."""
    one = contest(made(), plain("random"), 4)
    run = played(one, folder=tmp_path)
    failed = replace(list(run.rows.values())[1], status="failed", right=None)
    lines, _ = chained([failed if row.key == failed.key else row for row in run.rows.values()])
    (tmp_path / ROWS).write_bytes(lines)
    assert len(played(one, folder=tmp_path, resume=True).rows) == 4
    assert len(list(read_rows(tmp_path, sealed=True))) == 4


def test_ended_trials_that_are_gone_are_noticed_by_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--env", "HLE-v0", "--tasks", "3", "--policy", "cheapest", "--out", str(tmp_path / "run")]
    assert evaluate.main(words) == 0
    path = tmp_path / "run" / ROWS
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    assert evaluate.main([*words, "--resume"]) == 2
    assert "has 2 ended trials of HLE-v0 test cheapest, and summary.json was made of 3" in capsys.readouterr().err
    (tmp_path / "run" / "summary.json").unlink()
    assert evaluate.main([*words, "--resume"]) == 0


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        ('"right": 0.0', '"right": 1.0', "the line was changed after it was written"),
        ('"nano_usd_by_role": {', '"nano_usd_by_role": {"x": -5, ', "the line was changed after it was written"),
        (', "seal"', ', "right": 7.0, "unsealed"', "status 'ended' with right 7.0"),
        (', "seal"', ', "elapsed_ns": -5, "unsealed"', "money and time are whole numbers from 0 up, got -5"),
    ],
)
def test_a_folder_that_a_stranger_changed_is_not_gone_on_with(tmp_path: Path, was: str, now: str, says: str) -> None:
    one = contest(made(), plain("random"), 6)
    played(one, folder=tmp_path)
    path = tmp_path / ROWS
    text = path.read_text()
    assert was in text
    path.write_text(text.replace(was, now))
    with pytest.raises(ConfigError, match=re.escape(says)):
        played(one, folder=tmp_path, resume=True)


def test_money_that_learning_gives_back_is_refused(tmp_path: Path) -> None:
    one = contest(made(), plain("cheapest"), 2)
    played(one, folder=tmp_path)
    (tmp_path / LEARNT).write_text('{"nano_usd": -1000000000000}\n')
    with pytest.raises(ConfigError, match="what players paid to learn"):
        _ = EvaluationRun.open(tmp_path, ASKED, resume=True).nano_usd


def test_the_digest_of_a_run_covers_outcomes_and_money() -> None:
    rows = played(contest(made(), plain("cheapest"), 2)).rows
    first, *others = rows.values()
    other = [replace(first, right=1.0 - first.right), replace(first, nano_usd_by_role={"expert": 1})]  # type: ignore[operator]
    found = {digest_of_run([one, *others]) for one in (first, *other)}
    assert len(found) == 3


def test_one_policy_that_breaks_down_in_one_trial_stops_no_other() -> None:
    calm = plain("cheapest")

    async def breaks(episode: Episode) -> Any:
        if episode.task_id.endswith("0"):
            raise RuntimeError("a bug\nof two lines")
        return await calm.move(episode)

    run = played(contest(made(), Plays(breaks), 20))
    failed = [row for row in run.rows.values() if row.status == "failed"]
    assert len(run.rows) == 20
    assert failed
    assert {row.failure for row in failed} == {"policy: RuntimeError: a bug\\nof two lines"}


class OddlyGradedWorld(TaskWorld):
    """Its grader gives what no row can hold."""

    def grade(self, *, finished: bool) -> Outcome:
        del finished
        values: list[Any] = [math.nan, None, 1.5, True, np.float32(0.5), 0.25]
        return Outcome(values[int(self.task.question) % 6], {"bleu": math.nan, 1: "one", "1": "uno", ("a", 2): {3}})

    def to_grade(self) -> Any:
        return None

    def take_up(self, kept: Any, context: Any) -> None:
        del kept, context


class OddlyGraded(to.Source):
    name = "odd"

    def tasks(self) -> list[to.Task]:
        return [to.Task(str(number), "") for number in range(200)]

    def world(self, task: Any, toolbox: Any) -> OddlyGradedWorld:
        return OddlyGradedWorld(task, toolbox, "")


def test_an_outcome_that_no_row_can_hold_fails_its_trial_alone(tmp_path: Path) -> None:
    source: Any = factory(f"{__name__}:OddlyGraded", split="test")

    async def answers(episode: Episode) -> Any:
        return "7", None

    run = played(contest(source, Plays(answers), 20), folder=tmp_path / "run")
    assert len(run.rows) == 20
    assert list(run.rows.values()) == list(read_rows(tmp_path / "run", sealed=True))
    assert {row.right for row in run.rows.values()} == {None, 1.0, 0.5, 0.25}
    assert {row.failure for row in run.rows.values() if row.right is None} == {
        f"grade: expected an outcome from 0 to 1, got {value}: nobody knows what is right"
        for value in ("nan", "None", "1.5")
    }
    told = {json.dumps(row.evidence) for row in run.rows.values() if row.right is not None}
    assert told == {'{"bleu": null, "1": "uno", "(\'a\', 2)": [3]}'}
    again = asyncio.run(rescore(tmp_path / "run", tmp_path / "again", {("HLE-v0", "test"): source}))
    assert set(again.kept.values()) == {row.failure for row in run.rows.values() if row.failure}
    assert again.changed == []
    assert len(list(read_rows(tmp_path / "again"))) == 20


# -- the cap -----------------------------------------------------------------------------------------------------------


def test_a_cap_buys_whole_results(tmp_path: Path) -> None:
    with Loopback(lambda asked: ServerReply(**{**expert(asked).__dict__, "seconds": 0.005})) as server:
        file = file_of(tmp_path, server, "output_tokens = 64\n")

        def run(cap: SpendCap | None, tasks: int) -> EvaluationRun:
            one = made(backends=Backing(read(file)), spend_cap=cap)
            return played(contest(one, player("chat", one), tasks), at_once=64)

        each = max(row.nano_usd for row in run(None, 10).rows.values()) / NANO
        cap = SpendCap(each * 12)
        rows = list(run(cap, 40).rows.values())
    whole = [row for row in rows if row.status == "ended"]
    assert len(whole) >= 8
    assert len(rows) - len(whole) <= 2
    assert cap.spent_usd <= cap.usd
    assert sum(row.nano_usd for row in rows) == round(cap.spent_usd * NANO)


# -- kill -9 -----------------------------------------------------------------------------------------------------------


def killed(words: list[str], folder: Path, rows: int) -> bool:
    """Start the command, and kill it when its folder has so many rows; False: it ended before."""
    process = subprocess.Popen([*TOOLORCHESTRA, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if (folder / ROWS).is_file() and (folder / ROWS).read_bytes().count(b"\n") >= rows:
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            return True
        time.sleep(0.002)
    return False


def test_a_run_killed_at_five_moments_has_the_rows_of_one_left_alone(tmp_path: Path) -> None:
    words = ["evaluate", "--env", "HLE-v0", "--tasks", "60", "--policy", "random", "cheapest", "--at-once", "8"]
    assert command(*words, "--out", tmp_path / "alone").returncode == 0
    again = [*words, "--out", str(tmp_path / "killed"), "--resume"]
    moments = sorted(random.Random(1).sample(range(5, 110), 5))
    assert sum(killed(again, tmp_path / "killed", rows) for rows in moments) >= 3
    done = command(*again)
    assert done.returncode == 0, done.stderr
    alone, again = ({row.key: row for row in read_rows(tmp_path / name)} for name in ("alone", "killed"))
    assert len(alone) == 120
    assert again == alone
    assert len((tmp_path / "killed" / ROWS).read_bytes().splitlines()) == 120
    assert len((tmp_path / "killed" / TRAJECTORIES).read_bytes().splitlines()) == 120


# -- endpoints, keys, progress -----------------------------------------------------------------------------------------


def test_a_dead_endpoint_is_said_before_the_first_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "b.toml").write_text('[endpoints.here]\nbase_url = "http://127.0.0.1:9/v1"\n[models."*"]\n')
    words = ["--backends", str(tmp_path / "b.toml"), "--policy", "chat", "--out", str(tmp_path / "run")]
    assert evaluate.main(["--env", "HLE-v0", "--tasks", "3", *words]) == 2
    assert "no endpoint of model '*' answers: here at http://127.0.0.1:9/v1: " in capsys.readouterr().err
    assert list((tmp_path / "run").glob(ROWS)) == []


# -- before anything is spent ------------------------------------------------------------------------------------------


def in_all(said: str) -> tuple[float, float, float]:
    """What an estimate says: likely, low, high."""
    likely, low, high = map(float, re.findall(r"in all \$ ([\d.]+) \(([\d.]+) to ([\d.]+)\)", said)[0])
    return likely, low, high


def test_an_estimate_says_what_a_run_would_cost_and_spends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Loopback(expert) as server:
        file = file_of(tmp_path, server, "price = {usd_per_mtok = {input = 1, output = 1}}\n")
        words = ["--env", "HLE-v0", "--tasks", "30", "--backends", file, "--policy", "chat"]
        assert (evaluate.main([*words, "--out", str(tmp_path / "run"), "--estimate"]), server.seen) == (0, [])
    assert not (tmp_path / "run").exists()
    said = capsys.readouterr().out
    assert "HLE-v0 test chat: 30 trials, by simulated plays of 20 of its tasks, by cheapest and by strongest" in said
    likely, low, high = in_all(said)
    assert 0 < low < likely < high


def test_an_estimate_knows_the_prices_of_the_backends_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    price = "[models.beta]\nprice = {usd_per_mtok = {input = 1000, output = 1000}}\n"
    (tmp_path / "b.toml").write_text(f'[endpoints.here]\nbase_url = "http://127.0.0.1:9/v1"\n[models."*"]\n{price}')
    words = ["--env", "HLE-v0", "orchestrator=beta", "--backends", str(tmp_path / "b.toml"), "--policy", "chat"]
    assert evaluate.main([*words, "--tasks", "2", "--estimate"]) == 0
    found = re.search(r"orchestrator ([0-9.]+)", capsys.readouterr().out)
    assert found is not None
    assert float(found[1]) > 1  # dollars, of some thousand tokens


def test_an_estimate_is_of_the_policy_that_is_to_play(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--env", "HLE-v0", "--tasks", "60", "--policy", "cheapest"]
    assert evaluate.main([*words, "--estimate"]) == 0
    said = capsys.readouterr().out
    _, low, high = in_all(said)
    assert "of its tasks, by cheapest\n" in said
    assert "5 points from about 1,570 tasks on" in said
    assert evaluate.main(words) == 0
    (spent,) = re.findall(r"^([\d.]+) \$ for the trials", capsys.readouterr().out, re.M)
    assert low < float(spent) < high


def test_an_estimate_plays_with_the_experts_and_the_rows_that_were_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = REPOSITORY / "docs" / "examples" / "house"
    house = [f"{name}={place / name}.json" for name in ("tools", "prices", "experts")]
    own = ["--tasks", "2", "--policy", "random", "--estimate"]
    assert evaluate.main(["--env", "FRAMES-v0", *house, *own]) == 0
    (tmp_path / "b.toml").write_text('[endpoints.here]\nbase_url = "http://127.0.0.1:9"\n[models."*"]\n')
    words = ["--env", "FRAMES-v0", *house[:2], *own, "--backends", str(tmp_path / "b.toml")]
    capsys.readouterr()
    assert evaluate.main(words) == 2
    assert "nothing says what FRAMES-v0 test random costs" in capsys.readouterr().err
    rows = "".join(f"t{n},{model},{n % 2},0.01\n" for n in range(40) for model in ("a", "b"))
    (tmp_path / "o.csv").write_text(f"task,model,success,usd\n{rows}")
    assert evaluate.main(["--env", "Recorded-v0", f"rows={tmp_path / 'o.csv'}", *own]) == 0
    assert _range([3.0], [1.0], 10) == (10.0, 20.0, 30.0)


def test_an_estimate_by_an_earlier_run_is_what_that_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--env", "ToolScale-v0", "--policy", "random"]
    assert evaluate.main([*words, "--tasks", "6", "--out", str(tmp_path / "run")]) == 0
    assert evaluate.main([*words, "--tasks", "60", "--estimate"]) == 2
    told = capsys.readouterr().err
    assert re.search("what ToolScale-v0 test random costs; .* in like. On the command line: --tasks 5 --", told)
    assert evaluate.main([*words, "--tasks", "60", "--estimate", str(tmp_path / "run")]) == 0
    likely, low, high = in_all(capsys.readouterr().out)
    cost = 10 * sum(row.usd for row in read_rows(tmp_path / "run"))
    assert likely == pytest.approx(cost, rel=1e-3)
    assert low <= likely <= high


# -- no dollar is lost, and none counts twice --------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [False, True])
def test_a_trial_that_failed_is_played_again_and_each_dollar_counts_once(tmp_path: Path, cached: bool) -> None:
    """With a cache, the bill of the later play holds what the earlier one paid."""
    down, asked = True, {**ASKED, "cache": "c.jsonl" if cached else ""}

    def sometimes(seen: ReceivedRequest) -> ServerReply:
        return ServerReply("down", 410) if down and seen.number % 4 == 3 else expert(seen)

    def play(server: Loopback, name: str = "run") -> tuple[EvaluationRun, SpendCap]:
        cap, tape = SpendCap(1000), {"cassette": str(tmp_path / f"{name}.jsonl"), "mode": "cache"} if cached else {}
        backing = Backing(read(file_of(tmp_path, server, retries=0), **tape))
        one = made(backends=backing, spend_cap=cap)
        run = EvaluationRun.open(tmp_path / name, asked, resume=True)
        cap.add(run.nano_usd)
        asyncio.run(run.play(contest(one, player("chat", one), 8), 1))
        backing.close()
        return run, cap

    with Loopback(sometimes) as server:
        failed = [row for row in play(server)[0].rows.values() if row.status == "failed"]
        down = False
        run, cap = play(server)
        alone, _ = play(server, "alone")
    assert failed
    assert {row.status for row in run.rows.values()} == {"ended"}
    assert sorted(map(line_of, read_rows(tmp_path / "run" / RETRIED))) == sorted(map(line_of, failed))
    beside = 0 if cached else sum(row.nano_usd for row in failed)
    assert run.nano_usd == sum(row.nano_usd for row in run.rows.values()) + beside == alone.nano_usd + beside
    assert round(cap.spent_usd * NANO) == run.nano_usd


def test_what_a_trial_cost_that_was_broken_off_is_kept(tmp_path: Path) -> None:
    cap = SpendCap(1000)
    with Loopback(lambda asked: ServerReply(**{**expert(asked).__dict__, "seconds": 0.02})) as server:
        one = made(backends=Backing(read(file_of(tmp_path, server))), spend_cap=cap)
        run = EvaluationRun.open(tmp_path / "run", ASKED)

        async def interrupted() -> None:
            playing = asyncio.create_task(run.play(contest(one, player("chat", one), 16), 16))
            while cap.spent_usd < 5e-4:
                await asyncio.sleep(0.001)
            playing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await playing

        asyncio.run(interrupted())
    assert EvaluationRun.open(tmp_path / "run", ASKED, resume=True).nano_usd == round(cap.spent_usd * NANO)


def test_a_last_turn_that_the_cap_refused_is_cut_and_not_wrong(tmp_path: Path) -> None:
    with Loopback(expert) as server:
        cap = SpendCap(1e-3)
        file = file_of(tmp_path, server, "output_tokens = 64\n")
        one = made(backends=Backing(read(file)), spend_cap=cap, max_turns=1)

        async def move(_episode: Episode) -> tuple[str, Usage]:
            cap.add(999_990)  # by others
            return render_call("answer", {"model": "answer-4"}), Usage(one.settings.orchestrator, ORCHESTRATOR)

        run = played(contest(one, Plays(move), 1))
    assert [(row.status, row.right) for row in run.rows.values()] == [("cut", None)]
