"""Whole evaluations over a loopback server: recorded and replayed to the last nano-dollar, within cap, budget and
limits, and each fault of the server ends in its own episode alone."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra  # noqa: F401 - registers the ids
from tests.agents.evaluation import played_episodes
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.money.prices import ORCHESTRATOR, Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import full_id
from toolorchestra.envs.sandbox import Execution
from toolorchestra.envs.sandbox.confine import landlock_abi
from toolorchestra.envs.tools.backends import Backing, read

pytest.importorskip("openai", reason='needs pip install ".[models]"')
CANARY = "sk-canary-live-91c4"
TOLD = '<tool_call>{"name": "answer", "arguments": {"model": "answer-4"}}</tool_call>'


def expert(asked: ReceivedRequest) -> ServerReply:
    """Plays query writer, programmer, expert, judge and orchestrator, by what it is told to do."""
    text = asked.text
    if "You compare a student's answer" in text:
        return ServerReply("Thinking. <verdict>wrong</verdict>")
    if "<query>" in text:
        return ServerReply(f"<query>{' '.join(re.findall(r'[A-Z][a-z]+', text)[-6:])}</query>")
    if "```python" in text:
        return ServerReply("```python\nimport time\nprint(sum(range(10)), round(time.time()))\n```")
    if "<answer>" in text:
        return ServerReply(f"I have read {len(text)} characters. <answer>{len(text) % 7}</answer>")
    used = text.count("<tool_response>")
    tools = [("search", "search-3"), ("enhance_reasoning", "reasoner-3"), ("answer", "answer-4")]
    name, alias = tools[min(used, 2)]
    return ServerReply(f"<think>{used}</think>{render_call(name, {'model': alias})}")


def file_of(tmp_path: Path, server: Loopback, more: str = "", retries: int = 1, **endpoint: Any) -> str:
    rows = "".join(f"{key} = {json.dumps(value)}\n" for key, value in endpoint.items())
    text = (
        f'[endpoints.here]\nbase_url = "{server.base_url}"\n{rows}'
        f'[models."*"]\ndeadline_seconds = 20.0\nretries = {retries}\n{more}'
    )
    (tmp_path / "b.toml").write_text(text)
    return str(tmp_path / "b.toml")


def made(env: str, backing: Backing | str, **settings: Any) -> EpisodeFactory:
    return factory(**gym.spec(full_id(env)).kwargs, backends=backing, preference="none", split="test", **settings)


def run(made_factory: EpisodeFactory, name: str, tasks: int, at_once: int = 8) -> list[played_episodes.PlayedEpisode]:
    return asyncio.run(
        played_episodes.evaluate(made_factory, played_episodes.policy(name, made_factory), 7, tasks, at_once)
    )


@pytest.mark.parametrize("env", ["HLE-v0", "FRAMES-v0"])
@pytest.mark.parametrize(("policy", "history"), [("cheap", "full"), ("chat", "full"), ("chat", "state")])
def test_a_recorded_evaluation_replays_without_a_server(tmp_path: Path, env: str, policy: str, history: str) -> None:
    sandbox = "landlock" if landlock_abi() else "arithmetic"
    tape = str(tmp_path / "tape.jsonl")
    named = {"sandbox": sandbox, "cassette": tape, "index": "embedded", "judges": ("gpt-5-mini",)}
    with Loopback(expert) as server:
        # Cut short, so that a replay which forgot the limits would ask something else.
        file = file_of(tmp_path, server, more="shown = {document = 200, results = 300, total = 700}\n")
        recording = Backing(read(file, mode="record", **named))
        live_run = run(made(env, recording, history=history, max_turns=8), policy, 6)
        asked = len(server.seen)
        recording.close()
    assert asked > 6 * 3
    assert [p.failure for p in live_run] == [""] * 6
    # The server is gone; the file names a port where nobody listens.
    replay = run(made(env, Backing(read(file, mode="replay", **named)), history=history, max_turns=8), policy, 6)
    assert [p.record.right for p in replay] == [p.record.right for p in live_run]
    assert [(p.nano_usd, p.elapsed_ns, p.digest) for p in replay] == [
        (p.nano_usd, p.elapsed_ns, p.digest) for p in live_run
    ]
    assert sum(p.nano_usd for p in live_run) > 0


def test_a_price_of_the_backends_file_bills_the_orchestrator_too(tmp_path: Path) -> None:
    """For all models by one entry, and for a model of one's own that no price sheet has."""
    price = "price = {usd_per_mtok = {input = 10, output = 10}}\n"
    mine = "[models.my-model]\nprice = {usd_per_mtok = {input = 20, output = 20}}\n"
    with Loopback(expert) as server:
        file = file_of(tmp_path, server, price + mine)
        for orchestrator, rate in (("qwen3-8b", 10), ("my-model", 20)):
            env = made("HLE-v0", file, orchestrator=orchestrator)
            for options in (None, {"prices": "unseen-2026-01"}):
                episode = env.start(3, options).episode
                charge = episode.sheet.charge(Usage(orchestrator, ORCHESTRATOR, Tokens(1_000_000)))
                assert charge.usd == rate
    with pytest.raises(ConfigError, match=r"cannot bill \['my-model'\]"):
        factory(**gym.spec(full_id("HLE-v0")).kwargs, orchestrator="my-model")


