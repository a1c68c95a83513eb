"""What a step of reinforcement learning is made of: six files to read, together under 500 lines on its path."""

from __future__ import annotations

import ast
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import toolorchestra.agents
from tests.agents.training.even_source import ENV_ID
from tests.agents.training.test_trainer import COLD
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.rollouts.advantages import AdvantageParams
from toolorchestra.agents.training.build import build
from toolorchestra.agents.training.trainer import take_step
from toolorchestra.agents.training.training_run import open_run

AGENTS = Path(toolorchestra.agents.__file__).resolve().parent
LOOP = (
    "training/trainer.py",
    "rollouts/rollout.py",
    "rollouts/tokens.py",
    "rollouts/rewards.py",
    "rollouts/advantages.py",
    "engines/policy_update.py",
)
"""Collect, reward, advantage, loss, step."""
MOST_LINES = 500
BESIDE: Mapping[str, str] = {
    "configuration/config.py": "settings check themselves when they are made",
    "configuration/environments.py": "environments of the mix, as the configuration names them",
    "engines/base.py": "what engines are asked for, and the settings of a loss",
    "engines/decoder.py": "the sampler's arithmetic",
    "engines/sampler.py": "the sampler's batches",
    "engines/local.py": "the seam between the loop, the sampler and the update",
    "engines/training_batches.py": "which sequences share a pass, and their common beginning",
    "engines/weights.py": "weights on their way to the sampler",
    "evaluation/choice_metrics.py": "metrics: what was chosen",
    "evaluation/panel.py": "metrics: regret",
    "evaluation/simulated_evaluation.py": "anchors play",
    "policies/base.py": "anchors' policies",
    "policies/baselines.py": "anchors' policies",
    "rollouts/past.py": "what a chat template wrote of the past, compared with what was sampled",
    "rollouts/quick_tokenizer.py": "the template and the encoder, called without detours",
    "rollouts/recorder.py": "rollouts that are kept to be read",
    "rollouts/time_split.py": "a stopwatch",
    "rollouts/template_form.py": "tools and results as text, where a chat template leaves them out",
    "rollouts/template_marks.py": "marks of templates in texts from outside",
    "rollouts/trajectory.py": "records",
    "training/anchors.py": "anchors",
    "training/environment_metrics.py": "metrics by environment",
    "training/group_dumps.py": "rollouts that are kept to be read",
    "training/metrics.py": "where metrics go",
    "training/step_log.py": "metrics of a step",
    "training/task_choice.py": "which tasks are played",
}
"""What else a step runs, and what for; none of it needs to be read to know how a step learns."""

Function = tuple[int, int]
"""First and last line."""


@contextmanager
def watched() -> Iterator[set[CodeType]]:
    """The code that is run meanwhile, in every thread that is begun."""
    ran: set[CodeType] = set()

    def hear(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            ran.add(frame.f_code)

    threading.setprofile(hear)
    sys.setprofile(hear)
    try:
        yield ran
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def functions_run(step: Callable[[], object]) -> dict[str, set[Function]]:
    """The functions under agents/ that a call ran, by file, each from its def (with its docstring) to its end. What is
    written inside a function counts as a part of it."""
    with watched() as ran:
        step()
    found: dict[str, set[Function]] = defaultdict(set)
    for code in ran.copy():  # threads that the step began may still run, and add to it
        path = Path(code.co_filename).resolve()
        if path.is_relative_to(AGENTS):
            found[path.relative_to(AGENTS).as_posix()] |= _around(path, code.co_firstlineno)
    return dict(found)


def _around(path: Path, line: int) -> set[Function]:
    """The outermost function that a line is in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = [
        (min([node.lineno, *(one.lineno for one in node.decorator_list)]), node.end_lineno or node.lineno, node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    around = [(first, last) for begun, last, first in inside if begun <= line <= last]
    return {min(around)} if around else set()


def lines_of(found: Mapping[str, set[Function]]) -> dict[str, int]:
    return {name: sum(last - first + 1 for first, last in functions) for name, functions in found.items()}


def test_lines_are_counted_from_def_to_end(tmp_path: Path) -> None:
    path = tmp_path / "short.py"
    path.write_text('def outer():\n    """Says."""\n    def inner():\n        return 1\n    return inner()\n\nx = 1\n')
    assert (_around(path, 1), _around(path, 3), _around(path, 7)) == ({(1, 5)}, {(1, 5)}, set())


def test_a_step_takes_six_files_and_less_than_500_lines(tmp_path: Path) -> None:
    """A step that collects twice, since the first tasks taught nothing, and that learns."""
    even = EnvMix(ENV_ID, 1.0, {"max_turns": 2, "preference": "accurate"}, validation="test")
    rewards = AdvantageParams(least_spread=0.0)
    config = replace(COLD, environments=(*COLD.environments, even), groups=6, resample=1, advantage=rewards)
    run = open_run(config, tmp_path, *build(config), resume=False, say=lambda _: None)
    found = functions_run(lambda: take_step(run))
    lines = lines_of(found)
    assert all(lines.get(name, 0) > 10 for name in LOOP), lines  # all six are run
    path = {name: lines[name] for name in LOOP}
    assert sum(path.values()) < MOST_LINES, path
    unknown = sorted(set(found) - set(LOOP) - set(BESIDE))
    assert not unknown, f"a step runs {unknown} too: take them off its path, or say in BESIDE what they are for"
    assert all((AGENTS / name).is_file() for name in BESIDE)
