"""The training loop, small: it runs, resumes exactly, refuses what it cannot do, and says what it skips."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest
import torch

from tests.agents.reports.test_page import parts
from tests.agents.training.trained_models import kept, same
from tests.two_texts import raises
from toolorchestra.agents.commands.console import read_options
from toolorchestra.agents.commands.train import TrainOptions, defaults, trained
from toolorchestra.agents.commands.train import main as train_command
from toolorchestra.agents.configuration.config import (
    EnvMix,
    ModelConfig,
    TrainConfig,
    WarmStart,
    as_json,
    with_environments,
)
from toolorchestra.agents.configuration.environments import training
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.base import Datum, LossParams
from toolorchestra.agents.evaluation.heldout import Evaluation
from toolorchestra.agents.reports.training_report import write_report
from toolorchestra.agents.rollouts.grpo import AdvantageParams, Group, Grpo, training_batch
from toolorchestra.agents.rollouts.rollout import RolloutParams, factory_of
from toolorchestra.agents.training import checkpoint, trainer, training_run, warmstart
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.metrics import read
from toolorchestra.agents.training.trainer import collect_groups, train
from toolorchestra.agents.training.training_run import TrainingRun, open_run
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.registration import register

SMALL = replace(
    preset("tiny"),
    steps=2,
    groups=4,
    rollouts=4,
    evaluate_every=1,
    evaluation_tasks=4,
    save_every=1,
    advantage=AdvantageParams(least_spread=0.0),
    model=ModelConfig(hidden=32),
    warm_start=WarmStart(steps=60, batch=16, demonstrations=160, learning_rate=1e-2, gate=0),
)
COLD = replace(SMALL, steps=1, warm_start=WarmStart(steps=0))
"""Without a warm start: enough where nothing has to be learnt."""


def run(
    folder: Path, config: TrainConfig = SMALL, *, resume: bool = False, said: list[str] | None = None
) -> TrainingRun:
    engine, chat = build(config)
    return train(config, folder, engine, chat, resume=resume, say=(said if said is not None else []).append)


def weights(made: TrainingRun) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in made.engine.model.state_dict().items()}  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    """One run from nothing to its end, which several tests look at."""
    return run(tmp_path_factory.mktemp("whole"))


def test_a_run_from_nothing_to_a_report(whole: TrainingRun) -> None:
    rows = list(read(whole.folder / "metrics.jsonl"))
    assert [r["step"] for r in rows if r["kind"] == "train"] == [0, 1]
    assert [r["step"] for r in rows if r["kind"] == "eval"] == [0, 1, 2]
    first = next(r for r in rows if r["kind"] == "train")
    assert first["loss/mismatch"] < 1e-4
    (index,) = parts(write_report(whole), "index")
    assert index["manifest"]["simulated"] is True
    assert all(one["lines"] for one in index["training"]["curves"])
    summary = json.loads((whole.folder / "report" / "summary.json").read_text())
    assert set(summary["standings"]) == {"policy", "random", "cheapest", "strongest", "oracle"}
    assert summary["probes"]


@pytest.mark.parametrize("lost", [1, 2])
def test_resumed_equals_uninterrupted(whole: TrainingRun, tmp_path: Path, lost: int) -> None:
    """Without its last checkpoints a run goes on from an earlier one: to the same weights, and no metrics row twice."""
    shutil.copytree(whole.folder, tmp_path / "copy")
    for step in range(2, 2 - lost, -1):
        shutil.rmtree(tmp_path / "copy" / "checkpoints" / f"step-{step:06d}")
    said: list[str] = []
    resumed = run(tmp_path / "copy", resume=True, said=said)
    assert f"resuming from step-{2 - lost:06d}" in said
    assert same(kept(whole.folder)["weights"], weights(resumed))
    steps = [(r["kind"], r["step"]) for r in read(tmp_path / "copy" / "metrics.jsonl")]
    assert sorted(steps) == sorted((r["kind"], r["step"]) for r in read(whole.folder / "metrics.jsonl"))


@pytest.mark.parametrize("rank", [0, 2])
def test_a_kl_term_is_to_what_the_warm_start_left(tmp_path: Path, rank: int) -> None:
    """In a run that was resumed, too."""
    config = replace(
        COLD,
        learning_rate=1e-9,
        loss=LossParams(kl_weight=1e-6),
        model=ModelConfig(hidden=32, lora_rank=rank),
        warm_start=WarmStart(steps=20, batch=8, demonstrations=40, gate=0),
    )
    data = [Datum(range(2, 40), [0.0] * 38, [0.0] + [1.0] * 37, [False] + [True] * 37)]
    for resume in (False, True):
        made = run(tmp_path, config, resume=resume)
        assert made.engine.train(data, config.loss, 1e-2)["kl_reference"] < 1e-6
        assert made.engine.train(data, config.loss, 1e-2)["kl_reference"] > 1e-3
        shutil.rmtree(tmp_path / "checkpoints" / "step-000001")


def test_a_planned_start_where_there_are_no_plans_is_refused(tmp_path: Path) -> None:
    mixes = (*SMALL.environments, EnvMix("ToolScale-v0", 1.0, {"domain": "finance"}))
    with pytest.raises(ConfigError, match=r"the paper's tools, which ToolScale-v0 does not have: leave it out"):
        run(tmp_path, replace(SMALL, environments=mixes, warm_start=replace(SMALL.warm_start, planned=True)))


def test_a_folder_that_holds_another_run_is_refused(tmp_path: Path) -> None:
    run(tmp_path, COLD)
    with pytest.raises(ConfigError, match="holds a run that has ended"):
        run(tmp_path, COLD)
    with pytest.raises(ConfigError, match=r"other settings \(groups\); .* may change: .*, steps"):
        run(tmp_path, replace(COLD, groups=5, steps=2), resume=True)
    with pytest.raises(ConfigError, match=r"other settings \(environments\)"):
        run(tmp_path, replace(COLD, environments=(*COLD.environments, COLD.environments[0])), resume=True)
    two = json.dumps(as_json(replace(COLD, environments=(*COLD.environments, COLD.environments[0]))))
    with pytest.raises(ConfigError, match=r"other settings \(environments\)"):
        training_run._check_same(json.loads(json.dumps(as_json(COLD))), json.loads(two), tmp_path, str)
    numbers = (tmp_path / "metrics.jsonl").read_text()
    for path in (tmp_path / "checkpoints").glob("step-*/engine.pt"):
        path.write_text("torn")
    for resume in (False, True):
        said = r"no checkpoint of the run in .* is whole; move the folder away, or begin in another$"
        with raises(ConfigError, said, "another --out FOLDER"):
            run(tmp_path, COLD, resume=resume)
    assert (tmp_path / "metrics.jsonl").read_text() == numbers


def test_an_argument_that_no_checkpoint_can_keep_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    (mix, *_) = COLD.environments
    wrong = replace(COLD, environments=(replace(mix, arguments={**mix.arguments, "reward_terms": len}),))
    for work in (partial(run, tmp_path, wrong), partial(trained, wrong, tmp_path, resume=False)):
        with pytest.raises(ConfigError, match=r"HLE-v0: reward_terms=<built-in .*; give text, .*'module:function'$"):
            work()
    assert not list(tmp_path.iterdir())


def test_an_algorithm_that_is_none_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    config = replace(COLD, algorithm="grpoo", model=replace(COLD.model, processes=2))
    for work in (partial(run, tmp_path, config), partial(trained, config, tmp_path, resume=False)):
        with pytest.raises(ConfigError, match="no algorithm 'grpoo'"):
            work()
    assert not active_children()
    assert not list(tmp_path.iterdir())


def test_settings_that_change_no_result_may_change_when_a_run_goes_on(whole: TrainingRun, tmp_path: Path) -> None:
    """What is drawn in an evaluation changes nothing that is drawn in training."""
    shutil.copytree(whole.folder, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "checkpoints" / "step-000002")
    shutil.rmtree(tmp_path / "copy" / "checkpoints" / "step-000001")
    seldom = replace(SMALL, evaluate_every=2, save_every=2, evaluation_tasks=2)
    said: list[str] = []
    resumed = run(tmp_path / "copy", seldom, resume=True, said=said)
    assert "from here on evaluate_every is 2; it was 1" in said
    assert same(kept(whole.folder)["weights"], weights(resumed))
    longer = run(tmp_path / "copy", replace(seldom, steps=3), resume=True)
    assert (longer.step, longer.config.steps) == (3, 3)


def test_a_run_goes_on_where_the_models_server_has_another_address_and_in_a_version_with_more_settings() -> None:
    served = ModelConfig(path="m", sampler="served", server="http://a:1/v1", handover="/a")
    before = json.loads(json.dumps(as_json(replace(COLD, model=served, warm_start=WarmStart()))))
    del before["max_staleness"], before["environments"][0]["max_context"]
    before["warm_start"]["gate"] = True
    said: list[str] = []
    other = replace(COLD, model=replace(served, server="http://b:1/v1", handover="/b", rows=7), warm_start=WarmStart())
    now = json.loads(json.dumps(as_json(other)))
    training_run._check_same(now, before, Path("run"), said.append)
    assert "from here on model.server is http://b:1/v1; it was http://a:1/v1" in said
    assert len(said) == 3
    with pytest.raises(ConfigError, match=r"other settings \(max_staleness\)"):
        training_run._check_same({**now, "max_staleness": 1}, before, Path("run"), said.append)


def test_a_start_that_is_not_good_enough_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmstart, "ROUNDS", 2)
    poor = WarmStart(steps=1, demonstrations=50)
    with pytest.raises(ConfigError, match="did not reach what reinforcement learning needs in 2 rounds"):
        run(tmp_path, replace(SMALL, warm_start=poor))


def test_a_start_without_one_demonstration_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmstart, "demonstrations", lambda *_: [])
    with pytest.raises(ConfigError, match="nothing to learn from: every episode that it played failed"):
        run(tmp_path, replace(SMALL, warm_start=WarmStart(steps=1, demonstrations=1)))


def test_a_batch_without_a_usable_group_is_skipped_and_said(tmp_path: Path) -> None:
    said: list[str] = []
    run(tmp_path, replace(COLD, advantage=AdvantageParams(least_spread=99.0)), said=said)
    assert any("none of 4 groups has rewards that differ; no step taken" in line for line in said)


class Interrupting(io.StringIO):
    """A terminal at which Ctrl-C is pressed, or a SIGTERM comes, when the first line of progress is shown: behind the
    step's save."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def write(self, text: str) -> int:
        if not self.getvalue():
            signal.raise_signal(self._number)
        return super().write(text)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_behind_a_steps_save_is_saved_too(number: int, tmp_path: Path) -> None:
    config = replace(COLD, steps=3, save_every=100, evaluate_every=100, groups=1)
    with contextlib.redirect_stderr(Interrupting(number)):
        made = run(tmp_path, config)
    assert made.stopping
    assert made.step == 2
    newest = checkpoint.latest(tmp_path / "checkpoints")
    assert newest is not None
    assert newest.name == "step-000002"