def test_nothing_is_lost_and_nothing_billed_twice_over_a_breaking_server(tmp_path: Path) -> None:
    """Every third request breaks, each in another way: the bill is that of the good replies, token for token."""
    faults = [
        ServerReply("busy", 429, headers={"retry-after": "0.05"}),
        ServerReply("oops", 500),
        ServerReply("x" * 999, fault="reset"),
        ServerReply("x" * 999, fault="cut"),
        ServerReply(fault="not http"),
        ServerReply(body={"choices": []}),
    ]
    tokens = []

    def sometimes(asked: ReceivedRequest) -> ServerReply:
        if asked.number % 3 == 2:
            return faults[asked.number // 3 % len(faults)]
        reply = expert(asked)
        tokens.append(len(asked.text.split()) + len((reply.content or "").split()))
        return reply

    more = "price = {usd_per_mtok = {input = 1, output = 1}}\n"
    with Loopback(sometimes) as server:
        file = file_of(tmp_path, server, more=more, retries=9, failures_to_open=1000)
        made_factory = made("HLE-v0", Backing(read(file)))
        cheap = played_episodes.policy("cheap", made_factory)

        async def unpaid(episode: Episode) -> played_episodes.Move:
            return played_episodes.Move((await cheap(episode)).text, Usage("qwen3-8b", ORCHESTRATOR))

        played = asyncio.run(played_episodes.evaluate(made_factory, unpaid, 7, 12))
        programs = sum(n for p in played for key, n in p.record.calls.items() if key.startswith("reasoner"))
    assert [p.failure for p in played] == [""] * 12
    assert len(server.seen) > len(tokens) > 36
    interpreter = 8300 * programs  # a nominal second of the arithmetic interpreter each
    assert sum(p.nano_usd for p in played) == 1000 * sum(tokens) + interpreter


def test_an_outage_fails_its_episodes_and_bills_what_was_paid_before(tmp_path: Path) -> None:
    def broken(asked: ReceivedRequest) -> ServerReply:
        return ServerReply("gone", 503) if "<answer>" in asked.text else expert(asked)

    with Loopback(broken) as server:
        file = file_of(tmp_path, server, failures_to_open=1000)
        played = run(made("HLE-v0", Backing(read(file))), "cheap", 4)
    assert all("Outage" in p.failure and p.record.failed for p in played)
    assert all(p.nano_usd > 0 for p in played)


def test_a_program_that_cannot_be_run_still_pays_for_its_writing(tmp_path: Path) -> None:
    class Away:
        suspends, item, describe = True, "code-interpreter", "away"

        async def run(self, code: str, session: str = "") -> Execution:
            raise Outage("the sandbox is away")

    with Loopback(expert) as server:
        made_factory = made("HLE-v0", Backing(read(file_of(tmp_path, server))))
        source = made_factory.source
        source.behind = replace(source.behind, interpreter=Away())  # type: ignore[attr-defined]

        async def compute(_episode: Episode) -> played_episodes.Move:
            call = render_call("enhance_reasoning", {"model": "reasoner-3"})
            return played_episodes.Move(call, Usage("qwen3-8b", ORCHESTRATOR))

        (played,) = asyncio.run(played_episodes.evaluate(made_factory, compute, 0, 1))
    assert "the sandbox is away" in played.failure
    assert played.nano_usd > 0


def test_five_hundred_and_twelve_episodes_share_sixty_four_places(tmp_path: Path) -> None:
    with Loopback(lambda asked: ServerReply("<answer>1</answer>", seconds=0.02)) as server:
        backing = Backing(read(file_of(tmp_path, server, in_flight=64)))
        made_factory = made("HLE-v0", backing)

        async def answers(_episode: object) -> played_episodes.Move:
            return played_episodes.Move(TOLD, None)

        played = asyncio.run(played_episodes.evaluate(made_factory, answers, 0, 512, at_once=512))
    assert [p.failure for p in played] == [""] * 512
    assert len(server.seen) == 512
    assert 32 <= server.most_in_flight <= 64


def test_a_spend_cap_is_overshot_by_what_is_in_flight_at_most(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 250}  # a tenth of a cent on qwen3-32b
    cap = SpendCap(0.1)
    with Loopback(lambda asked: ServerReply("<answer>1</answer>", usage=usage, seconds=0.02)) as server:
        backing = Backing(read(file_of(tmp_path, server, in_flight=64)))
        made_factory = made("HLE-v0", backing, spend_cap=cap, max_turns=2)

        async def answers(_episode: object) -> played_episodes.Move:
            return played_episodes.Move(TOLD, None)

        played = asyncio.run(played_episodes.evaluate(made_factory, answers, 0, 512, at_once=512))
    each = 0.001
    policies = sum(p.record.usd for p in played) - each * len(server.seen)
    assert cap.spent_usd == pytest.approx(sum(p.record.usd for p in played))
    assert cap.spent_usd <= 0.1 + 64 * each + policies
    assert len(server.seen) <= 100 + 64
    assert sum(p.record.turns > 1 for p in played) >= 512 - len(server.seen)


def test_a_used_up_budget_lets_no_call_out(tmp_path: Path) -> None:
    with Loopback(expert) as server:
        env = gym.make(full_id("HLE-v0"), backends=file_of(tmp_path, server), preference="none")
        env.reset(seed=0, options={"budget": 1e-9})
        *_, truncated, info = env.step(TOLD)
    assert (truncated, info["truncated_by"], len(server.seen)) == (True, "usd", 0)


def test_the_key_is_nowhere_but_in_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVE_KEY", CANARY)

    def telltale(asked: ReceivedRequest) -> ServerReply:
        told = asked.headers["authorization"]
        return ServerReply(f"<answer>{told}</answer>") if asked.number % 2 else ServerReply(told, 500)

    with Loopback(telltale) as server:
        file = file_of(tmp_path, server, key_env="LIVE_KEY")
        backing = Backing(read(file, cassette=str(tmp_path / "tape.jsonl"), mode="record"))
        made_factory = made("HLE-v0", backing)

        async def answers(_episode: object) -> played_episodes.Move:
            return played_episodes.Move(TOLD, None)

        played = asyncio.run(played_episodes.evaluate(made_factory, answers, 0, 8))
    assert all(a.headers["authorization"] == f"Bearer {CANARY}" for a in server.seen)
    assert CANARY not in (tmp_path / "tape.jsonl").read_text()
    assert CANARY not in str(played)
    assert "[key]" in (tmp_path / "tape.jsonl").read_text()


def test_naming_a_file_in_gym_make(tmp_path: Path) -> None:
    with Loopback(expert) as server:
        file = file_of(tmp_path, server)
        envs = [gym.make(full_id("FRAMES-v0"), backends=file, split=split) for split in ("train", "test")]
        for env in envs:
            env.reset(seed=1)
            env.step(render_call("search", {"model": "search-3"}))
        assert len(server.seen) == 2
        sources = [env.unwrapped.factory.source for env in envs]
    assert sources[0].behind.models is sources[1].behind.models  # the limits are the process's


def test_wrong_names_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no file of backends"):
        made("HLE-v0", str(tmp_path / "none.toml"))
    cases = {
        "[retreval]\n": "Did you mean 'retrieval'",
        "[sandbox]\nkind = 'docker'\n": "no sandbox 'docker'",
        "[sandbox]\nkind = 'unsafe-exec'\n": "unsafe_exec=True",
        "[sandbox]\nsecond = 3\n": "Did you mean 'seconds'",
        "[retrieval]\nindex = 'nowhere'\n": "no index folder",
        "[cassette]\nmode = 'replay'\n": "needs a path",
        "[endpoints.a]\nbase_url = 'http://a'\n[models.gpt-5]\n": "no model 'gpt-5-mini'",
        "= 3": "is not TOML",
    }
    for number, (text, says) in enumerate(cases.items()):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        with pytest.raises(ConfigError, match=re.escape(says)):
            made("HLE-v0", str(file)).start(0)
    with pytest.raises(ConfigError, match="name its endpoint"):
        played_episodes.policy("chat", factory(**gym.spec(full_id("HLE-v0")).kwargs))


def test_scripted_policies_are_not_scored_on_what_the_spend_cap_cut(tmp_path: Path) -> None:
    cap = SpendCap(1e-4)
    with Loopback(expert) as server:
        made_factory = made("HLE-v0", Backing(read(file_of(tmp_path, server))), spend_cap=cap)
        played = run(made_factory, "cheap", 6, at_once=1)
        spent, asked = cap.spent_usd, len(server.seen)
        assert run(made_factory, "cheap", 6) == []
    assert (cap.spent_usd, len(server.seen)) == (spent, asked)
    assert len(played) < 6
    assert [(p.record.cut, p.record.failed) for p in played[-1:]] == [(True, True)]


def test_what_is_known_of_simulated_models_is_not_told_of_real_ones(tmp_path: Path) -> None:
    simulated = factory(**gym.spec(full_id("HLE-v0")).kwargs).start(0).observation["tools"]
    assert "strongest at everything" in str(simulated)
    own = tmp_path / "tools.json"
    own.write_text(
        '{"name": "own", "tools": [{"kind": "answer", "name": "answer", "description": "Answers.", "offers": '
        '[{"alias": "a", "model": "gpt-5", "seconds": 7, "note": "measured by us"}]}]}'
    )
    more = '[models.gpt-5]\nnote = "good at chemistry"\ntypical_seconds = 3\n'
    with Loopback(expert) as server:
        told = str(made("HLE-v0", file_of(tmp_path, server, more)).start(0).observation["tools"])
        by_file = str(made("HLE-v0", file_of(tmp_path, server), tools=str(own)).start(0).observation["tools"])
    for text in ("strongest", "misses at times", "about 96 s", "about 8 s"):
        assert text in str(simulated)
        assert text not in told
    assert "- answer-1: good at chemistry; " in told
    assert "million tokens; about 3 s a call" in told
    assert "- answer-2: $" in told
    assert "- a: measured by us; " in by_file
    assert "about 7 s a call" in by_file
