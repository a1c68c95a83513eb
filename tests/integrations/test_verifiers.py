"""verifiers plays the environments by its own command against a stand-in endpoint, and its rewards and bills are those
that the environments give without it. `make test-verifiers` has an environment of its own for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import util
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from tests.paths import REPOSITORY
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.support.tau2_players import gold, idle
from tests.tau2_playing import needs_package, world_of
from toolorchestra.envs.base.actions import CLOSE, OPEN, parse, render_call
from toolorchestra.envs.money.prices import ORCHESTRATOR, Tokens, Usage
from toolorchestra.envs.registration import spec_of

needs_verifiers = pytest.mark.skipif(
    util.find_spec("verifiers") is None, reason="verifiers is not installed here: make test-verifiers"
)
ID = "toolorchestra-verifiers"
SECONDS = 600
"""A run's deadline: importing verifiers takes 5 s of CPU time, and the machine may be busy."""
Move = str | list[tuple[str, str]]
"""What the model writes at a turn: words, or calls with their arguments as text."""


def move(tools: Sequence[dict[str, Any]], turn: int) -> Move:
    """The same for the same tools and turn: one call, two at once, one that cannot be read, words, an answer."""
    named = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in tools}

    def call(name: str, choice: int = 0) -> tuple[str, str]:
        models = named[name].get("model", {}).get("enum")
        return name, json.dumps({"model": models[choice]} if models else {})

    if "breaks" in named:
        return [call("breaks")]
    if "answer" in named:
        moves: list[Move] = [
            [call("search")],
            [call("search"), call("enhance_reasoning")],
            [call("search", 1)],
            [("search", '{"model": '), call("answer")],
            "Let me think.",
            [call("answer")],
        ]
        return moves[turn]
    first = next(iter(named))
    return ("What may I do for you?", [call(first)], [call(first), ("no_such_tool", "{}")])[turn % 3]


def text_of(move: Move) -> str:
    """A move in the environments' own grammar."""
    if isinstance(move, str):
        return move
    return "\n".join(
        render_call(name, json.loads(arguments))
        if arguments.endswith("}")
        else f'{OPEN}{{"name": "{name}", "arguments": {arguments}}}{CLOSE}'
        for name, arguments in move
    )


def tokens_of(turn: int) -> Tokens:
    """What the endpoint says that a turn used."""
    return Tokens(input=900 + 100 * turn, cached=50 * turn, output=20 + turn, reasoning=7)


def endpoint(counts: bool, known: Mapping[str, Sequence[Move]] | None = None) -> Loopback:
    """A stand-in for a model. It counts its tokens, or leaves that to others. `known` has its moves by what the user
    says last before the first of them."""

    def reply(asked: ReceivedRequest) -> ServerReply:
        messages = asked.json["messages"]
        told = [message["content"] for message in messages]
        start = next(place for place, content in enumerate(told) if content in known) if known else 0
        turn = sum(message["role"] == "assistant" for message in messages[start:])
        turn -= not known and messages[1]["role"] == "assistant"  # a greeting, which opens the task
        made = known[told[start]][turn] if known else move(asked.json.get("tools", ()), turn)
        used = tokens_of(turn)
        usage = {
            "prompt_tokens": used.input + used.cached,
            "completion_tokens": used.output + used.reasoning,
            "total_tokens": sum(used),
            "prompt_tokens_details": {"cached_tokens": used.cached},
            "completion_tokens_details": {"reasoning_tokens": used.reasoning},
        }
        calls = () if isinstance(made, str) else tuple({"name": name, "arguments": text} for name, text in made)
        return ServerReply(made if isinstance(made, str) else None, calls=calls, usage=usage if counts else False)

    return Loopback(reply)