def test_failed_rollouts_are_said_and_have_no_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_run, "RolloutParams", partial(RolloutParams, deadline_seconds=1e-6))
    said: list[str] = []
    run(tmp_path, COLD, said=said)
    for where, count in (("step 0", 16), ("held out, step 1", 8)):
        failed = f"{count} of {count} rollouts failed and count for nothing; the first: it ran into its deadline"
        assert f"warning, {where}: {failed}" in said
    assert not any("collapsed" in line for line in said)
    start = WarmStart(steps=1, demonstrations=50)
    with pytest.raises(ConfigError, match="16 of 16 rollouts failed"):
        run(tmp_path / "warm", replace(COLD, warm_start=start))
    (row,) = [r for r in read(tmp_path / "metrics.jsonl") if r["kind"] == "train"]
    assert (row["accuracy"], row["cents"], row["valid"], row["failed"]) == (None, None, None, 16)


def test_groups_share_task_prices_and_preference(whole: TrainingRun) -> None:
    groups = collect_groups(whole)
    assert len(groups) == 4
    trajectories = [t for g in groups for t in g.trajectories]
    with pytest.raises(ValueError, match="a group's rollouts must share task, prices and preference"):
        Group([trajectories[0], trajectories[-1]])
    batch = training_batch(groups, Grpo(AdvantageParams(least_spread=0.0)))
    for datum in batch.data:
        assert len(datum.tokens) == len(datum.logprobs) == len(datum.advantages)
        assert {a == 0 for a in datum.advantages} == {True, False}
        assert all(a == 0 or p < 0 for a, p in zip(datum.advantages, datum.logprobs, strict=True))


