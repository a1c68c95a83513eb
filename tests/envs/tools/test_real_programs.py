"""Programs of the agent's own, and of a model's, in the real sandbox through a whole environment."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.sandbox.confine import landlock_abi
from toolorchestra.envs.tools.backends import Backing, read

pytestmark = pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")


@pytest.fixture(params=[False, True], ids=["fresh", "sessions"])
def backing(request: pytest.FixtureRequest) -> Iterator[Backing]:
    made = Backing(read(sandbox="landlock", sessions=request.param, index="embedded"))
    yield made
    made.close()


def test_output_errors_and_exit_status_reach_the_agent_and_are_billed_by_the_second(backing: Backing) -> None:
    env = gym.make("ToolOrchestra/HLE-v0", tools="plain", backends=backing, preference="none")
    observation, _ = env.reset(seed=0)
    python = next(t["function"] for t in observation["tools"] if t["function"]["name"] == "python")
    assert "numpy" in python["description"]

    def say(code: str) -> str:
        *_, info = env.step(render_call("python", {"code": code}))
        (charge,) = [c for c in info["charges"] if c.usage.item == "code-interpreter"]
        assert charge.usage.seconds > 0
        nanoseconds = round(charge.usage.seconds * 10**9)
        assert charge.nano_usd == (nanoseconds * 8300 + 10**9 // 2) // 10**9  # half up, as every bill
        return str(info["new_messages"][-1]["content"])

    assert say("import numpy as np\nx = int(np.arange(10).sum())\nprint(x)") == "Output: 45"
    assert say("import sys\nprint('half')\nsys.exit('out of luck')") == "Output: half\nexit status 1: out of luck"
    assert "PermissionError" in say("open('/etc/passwd')")
    kept = say("print(x)")
    assert kept == "Output: 45" if backing.wanted.sessions else "NameError" in kept
    env.reset(seed=0)
    assert "NameError" in say("print(x)")  # the same task again is another episode
