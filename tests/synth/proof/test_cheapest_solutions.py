"""Costs of tasks: stored with each, exact under any sheet, shown at an end alone, caught when they are wrong."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.domains import LIBRARY, changed, library
from toolorchestra.agents.evaluation.simulated_evaluation import regret_usd
from toolorchestra.envs.base.actions import parse
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.toolscale import loader
from toolorchestra.envs.domains.toolscale.gold_conversation import moves
from toolorchestra.envs.domains.toolscale.known_costs import FILE, KnownCost, known
from toolorchestra.envs.domains.toolscale.source import ToolScaleSource, ready
from toolorchestra.envs.domains.toolscale.sql_domain import GoldCall
from toolorchestra.envs.env import OrchestraEnv
from toolorchestra.envs.money.prices import NANO, load_sheet
from toolorchestra.synth import generate, prove
from toolorchestra.synth.formats import spec as specs
from toolorchestra.synth.proof import cheapest_solutions
from toolorchestra.synth.proof.domain_player import SaidIds
from toolorchestra.synth.proof.solvers import SCRIPTED, Arena
from toolorchestra.synth.stages import domain_folder

SECOND = "unseen-2026-01"
MOST_BYTES = 200_000


def played(env: OrchestraEnv, name: str, one: KnownCost, **options: Any) -> dict[str, Any]:
    """The last info of an episode in which the stored solution is played."""
    domain = ready(name).domain
    given = {"task_id": f"toolscale/{domain.name}/{one.task_id}", **options}
    observation, _ = env.reset(seed=one.setting.seed, options=given)
    short = cheapest_solutions.along(domain.tasks[one.task_id], *cheapest_solutions.stored(one)[1:])
    for stepped in cheapest_solutions.steps(env, observation, domain, short):
        _, reward, over, _, info = stepped
    assert over
    assert reward == 1.0
    return info


def sampled(name: str, count: int = 6) -> list[KnownCost]:
    found = list(known(ready(name).domain).values())
    return random.Random(7).sample(found, count)


@pytest.mark.parametrize("name", loader.names())
def test_every_shipped_task_has_costs_and_they_bill_what_is_stored(name: str) -> None:
    domain = loader.read(loader.SHIPPED / name, verify=True)
    found = known(domain)
    assert list(found) == list(domain.tasks)
    for one in found.values():
        assert one.billed(load_sheet(one.setting.sheet)) == one.nano_usd > 0
        assert sum(one.calls.values()) == len(one.kept) <= max(len(path) for path in paths(domain.tasks[one.task_id]))
        assert set(one.passes) == {"strong", "fair", "weak"}
        assert all(0 <= share <= 1 for share in one.pass_rates.values())
    passed = {solver: sum(one.passes[solver] for one in found.values()) for solver in ("strong", "fair", "weak")}
    assert passed["strong"] > passed["fair"] > passed["weak"] > 0


@pytest.mark.parametrize("name", loader.names())
def test_a_stored_solution_uses_no_id_before_it_is_said(name: str) -> None:
    domain = ready(name).domain
    env = OrchestraEnv(ToolScaleSource(name), preference="none")
    for one in sampled(name):
        options = {"task_id": f"toolscale/{name}/{one.task_id}"}
        observation, _ = env.reset(seed=one.setting.seed, options=options)
        heard = {token for m in observation["messages"] for token in re.findall(r"[\w-]+", m["content"])}
        short = cheapest_solutions.along(domain.tasks[one.task_id], *cheapest_solutions.stored(one)[1:])
        for *_, info in cheapest_solutions.steps(env, observation, domain, short):
            own, *others = info["new_messages"]
            for call in parse(own["content"]).calls:
                ids = [v for key, v in call.arguments.items() if key.endswith("_id") and isinstance(v, str)]
                assert heard.issuperset(token for value in ids for token in re.findall(r"[\w-]+", value))
            heard |= {token for m in others for token in re.findall(r"[\w-]+", m["content"])}


def test_ids_that_nothing_has_said_are_missing() -> None:
    said = SaidIds("The booking BK-001, of PA-12.")
    assert said.missing(GoldCall("get", {"booking_id": "BK-001", "note": "BK-9", "place_id": "PA-12"})) == []
    assert said.missing(GoldCall("get", {"booking_id": "BK-00", "place_id": "PA-123"})) == ["BK-00", "PA-123"]


def paths(task: Any) -> list[Any]:
    return [task.actions, *task.alternatives]


def test_the_shipped_costs_are_small() -> None:
    assert sum((loader.SHIPPED / name / FILE).stat().st_size for name in loader.names()) < MOST_BYTES


@pytest.mark.parametrize("name", ["finance", "railway", "sport"])
def test_a_stored_solution_has_another_sheets_bill_to_the_digit(name: str) -> None:
    second = load_sheet(SECOND)
    # The experts' descriptions say the prices: these have more digits, so the agent reads more.
    longer = second.with_factors({"gpt-5": Decimal("1.37"), "qwen3-8b": Decimal("2.3")}, "longer")
    env = OrchestraEnv(ToolScaleSource(name), preference="none")
    for sheet in (second, longer):
        for one in sampled(name):
            info = played(env, name, one, prices=sheet)
            shown = env.episode.world.toolbox.schema_characters
            assert (shown == one.setting.tools_characters) == (sheet is second)
            assert one.billed(sheet, shown) == env.episode.ledger.nano_usd != one.nano_usd
            assert list(one.usages(shown)) == [charge.usage for charge in env.episode.ledger]
            assert info["outcome"]["evidence"]["cheapest_known"]["usd"] == info["ledger"]["usd"]


def test_the_bill_is_that_of_the_tools_and_the_agent_that_the_episode_has() -> None:
    one = sampled("finance", 1)[0]
    env = OrchestraEnv(ToolScaleSource("finance"), preference="none", orchestrator="gpt-5")
    info = played(env, "finance", one, tools=sorted(one.calls))
    shown = env.episode.world.toolbox.schema_characters
    assert one.billed(env.episode.sheet, shown, "gpt-5") == env.episode.ledger.nano_usd
    assert info["outcome"]["evidence"]["cheapest_known"]["usd"] == pytest.approx(
        one.billed(env.episode.sheet, shown) / NANO
    )
    assert regret_usd(env.episode) == 0.0


def test_regret_is_nothing_for_the_stored_solution_and_more_for_the_gold_path() -> None:
    env = OrchestraEnv(ToolScaleSource("medicine"), preference="frugal")
    domain = ready("medicine").domain
    for one in sampled("medicine", 4):
        played(env, "medicine", one)
        assert regret_usd(env.episode) == 0.0
        if one.found_by == "gold" and len(one.kept) == one.turns:
            continue
        env.reset(seed=one.setting.seed, options={"task_id": f"toolscale/medicine/{one.task_id}"})
        for text in moves(domain, domain.tasks[one.task_id]):
            env.step(text)
        assert regret_usd(env.episode) > 0


@pytest.mark.parametrize("half", ["train", "heldout"])
def test_regret_follows_the_tools_and_prices_of_a_variant(half: Literal["train", "heldout"]) -> None:
    """What is left is the user's wording, which a variant draws from another half."""
    env = OrchestraEnv(ToolScaleSource("medicine", diversify=half), preference="none")
    for one in sampled("medicine", 4):
        info = played(env, "medicine", one)
        told = info["outcome"]["evidence"]["cheapest_known"]["usd"]
        assert abs(regret_usd(env.episode)) < 0.02 * told
        assert told < 0.98 * one.usd  # fewer tools to read than the setting's