def test_a_third_partys_source_trains_too(tmp_path: Path) -> None:
    """Here the toy, whose world is no question's: no baseline can play it, and nobody answers it rightly."""
    register("Tests/ToyTrain-v0", "tests.support.toy:AdderSource")
    toy = EnvMix("Tests/ToyTrain-v0", 1.0, {"max_turns": 3}, validation="train", test="train")
    said: list[str] = []
    made = run(tmp_path, replace(COLD, environments=(toy,), baselines=("cheapest",)), said=said)
    assert said.count("chat template: it shows tools, results and system messages by itself") == 1
    assert "held out, step 1: held-out reward 0.000, accuracy 0%, 0.00 ¢ a task" in said
    gc.collect()
    evaluations = [one for one in gc.get_objects() if type(one) is Evaluation]
    assert not [one for one in evaluations if one.trajectories[0].env_id == toy.env_id]  # they would pile up
    cents = {r["step"]: r["policy/cents"] for r in read(tmp_path / "metrics.jsonl") if r["kind"] == "eval"}
    assert made.best_step == min(cents, key=lambda step: (cents[step], step))  # of equal rewards the cheaper
    (index,) = parts(write_report(made), "index")
    assert index["training"]["lead"].endswith("No baseline can play them.")
    assert index["manifest"]["simulated"] is False
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert (set(summary["standings"]), summary["of_oracle"], summary["simulated"]) == ({"policy"}, None, False)


