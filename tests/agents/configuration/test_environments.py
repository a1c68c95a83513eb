"""Which tasks a step plays: by weight, by seed, and in epochs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agents.training.even_source import ENV_ID, TASKS
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.configuration.environments import (
    ChosenTask,
    check_order,
    chosen_tasks,
    every_task,
    simulated,
    training,
)
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.evaluation.heldout import baseline_measures
from toolorchestra.agents.rollouts.rollout import Chat, Job
from toolorchestra.envs.base.errors import ConfigError

EVEN = EnvMix(ENV_ID, 1.0, validation="test")
CHAT = Chat(load_tokenizer())
HLE = EnvMix("ToolOrchestra/HLE-v0", 1.0, {"style": "brief"})
MIX = replace(preset("tiny"), environments=(EVEN, HLE), groups=5, rollouts=2, baselines=())
IN_TURN = replace(MIX, task_order="epochs")


def named(tasks: Sequence[ChosenTask], label: str = "Even-v0") -> list[str]:
    """The tasks that are named for an environment, in their order."""
    return [str(task.job.options["task_id"]) for task in tasks if task.label == label and task.job.options]


def seeds(tasks: Sequence[ChosenTask]) -> list[tuple[str, int]]:
    return [(task.label, task.job.seed) for task in tasks]


def test_tasks_follow_from_the_seed_and_the_step() -> None:
    made = [seeds(chosen_tasks(replace(MIX, seed=seed), step)) for seed, step in itertools.product((0, 1), (3, 4))]
    assert len({tuple(tasks) for tasks in made}) == len(made)
    assert seeds(chosen_tasks(MIX, 3)) == made[0]


def test_nobody_learns_from_a_world_in_which_no_search_helps(tmp_path: Path) -> None:
    questions, index = tmp_path / "q.jsonl", tmp_path / "index.toml"
    questions.write_text("".join(f'{{"id": "{n}", "question": "What of {n}?", "answer": "{n}"}}\n' for n in range(40)))
    index.write_text('[retrieval]\nindex = "embedded"\n')
    arguments = {"dataset": str(questions), "backends": str(index)}
    with pytest.raises(ConfigError, match="with search a policy would learn never to search"):
        training(replace(HLE, arguments=arguments))
    index.write_text('[retrieval]\nindex = "embedded"\n[endpoints.a]\nbase_url = "http://127.0.0.1:1"\n[models."*"]\n')
    assert training(replace(HLE, arguments={**arguments, "prices": "paper-2025-11"}))
    assert training(HLE)


def test_a_run_is_simulated_where_no_model_is_real(tmp_path: Path) -> None:
    """Whatever else a backends file or a data set names."""
    index, models = tmp_path / "index.toml", tmp_path / "models.toml"
    index.write_text('[retrieval]\nindex = "embedded"\n')
    models.write_text('[endpoints.here]\nbase_url = "http://127.0.0.1:1/v1"\n[models."*"]\n')
    for arguments, expected in (({}, True), ({"backends": str(index)}, True), ({"backends": str(models)}, False)):
        assert simulated([replace(HLE, arguments=arguments)]) is expected


def test_environments_come_as_often_as_they_weigh() -> None:
    config = replace(MIX, environments=(replace(EVEN, weight=3.0), HLE), groups=400)
    found = Counter(task.label for task in chosen_tasks(config, 0))
    assert found["Even-v0"] == pytest.approx(300, abs=30)
    assert found.total() == 400


def test_an_environment_that_comes_twice_has_two_names_and_its_own_limits() -> None:
    twice = (replace(EVEN, max_context=100), replace(EVEN, max_tokens=4))
    config = replace(MIX, environments=twice, groups=20)
    limits = {(task.label, task.job.max_tokens, task.job.max_context) for task in chosen_tasks(config, 0)}
    assert limits == {("Even-v0", 0, 100), ("Even-v0 (2)", 4, 0)}


def test_an_epoch_takes_each_task_once_and_the_next_one_in_another_order() -> None:
    taken = [task for step in range(20) for task in named(chosen_tasks(IN_TURN, step))]
    epochs = [taken[i : i + TASKS] for i in range(0, len(taken) - TASKS + 1, TASKS)]
    assert len(epochs) > 4
    for epoch in epochs:
        assert sorted(epoch) == [f"even/train/{number}" for number in range(TASKS)]
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_a_step_in_the_middle_is_what_it_was() -> None:
    """Nothing but seed and step is needed: a resumed run asks for it first."""
    whole = [named(chosen_tasks(IN_TURN, step)) for step in range(6)]
    assert named(chosen_tasks(IN_TURN, 5)) == whole[5]
    other = [named(chosen_tasks(replace(IN_TURN, seed=7), step)) for step in range(6)]
    assert other != whole


def test_what_has_no_end_is_drawn_and_said() -> None:
    said: list[str] = []
    check_order(IN_TURN, said.append)
    assert said == [
        "task_order=epochs: Even-v0 has 6 tasks, each once an epoch",
        "task_order=epochs: HLE-v0 has tasks without end, drawn at random",
    ]
    assert all(task.job.options is None for task in chosen_tasks(IN_TURN, 0) if task.label == "HLE-v0")
    with pytest.raises(ConfigError, match=r"but the tasks of HLE-v0 are generated without end, or .*task_order=random"):
        check_order(replace(IN_TURN, environments=(HLE,)), said.append)
    check_order(replace(MIX, environments=(HLE,)), said.append)
    assert len(said) == 2


@pytest.mark.parametrize(
    ("env_id", "arguments"),
    [("ToolScale-v0", {"domain": "finance"}), ("ToolScale-v0", {"domain": "finance", "level": "hard"})],
)
def test_a_finite_sources_tasks_are_those_it_draws(env_id: str, arguments: dict[str, Any]) -> None:
    made = training(EnvMix(env_id, 1.0, arguments))
    tasks = every_task(made)
    assert tasks
    assert len(set(tasks)) == len(tasks)
    assert {str(made.start(seed).info["task_id"]) for seed in range(20)} <= set(tasks)
    assert made.start(3, {"task_id": tasks[-1]}).info["task_id"] == tasks[-1]


def test_baselines_play_the_task_that_is_named() -> None:
    made = training(HLE)
    of = [
        baseline_measures(Job(HLE.env_id, made, 3, {"task_id": f"hle-sim/train/{k}"}), ["cheapest"], CHAT)[0]
        for k in range(8)
    ]
    assert len({measure.usd for measure in of}) > 1