def test_costs_are_seen_at_the_end_alone_and_never_what_the_calls_are() -> None:
    name = "travel"
    domain = ready(name).domain
    one = next(one for one in known(domain).values() if len(one.kept) > 4)
    env = OrchestraEnv(ToolScaleSource(name), preference="none")
    observation, info = env.reset(seed=0, options={"task_id": f"toolscale/{name}/{one.task_id}"})
    seen = [json.dumps([observation, info], default=str)]
    for text in moves(domain, domain.tasks[one.task_id]):
        observation, _, over, _, info = env.step(text)
        seen.append(json.dumps(observation))
        if not over:
            seen.append(json.dumps(info, default=str))
    assert not any("cheapest_known" in text or "pass_rates" in text for text in seen)
    told = info["outcome"]["evidence"]["cheapest_known"]
    assert set(told) == {"usd", "seconds", "turns", "calls", "found_by", "pass_rates"}
    assert told["turns"] == one.turns
    assert told["calls"] == dict(one.calls)
    for action in domain.tasks[one.task_id].actions:
        for value in action.arguments.values():
            assert not (isinstance(value, str) and len(value) > 3 and value in json.dumps(told))


def test_the_cheapest_is_the_least_bill_of_all_paths() -> None:
    arena = Arena("ecommerce")
    stored = known(arena.domain)
    several = [task for task in arena.domain.tasks.values() if task.alternatives][:12]
    assert several
    better = 0
    for task in several:
        one = stored[task.task_id]
        bills = [
            cheapest_solutions.played(arena, task, s, one.setting).nano_usd
            for s in cheapest_solutions.solutions(arena.bench, task)
        ]
        assert one.nano_usd == min(bills)
        better += one.path != 0
        whole = cheapest_solutions.Solution("gold", 0, tuple(range(len(task.actions))))
        assert one.nano_usd <= cheapest_solutions.played(arena, task, whole, one.setting).nano_usd
    assert better  # some alternative is cheaper than gold


