"""A run graded again, and a run billed anew: to the nano-dollar what the sheet says, and the old run as it was."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.agents.evaluation.made_rows import write_run
from tests.agents.evaluation.test_endpoint_evaluation import expert, file_of
from tests.agents.evaluation.test_runs import ASKED, made
from tests.command_line import TOOLORCHESTRA
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.support.tau2_players import gold, transfer
from tests.tau2_playing import needs_package
from toolorchestra.agents.commands import compare, evaluate
from toolorchestra.agents.evaluation.repricing import reprice
from toolorchestra.agents.evaluation.rescoring import Rescoring, rescore
from toolorchestra.agents.evaluation.rows import LEARNT, PAID, TRAJECTORIES, EvaluationRow, read_rows
from toolorchestra.agents.evaluation.runs import Contest, EvaluationRun
from toolorchestra.agents.evaluation.trials import trials_of
from toolorchestra.agents.policies.base import Move
from toolorchestra.agents.policies.players import player
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, PriceError
from toolorchestra.envs.domains.tau2.source import Tau2Source
from toolorchestra.envs.domains.tau2.world import Tau2World
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.world import SqlWorld
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory
from toolorchestra.envs.money.journal import SpendJournal
from toolorchestra.envs.money.prices import NANO, PriceSheet, load_sheet
from toolorchestra.envs.wrappers.record import read_trajectories


def rows_of(folder: Path) -> dict[Any, EvaluationRow]:
    return {row.key: row for row in read_rows(folder)}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def played(one: EpisodeFactory, who: Any, tasks: int, folder: Path, env: str = "Env") -> None:
    run = EvaluationRun.open(folder, ASKED)
    split = one.settings.split
    trials = trials_of(env, one, "one", tasks, 0, 1)
    asyncio.run(run.play(Contest(env, split, "one", one, who, trials), 8))


def again(folder: Path, one: EpisodeFactory, out: str = "again") -> Rescoring:
    envs = {("Env", one.settings.split): one}
    return asyncio.run(rescore(folder, folder.with_name(out), envs))


def edit(folder: Path, change: Any) -> None:
    """Change the trajectories of a run."""
    lines = [json.loads(line) for line in (folder / TRAJECTORIES).read_bytes().splitlines()]
    for line in lines:
        change(line)
    (folder / TRAJECTORIES).write_text("".join(json.dumps(line) + "\n" for line in lines))


# -- questions, by rule ------------------------------------------------------------------------------------------------


def questions(tmp_path: Path, answers: Mapping[int, str]) -> str:
    rows = [{"id": str(n), "question": f"What is {n} and {n}?", "answer": answers[n]} for n in answers]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(tmp_path / "q.jsonl")


def test_answers_are_graded_again_by_the_answers_of_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = questions(tmp_path, dict.fromkeys(range(4), "nothing"))
    words = ["--env", "HLE-v0", "--dataset", path, "--policy", "cheap", "--tasks", "4"]
    with Loopback(lambda asked: ServerReply("<answer>8</answer>")) as server:
        file = file_of(tmp_path, server)
        assert evaluate.main([*words, "--backends", file, "index=embedded", "--out", str(tmp_path / "run")]) == 0
        before, kept = rows_of(tmp_path / "run"), contents(tmp_path / "run")
        assert {row.right for row in before.values()} == {0.0}
        questions(tmp_path, {0: "0", 1: "2", 2: "4", 3: "8"})
        capsys.readouterr()
        asked = len(server.seen)
        assert compare.main(["--rescore", str(tmp_path / "run")]) == 0
        assert len(server.seen) == asked
    told = capsys.readouterr().out.splitlines()
    assert [line.split() for line in told[:2]] == [["task", "trial", "policy", "was", "is"],
                                                   ["hle/all/3", "0", "cheap", "0", "1"]]  # fmt: skip
    assert "4 of 4 trials graded again: 1 have another outcome." in told
    assert contents(tmp_path / "run") == kept
    now = rows_of(tmp_path / "run-rescored")
    assert {key[3]: row.right for key, row in now.items()} == {
        "hle/all/0": 0.0, "hle/all/1": 0.0, "hle/all/2": 0.0, "hle/all/3": 1.0,
    }  # fmt: skip
    for key, row in now.items():
        assert (row.nano_usd_by_role, row.calls, row.seed) == (
            before[key].nano_usd_by_role,
            before[key].calls,
            before[key].seed,
        )
        assert row.digest != before[key].digest  # what was expected is another thing in each
        assert row.rescored == {"status": "ended", "right": 0.0, "nano_usd": 0}
    lines = {line["task_id"]: line for line in read_trajectories(tmp_path / "run-rescored" / TRAJECTORIES)}
    assert lines["hle/all/3"]["outcome"]["value"] == 1.0
    assert json.loads((tmp_path / "run-rescored" / "manifest.json").read_text())["rescored"]["changed"] == 1
    assert (tmp_path / "run-rescored" / "page.html").is_file()
    assert compare.main(["--rescore", str(tmp_path / "run")]) == 2  # never over a folder that is there
    assert "run-rescored is there already; name a new folder" in capsys.readouterr().err


def test_a_strict_budget_holds_for_the_new_grade_too(tmp_path: Path) -> None:
    played(made(), player("strongest", made()), 6, tmp_path / "free")
    one = made(budget=0.9 * max(row.agent_usd for row in rows_of(tmp_path / "free").values() if row.right))
    played(one, player("strongest", one), 6, tmp_path / "run")
    before = rows_of(tmp_path / "run")
    over = [row for row in before.values() if row.over_budget_usd]
    assert any((row.right, row.evidence["value_without_budget"]) == (0.0, 1.0) for row in over)
    found = again(tmp_path / "run", one)
    assert (found.changed, found.graded) == ([], 6)
    assert {key: row.evidence for key, row in rows_of(tmp_path / "again").items()} == {
        key: row.evidence for key, row in before.items()
    }


# -- questions, by a judge ---------------------------------------------------------------------------------------------


def judged(asked: ReceivedRequest) -> bool:
    return "You compare a student's answer" in asked.text


@pytest.fixture
def judge() -> Iterator[tuple[Loopback, dict[str, ServerReply]]]:
    pytest.importorskip("httpcore2", reason='needs pip install ".[models]"')
    says = {"judge": ServerReply("<verdict>wrong</verdict>")}
    with Loopback(lambda asked: says["judge"] if judged(asked) else expert(asked)) as server:
        yield server, says


def words_of(tmp_path: Path, server: Loopback) -> list[str]:
    return ["--env", "HLE-v0", "--tasks", "6", "--policy", "cheap", "--backends", file_of(tmp_path, server, retries=0),
            "judge=gpt-5-mini", "--out", str(tmp_path / "run")]  # fmt: skip


def test_the_judge_is_asked_again_and_its_bill_is_no_part_of_the_rows(
    tmp_path: Path, judge: tuple[Loopback, dict[str, ServerReply]], capsys: pytest.CaptureFixture[str]
) -> None:
    server, says = judge
    assert evaluate.main(words_of(tmp_path, server)) == 0
    before = rows_of(tmp_path / "run")
    says["judge"] = ServerReply("<verdict>right</verdict>")
    asked = len(server.seen)
    assert compare.main(["--rescore", str(tmp_path / "run")]) == 0
    again_asked = server.seen[asked:]
    assert again_asked
    assert all(map(judged, again_asked))
    now = rows_of(tmp_path / "run-rescored")
    assert {row.right for row in now.values()} == {1.0}
    assert all(now[key].nano_usd_by_role == row.nano_usd_by_role for key, row in before.items())
    told = json.loads((tmp_path / "run-rescored" / "manifest.json").read_text())["rescored"]
    assert told["grading_nano_usd"] == sum(row.rescored["nano_usd"] for row in now.values()) > 0
    assert told["grading_tokens"]["input"] > 0
    assert told["judges"] == ["gpt-5-mini"]
    assert f"Grading cost {told['grading_nano_usd'] / 1e9:.9f} $" in capsys.readouterr().out
    words = ["--rescore", str(tmp_path / "run"), "--out", str(tmp_path / "other"), "--backends", "judge=gpt-5"]
    assert compare.main(words) == 0
    assert {tuple(row.evidence.get("judges", ())) for row in rows_of(tmp_path / "other").values()} <= {(), ("gpt-5",)}


def test_trials_whose_judge_was_away_get_their_outcome(
    tmp_path: Path, judge: tuple[Loopback, dict[str, ServerReply]], capsys: pytest.CaptureFixture[str]
) -> None:
    server, says = judge
    says["judge"] = ServerReply("down", 500)
    assert evaluate.main(words_of(tmp_path, server)) == 1
    failed = [row.key for row in rows_of(tmp_path / "run").values() if row.status == "failed"]
    assert failed
    assert compare.main(["--rescore", str(tmp_path / "run"), "--out", str(tmp_path / "down")]) == 0
    assert "could not be graded again, and keep their outcome:" in capsys.readouterr().out
    still = rows_of(tmp_path / "down")
    assert all(still[key].status == "failed" and "did not answer" in still[key].rescored["kept"] for key in failed)
    says["judge"] = ServerReply("<verdict>right</verdict>")
    assert compare.main(["--rescore", str(tmp_path / "run")]) == 0
    now = rows_of(tmp_path / "run-rescored")
    assert all((now[key].status, now[key].right, now[key].failure) == ("ended", 1.0, "") for key in failed)
    assert f"{failed[0][3]}" in capsys.readouterr().out


def test_a_cap_on_grading_keeps_what_it_does_not_pay_for_and_a_wrong_key_ends_it(
    tmp_path: Path, judge: tuple[Loopback, dict[str, ServerReply]], capsys: pytest.CaptureFixture[str]
) -> None:
    server, says = judge
    assert evaluate.main(words_of(tmp_path, server)) == 0
    before = rows_of(tmp_path / "run")
    says["judge"] = ServerReply("<verdict>right</verdict>")
    asked = len(server.seen)
    assert (
        compare.main(["--rescore", str(tmp_path / "run"), "--spend-cap", "0.000001", "--out", str(tmp_path / "capped")])
        == 0
    )
    assert len(server.seen) == asked
    assert {k: r.right for k, r in rows_of(tmp_path / "capped").items()} == {k: r.right for k, r in before.items()}
    says["judge"] = ServerReply("no", 404)
    capsys.readouterr()
    assert compare.main(["--rescore", str(tmp_path / "run")]) == 2
    assert "has no model 'gpt-5-mini'" in capsys.readouterr().err
    assert not (tmp_path / "run-rescored").exists()
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_cap_on_grading_is_of_all_runs_together(
    tmp_path: Path, judge: tuple[Loopback, dict[str, ServerReply]]
) -> None:
    server, says = judge
    assert evaluate.main(words_of(tmp_path, server)) == 0
    says["judge"] = ServerReply("<verdict>wrong</verdict>", usage={"prompt_tokens": 900, "completion_tokens": 4000})
    shutil.copytree(tmp_path / "run", tmp_path / "run2")
    spent = []
    for cap, runs in (("1", ["run"]), ("", ["run", "run2"])):
        shutil.rmtree(tmp_path / "run-rescored", ignore_errors=True)
        cap = cap or f"{1.1 * spent[0] / NANO:.9f}"
        assert compare.main(["--rescore", *(str(tmp_path / name) for name in runs), "--spend-cap", cap]) == 0
        made = [json.loads((tmp_path / f"{name}-rescored" / "manifest.json").read_text()) for name in runs]
        spent.append(sum(manifest["rescored"]["grading_nano_usd"] for manifest in made))
    assert 0 < spent[0] <= spent[1] <= 1.1 * spent[0]


def test_grading_that_was_killed_counts_what_it_had_paid(
    tmp_path: Path, judge: tuple[Loopback, dict[str, ServerReply]], capsys: pytest.CaptureFixture[str]
) -> None:
    server, says = judge
    assert evaluate.main(words_of(tmp_path, server)) == 0
    asked = len(server.seen)
    says["judge"] = ServerReply("<verdict>right</verdict>", seconds=0.5)
    words = ["--rescore", str(tmp_path / "run")]
    with subprocess.Popen([*TOOLORCHESTRA, "compare", *words], stdout=subprocess.DEVNULL) as run:
        while len(server.seen) == asked:
            assert run.poll() is None
            time.sleep(0.01)
        run.kill()
    paid = tmp_path / f"run-rescored-{PAID}"
    left = sum(charge.nano_usd for charge in SpendJournal.left(paid)[""])
    assert left > 0
    capsys.readouterr()
    assert compare.main([*words, "--spend-cap", f"{left / NANO:.9f}", "--out", str(tmp_path / "run-rescored")]) == 0
    assert len(server.seen) <= asked + 6  # the cap pays for no further verdict
    told = capsys.readouterr().out
    assert f"Grading that was broken off before had cost {left / NANO:.9f} $ at most." in told
    assert not paid.exists()


# -- worlds of calls ---------------------------------------------------------------------------------------------------


class Texts:
    """Plays what a function of the task says."""

    name, simulated = "one", True

    def __init__(self, texts: Any) -> None:
        self._texts, self._said = texts, dict[str, list[str]]()

    async def move(self, episode: Episode) -> Move:
        said = self._said.setdefault(episode.task_id, [*self._texts(episode.world), *[""] * 60])
        return Move(said[episode.turn], None)


def settled(world: SqlWorld) -> list[str]:
    return [*moves(world.domain, world.task)]


def helped(world: SqlWorld) -> list[str]:
    return [render_call("call_expert", {"expert": world.toolbox["call_expert"].offers[0].alias})] * 20


def check_same(folder: Path, one: EpisodeFactory, least_right: int) -> None:
    before = rows_of(folder)
    found = again(folder, one)
    assert (found.kept, found.changed, found.graded) == ({}, [], len(before))
    now = rows_of(folder.with_name("again"))
    for key, row in before.items():
        assert (now[key].right, now[key].evidence, now[key].digest) == (row.right, row.evidence, row.digest)
    assert sum(row.right == 1 for row in now.values()) >= least_right


@pytest.mark.parametrize(("texts", "least"), [(settled, 5), (helped, 1)])
def test_calls_of_a_service_task_are_made_again_those_of_experts_too(tmp_path: Path, texts: Any, least: int) -> None:
    one = made("ToolScale-v0")
    played(one, Texts(texts), 6, tmp_path / "run")
    check_same(tmp_path / "run", one, least)


def test_a_grade_follows_from_the_calls_that_were_kept(tmp_path: Path) -> None:
    one = made("ToolScale-v0")
    played(one, Texts(settled), 8, tmp_path / "run")

    def drop(line: dict[str, Any]) -> None:
        line["grading"]["of"]["calls"] = []

    edit(tmp_path / "run", drop)
    found = again(tmp_path / "run", one)
    assert len(found.changed) >= 4
    assert all((before.right, now.right) == (1.0, 0.0) for before, now in found.changed)


def test_what_cannot_be_graded_again_is_said_by_task_and_stays(tmp_path: Path) -> None:
    one = made("ToolScale-v0")
    played(one, Texts(settled), 3, tmp_path / "run")
    before = rows_of(tmp_path / "run")
    broken = iter([lambda line: line.pop("grading"),
                   lambda line: line["grading"]["of"]["calls"].insert(0, ["no_such_tool", {}]),
                   lambda line: line.update(key=[*line["key"][:4], 7])])  # fmt: skip
    edit(tmp_path / "run", lambda line: next(broken)(line))
    found = again(tmp_path / "run", one)
    reasons = sorted(found.kept.values())
    assert len(reasons) == 3
    assert reasons[0].startswith("ToolError: no tool 'no_such_tool'")
    assert reasons[1] == "its trajectory does not hold what the grade follows from; it is of an earlier version"
    assert reasons[2] == "its trajectory is not there"
    now = rows_of(tmp_path / "again")
    assert all((now[k].right, now[k].rescored) == (r.right, {"kept": found.kept[k]}) for k, r in before.items())
    assert [line for line in found.sentences() if line.startswith("  Env test one toolscale/")]


@needs_package
@pytest.mark.parametrize(("domain", "user"), [("telecom", "scripted"), ("retail", "scripted")])
def test_calls_of_both_sides_of_a_conversation_are_made_again(tmp_path: Path, domain: str, user: str) -> None:
    """In telecom the user has tools of its own, whose calls the agent never sees."""
    one = made("Tau2-v0", domain=domain, user=user, split="base" if domain == "telecom" else "test")
    assert isinstance(one.source, Tau2Source)

    def texts(world: Tau2World) -> list[str]:
        chosen = transfer if world.plan.task_id.endswith("1") else gold
        return chosen(world.plan, solo=world.user is None)

    played(one, Texts(texts), 6, tmp_path / "run")
    check_same(tmp_path / "run", one, 2)
    if (domain, user) == ("telecom", "scripted"):
        edit(tmp_path / "run", _without_the_users_calls)
        assert again(tmp_path / "run", one, "without").changed


def _without_the_users_calls(line: dict[str, Any]) -> None:
    kept = line["grading"]["of"]
    kept["log"] = [row for row in kept["log"] if not ("name" in row and row["side"] == "user")]


# -- billed anew -------------------------------------------------------------------------------------------------------


PAPER = load_sheet("paper-2025-11")
DOUBLE = PAPER.with_factors(dict.fromkeys(PAPER.prices, Decimal(2)), "double")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two episodes."""
    played(made("FRAMES-v0"), player("cheapest", made("FRAMES-v0")), 2, tmp_path / "run")
    return tmp_path / "run"


