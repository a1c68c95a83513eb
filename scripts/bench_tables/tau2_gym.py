"""Plays reference paths through the package's own gym (`tau2.gym`), for tau2.py to stand beside ours.

Run in an interpreter of its own, since it puts stand-ins where that gym imports litellm and pandas: its user then
answers at once with a constant. Prints a JSON line for each domain.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

TASKS = {"mock": 3, "airline": 6, "retail": 12, "telecom": 2}
FAREWELL = "Is there anything else I can do for you?"


class _Response(dict[str, Any]):
    choices: list[Any]
    model = "constant"


def _completion(messages: list[dict[str, Any]], **_: Any) -> _Response:
    """The user: goes on, or leaves when asked whether there is anything else."""
    text = "###STOP###" if FAREWELL in str(messages[-1].get("content")) else "Please go on."
    message = SimpleNamespace(role="assistant", content=text, tool_calls=None)
    response = _Response()
    response.choices = [SimpleNamespace(finish_reason="stop", message=message, to_dict=dict)]
    return response


def put_stand_ins() -> None:
    """What the gym's imports ask of litellm and pandas."""

    def module(name: str, **members: Any) -> None:
        made = ModuleType(name)
        vars(made).update(members)
        sys.modules[name] = made

    nothing = {"disable_cache": dict, "enable_cache": dict}
    module("litellm", completion=_completion, completion_cost=lambda **_: 0.0, **nothing)
    module("litellm.caching")
    module("litellm.caching.caching", Cache=dict)
    module("litellm.main", ModelResponse=dict, Usage=dict)
    module("pandas", DataFrame=object)


def texts(task: Any) -> list[str]:
    """The reference path in this gym's grammar, which takes a user's call from the agent."""
    made = [
        json.dumps({"name": a.name, "arguments": a.arguments, "requestor": a.requestor})
        for a in task.evaluation_criteria.actions or ()
    ]
    info = task.evaluation_criteria.communicate_info or ()
    return [*made, *(["; ".join(info)] if info else []), FAREWELL]


def measure(domain: str, number: int) -> dict[str, float | str]:
    """Play the first tasks of a domain, one environment each, reset and reward included."""
    from tau2.gym.gym_agent import AgentGymEnv
    from tau2.registry import registry

    tasks = [t for t in registry.get_tasks_loader(domain)() if t.evaluation_criteria.actions and not _past(t)][:number]
    steps, solved, stepping, middle = 0, 0, 0.0, 0
    started_cpu, started = time.process_time(), time.perf_counter()
    for task in tasks:
        env = AgentGymEnv(domain=domain, task_id=task.id)
        env.reset()
        for text in texts(task):
            before = time.process_time()
            _, reward, over, *_ = env.step(text)
            steps += 1
            if over:
                break
            stepping += time.process_time() - before
            middle += 1
        solved += reward == 1.0
    cpu, wall = time.process_time() - started_cpu, time.perf_counter() - started
    made: dict[str, float | str] = {"domain": domain, "episodes": len(tasks), "steps": steps, "solved": solved}
    # A step that neither resets nor ends, for those who compare steps.
    return made | {"cpu": cpu, "wall": wall, "step_us": 1e6 * stepping / max(1, middle)}


def _past(task: Any) -> bool:
    return task.initial_state is not None and bool(task.initial_state.message_history)


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    put_stand_ins()
    from loguru import logger

    logger.remove()
    for domain, number in TASKS.items():
        print(json.dumps(measure(domain, number)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
