"""Chaos: every environment keeps its promises over backends that break, and the checks see it where one is broken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.support.chaos import EPISODE, FATAL, FAULTS, HARMLESS, Chaos
from tests.support.chaos_runs import chaos_run, covered
from tests.tau2_playing import needs_package
from toolorchestra.envs.base.errors import ConfigError, ToolError
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.models import ChatRequest, ScriptedModel
from toolorchestra.envs.runtime import invoke

EPISODES = 100


@pytest.mark.parametrize(
    "env_id", ["HLE-v0", "FRAMES-v0", "ToolScale-v0", pytest.param("Tau2-v0", marks=needs_package)]
)
def test_every_environment_keeps_its_promises(env_id: str) -> None:
    report = chaos_run(f"ToolOrchestra/{env_id}", EPISODES // 2, seed=1)
    assert report.findings == []
    assert report.episodes == EPISODES // 2
    assert 0 < report.failed < report.episodes
    assert report.nano_usd > 0
    assert len(report.faults) >= 5


def test_no_environment_of_the_suite_is_left_out() -> None:
    assert len(covered()) == 4


def test_the_same_seed_makes_the_same_faults_however_many_run_beside_each_other() -> None:
    one, many = (chaos_run("ToolOrchestra/HLE-v0", 12, seed=5, at_once=at_once) for at_once in (1, 12))
    assert one.faults == many.faults
    assert one.nano_usd == many.nano_usd
    assert chaos_run("ToolOrchestra/HLE-v0", 12, seed=6).faults != one.faults


def test_each_fault_is_what_it_is_called() -> None:
    request = ChatRequest("gpt-5", "answer", ({"role": "user", "content": "hi"},))  # type: ignore[arg-type]
    outcomes = {}
    for fault in FAULTS:
        chaos = Chaos(rate=1.0, faults=(fault,))
        models = chaos.models(ScriptedModel(lambda _: "fine"))

        async def asked(models: Any = models) -> Any:
            EPISODE.set("one")
            return await models.complete(request)

        try:
            outcomes[fault] = (asyncio.run(asked()).text, len(chaos.paid.get("one", ())))
        except (Exception, SystemExit, asyncio.CancelledError) as err:  # noqa: BLE001 - this is what is looked at
            outcomes[fault] = (type(err).__name__, len(chaos.paid.get("one", ())))
        assert chaos.made == {"one": [fault]}
    assert outcomes == {
        "drip": ("fine", 1), "late": ("fine", 1), "twice": ("fine", 2),
        "fail": ("OSError", 0), "outage": ("Outage", 0), "hang": ("TimeoutError", 0), "cancel": ("CancelledError", 0),
        "exit": ("SystemExit", 0), "cut": ("ConnectionResetError", 1), "garble": (None, 1),
    }  # fmt: skip
    assert set(HARMLESS) | set(FATAL) == set(FAULTS)


def test_money_that_vanishes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bill = Episode._bill
    monkeypatch.setattr(Episode, "_bill", lambda self, at, done, key: bill(self, at, done._replace(booked=()), key))
    report = chaos_run("ToolOrchestra/HLE-v0", 10, seed=1)
    assert any("the models were paid for" in finding for finding in report.findings)
    assert any("the spend cap counted" in finding for finding in report.findings)


def test_a_failure_that_becomes_an_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    explain = invoke._explain
    monkeypatch.setattr(invoke, "_explain", lambda err, ready: explain(ToolError(str(err)), ready))
    report = chaos_run("ToolOrchestra/HLE-v0", 10, seed=1)
    assert any("went on as if nothing had happened" in finding for finding in report.findings)


def test_wrong_settings_say_what_is_right() -> None:
    with pytest.raises(ConfigError, match="a rate is a share of the calls, from 0 to 1, got 30"):
        Chaos(rate=30)
    with pytest.raises(ConfigError, match="Did you mean 'hang'"):
        Chaos(faults=("hangs",))
    with pytest.raises(ConfigError, match="no environment 'HLE-v0'"):
        chaos_run("HLE-v0", 1)
