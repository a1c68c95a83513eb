"""The table over recorded outcomes, against what can be counted by hand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from tests.paths import SHARED
from toolorchestra.agents.calibration.logistic import fit_logistic
from toolorchestra.agents.commands import recorded
from toolorchestra.agents.evaluation import replayed_routing
from toolorchestra.agents.policies.base import PlayerOptions
from toolorchestra.agents.policies.knn_and_skillbook import FittedPlayer
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.recorded.source import RecordedSource
from toolorchestra.envs.factory import EnvSettings, EpisodeFactory
from toolorchestra.envs.outcomes.table import Outcomes, OutcomesBuilder, read_table

DOLLARS = {"cheap": 0.1, "expensive": 1.0, "bad": 0.5}


def recording(tasks: int = 60, runs: int = 2) -> Outcomes:
    """`cheap` is right at sums alone, `expensive` at everything but every fifth task, `bad` never."""
    made = OutcomesBuilder("made")
    for task in range(tasks):
        family = ("sums", "essays")[task % 2]
        right = {"cheap": family == "sums", "expensive": task % 5 != 0, "bad": False}
        for model, value in right.items():
            for run in range(runs):
                made.add(
                    f"{family} {task}", model, value, family=family, run=run, usd=DOLLARS[model], seconds=10 * (run + 1)
                )
    return made.made()


@pytest.fixture(scope="module")
def table() -> replayed_routing.Table:
    return replayed_routing.table_of(RecordedSource(rows=recording()), "paper-2025-11")


def by_policy(cost_weight: float = 0.2) -> dict[str, replayed_routing.ReplayedLine]:
    made = replayed_routing.table_of(RecordedSource(rows=recording()), "paper-2025-11")
    return {line.policy: line for line in replayed_routing.contest(made, made.tasks, cost_weight)}


def test_means_by_hand(table: replayed_routing.Table) -> None:
    assert table.models == ("cheap", "expensive", "bad")
    assert table.success.mean(0) == pytest.approx([0.5, 0.8, 0.0])
    assert table.usd.mean(0) == pytest.approx(list(DOLLARS.values()))
    assert (table.seconds == 15).all()
    assert replayed_routing.best_single(table) == 1
    assert replayed_routing.front(table) == [0, 1]


def test_who_routes_by_family_beats_the_best_single_model() -> None:
    lines = by_policy()
    oracle = 0.5 + 0.5 * 0.8  # sums by the cheap one, essays by the expensive one
    assert lines["task oracle, one run"].accuracy[0] == pytest.approx(oracle)
    for name in ("skillbook", "trained router (logistic)"):
        assert lines[name].accuracy[0] == pytest.approx(oracle), name
        assert lines[name].usd[0] == pytest.approx(0.55)
        assert lines[name].gain[0] == pytest.approx(oracle / 0.8 - 1)
        assert lines[name].gain[1] > 0  # of the paired interval too
        assert lines[name].saving[0] == pytest.approx(0.45)
    assert lines["expensive"].gain == (0.0, 0.0, 0.0)
    assert lines["cheapest"].accuracy[0] == 0.5
    assert lines["strongest"].accuracy[0] == 0.8
    assert "bad" not in lines  # it is not on the front


def test_the_oracle_is_judged_by_the_runs_that_did_not_choose_it() -> None:
    """Models that throw coins: none is right on more than half, and the better half of a task's runs is luck."""
    rng, made = np.random.default_rng(1), OutcomesBuilder("coins")
    for task in range(200):
        for model in "abcd":
            for run in range(4):
                made.add(f"t{task}", model, bool(rng.random() < 0.5), run=run, usd=0.1, seconds=1)
    table = replayed_routing.table_of(RecordedSource(rows=made.made()), "paper-2025-11")
    assert table.success.max(axis=1).mean() > 0.7
    assert replayed_routing.oracle(table).success.mean() == pytest.approx(0.5, abs=0.06)
    once = replayed_routing.table_of(RecordedSource(rows=recording(runs=1)), "paper-2025-11")
    assert once.halves is None
    assert "any model right, one run each" in {line.policy for line in replayed_routing.contest(once, once.tasks, 0.2)}


def test_one_model_again_is_told_from_a_choice_of_models() -> None:
    """Of four runs one is right: in one call 25 %, in four all; the models of the cascade are two."""
    made = OutcomesBuilder("again")
    for task in range(20):
        for run in range(4):
            made.add(f"t{task}", "a", run == 2, run=run, usd=0.1, seconds=1)
            made.add(f"t{task}", "b", False, run=run, usd=0.2, seconds=1)
    table = replayed_routing.table_of(RecordedSource(rows=made.made()), "paper-2025-11")
    (name, again), (other, cascade) = replayed_routing.same_model_again(table, 0)
    assert (name, other) == ("a, up to 4 runs with a check", "cascade of up to 4 models")
    assert again.success == pytest.approx(np.ones(20))
    assert again.usd == pytest.approx(np.full(20, 0.1 * (1 + 3 / 4 + 1 / 2 + 1 / 4)))
    assert cascade.success == pytest.approx(np.full(20, 0.25))
    assert cascade.usd == pytest.approx(np.full(20, 0.1 + 0.75 * 0.2))


