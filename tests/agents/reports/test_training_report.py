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
from tests.agents.reports.test_page import parts
from tests.agents.training.test_trainer import COLD
from toolorchestra.agents.configuration.config import EnvMix, ModelConfig
from toolorchestra.agents.engines.base import Datum, LossParams, Sample, SamplingParams
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


def test_half_a_surrogate_pair_in_a_setting_does_not_stop_the_report(tmp_path: Path) -> None:
    run, _ = trained(tmp_path)
    page = write_report(replace(run, config=replace(run.config, preset="odd \ud83d")))
    assert parts(page, "index")[0]["manifest"]["training"]["preset"] == "odd \ud83d"


def test_the_page_has_the_episodes_of_the_test_and_the_rollouts(tmp_path: Path) -> None:
    run, _ = trained(tmp_path)
    page = write_report(run)
    assert page == tmp_path / "page.html"
    (index,) = parts(page, "index")
    assert sum("training" not in one for one in index["trials"]) == UNEVEN.evaluation_tasks
    assert any("training" in one for one in index["trials"])
    (tmp_path / ROLLOUTS).write_text("torn")
    write_report(run)
    (index,) = parts(page, "index")
    assert f"{ROLLOUTS}: 1 lines could not be read: 1." in index["notes"]
