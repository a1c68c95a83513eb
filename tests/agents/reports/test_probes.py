"""The probes: those that a toolbox can answer, and on how many tasks each was played."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.agents.evaluation.test_heldout import CHAT, Silent
from tests.paths import REPOSITORY
from toolorchestra.agents.configuration.config import EnvMix
from toolorchestra.agents.reports.training_report import standard_probes
from toolorchestra.agents.rollouts.grpo import Trajectory
from toolorchestra.agents.rollouts.rollout import Job, RolloutParams, Rollouts

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
    """Of a subject there may be fewer than were asked for."""
    rollouts = Counted()
    probes = standard_probes(rollouts, [EnvMix(env_id, 1.0, SHORT) for env_id in IDS], 12)
    assert len(probes) == 8
    pairs = list(zip(rollouts.made[::2], rollouts.made[1::2], strict=True))
    assert [probe.tasks for probe in probes] == [min(pair) for pair in pairs]
    assert {12, 24} < {probe.tasks for probe in probes}


def test_probes_of_keys_that_the_toolbox_lacks_are_left_out() -> None:
    mixes = [EnvMix(env_id, 1.0, {**SHORT, "tools": "plain"}) for env_id in IDS]
    assert [probe.name for probe in standard_probes(Counted(), mixes, 2)] == ["cents a task"]


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
