"""A clone of OpenHands/openhands-index-results: GAIA, SWE-bench and others, one attempt of each agent at each instance.

    results/MODEL/instance_results/BENCHMARK.json                        {"INSTANCE": {"resolved": true, "cost": 0.12}}
    alternative_agents/AGENT/MODEL/instance_results/BENCHMARK.json

A cost of 0 is an agent without prices: unknown. Checked on the repository (3015ac6, 2026-06-30: 43 agents, 51,451
instances, 2,934 of them with a cost of 0 and 578 with none). Benchmarks share names of instances, so a task is
BENCHMARK/INSTANCE. The files say neither tokens nor seconds.
"""

from __future__ import annotations

from pathlib import Path

from toolorchestra.envs.outcomes.files import found, json_of, with_keys
from toolorchestra.envs.outcomes.rows import Outcomes, OutcomesBuilder

EXPECTED = "a clone of openhands-index-results"
_FILES = ("results/*/instance_results/*.json", "alternative_agents/*/*/instance_results/*.json")


def read_openhands(folder: Path) -> Outcomes:
    """The instances of all agents; a task's family is its benchmark, an agent's name its folder."""
    made = OutcomesBuilder(str(folder))
    for path in found(folder, _FILES, EXPECTED):
        model = "/".join(path.relative_to(folder).parts[1:-2])
        for name, value in with_keys(json_of(path, EXPECTED), str(path), "instances by name", ()).items():
            told = with_keys(value, f"{path}, {name}", "an instance", ("resolved", "cost"))
            if told["resolved"] is None and not told["cost"]:
                made.leave_out("instances neither graded nor priced")
                continue
            task = f"{path.stem}/{name}"
            made.add(task, model, told["resolved"], family=path.stem, run="1", usd=told["cost"])
    return made.made()
