"""`play` and `evaluate` with a trained model: the figures of the report come again, and other settings are told."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.agents.training.test_trainer import SMALL, run
from tests.agents.training.trained_models import write_run
from toolorchestra.agents.commands import evaluate, play
from toolorchestra.agents.configuration.config import EnvMix, WarmStart
from toolorchestra.agents.evaluation.heldout import HeldOut
from toolorchestra.agents.evaluation.rows import EvaluationRow, read_rows
from toolorchestra.agents.reports import training_report
from toolorchestra.agents.training.saved_model import export_model

Capture = pytest.CaptureFixture[str]
HLE = SMALL.environments[0]
TASKS = 16
START = WarmStart(steps=120, batch=16, demonstrations=60, gate=0, planned=True)
GREEDY = replace(
    SMALL, steps=1, environments=(HLE,), warm_start=START, evaluation_tasks=TASKS, evaluation_temperature=0.0
)
SAID = '--env HLE-v0 style=brief shown_characters=0 max_turns=10 \'vary=["tools", "prices"]\''


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a small run, and its report's figures, without the probes, which take long."""
    made = run(tmp_path_factory.mktemp("run"), GREEDY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training_report, "standard_probes", lambda *_: [])
        training_report.write_report(made)
    return made.folder, json.loads((made.folder / "report" / "summary.json").read_text())


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was trained on HLE-v0 and FRAMES-v0, and learnt nothing."""
    return write_run(tmp_path_factory.mktemp("drawn"))


def evaluated(policy: str, out: Path, *more: str) -> list[EvaluationRow]:
    """On the tasks of the report."""
    first = HeldOut(GREEDY.environments, TASKS, "test", GREEDY.seed).jobs()[0].seed
    half = ["diversify=heldout", "wording=heldout", "preference=sampled"]
    words = ["--env", "HLE-v0", "style=brief", "shown_characters=0", "max_turns=10", 'vary=["tools", "prices"]', *half]
    common = ["--policy", policy, "--split", "test", "--tasks", str(TASKS), "--seed", str(first), "--out", str(out)]
    assert evaluate.main([*words, *common, *more]) == 0
    return list(read_rows(out))


def test_evaluate_gives_the_reports_figures_again(
    reported: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: Capture
) -> None:
    folder, figures = reported
    mine = figures["standings"]["policy"]
    assert mine["accuracy"] > 0
    export_model(folder, tmp_path / "model")
    for number, path in enumerate((folder, tmp_path / "model")):
        rows = evaluated(f"checkpoint:{path}", tmp_path / str(number))
        assert len(rows) == TASKS
        assert sum(row.right or 0.0 for row in rows) / TASKS == pytest.approx(mine["accuracy"])
        assert 100 * sum(row.agent_usd for row in rows) / TASKS == pytest.approx(mine["cents"])
        assert "trained" not in capsys.readouterr().out  # these are the settings of its training


def test_play_shows_what_evaluate_counts(drawn: Path, tmp_path: Path, capsys: Capture) -> None:
    policy = f"checkpoint:{drawn}"
    assert play.main(["--policy", policy, "--split", "test", "--seed", "3"]) == 0
    shown = capsys.readouterr().out
    seed = int(np.random.Generator(np.random.PCG64(np.random.SeedSequence(3))).integers(2**62))
    words = ["--env", "HLE-v0", *_arguments(HLE), "preference=sampled", "--split", "test", "--tasks", "1"]
    assert evaluate.main([*words, "--policy", policy, "--seed", str(seed), "--out", str(tmp_path)]) == 0
    (row,) = read_rows(tmp_path)
    assert f"(outcome {row.right or 0:g}); " in shown
    assert shown.count("[assistant]") == row.turns
    last = float(re.findall(r"bill after turn \d+: ([\d.]+) ¢", shown)[-1])
    assert last == pytest.approx(100 * row.agent_usd, abs=0.0005)


def _arguments(mix: EnvMix) -> list[str]:
    return [
        f"{name}={json.dumps(value) if not isinstance(value, str) else value}" for name, value in mix.arguments.items()
    ]


def test_where_nothing_is_asked_for_it_plays_as_it_was_trained(drawn: Path, tmp_path: Path, capsys: Capture) -> None:
    policy = f"checkpoint:{drawn}"
    assert play.main(["--policy", policy]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"as {policy} was trained: {SAID}\ntask hle-sim/train/")
    assert out.count("[assistant]") == 10
    assert evaluate.main(["--policy", policy, "cheapest", "--tasks", "1", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(
        f"as {policy} was trained: {SAID} {SAID.replace('HLE', 'FRAMES')}\nprices"
    )
    assert [(row.env, row.policy) for row in read_rows(tmp_path)] == [
        (env, who) for env in ("HLE-v0", "FRAMES-v0") for who in (policy, "cheapest")
    ]


def test_settings_that_it_does_not_know_are_told_with_those_that_it_does(drawn: Path, capsys: Capture) -> None:
    policy, other = f"checkpoint:{drawn}", ["--env", "FRAMES-v0", "style=brief", "max_turns=2"]
    told = (
        f'{policy} on FRAMES-v0: it was trained with shown_characters=0 max_turns=10 \'vary=["tools", "prices"]\', and '
        'plays with shown_characters=600 max_turns=2 \'vary=["tools", "aliases", "prices"]\'; as it was trained: '
        + SAID.replace("HLE", "FRAMES")
    )
    assert play.main(["--policy", policy, *other]) == 0
    assert capsys.readouterr().out.startswith(f"{told}\ntask ")
    assert evaluate.main(["--policy", policy, "--tasks", "1", *other]) == 0
    assert capsys.readouterr().out.startswith(f"{told}\nprices ")
    service = ["--env", "ToolScale-v0", "max_turns=1"]
    assert play.main(["--policy", policy, *service]) == 0
    assert f"{policy} on ToolScale-v0: it was trained on HLE-v0, FRAMES-v0, not on this\n" in capsys.readouterr().out


def test_a_temperature_is_asked_for_and_what_is_no_model_is_refused(drawn: Path, capsys: Capture) -> None:
    words = ["--policy", f"checkpoint:{drawn}", "--set", "style=brief", "shown_characters=0", "max_turns=1"]
    shown = []
    for temperature in ("0", "0", "3"):
        assert play.main([*words, "--player", f"temperature={temperature}"]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != shown[2]
    for policy, said in (("checkpoint:nowhere", "no whole checkpoint in 'nowhere'; name a run's folder"),
                         ("nobody:here", "No module named 'nobody'"), ("chat:reference", "asks a model")):  # fmt: skip
        assert play.main(["--policy", policy]) == 2
        assert said in capsys.readouterr().err
