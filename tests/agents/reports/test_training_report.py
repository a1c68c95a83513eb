"""Which step a report is of, its probes, and the stages of a run on its held-out tasks, played once and kept."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.agents.evaluation.test_heldout import CHAT, HLE, SAME, Silent
from tests.agents.reports.test_page import parts
from tests.agents.training.test_trainer import COLD
from tests.agents.training.trained_models import WHOLE, write_run
from tests.paths import REPOSITORY
from toolorchestra.agents.commands import report
from toolorchestra.agents.configuration.config import EnvMix, ModelConfig, WarmStart
from toolorchestra.agents.engines.base import Datum, LossParams, ModelSize, Sample, SamplingParams
from toolorchestra.agents.reports import stages as of_stages
from toolorchestra.agents.reports.stages import StagesPlayed, TaskResult, as_markdown, stages_of, together
from toolorchestra.agents.reports.training_report import episodes_of_report, standard_probes, write_report
from toolorchestra.agents.rollouts.grpo import Trajectory
from toolorchestra.agents.rollouts.rollout import Job, RolloutParams, Rollouts
from toolorchestra.agents.training.group_dumps import ROLLOUTS
from toolorchestra.agents.training.trainer import TrainingRun, train
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError

UNEVEN = replace(
    COLD,
    environments=(EnvMix(HLE, 1.0, {**SAME, "max_turns": 1, "vary": ()}),),
    model=ModelConfig(),
    steps=4,
    evaluate_every=1,
    evaluation_tasks=8,
    save_every=4,
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

    def size(self) -> ModelSize:
        return ModelSize(1_716_000, 16_000)

    def sync_seconds(self) -> float:
        return 0.0

    def lost(self) -> str:
        return ""


def trained(folder: Path) -> tuple[TrainingRun, Moody]:
    engine = Moody()
    return train(UNEVEN, folder, engine, CHAT, resume=False, say=lambda _: None), engine  # type: ignore[arg-type]


def summary(run: TrainingRun) -> dict[str, Any]:
    write_report(run)
    return dict(json.loads((run.folder / "report" / "summary.json").read_text()))


def test_the_best_evaluation_has_a_checkpoint_whenever_it_comes(tmp_path: Path) -> None:
    run, engine = trained(tmp_path)
    kept = [path.name for path in sorted((tmp_path / "checkpoints").iterdir())]
    assert kept == ["step-000002", "step-000003", "step-000004"]  # the best, and the last two
    assert summary(run)["best_step"] == 2
    assert engine.loaded == ["step-000002"]


def test_a_report_on_the_last_step_names_the_last_step(tmp_path: Path) -> None:
    run, engine = trained(tmp_path)
    best = tmp_path / "checkpoints" / f"step-{run.best_step:06d}"
    for damage in ("is damaged (state.json is not what was written)", "is gone"):
        shutil.rmtree(best) if damage == "is gone" else (best / "state.json").write_text("torn")
        said: list[str] = []
        assert summary(replace(run, say=said.append))["best_step"] == 4
        assert said[0].endswith(f"step-000002, which did best on the validation split, {damage}")
    assert engine.loaded == []


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


IDS = ("ToolOrchestra/HLE-v0", "ToolOrchestra/FRAMES-v0")
SHORT = {"style": "brief", "shown_characters": 0, "max_turns": 1}


class Counted(Rollouts):
    """Remembers how many it made at a time."""

    def __init__(self) -> None:
        super().__init__(Silent(), CHAT, RolloutParams(max_tokens=8, max_context=2048))  # type: ignore[arg-type]
        self.made: list[int] = []

    def collect(self, jobs: Sequence[Job], watch: Callable[[Trajectory], None] | None = None) -> list[Trajectory]:
        self.made.append(len(jobs))
        return super().collect(jobs, watch)


def test_a_probe_says_how_many_tasks_it_played() -> None:
    """Of a subject there may be fewer than were asked for. They are counted beforehand, for what a run may pay."""
    rollouts, mixes = Counted(), tuple(EnvMix(env_id, 1.0, SHORT) for env_id in IDS)
    probes = standard_probes(rollouts, mixes, 12)
    assert episodes_of_report(replace(COLD, environments=mixes, evaluation_tasks=12)) == 2 * 12 + sum(rollouts.made)
    assert len(probes) == 8
    pairs = list(zip(rollouts.made[::2], rollouts.made[1::2], strict=True))
    assert [probe.tasks for probe in probes] == [min(pair) for pair in pairs]
    assert {12, 24} < {probe.tasks for probe in probes}


def test_probes_are_played_with_the_tools_as_they_stand() -> None:
    """Varied tools would change what is compared, and lack some of the keys."""
    varied = [EnvMix(IDS[0], 1.0, {**SHORT, "diversify": "train", "vary": ("tools", "prices")})]
    assert standard_probes(Counted(), varied, 4) == standard_probes(Counted(), [EnvMix(IDS[0], 1.0, SHORT)], 4)


def test_prices_are_swapped_on_the_sheet_and_models_that_the_mix_has(tmp_path: Path) -> None:
    """The paper's aliases may hide other models, whom the paper's sheet does not price."""
    house = REPOSITORY / "docs" / "examples" / "house"
    offers = [{"alias": f"answer-{n}", "model": m, "seconds": 1} for n, m in ((1, "house-70b"), (2, "house-7b"))]
    tools = {"tools": [{"kind": "answer", "name": "answer", "offers": offers}]}
    (tmp_path / "tools.json").write_text(json.dumps(tools))
    own = {"prices": str(house / "prices.json"), "experts": str(house / "experts.json")}
    probes = standard_probes(Counted(), [EnvMix(IDS[0], 1.0, {"tools": str(tmp_path / "tools.json"), **own})], 2)
    assert "share of answer-1 among answer-1 and answer-2" in {probe.name for probe in probes}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StagesPlayed]:
    """A run of which the weights after the supervised start and those of step 4 are kept, and its stages played."""
    place = tmp_path_factory.mktemp("stages")
    run, other = write_run(place / "run"), write_run(place / "other", scale=0.0)
    (first,) = (other / "checkpoints").iterdir()
    shutil.copytree(first, run / "checkpoints" / "step-000000")
    return run, stages(run)


@pytest.fixture
def run(made: tuple[Path, StagesPlayed], tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(made[0], tmp_path / "run"))


def stages(run: Path, again: bool = False) -> StagesPlayed:
    return stages_of(run, 2, again=again, say=lambda _line: None)


def test_every_stage_and_every_fixed_player_plays_the_same_tasks(made: tuple[Path, StagesPlayed]) -> None:
    run, played = made
    assert list(played.plays) == [
        *("supervised start", "trained"),
        *("cheapest", "strongest", "cascade", "told-oracle", "oracle"),
    ]
    assert played.stages == ["supervised start", "trained"]
    assert {len(plays) for plays in played.plays.values()} == {len(played.preferences)} == {4}  # two worlds
    strongest, cheapest = ([p and p.cents for p in played.plays[name]] for name in ("strongest", "cheapest"))
    assert strongest != cheapest
    # Models of random weights all talk alike; so what was loaded is compared, and not what it said.
    loaded = json.loads((run / "report" / "stages.json").read_text())["made_of"]["checkpoints"]
    assert len(set(loaded.values())) == 2


def test_what_was_played_is_read_and_not_played_again(
    made: tuple[Path, StagesPlayed], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(of_stages, "build", None)
        assert json.dumps(vars(stages(run))) == json.dumps(vars(made[1]))
        with pytest.raises(TypeError):
            stages(run, again=True)
    best = run / "checkpoints" / "step-000004"
    shutil.rmtree(best)
    shutil.copytree(run / "checkpoints" / "step-000000", best)  # other weights
    monkeypatch.setattr(of_stages, "build", None)
    with pytest.raises(TypeError):
        stages(run)


def test_stages_that_cannot_be_read_are_played_anew(made: tuple[Path, StagesPlayed], run: Path) -> None:
    kept = run / "report" / "stages.json"
    whole = json.loads(kept.read_text())
    for torn in (kept.read_text()[:-20], json.dumps({"made_of": whole["made_of"]})):
        kept.write_text(torn)
        assert json.dumps(vars(stages(run))) == json.dumps(vars(made[1]))
        assert json.loads(kept.read_text()) == whole


def test_a_stage_that_was_played_before_the_break_is_not_played_again(
    made: tuple[Path, StagesPlayed], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(of_stages, "_beside", None)  # broken off after the last stage, before the baselines
        with pytest.raises(TypeError):
            stages(run, again=True)
    kept = json.loads((run / "report" / "stages.json").read_text())
    assert kept["stages"] == [*kept["plays"]] == ["supervised start"]
    said: list[str] = []
    again = stages_of(run, 2, again=False, say=said.append)
    assert json.dumps(vars(again)) == json.dumps(vars(made[1]))
    assert said == ["trained: 4 tasks played"]


def test_of_a_run_that_went_on_only_the_end_is_played_again(
    made: tuple[Path, StagesPlayed], run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = run / "checkpoints" / "step-000004"
    shutil.rmtree(best)
    shutil.copytree(run / "checkpoints" / "step-000000", best)  # other weights
    said: list[str] = []
    again = stages_of(run, 2, again=False, say=said.append)
    assert said == ["trained: 4 tasks played"]
    assert [*again.plays] == [*made[1].plays]
    assert again.plays["supervised start"] == made[1].plays["supervised start"]
    monkeypatch.setattr(of_stages, "build", None)
    with pytest.raises(TypeError):
        stages_of(run, 3, again=False, say=said.append)  # other tasks


def test_where_the_best_step_is_not_the_last_both_are_played(
    made: tuple[Path, StagesPlayed], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = run / "checkpoints"
    shutil.copytree(checkpoints / "step-000000", checkpoints / "step-000006")  # the best one is still that of step 4
    said: list[str] = []
    both = stages_of(run, 2, again=False, say=said.append)
    assert said == ["trained, last step: 4 tasks played"]
    assert both.stages == ["supervised start", "trained", "trained, last step"]
    assert {name: both.plays[name] for name in made[1].plays} == dict(made[1].plays)
    assert both.plays["trained, last step"] == both.plays["supervised start"]  # the same weights
    text = as_markdown(both)
    assert ("supervised start → trained" in text, "supervised start → trained, last step" in text) == (True, True)
    assert report.main([str(made[0]), str(run), "--stages", "--tasks", "2"]) == 0
    assert "trained, last step" in capsys.readouterr().out.split("## All runs")[1]


def test_weights_that_are_gone_are_told(run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "step-000000")
    with pytest.raises(ConfigError, match="supervised start are played from it"):
        stages(run)


def test_a_run_without_a_supervised_start_began_with_the_model_itself(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", replace(WHOLE, warm_start=WarmStart(steps=0)))
    assert stages(run).stages == ["before training", "trained"]


def test_a_run_from_another_began_with_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = replace(WHOLE, warm_start=WarmStart(steps=0))
    first = write_run(tmp_path / "first", cold)
    run = write_run(tmp_path / "run", replace(cold, init_from=str(first), seed=7))
    asked: list[dict[str, torch.Tensor]] = []

    def evaluate(self: object, rollouts: Any) -> None:
        asked.append({name: p.detach().clone() for name, p in rollouts.engine.model.named_parameters()})
        raise RuntimeError("seen")

    monkeypatch.setattr(of_stages.HeldOut, "evaluate", evaluate)
    with pytest.raises(RuntimeError, match="seen"):
        stages(run)
    wanted = torch.load(first / "checkpoints" / "step-000004" / "engine.pt", weights_only=True)["average"]
    assert all(torch.equal(asked[0][name], value) for name, value in wanted.items())


def test_the_command_prints_each_run_and_both_together(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main([str(run), str(run), "--stages", "--tasks", "2"]) == 0
    said = capsys.readouterr().out
    assert said.count("## run") == 2
    assert said.count("4 tasks.") == 2
    assert "8 tasks." in said.split("## All runs")[1]
    assert "supervised start → trained" in said


def test_runs_of_other_players_stand_alone(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Path(shutil.copytree(run, tmp_path / "other"))
    kept = json.loads((other / "report" / "stages.json").read_text())
    del kept["plays"]["oracle"]
    (other / "report" / "stages.json").write_text(json.dumps(kept))
    assert report.main([str(run), str(other), "--stages", "--tasks", "2"]) == 0
    said = capsys.readouterr()
    assert said.out.count("4 tasks.") == 2
    assert "## All runs" not in said.out
    assert "no table of all of them together" in said.err
    assert (other / "page.html").is_file()


# -- as tables ---------------------------------------------------------------------------------------------------------


def played(*rewards: float) -> StagesPlayed:
    """The trained model earns these, and solves what it earns anything for; before it earned half of that."""
    after = [TaskResult(reward, float(reward > 0), 2.0, 5.0) for reward in rewards]
    before = [TaskResult(play.reward / 2, 0.0, 3.0, 5.0) for play in after]
    oracle = [TaskResult(1.0, 1.0, 1.0, 5.0) for _ in after]
    preferences = ["fast", "frugal"] * (len(rewards) // 2)
    readable = {"before": 0.5, "after": 1.0}
    return StagesPlayed(
        preferences, {"before": before, "after": after, "oracle": oracle}, ["before", "after"], readable
    )


def rows(text: str) -> dict[str, list[str]]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row[1:] for row in cells}


def part(text: str, title: str) -> dict[str, list[str]]:
    """The table behind a title."""
    return rows(text.partition(title)[2].split("\n\n")[1])


def test_means_shares_and_differences() -> None:
    text = as_markdown(played(0.8, 0.8, 0.4, 0.0))
    found = rows(text)
    assert [cell.split()[0] for cell in found["after"][:4]] == ["0.500", "50.0%", "75.0%", "2.00"]
    assert found["after"][4:] == ["5", "100.0%"]
    assert found["before"][5] == "50.0%"
    by_preference = part(text, "by preference:")
    assert by_preference["fast"] == ["2", "0.30 / 0% / 3.00", "0.60 / 100% / 2.00", "1.00 / 100% / 1.00"]
    shares = part(text, "Share of the oracle's reward, by preference:")
    assert [cell.split()[0] for cell in shares["fast"]] == ["2", "30.0%", "60.0%"]
    assert shares["frugal"][2].startswith("40.0% [")
    change = found["before → after"]
    assert [cell.split()[0] for cell in change] == ["+0.250", "+75.0%", "-1.00"]
    assert change[2] == "-1.00 [-1.00, -1.00]"  # the same on every task: the pairs are what is drawn


def test_a_task_that_somebody_failed_counts_for_nobody() -> None:
    whole = played(0.8, 0.8, 0.4, 0.0)
    plays = {**whole.plays, "before": [None, *whole.plays["before"][1:]]}
    found = as_markdown(StagesPlayed(whole.preferences, plays, whole.stages, whole.readable))
    assert "3 tasks." in found
    assert rows(found)["after"][0].startswith("0.400")
    assert rows(found)["oracle"][0].startswith("1.000")


def test_of_a_run_whose_last_step_is_its_best_the_two_are_one() -> None:
    ended, went_on = (
        StagesPlayed(one.preferences, {"trained": one.plays["after"]}, ["trained"], {"trained": 1.0})
        for one in (played(0.8, 0.8), played(0.4, 0.0))
    )
    later = replace(went_on.with_last(), plays={**went_on.plays, "trained, last step": played(0.6, 0.2).plays["after"]})
    found = rows(as_markdown(together([ended, later])))
    assert found["trained"][0].startswith("0.500")
    assert found["trained, last step"][0].startswith("0.600")
    assert rows(as_markdown(together([ended, ended]))).keys().isdisjoint({"trained, last step"})


def test_runs_are_put_together_task_by_task() -> None:
    both = together([played(0.8, 0.8), played(0.4, 0.0)])
    assert as_markdown(both) == as_markdown(played(0.8, 0.8, 0.4, 0.0))