def replayed(folder: Path, sheet: dict[str, object], seconds: dict[str, object]) -> list[list[str]]:
    """The table's cells, of 20 tasks that `weak` is right on one of two of and `strong` on all."""
    rows = "".join(
        f"t{task},{model},{run},{model == 'strong' or task % 2 == 0},{'' if run else seconds[model]},100,100\n"
        for task in range(20) for model in ("weak", "strong") for run in range(2)
    )  # fmt: skip
    (folder / "rows.csv").write_text("task,model,run,success,seconds,input,output\n" + rows)
    told = {"id": "mine", "date": "2026-01-01", "source": "made up", "prices": {"qwen3-8b": {"free": "own"}, **sheet}}
    (folder / "sheet.json").write_text(json.dumps(told))
    words = [str(folder / "rows.csv"), "--prices", str(folder / "sheet.json"), "--out", str(folder / "out.md")]
    assert recorded.replay(words) == 0
    return [line.strip("| ").split(" | ") for line in (folder / "out.md").read_text().splitlines()[5:]]


def test_models_that_cost_nothing_are_chosen_by_their_success(tmp_path: Path) -> None:
    free = {"free": "own GPU"}
    cells = {line[0]: line[1:] for line in replayed(tmp_path, {"weak": free, "strong": free}, {"weak": 2, "strong": 8})}
    assert cells["skillbook"] == cells["strong"]
    assert cells["strong"][0].startswith("100.0%")
    assert cells["strong"][2:] == ["8", "+0% (+0% to +0%)", "-"]


def test_seconds_that_nobody_measured_are_not_known_and_not_0(tmp_path: Path) -> None:
    paid = {"usd_per_mtok": {"input": 1, "output": 1}}
    more = {"usd_per_mtok": {"input": 2, "output": 2}}
    lines = replayed(tmp_path, {"weak": paid, "strong": more}, {"weak": 2, "strong": ""})
    seconds = {line[0]: line[3] for line in lines}
    assert seconds["cheapest"] == "2"  # of the runs that say it
    assert seconds["strong"] == "not known"
    assert seconds["cascade, with a check after each run"] == "2"  # of the tasks that only `weak` was sent to


def test_nobody_learns_from_the_task_that_it_is_held_to(table: replayed_routing.Table) -> None:
    """A chooser that could look would be right everywhere: it is shown the other folds alone."""
    shown: list[np.ndarray] = []

    def choose(one: replayed_routing.Table, train: np.ndarray) -> list[int]:
        shown.append(train)
        return [0] * len(one.tasks)

    replayed_routing.by_folds(table, choose)
    assert len(shown) == 5
    held_out = np.sum([~train for train in shown], axis=0)
    assert (held_out == 1).all()


def test_routers_that_play_learn_from_the_other_folds_alone() -> None:
    """What one fold taught is not taken for another: the same tools are shown in all of them."""
    digests = set()
    for fold in range(5):
        source = RecordedSource(rows=recording(), fold=fold)
        factory = EpisodeFactory(source, EnvSettings(split="test", prices="paper-2025-11", preference="none"), {})
        learnt = asyncio.run(FittedPlayer("knn", factory, 0, PlayerOptions(fit_tasks=40)).prepare())
        held_out = {source.question(name).text for name in source.ids("test")}
        assert not held_out & {task.text for task in learnt.tasks}
        digests.add(learnt.digest)
    assert len(digests) == 5


def test_logistic_regression_finds_a_word_that_tells() -> None:
    rng = np.random.default_rng(0)
    words = [["alpha"] if n % 2 else ["beta"] for n in range(80)]
    success = np.array([[0.9 if "alpha" in told else 0.1] for told in words])
    train = rng.random(80) < 0.7
    found = fit_logistic(["f"] * 80, words, success, train)[~train, 0]
    assert np.abs(found - success[~train, 0]).max() < 0.15


def csv_of(folder: Path) -> Path:
    rows, file = recording(30), folder / "outcomes.csv"
    lines = ["task,family,model,run,success,usd"]
    lines += [
        f"{rows.tasks[t]},{rows.families[t]},{rows.models[m]},{r},{bool(s)},{u}"
        for t, m, r, s, u in zip(rows.task, rows.model, rows.run, rows.success, rows.measures["usd"], strict=True)
    ]
    file.write_text("\n".join(lines))
    return file


def test_the_commands_write_their_pages(tmp_path: Path) -> None:
    file = csv_of(tmp_path)
    out, models, page = (tmp_path / name for name in ("replay.md", "experts.json", "fit.md"))
    assert recorded.replay([str(file), "--prices", "paper-2025-11", "--out", str(out)]) == 0
    text = out.read_text()
    assert "30 tasks, 3 models, 5 folds" in text
    assert "| task oracle, one run | 90.0% (" in text
    assert "not known" in text  # seconds
    words = ["--out", str(models), "--page", str(page), "--draws", "5", "--simulations", "5"]
    assert recorded.fit([str(file), *words]) == 0
    assert "| pairs that always succeed |" in page.read_text()
    assert models.is_file()


RECORDED = SHARED / "data"


@pytest.mark.skipif(not RECORDED.is_dir(), reason="the recorded outcomes are not beside the repository")
def test_real_recordings_are_read_and_fitted() -> None:
    apart = ("grok-4", "grok-code-fast-1", "grok-4-fast")
    rows = read_table(RECORDED / "outcomes_mcpmark.csv.gz", reasoning_apart=apart)
    assert (len(rows), len(rows.tasks), len(rows.models)) == (14_841, 97, 39)
    with pytest.raises(ConfigError, match="reasoning tokens are more than all"):
        read_table(RECORDED / "outcomes_mcpmark.csv.gz")
    assert read_table(RECORDED / "outcomes_gaia_openhands.csv.gz").zero_dollars == 349