def test_the_pass_rates_are_those_of_the_solvers() -> None:
    arena = Arena("weather")
    for one in sampled("weather", 3):
        for solver, passed in one.passes.items():
            assert asyncio.run(arena.passes(SCRIPTED[solver], one.task_id, one.setting.tries)) == passed


def copied(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    shutil.copytree(library(), folder)
    return folder


def dearer(found: Iterator[KnownCost]) -> list[KnownCost]:
    first, *others = found
    return [replace(first, nano_usd=first.nano_usd + 1), *others]


def test_a_wrong_cost_is_found_by_the_proof_and_by_the_bytes(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    domain = loader.read(folder, verify=True)
    made = dearer(iter(known(domain).values()))
    assert domain_folder.rebuilt(specs.load(LIBRARY), folder, tmp_path / "same")
    cheapest_solutions.store(folder, made[0].setting, made)
    assert not domain_folder.rebuilt(specs.load(LIBRARY), folder, tmp_path / "other")
    (seen,) = prove.check_tasks(str(folder), list(domain.tasks)).faults
    assert "0001: costs: its cheapest known solution has another bill" in seen


def test_an_edited_file_is_refused_when_it_is_first_needed(tmp_path: Path) -> None:
    folder = changed(tmp_path, FILE, lambda text: text.replace('"strong"', '"lucky"'))
    domain = loader.read(folder)
    env = OrchestraEnv(ToolScaleSource(str(folder)), preference="none")
    env.reset(seed=1)  # nothing has been read yet
    with pytest.raises(ConfigError, match=r"the manifest lists .* the file is .*; generate the domain again"):
        known(domain)
    with pytest.raises(ConfigError, match="the manifest lists"):
        loader.read(folder, verify=True)


def test_costs_of_other_tasks_are_refused(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    domain = loader.read(folder)
    first, *others = known(domain).values()
    cheapest_solutions.store(folder, first.setting, [replace(first, kept=(99,)), *others])
    with pytest.raises(ConfigError, match="a solution with other calls than task 0001 has"):
        known(loader.read(folder))
    cheapest_solutions.store(folder, first.setting, others)
    with pytest.raises(ConfigError, match="no costs of task 0001"):
        known(loader.read(folder))


@pytest.mark.slow
def test_costs_are_made_by_default_and_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "library"
    command = [str(LIBRARY), "--tasks", "10", "--out", str(out)]
    assert generate.main(command) == 0
    assert "Cheapest known solutions (SIMULATED, paper-2025-11)" in capsys.readouterr().out
    assert len(known(loader.read(out, verify=True))) == 10
    whole = (out / "domain.json").read_bytes()
    shutil.rmtree(tmp_path / "library.work")
    assert generate.main([*command, "--no-costs"]) == 0
    assert not (out / FILE).exists()  # what was there was of the run before
    bare = loader.read(out, verify=True)
    assert known(bare) == {}
    assert bare.manifest["content_hash"] == json.loads(whole)["content_hash"]
    env = OrchestraEnv(ToolScaleSource(str(out)), preference="none")
    env.reset(seed=1, options={"task_id": "toolscale/library/0001"})
    for text in moves(bare, bare.tasks["0001"]):
        _, _, _, _, info = env.step(text)
    assert info["outcome"]["evidence"]["cheapest_known"] is None
    assert regret_usd(env.episode) is None
