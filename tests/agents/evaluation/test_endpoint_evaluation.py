"""Whole evaluations over a loopback server: recorded and replayed to the last nano-dollar, within cap, budget and
limits; the same dollars by server, ledgers and cap whatever it does wrong; and no key is kept."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import toolorchestra as to
from tests.agents.evaluation import played_episodes
from tests.support.chaos_server import SERVER_FAULTS, SILENT, UNREAD, ChaosReplies
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.commands import compare, evaluate, report
from toolorchestra.agents.reports.page_data import read_evaluation
from toolorchestra.envs.base.actions import render_call
from toolorchestra.envs.base.errors import ConfigError, Outage
from toolorchestra.envs.episode.episode import Episode
from toolorchestra.envs.factory import EpisodeFactory, factory
from toolorchestra.envs.models.endpoints import Endpoints
from toolorchestra.envs.money.prices import NANO, ORCHESTRATOR, Price, Tokens, Usage
from toolorchestra.envs.money.spend_cap import SpendCap
from toolorchestra.envs.registration import full_id
from toolorchestra.envs.sandbox import Execution
from toolorchestra.envs.sandbox.confine import landlock_abi
from toolorchestra.envs.testing.rehearsal import Held
from toolorchestra.envs.tools.backends import EXAMPLE, Backing, NamedBackends, read

pytest.importorskip("httpcore2", reason='needs pip install ".[models]"')


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


@pytest.mark.parametrize(
    ("env", "policy", "history"),
    [("HLE-v0", "chat", "state"), ("FRAMES-v0", "cheap", "full")],
)
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


def test_the_file_that_an_error_shows_is_accepted(tmp_path: Path) -> None:
    for name, text in (("none.toml", None), ("empty.toml", "")):
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(ConfigError) as caught:
            read(tmp_path / name)
        (tmp_path / "shown.toml").write_text(str(caught.value).partition("such as:\n")[2])
        assert read(tmp_path / "shown.toml").endpoints is not None
    with pytest.raises(ConfigError, match="does not say where") as caught:
        made("HLE-v0", str(tmp_path / "shown.toml"))
    assert "gpt-5 " not in str(caught.value)


def test_real_orchestrators_play_over_simulated_experts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = "deadline_seconds = 20.0\nprice = {usd_per_mtok = {input = 10, output = 10}}"
    with Loopback(expert) as server:
        file = tmp_path / "o.toml"
        file.write_text(
            f'[endpoints.here]\nbase_url = "{server.base_url}"\n[models.alpha]\n{entry}\n[models.beta]\n{entry}\n'
        )
        asked = ["--env", "HLE-v0", "--backends", str(file), "--policy", "chat:alpha", "chat:beta", "--tasks", "3"]
        assert evaluate.main([*asked, "--out", str(tmp_path / "run")]) == 0
    assert ", experts SIMULATED" in capsys.readouterr().out
    assert report.main([str(tmp_path / "run")]) == 0
    assert "The experts are SIMULATED." in capsys.readouterr().out
    assert "The experts are SIMULATED." in read_evaluation(tmp_path / "run").notes
    assert {seen.json["model"] for seen in server.seen} == {"alpha", "beta"}
    rows = [json.loads(line) for line in (tmp_path / "run" / "rows.jsonl").read_text().splitlines()]
    assert {(row["policy"], row["status"]) for row in rows} == {("chat:alpha", "ended"), ("chat:beta", "ended")}
    assert all(row["nano_usd_by_role"]["orchestrator"] > 0 < row["nano_usd_by_role"]["expert"] for row in rows)


@to.tool(bills=("my-model",))
async def consult(context: to.ToolContext, about: str) -> str:
    """Ask somebody who knows."""
    return await context.ask("my-model", f"What of {about}?")


class Asking(to.Source):
    """Its tool asks a model."""

    tools = (consult,)

    def tasks(self) -> list[to.Task]:
        return [to.Task(f"How many are {number}?", str(number)) for number in range(40)]


def test_a_source_of_ones_own_has_models_for_its_tools_and_for_who_plays_it(tmp_path: Path) -> None:
    def reply(asked: ReceivedRequest) -> ServerReply:
        if asked.text.startswith("What of"):
            return ServerReply("seven")
        done = "<tool_response>" in asked.text
        return ServerReply("<answer>7</answer>" if done else render_call("consult", {"about": "it"}))

    entry = "[models.my-model]\nprice = {usd_per_mtok = {input = 20, output = 20}}\n"
    source, cap, tape = f"{Asking.__module__}:{Asking.__name__}", SpendCap(5.0), tmp_path / "tape.jsonl"
    with Loopback(reply) as server:
        file = file_of(tmp_path, server, entry)
        backing = Backing(read(file, cassette=str(tape), mode="record"))
        made_factory = factory(source, backends=backing, spend_cap=cap, orchestrator="my-model")
        (played,) = run(made_factory, "chat", 1)
    assert (played.failure, len(server.seen)) == ("", 3)
    assert cap.spent_usd == pytest.approx(played.nano_usd / NANO) != 0
    assert len(tape.read_text().splitlines()) >= 3
    episode = factory(source, backends=file, orchestrator="my-model").start(1).episode
    assert episode.context.models is not None
    patience = episode.context.models().patience_seconds  # type: ignore[attr-defined]
    assert episode.world.toolbox["consult"].deadline_seconds > patience > consult.deadline_seconds
    for again in (pickle.loads(pickle.dumps(episode)), copy.deepcopy(episode)):
        assert again.context.models() is episode.context.models()


def test_a_program_that_cannot_be_run_still_pays_for_its_writing(tmp_path: Path) -> None:
    class Away:
        suspends, item, describe = True, "code-interpreter", "away"

        async def run(self, code: str, session: str = "", bill: object = None) -> Execution:
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


def test_a_used_up_budget_lets_no_call_out(tmp_path: Path) -> None:
    with Loopback(expert) as server:
        env = gym.make(full_id("HLE-v0"), backends=file_of(tmp_path, server), preference="none")
        env.reset(seed=0, options={"budget": 1e-9})
        *_, truncated, info = env.step(render_call("answer", {"model": "answer-4"}))
    assert (truncated, info["truncated_by"], len(server.seen)) == (True, "usd", 0)


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
        "[endpoints.a]\nbase_url = 'http://a'\n[models.gpt-5]\n": "does not say where gpt-5-mini, ",
        "= 3": "is not TOML",
    }
    for number, (text, says) in enumerate(cases.items()):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        with pytest.raises(ConfigError, match=re.escape(says)):
            made("HLE-v0", str(file)).start(0)
    file.write_bytes("[sandbox]  # für\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="is not TOML: 'utf-8' codec"):
        read(file)
    file.write_text(EXAMPLE, encoding="utf-8-sig")  # as Windows' editors do
    assert read(file).endpoints is not None
    with pytest.raises(ConfigError, match="name its endpoint"):
        played_episodes.policy("chat", factory(**gym.spec(full_id("HLE-v0")).kwargs))


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


ROW = {"usd_per_mtok": {"input": 1.5, "output": 7}}
PRICE = Price.read(ROW, "test")


def over_chaos(chaos: ChaosReplies, env: str, episodes: int, cap: SpendCap, **served: Any) -> list[Any]:
    """Episodes that a model behind the server plays, with experts and a judge behind it too; their ledgers as they
    ended."""
    with Loopback(chaos) as server:
        ends = {"here": {"base_url": server.base_url, "failures_to_open": 10**6}}
        model = {"deadline_seconds": 20.0, "retries": 2, "price": ROW, **served}
        endpoints = Endpoints.read({"endpoints": ends, "models": {"*": model}}, "test")
        backing = Backing(NamedBackends("test", endpoints=endpoints, judges=("gpt-5-mini",)))
        spec = gym.spec(full_id(env)).kwargs
        made = factory(**spec, backends=backing, preference="none", spend_cap=cap, max_turns=6)
        chat = played_episodes.policy("chat", made)
        done: dict[int, played_episodes.PlayedEpisode] = {}
        asyncio.run(played_episodes.evaluate(made, chat, 0, episodes, 32, done))
        return played_episodes.in_order(done)


def test_of_faults_that_take_their_time_all_count_the_same_dollars() -> None:
    over_chaos(ChaosReplies(expert, rate=0.0), "HLE-v0", 4, SpendCap(1000))  # what is loaded once is no leak
    held = Held.now()
    cap, chaos = SpendCap(1000), ChaosReplies(expert, seed=1, rate=0.3, faults=SILENT)
    ended = over_chaos(chaos, "HLE-v0", 12, cap, retries=1, deadline_seconds=1.0)
    assert held.leaked_since() == ""
    assert len(ended) == 12
    assert all(chaos.made[fault] for fault in SILENT)
    check(chaos, cap, ended)


def check(chaos: ChaosReplies, cap: SpendCap, ended: list[Any]) -> None:
    charges = [charge for p in ended for charge in p.charges]
    assert sum(c.nano_usd for c in charges if counted(c)) == chaos.nano_usd(PRICE)
    models = [c for c in charges if c.role != "tool"]
    assert sum(c.usage.unconfirmed for c in models) == len(chaos.unread) + len(chaos.uncounted)
    assert chaos.real_nano_usd(PRICE) <= sum(c.nano_usd for c in models)
    assert round(cap.spent_usd * NANO) == sum(p.nano_usd for p in ended)
    assert round(cap.unconfirmed_usd * NANO) == sum(c.nano_usd for c in models if c.usage.unconfirmed)
    assert cap.held_usd == 0


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_cap_holds_what_the_server_is_paid_for_replies_that_nobody_reads(stream: bool) -> None:
    usd = 0.8
    unread = [name for name in UNREAD if name not in SILENT]
    cap, chaos = SpendCap(usd), ChaosReplies(expert, seed=2, rate=0.5, faults=unread)
    ended = over_chaos(chaos, "HLE-v0", 40, cap, stream=stream)
    charges = [charge for p in ended for charge in p.charges]
    models = sum(c.nano_usd for c in charges if c.role != "tool")
    assert chaos.real_nano_usd(PRICE) <= models <= round(usd * NANO)
    assert round(cap.spent_usd * NANO) == sum(c.nano_usd for c in charges)
    assert chaos.unread
    assert cap.used_up


def counted(charge: Any) -> bool:
    return not charge.usage.estimated and charge.role != "tool"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_all_other_faults_together_lose_no_episode_and_no_nano_dollar(stream: bool) -> None:
    faults = [name for name in SERVER_FAULTS if name not in SILENT]
    cap, chaos = SpendCap(1000), ChaosReplies(expert, seed=4, rate=0.3, faults=faults)
    ended = over_chaos(chaos, "FRAMES-v0", 40, cap, stream=stream)
    assert len(ended) == 40
    assert all(chaos.made[fault] for fault in faults)
    check(chaos, cap, ended)
    assert any(p.failure for p in ended)
    assert all(not p.failure or p.record.failed for p in ended)


CANARY = "sk-canary-7f3a9c51e8d24b60-never-kept"
PIECE = 12
"""Characters of a key that are told as a key."""


def echo(asked: ReceivedRequest, known: Counter[str]) -> ServerReply:
    """The key in errors, in answers, before and behind a cut, in calls, and beside a good reply. Streamed it comes in
    pieces, and stands in what had come when a stream broke off, in events that are none and in errors between them."""
    key = asked.headers.get("authorization", "").removeprefix("Bearer ")
    assert key == CANARY
    ways = [
        ServerReply(f"bad key {key}", 500),
        ServerReply(f"{'x' * 280} {key}", 451),
        ServerReply(f"no {key}", 400),
        ServerReply(body=f"not JSON {key}"),
        ServerReply(body={"choices": [], "said": key}),
        ServerReply(f"<answer>{key}</answer>"),
        ServerReply(f"<query>{key}</query>"),
        ServerReply(f'<tool_call>{{"name": "search", "arguments": {{"model": "{key}"}}}}</tool_call>'),
        ServerReply(f"<think>{key}</think>{key[:20]}"),
        ServerReply(f"{key} {key} {key}", fault="reset"),
        ServerReply(f"{key} {key} {key}", fault="cut"),
        ServerReply(f"{key} {key} {key}", fault="error", manner="running usage"),
        ServerReply(calls=({"name": "search", "arguments": f'{{"model": "{key}"}}'},), reasoning=key),
        ServerReply(body=f'data: {{"choices": "{"x" * 50} {key}'),
        ServerReply(body=f'data: {{"choices": [{{"delta": {{"tool_calls": ["{key}"]}}}}]}}\n\n'),
        ServerReply(body=f'data: {{"error": {{"message": "{"x" * 240}{key}"}}}}\n\n'),
        ServerReply(body=f"event: error\ndata: {'x' * 240}{key}\n\n"),
    ]
    known[model := str(asked.json["model"])] += 1
    first = known[model] <= 20  # a model that never answered would end the run by its first refusal
    return ways[asked.number // 2 % len(ways)] if asked.number % 2 and not first else expert(asked)


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_key_that_a_server_sends_back_is_nowhere(
    stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CANARY_KEY", CANARY)
    run, tape = tmp_path / "run", tmp_path / "tape.jsonl"
    known: Counter[str] = Counter()
    with Loopback(lambda asked: echo(asked, known)) as server:
        (tmp_path / "b.toml").write_text(
            f'[endpoints.here]\nbase_url = "{server.base_url}"\nkey_env = "CANARY_KEY"\nfailures_to_open = 1000\n'
            '[models."*"]\nretries = 1\ndeadline_seconds = 20.0\n'
            f"stream = {stream}\n"
        )
        words = ["--env", "HLE-v0", "max_turns=6", "--tasks", "20", "--policy", "chat", "cheap"]
        kept = ["--backends", str(tmp_path / "b.toml"), f"record={tape}", "--out", str(run)]
        assert evaluate.main([*words, *kept]) in (0, 1)
        assert bool(server.streamed) == (stream == "true")
    for command in (report, compare):
        assert command.main([str(run)]) == 0
    out, err = capsys.readouterr()
    files = {path.name: path.read_bytes() for path in (tape, *run.iterdir())}
    assert {"rows.jsonl", "trajectories.jsonl", "manifest.json", "summary.json", "page.html", tape.name} <= set(files)
    assert len(files["rows.jsonl"].splitlines()) == 40
    for name, data in {**files, "output": out.encode(), "errors": err.encode()}.items():
        for at in range(len(CANARY) - PIECE + 1):
            assert CANARY[at : at + PIECE].encode() not in data, (name, at)