def vf_eval(folder: Path, *words: str, taskset: Sequence[str] = (ID,)) -> list[dict[str, Any]]:
    """verifiers' command, to its end: its traces, in the order of the tasks."""
    command = [str(Path(sys.executable).with_name("vf-eval")), *taskset, "--no-push", "--no-rich", "-m", "stand-in"]
    found = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # uv, which verifiers calls
    known = {**os.environ, "PATH": found, "PYTHONPATH": os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))}
    done = subprocess.run(
        [*command, "-o", str(folder), "--run.dir", "run", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
        env=known,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    episodes = [json.loads(line) for line in (folder / "run" / "traces.jsonl").read_text().splitlines()]
    traces: list[dict[str, Any]] = [trace for episode in episodes for trace in episode["traces"]]
    return sorted(traces, key=lambda trace: _seed_of(trace["task"]["data"]))


def _seed_of(data: dict[str, Any]) -> int:
    """Of a task of ours, or of verifiers' tasksets for OpenEnv and NeMo Gym."""
    return int((data.get("reset") or data.get("row") or data)["seed"])


def arguments_as_words(arguments: dict[str, Any]) -> list[str]:
    return [word for name, value in arguments.items() for word in (f"--env.taskset.arguments.{name}", str(value))]


def results(trace: dict[str, Any]) -> dict[str, float]:
    """What verifiers says of an episode."""
    return {"reward": trace["rewards"]["episode_reward"]["score"], **trace["metrics"]}


def without_verifiers(
    env_id: str, arguments: dict[str, Any], seed: int, counts: bool, moves: Sequence[Move] = ()
) -> dict[str, float]:
    """The same by Gymnasium alone."""
    env = gym.make(spec_of(env_id), **arguments)
    unwrapped: Any = env.unwrapped
    observation, _ = env.reset(seed=seed)
    reward, turn, over = 0.0, 0, False
    info: dict[str, Any] = {}
    while not over:
        if counts:
            unwrapped.charge_policy(Usage(unwrapped.factory.settings.orchestrator, ORCHESTRATOR, tokens_of(turn)))
        made = moves[turn] if moves else move(observation["tools"], turn)
        observation, earned, terminated, truncated, info = env.step(text_of(made))
        reward, turn, over = reward + float(earned), turn + 1, terminated or truncated
    bill = {f"usd_{role}": usd for role, usd in info["ledger"]["usd_by_role"].items()}
    bill |= {"usd": info["ledger"]["usd"], "seconds": info["ledger"]["seconds"]}
    return {
        "reward": reward,
        "outcome": info["outcome"]["value"],
        "turns": turn,
        "tool_calls": sum(info["calls"].values()),
        **bill,
    }


@needs_verifiers
@pytest.mark.parametrize(
    ("env_id", "arguments", "counts"),
    [
        ("FRAMES-v0", {"split": "test", "preference": "frugal"}, True),
        ("HLE-v0", {"reward": "scalar", "prices": "unseen-2026-01"}, False),
        ("ToolScale-v0", {"max_turns": 5}, True),
    ],
)
def test_rewards_and_bills_are_the_environments_own(
    env_id: str, arguments: dict[str, Any], counts: bool, tmp_path: Path
) -> None:
    first, number = 40, 4
    words = ["--env.taskset.environment", env_id, "--env.taskset.first-seed", str(first), "-n", str(number)]
    with endpoint(counts) as server:
        words += ["--client.base-url", server.base_url, *arguments_as_words(arguments)]
        traces = vf_eval(tmp_path, *words)
    assert [trace["errors"] for trace in traces] == [[]] * number
    for seed, trace in enumerate(traces, first):
        assert results(trace) == without_verifiers(env_id, arguments, seed, counts), seed
        shown = {tool["name"] for tool in trace["tools"]}
        observation, info = gym.make(spec_of(env_id), **arguments).reset(seed=seed)
        assert shown == {tool["function"]["name"] for tool in observation["tools"]}
        assert trace["info"]["toolorchestra"]["preference"] == info["preference"]
        assert trace["stop_condition"] == ("max_turns" if env_id == "ToolScale-v0" else "agent_completed")
    if env_id == "FRAMES-v0":
        assert {results(trace)["reward"] for trace in traces} == {0.0, 1.0}, "the test can tell right from wrong"
    asked = [one.json["messages"] for one in server.seen]
    assert all(m.get("tool_call_id") for messages in asked for m in messages if m["role"] == "tool")
    assert len(server.seen) == sum(results(trace)["turns"] for trace in traces)


def reference_moves(arguments: dict[str, Any], seed: int) -> tuple[str, list[Move]]:
    """What a task of τ²-Bench begins with, and its reference path; for odd seeds nothing but the end of it."""
    env: Any = gym.make(spec_of("Tau2-v0"), **arguments).unwrapped
    observation, _ = env.reset(seed=seed)
    world = world_of(env)
    texts = (idle if seed % 2 else gold)(world.plan, solo=world.domain.solo)
    actions = [(text, parse(text).calls) for text in texts]
    moves: list[Move] = [
        [(call.name, json.dumps(call.arguments)) for call in calls] if calls else text for text, calls in actions
    ]
    return observation["messages"][-1]["content"], moves


@needs_verifiers
@needs_package
@pytest.mark.parametrize(
    ("arguments", "first"), [({"domain": "mock", "split": "base", "user": "scripted"}, 40), ({"domain": "telecom"}, 34)]
)
def test_tau2s_rewards_and_bills_are_the_environments_own(
    arguments: dict[str, Any], first: int, tmp_path: Path
) -> None:
    """With a user to talk to, and alone, where the agent has the user's tools."""
    number = 4
    plays = [reference_moves(arguments, seed) for seed in range(first, first + number)]
    assert len(dict(plays)) == number, "the stand-in can tell the tasks apart"
    words = ["--env.taskset.environment", "Tau2-v0", "--env.taskset.first-seed", str(first), "-n", str(number)]
    with endpoint(counts=True, known=dict(plays)) as server:
        traces = vf_eval(tmp_path, *words, "--client.base-url", server.base_url, *arguments_as_words(arguments))
    assert [trace["errors"] for trace in traces] == [[]] * number
    for seed, (trace, (_, moves)) in enumerate(zip(traces, plays, strict=True), first):
        assert results(trace) == without_verifiers("Tau2-v0", arguments, seed, counts=True, moves=moves), seed
        assert results(trace)["reward"] == float(seed % 2 == 0), seed
    assert len(server.seen) == sum(len(moves) for _, moves in plays)


def byte_tokenizer(folder: Path) -> Any:
    """A token for each byte and each of Qwen3's marks: enough for its template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    paired = [f"<{slash}{name}>" for name in ("tool_call", "tool_response", "think") for slash in ("", "/")]
    made.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|endoftext|>", *paired])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return made


@needs_verifiers
def test_a_trainer_gets_the_tokens_that_were_sampled(tmp_path: Path) -> None:
    """With verifiers' client for training: each turn's prompt goes on where the last one ended, token by token."""
    tokenizer = byte_tokenizer(tmp_path)
    written = [render_call("search", {"model": "search-1"}), render_call("answer", {"model": "answer-2"})]
    sampled = [tokenizer.encode(text + "<|im_end|>").ids for text in written]

    def generate(asked: ReceivedRequest) -> ServerReply:
        turns = tokenizer.decode(asked.json["token_ids"], skip_special_tokens=False).count("<|im_start|>assistant")
        ids = sampled[turns - 1]
        probabilities = {"content": [{"token": f"token_id:{token}", "logprob": -0.5} for token in ids]}
        return ServerReply(body={"choices": [{"token_ids": ids, "logprobs": probabilities, "finish_reason": "stop"}]})

    words = ["--client.type", "train", "--client.renderer.name", "qwen3", "--client.renderer-model-name", str(tmp_path)]
    with Loopback(generate) as server:
        (trace,) = vf_eval(tmp_path, "-n", "1", *words, "--client.base-url", server.base_url)
    assert trace["errors"] == []
    first, second = (one.json["token_ids"] for one in server.seen)
    assert second[: len(first) + len(sampled[0])] == first + sampled[0]
    nodes = trace["nodes"]
    assert [token for node in nodes for token in node["token_ids"]] == second + sampled[1]
    masked = [token for node in nodes for token, mine in zip(node["token_ids"], node["mask"], strict=True) if mine]
    assert masked == sampled[0] + sampled[1]
    assert results(trace)["turns"] == 2


@needs_verifiers
def test_an_outage_is_an_error_and_no_wrong_answer(tmp_path: Path) -> None:
    words = ["--env.taskset.environment", "tests.integrations.breaking:Tests/Outage-v0", "-n", "1"]
    with endpoint(counts=True) as server:
        (trace,) = vf_eval(tmp_path, *words, "--client.base-url", server.base_url)
    assert (trace["ok"], trace["rewards"], trace["metrics"]) == (False, {}, {})
    (error,) = trace["errors"]
    assert error["type"] == "HarnessError"
    assert "the episode failed in breaks, so it has no result: RuntimeError: the disk is on fire" in error["message"]
    assert trace["info"]["toolorchestra"]["usd"] > 0, "what it cost stands there all the same"


@needs_verifiers
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"taskset": {"environment": "FRAMES-v1"}}, "no environment 'FRAMES-v1'; valid: FRAMES-v0"),
        ({"taskset": {"arguments": {"splt": "test"}}}, "Did you mean 'split'?"),
        ({"agent": {"harness": {"id": "null"}}}, "leave out --env.agent.harness.id"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_wrong_is_said_before_anything_is_played(wrong: dict[str, Any], said: str) -> None:
    import verifiers.v1 as vf

    config = {**wrong, "taskset": {"id": ID, **wrong.get("taskset", {})}}
    with pytest.raises(ValueError, match=r"Value error") as caught:
        vf.resolve_env_config(config)
    assert said in str(caught.value)


def test_a_missing_library_is_named_with_its_extra() -> None:
    code = "import sys; sys.modules['verifiers'] = None; import toolorchestra.envs.adapters.verifiers"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=SECONDS)
    assert "this integration needs verifiers: pip install 'toolorchestra[verifiers]'" in done.stderr.splitlines()[-1]