def test_an_environment_that_is_no_task_source_is_refused() -> None:
    gym.register("Tests/NoSource-v0", "gymnasium.envs.classic_control:CartPoleEnv")
    with pytest.raises(ConfigError, match="is not an environment over a task source"):
        factory_of("Tests/NoSource-v0")


def configured(*words: str) -> TrainConfig:
    """What a command line comes to."""
    return read_options(TrainOptions, words, default=defaults(words)).config


def test_settings_from_a_command_line() -> None:
    changed = configured("--steps", "7", "--model.hidden", "96", "--loss.entropy-weight", "0.5", "--seed", "3")
    assert (changed.steps, changed.model.hidden, changed.loss.entropy_weight, changed.seed) == (7, 96, 0.5, 3)
    changed = configured("--loss.kl-weight", "0.1", "--model.thinking", "False", "--advantage.unreadable", "wrong")
    assert (changed.loss, changed.model.thinking) == (replace(preset("tiny").loss, kl_weight=0.1), False)
    assert changed.advantage.unreadable == "wrong"
    assert configured("--preset", "8b-h100", "--steps", "3") == replace(preset("8b-h100"), steps=3)
    assert configured() == preset("tiny")
    with pytest.raises(ConfigError, match="no preset 'huge'"):
        preset("huge")
    with pytest.raises(ConfigError, match="environments is a list of at least one"):
        TrainConfig()
    with pytest.raises(ConfigError, match=r"no baseline 'cheap'; valid: .* Did you mean 'cheapest'"):
        replace(SMALL, baselines=("cheap",))
    with pytest.raises(ConfigError, match="rollouts must be at least 2"):
        replace(SMALL, rollouts=1)


def test_environments_from_a_command_line() -> None:
    tiny = preset("tiny")
    given = [["HLE-v0", "max_turns=5", "weight=2"], ["ToolScale-v0", "domain=finance", "test=heldout"]]
    hle, toolscale = with_environments(tiny, given).environments
    assert hle == replace(
        tiny.environments[0], weight=2.0, arguments={**tiny.environments[0].arguments, "max_turns": 5}
    )
    assert toolscale == EnvMix("ToolOrchestra/ToolScale-v0", 1.0, {"domain": "finance"}, test="heldout")
    for wrong, says in (
        (["HEL-v0"], "no environment 'HEL-v0'; valid: "),
        (["HLE-v0", "max_turns"], "--env takes NAME=VALUE, got 'max_turns'"),
        (["HLE-v0", "weight=much"], "weight must be a number above 0, got 'much'"),
        (["HLE-v0", "weight=0"], "weight must be a number above 0"),
    ):
        with pytest.raises(ConfigError, match=says):
            with_environments(tiny, [wrong])
    both = with_environments(tiny, [], ["max_turns=5"]).environments
    assert [mix.arguments["max_turns"] for mix in both] == [5, 5]
    assert [mix.env_id for mix in both] == [mix.env_id for mix in tiny.environments]


def test_a_module_that_registers_an_id_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = 'from toolorchestra.envs.registration import register\nregister("Tests/{}-v0", "{}:AdderSource")\n'
    (tmp_path / "tests_own_tasks.py").write_text(named.format("Own", "tests.support.toy"))
    monkeypatch.syspath_prepend(tmp_path)
    (mix,) = with_environments(preset("tiny"), [["tests_own_tasks:Tests/Own-v0", "tool_seconds=0"]]).environments
    assert training(mix).source.name == "toy-adder"
    with pytest.raises(ConfigError, match=r"^'\./my/env\.py:X-v0': before the colon stands a module, .* not as a path"):
        training(EnvMix("./my/env.py:X-v0"))
    with pytest.raises(ConfigError, match="'tests_no_tasks:X-v0' names a module that cannot be imported: No module"):
        training(EnvMix("tests_no_tasks:X-v0"))


