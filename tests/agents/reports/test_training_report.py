"""Which step a report is of: the one that did best on the validation split, where its checkpoint is there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.evaluation.test_heldout import CHAT, HLE, SAME
from tests.agents.training.test_trainer import COLD
from toolorchestra.agents.configuration.config import EnvMix, ModelConfig
from toolorchestra.agents.engines.base import Datum, LossParams, Sample, SamplingParams
from toolorchestra.agents.reports.report_data import episodes_in
from toolorchestra.agents.reports.training_report import write_report
from toolorchestra.agents.training.group_dumps import ROLLOUTS
from toolorchestra.agents.training.trainer import TrainingRun, train
from toolorchestra.envs.base.actions import render_call

UNEVEN = replace(
    COLD,
    environments=(EnvMix(HLE, 1.0, {**SAME, "max_turns": 1, "vary": ()}),),
    model=ModelConfig(),
    steps=4,
    evaluate_every=1,
    evaluation_tasks=8,
    save_every=4,
    keep_last=1,
)


class Moody:
    """Answers in one of its evaluations, the third by default, after step 2, and says nothing in any other."""

    evaluated = -1

    def __init__(self, answers: int = 2) -> None:
        self.answers = answers
        self.loaded: list[str] = []

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        said = CHAT.encode(render_call("answer", {"model": "answer-1"})) if self.evaluated == self.answers else []
        return Sample([*said, CHAT.stop], [0.0] * (len(said) + 1), True)

    def release(self, session: str) -> None:
        """Nothing."""

    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Mapping[str, float]:
        return {}

    @contextmanager
    def averaged(self) -> Iterator[None]:
        self.evaluated += 1
        yield

    def take_reference(self) -> None:
        """None is kept."""

    def save(self, folder: Path) -> None:
        """Nothing."""

    def load(self, folder: Path) -> None:
        self.loaded.append(folder.name)


def trained(folder: Path) -> tuple[TrainingRun, Moody]:
    engine = Moody()
    return train(UNEVEN, folder, engine, CHAT, resume=False, say=lambda _: None), engine  # type: ignore[arg-type]


def summary(run: TrainingRun) -> dict[str, Any]:
    write_report(run)
    return dict(json.loads((run.folder / "report" / "summary.json").read_text()))


def test_the_best_evaluation_has_a_checkpoint_whenever_it_comes(tmp_path: Path) -> None:
    run, engine = trained(tmp_path)
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == ["step-000002", "step-000004"]
    assert summary(run)["best_step"] == 2
    assert engine.loaded == ["step-000002"]


@pytest.mark.parametrize("damage", ["is gone", "is damaged (state.json is not what was written)"])
def test_a_report_on_the_last_step_names_the_last_step(tmp_path: Path, damage: str) -> None:
    run, engine = trained(tmp_path)
    best = tmp_path / "checkpoints" / f"step-{run.best_step:06d}"
    shutil.rmtree(best) if damage == "is gone" else (best / "state.json").write_text("torn")
    said: list[str] = []
    assert summary(replace(run, say=said.append))["best_step"] == 4
    assert said[0].endswith(f"step-000002, which did best on the validation split, {damage}")
    assert engine.loaded == []


def test_the_calls_before_are_those_of_the_first_evaluation_also_of_a_run_that_was_resumed(tmp_path: Path) -> None:
    charts = []
    for engine in (Moody(0), Moody(-2)):  # the second is not asked until the report
        run = train(UNEVEN, tmp_path, engine, CHAT, resume=bool(charts), say=lambda _: None)  # type: ignore[arg-type]
        write_report(replace(run, best_step=-1))
        page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
        (chart,) = [part for part in page.split("</figure>") if "<h3>Calls of a task</h3>" in part]
        charts.append(chart[chart.index("<h3>Calls of a task</h3>") :])
    assert charts[0] == charts[1]


def test_half_a_surrogate_pair_in_a_transcript_does_not_stop_the_report(tmp_path: Path) -> None:
    run, _ = trained(tmp_path)
    page = write_report(replace(run, config=replace(run.config, preset="odd \ud83d")))
    assert "<h1>odd ?, seed 0</h1>" in page.read_text(encoding="utf-8")


def test_the_report_links_to_pages_of_the_rollouts_and_of_the_test(tmp_path: Path) -> None:
    run, _ = trained(tmp_path)
    page = write_report(run).read_text(encoding="utf-8")
    assert 'href="../page.html"' in page
    assert 'href="trajectories.html"' in page
    assert (tmp_path / "page.html").is_file()
    assert (tmp_path / "report" / "trajectories.html").is_file()
    assert len(list(episodes_in(tmp_path / "report" / "trajectories.jsonl"))) == UNEVEN.evaluation_tasks
    (tmp_path / "page.html").unlink()
    (tmp_path / ROLLOUTS).write_text("torn")
    said: list[str] = []
    write_report(replace(run, say=said.append))
    assert any(line.startswith(f"no page of {tmp_path.name}: no trajectory in ") for line in said)
    assert 'href="../page.html"' not in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