def test_under_its_own_sheet_nothing_changes(run: Path, tmp_path: Path) -> None:
    repriced = reprice(run, PAPER, tmp_path / "again")
    assert list(read_rows(tmp_path / "again")) == list(read_rows(run))
    assert (repriced.trials, repriced.other_prices, repriced.estimate) == (2, 0, False)
    assert len(repriced.sentences()) == 1


def test_at_twice_the_price_it_costs_twice(run: Path, tmp_path: Path) -> None:
    repriced = reprice(run, DOUBLE, tmp_path / "new" / "folder")
    before, after = list(read_rows(run)), list(read_rows(tmp_path / "new" / "folder"))
    for old, new in zip(before, after, strict=True):
        assert abs(new.nano_usd - 2 * old.nano_usd) <= 20  # each charge is rounded
        assert new.nano_usd > 100
        assert (new.sheet, new.right, new.tokens) == ("double", old.right, old.tokens)
    assert repriced.estimate
    assert "2 of 2 prompts showed other prices than these" in repriced.sentences()[1]
    told = json.loads((tmp_path / "new" / "folder" / "manifest.json").read_text())["repriced"]
    assert (told["sheet"], told["estimate"], told["sheets_before"]) == ("double", True, ["paper-2025-11"])
    lines = read_trajectories(tmp_path / "new" / "folder" / TRAJECTORIES)
    bills = {
        tuple(line["key"]): (line["totals"]["nano_usd"], sum(c["nano_usd"] for c in line["charges"])) for line in lines
    }
    assert bills == {row.key: (row.nano_usd, row.nano_usd) for row in after}
    assert (tmp_path / "new" / "folder" / "summary.json").is_file()