def test_wrong_models_are_refused(tmp_path: Path) -> None:
    def asking_for(path: str) -> TrainConfig:
        return replace(SMALL, model=replace(SMALL.model, path=path))

    with pytest.raises(ConfigError, match="is not a folder"):
        build(asking_for(str(tmp_path / "nothing")))
    with pytest.raises(ConfigError, match="could not be loaded"):
        build(asking_for(str(tmp_path)))
    with pytest.raises(ConfigError, match="max_context is 4096, but the tiny model reads 2048"):
        build(replace(SMALL, max_context=4096))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("learning_rate=nan", "learning_rate must be a number above 0, got nan"),
        ("final_learning_rate=0", "final_learning_rate must be a number above 0"),
        ("temperature=0", "temperature must be a number above 0, got 0.0"),
        ("evaluation_temperature=inf", "evaluation_temperature must be"),
        ("evaluation_tasks=0", "evaluation_tasks must be at least 1"),
        ("average=1", "average=1 would never leave the first weights"),
        ("seed=-1", "seed must be a number from 0 up"),
        ("warm_start.batch=0", r"warm_start\.batch must be at least 1"),
        ("model.hidden=3", r"model\.hidden is a multiple of 8"),
        ("model.rows=0", r"model\.rows must be at least 1"),
        ("loss.entropy_weight=nan", r"loss\.entropy_weight must be"),
        ("advantage.unreadable=bad", "no choice 'bad'; valid: dropped, "),
        ("model.sampler=vlm", "no choice 'vlm'; .* Did you mean 'vllm'"),
        ("steps=many", "--steps: a whole number expected, got 'many'"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(setting: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, _, text = setting.partition("=")
    assert train_command([f"--{name.replace('_', '-')}={text}"]) == 2
    assert re.search(says, capsys.readouterr().err)


def test_optimiser_steps_keep_groups_together_at_a_falling_rate() -> None:
    given: list[tuple[Sequence[Datum], float]] = []

    def heard(data: Sequence[Datum], _: LossParams, rate: float) -> dict[str, float]:
        given.append((data, rate))
        return {"loss": 0.0, "prefix_hits": 0.8 * (len(given) % 2)}  # told once, and counted anew

    config = replace(COLD, steps=3, updates=2, learning_rate=1e-2, final_learning_rate=1e-4)
    engine = SimpleNamespace(train=heard)
    data = [
        Datum([prompt, 7, play], [0.0] * 3, [1.0] * 3, [False, False, True])
        for play in range(3)
        for prompt in (1, 2, 3, 4)
    ]
    for step in range(3):
        made = SimpleNamespace(config=config, step=step, loss=LossParams(), engine=engine, pace=1.0)
        assert trainer._learn(made, data)["prefix_hits"] == 0.8  # type: ignore[arg-type]
    assert [rate for _, rate in given] == pytest.approx([1e-2, 1e-2, 1e-3, 1e-3, 1e-4, 1e-4])
    for first, second in zip(given[::2], given[1::2], strict=True):
        prompts = [{d.tokens[0] for d in part} for part, _ in (first, second)]
        assert [len(first[0]), len(second[0])] == [6, 6]
        assert not prompts[0] & prompts[1]


def test_a_step_that_moves_the_policy_too_far_ends_there_and_the_next_is_slower(tmp_path: Path) -> None:
    """Of eight optimiser steps. How far the weights stand from what sampled before the first one counts for nothing."""
    moved, given = iter([0.5, *[0.51] * 7, 0.5, 0.51, 0.53, *[0.0] * 8]), list[float]()

    def heard(_: Sequence[Datum], loss: LossParams, rate: float) -> dict[str, float]:
        given.append(rate)
        return {"kl_sampler": next(moved)}

    config = replace(COLD, steps=3, updates=8, learning_rate=1.0, final_learning_rate=1.0)
    made = open_run(config, tmp_path, *build(config), resume=False, say=lambda _: None)
    made.warm, made.engine.train = True, heard  # type: ignore[method-assign]
    data = [Datum([prompt, 7], [0.0] * 2, [1.0] * 2, [False, True]) for prompt in range(8)]
    told = [trainer._learn(made, data) for _ in range(2)]
    assert given == [1.0] * 11  # it never rises above the settings' rate
    assert [one["pace"] for one in told] == [1.0, 0.5]
    made.step = 2
    made.save()
    again = open_run(config, tmp_path, *build(config), resume=True, say=lambda _: None)
    again.engine.train = heard  # type: ignore[method-assign]
    trainer._learn(again, data)
    assert given[11:] == pytest.approx([0.5 * 1.03**k for k in range(8)])
