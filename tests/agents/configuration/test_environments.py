"""Which tasks a step plays: by weight, by seed, in epochs, and instead of what taught nothing."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.agents.training.even_source import ENV_ID, TASKS
from toolorchestra.agents.configuration.config import EnvMix, TrainConfig
from toolorchestra.agents.configuration.environments import ChosenTask, check_order, chosen_tasks, every_task, training
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.tiny import load_tokenizer
from toolorchestra.agents.evaluation.simulated_evaluation import baseline_measures
from toolorchestra.agents.rollouts.grpo import AdvantageParams, Measure, TokenSequence, Trajectory
from toolorchestra.agents.rollouts.rollout import Chat, Job
from toolorchestra.agents.training.trainer import collect_groups, replace_flat
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.preference import Preference

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


def test_tasks_follow_from_the_seed_the_step_and_the_attempt() -> None:
    of = itertools.product((0, 1), (3, 4), (0, 1))
    made = [seeds(chosen_tasks(replace(MIX, seed=seed), step, attempt)) for seed, step, attempt in of]
    assert len({tuple(tasks) for tasks in made}) == len(made)
    assert seeds(chosen_tasks(MIX, 3)) == made[0]
    assert seeds(chosen_tasks(replace(MIX, resample=3), 3)) == made[0]
    assert seeds(chosen_tasks(MIX, 3, 1, 2)) == made[1][:2]


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
    """Nothing but seed and step is needed: a resumed run asks for it first. New tasks do not move the order."""
    whole = [named(chosen_tasks(IN_TURN, step)) for step in range(6)]
    assert chosen_tasks(IN_TURN, 5, 1) == chosen_tasks(MIX, 5, 1)
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


class Drawing:
    """Rollouts that come to what the number of their task says: below `flat` of a hundred all are alike."""

    def __init__(self, flat: int) -> None:
        self.flat, self.asked = flat, list[int]()

    def collect(self, jobs: Sequence[Job]) -> list[Trajectory]:
        self.asked.append(len(jobs) // 2)
        return [self._made(job, number % 2) for number, job in enumerate(jobs)]

    def _made(self, job: Job, number: int) -> Trajectory:
        right = 1.0 if number and job.seed % 100 >= self.flat else 0.0
        said = TokenSequence([7, 8], [0.0, -0.5], [False, True])
        measure = Measure(right, 0.01, 1.0, {})
        return Trajectory(job.env_id, str(job.seed), job.seed, "s", Preference(), (), [said], measure, 1)


def step_of(config: TrainConfig, flat: int) -> tuple[Any, Drawing]:
    rollouts = Drawing(flat)
    return SimpleNamespace(config=config, step=2, rollouts=rollouts, chat=CHAT), rollouts


RESAMPLED = replace(MIX, groups=20, resample=3, advantage=AdvantageParams(least_spread=0.0))


def test_groups_that_teach_nothing_give_way_in_their_places() -> None:
    run, rollouts = step_of(RESAMPLED, 50)
    groups = collect_groups(run)
    before = [group.trajectories[0].seed for group in groups]
    flat = {place for place, seed in enumerate(before) if seed % 100 < 50}
    left = replace_flat(run, groups)
    after = [group.trajectories[0].seed for group in groups]
    assert {place for place in range(20) if before[place] != after[place]} == flat
    assert rollouts.asked[:2] == [20, len(flat)]
    assert len(left) == sum(rollouts.asked[1:])
    assert len(set(after) | {group.trajectories[0].seed for group in left}) == 20 + len(left)  # all are other tasks
    again, _ = step_of(RESAMPLED, 50)
    twin = collect_groups(again)
    replace_flat(again, twin)
    assert [group.trajectories[0].seed for group in twin] == after


@pytest.mark.parametrize("times", [0, 2])
def test_it_is_tried_so_often_at_most(times: int) -> None:
    run, rollouts = step_of(replace(RESAMPLED, resample=times), 100)
    groups = collect_groups(run)
    assert len(replace_flat(run, groups)) == times * 20
    assert rollouts.asked == [20] * (1 + times)


def test_where_all_teach_nothing_is_asked_again() -> None:
    run, rollouts = step_of(RESAMPLED, 0)
    groups = collect_groups(run)
    assert replace_flat(run, groups) == []
    assert rollouts.asked == [20]