def test_a_prompt_without_prices_is_no_estimate(run: Path, tmp_path: Path) -> None:
    edit(run, lambda line: line.update(tools=[], messages=[{"role": "system", "content": "no price here"}]))
    repriced = reprice(run, DOUBLE, tmp_path / "new")
    assert (repriced.no_prices, repriced.other_prices, repriced.estimate) == (2, 0, False)


def test_a_strict_budget_judges_anew(run: Path, tmp_path: Path) -> None:
    first = replace(next(read_rows(run)), right=1.0)
    write_run(run, [first])
    edit(run, lambda line: line.update(budget=first.agent_usd * 1.5))
    repriced = reprice(run, DOUBLE, tmp_path / "new")
    (row,) = read_rows(tmp_path / "new")
    assert (row.right, repriced.outcomes_changed) == (0.0, 1)
    (line,) = read_trajectories(tmp_path / "new" / TRAJECTORIES)
    assert line["outcome"] == {"value": 0.0, "evidence": row.evidence}
    assert row.over_budget_usd == pytest.approx(first.agent_usd / 2, rel=1e-4)
    back = reprice(tmp_path / "new", PAPER, tmp_path / "back")
    assert [row.right for row in read_rows(tmp_path / "back")] == [1.0]
    assert back.outcomes_changed == 1


