"""Grades spoiled reference paths twice, by Tau2-v0 and by the package's own evaluator, which must
agree: `python -m tests.support.tau2_grades 3`, three of each set. In an interpreter of its own, since it puts stand-ins
where the package imports litellm.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from tests.tau2_checker import put_stand_ins

put_stand_ins()

from loguru import logger  # noqa: E402

logger.remove()

from tau2.data_model.simulation import SimulationRun  # noqa: E402
from tau2.evaluator.evaluator import EvaluationType, evaluate_simulation  # noqa: E402
from tau2.registry import registry  # noqa: E402

from tests.support.tau2_players import (  # noqa: E402
    DONE,
    FAREWELL,
    gold,
    made,
    play,
)
from tests.tau2_playing import plan_of  # noqa: E402
from toolorchestra.envs.base.actions import render_call  # noqa: E402
from toolorchestra.envs.domains.tau2 import world as tau2_world  # noqa: E402
from toolorchestra.envs.domains.tau2.task import Tau2Task  # noqa: E402
from toolorchestra.envs.env import OrchestraEnv  # noqa: E402

SETS = (("airline", "base", "scripted"), ("retail", "base", "scripted"), ("telecom", "full", "scripted"))
SOLO = ("telecom", "full", "none")
tau2_world.MAX_STEPS = tau2_world.MAX_ERRORS = 10**9  # spoiled paths are graded, however long
NOISE = (
    render_call("no_such_tool", {"x": 1}),
    render_call("calculate", {"expression": "2 + 2"}),
    render_call("transfer_to_human_agents", {}),
    render_call("get_user_details", {"user_id": 5}),
    "Let me see.",
)


def spoiled(plan: Tau2Task, other: Tau2Task, rng: random.Random, *, solo: bool) -> list[str]:
    """A reference path with calls left out, repeated and added, another task's among them, and with what must be said
    put beside a call."""
    texts = []
    for text in gold(plan, solo=solo)[:-1]:
        if rng.random() < 0.12:
            continue
        texts += [text] * (2 if rng.random() < 0.08 else 1)
        if rng.random() < 0.15:
            texts.append(rng.choice(NOISE[:-1] if solo else NOISE))
    if rng.random() < 0.25:
        texts.insert(rng.randrange(len(texts) + 1), rng.choice(gold(other, solo=solo)[:-1] or NOISE[:1]))
    said = [k for k, text in enumerate(texts) if text.startswith("For your information")]
    called = [k for k, text in enumerate(texts) if text.startswith("<tool_call>")]
    if said and called and rng.random() < 0.4:
        texts[called[-1]] = f"{texts[said[0]]} {texts[called[-1]]}"
        texts.pop(said[0])
    return [*texts, DONE if solo else FAREWELL]


def by_package(env: OrchestraEnv, task: Any, *, solo: bool) -> float:
    """The package's grade of the episode just played."""
    world: Any = env.episode and env.episode.world
    run = {"id": "x", "task_id": task.id, "start_time": "", "end_time": "", "duration": 0.0}
    run |= {"termination_reason": world.ended, "messages": world.whole_conversation()}
    made = SimulationRun.model_validate(run)
    return float(evaluate_simulation(made, task, EvaluationType.ALL, solo, world.domain.name).reward)


def differing(case: tuple[str, str, str], number: int) -> list[str]:
    """Play and grade twice; the tasks whose grades differ."""
    domain, split, user = case
    env, source = made(user, domain=domain, split=split)
    tasks = {task.id: task for task in registry.get_tasks_loader(domain)(None)}
    rng, found = random.Random(f"{case}/{number}"), []
    ids = list(source.ids(split))
    for task_id in rng.sample(ids, number):
        plan = plan_of(source, task_id)
        step = play(env, task_id, spoiled(plan, plan_of(source, rng.choice(ids)), rng, solo=user == "none"))
        theirs = by_package(env, tasks[plan.task_id], solo=user == "none")
        if step.reward != theirs:
            found.append(f"{plan.task_id}: {step.reward:g} against {theirs:g}, {step.info['outcome']['evidence']}")
    return found


if __name__ == "__main__":
    wrong = [f"{case}: {line}" for case in (*SETS, SOLO) for line in differing(case, int(sys.argv[1]))]
    print(*wrong, sep="\n")
    sys.exit(1 if wrong else 0)