def test_what_learning_cost_stays_and_is_said_not_to_be_billed_anew(run: Path, tmp_path: Path) -> None:
    learnt = json.dumps({"player": ["Env", "test", "one"], "nano_usd": NANO // 4}) + "\n"
    (run / LEARNT).write_text(learnt)
    edit(run, lambda line: line["charges"][0].update(by_price_nano_usd=7))  # a server had told another cost
    repriced = reprice(run, DOUBLE, tmp_path / "new")
    assert repriced.sentences()[-1] == "To learn had cost 0.250000 $, which stays: that is not billed anew."
    assert all("by_price_nano_usd" not in c for t in read_trajectories(tmp_path / "new" / TRAJECTORIES)
               for c in t["charges"])  # fmt: skip
    again(run, made("FRAMES-v0"))
    for folder in (tmp_path / "new", tmp_path / "again"):
        assert (folder / LEARNT).read_text() == learnt
        assert json.loads((folder / "summary.json").read_text())["policies"][0]["usd_to_learn"] == 0.25


def test_of_several_tries_the_one_with_the_row_s_bill_counts(run: Path, tmp_path: Path) -> None:
    whole = (run / TRAJECTORIES).read_text()
    edit(run, lambda line: line.update(charges=line["charges"][:1]))
    other = (run / TRAJECTORIES).read_text()
    (run / TRAJECTORIES).write_text(other + whole + other + '{"torn')
    reprice(run, PAPER, tmp_path / "new")
    assert list(read_rows(tmp_path / "new")) == list(read_rows(run))


def test_what_cannot_be_billed_is_refused_and_nothing_is_left(run: Path, tmp_path: Path) -> None:
    out, path = tmp_path / "new", run / TRAJECTORIES
    with pytest.raises(PriceError, match="cannot bill"):
        reprice(run, PriceSheet("few", "2026", "made up", {}), out)
    with pytest.raises(ConfigError, match="is there already"):
        reprice(run, PAPER, run)
    whole = path.read_text()
    for text, error, says in (
        (whole.splitlines()[0] + "\n", ConfigError, "1 of 2 trials have a bill and no trajectory"),
        ("{}\n" + whole, ConfigError, "line 1: expected a trajectory with its charges and key"),
        (whole.replace('"units": 0', '"units": -1'), PriceError, "counts from 0 up"),
        (whole.replace('"units"', '"unitz"'), ConfigError, "a charge cannot be read"),
        (None, ConfigError, "no trajectories at"),
    ):
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(error, match=says):
            reprice(run, PAPER, out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]
