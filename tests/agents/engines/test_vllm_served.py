"""The samplers behind one server and behind several, against scripted ones: what is sent, what passes, who goes on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.two_texts import raises
from toolorchestra.agents.configuration.config import ModelConfig
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines import agreement, vllm_served
from toolorchestra.agents.engines.base import NONE, Adapter, EngineLost, Sample, SamplingParams
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.vllm_served import (
    MOST_MISSED,
    ServedConfig,
    ServedSampler,
    SeveralServers,
    server_urls,
)
from toolorchestra.agents.engines.weights import named_weights
from toolorchestra.agents.training.build import build
from toolorchestra.envs.base.errors import ConfigError, Outage

MODEL = build_model(64, 32, 2)
PARAMS = SamplingParams(4)
LOADED = ServerReply(body={"results": [None]})
MODELS = {"object": "list", "data": [{"id": "tiny", "object": "model", "created": 0, "owned_by": "x"}]}


def turn(tokens: list[int], logprobs: Sequence[float | None], finish: str = "stop") -> ServerReply:
    choice: dict[str, Any] = {"index": 0, "text": "", "finish_reason": finish, "token_ids": tokens}
    choice["logprobs"] = {"token_logprobs": logprobs, "tokens": [], "top_logprobs": [], "text_offset": []}
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    made = {"id": "x", "object": "text_completion", "created": 0, "model": "tiny", "choices": [choice], "usage": usage}
    return ServerReply(body=made)


@contextmanager
def served(reply: Callable[[ReceivedRequest], ServerReply], **config: Any) -> Iterator[tuple[ServedSampler, Loopback]]:
    def answer(asked: ReceivedRequest) -> ServerReply:
        return ServerReply(body=MODELS) if asked.lists_models else reply(asked)

    with Loopback(answer, lists_models=False) as server:
        made = ServedSampler(MODEL.config.to_dict(), [1], ServedConfig(server.base_url, length=64, **config))
        try:
            yield made, server
        finally:
            made.close()


def sample(made: ServedSampler, params: SamplingParams = SamplingParams(4, 0.7)) -> Sample:  # noqa: B008
    return asyncio.run(made.sample([5, 6, 7], params, "s"))


def test_a_turn_is_token_ids_both_ways_and_names_every_knob_of_the_distribution() -> None:
    with served(lambda _: turn([4, 1], [-0.5, -0.25])) as (made, server):
        assert sample(made) == Sample([4, 1], [-0.5, -0.25], True)
        body = server.seen[-1].json
        assert (body["prompt"], body["model"], body["max_tokens"]) == ([5, 6, 7], "tiny", 4)
        knobs = {k: body[k] for k in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")}
        assert knobs == {"temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
        assert body["stop_token_ids"] == [1]
        assert body["ignore_eos"] is body["return_token_ids"] is True
        assert made.stats() == {"prefix_hits": 2 / 3}


@pytest.mark.parametrize("first", [ServerReply(status=503), ServerReply(body="[]"), ServerReply(body={"choices": []})])
def test_what_passes_is_tried_again(first: ServerReply, tmp_path: Path) -> None:
    def answer(asked: ReceivedRequest) -> ServerReply:
        if asked.number == 1:
            return first
        return LOADED if "rpc" in asked.path else turn([4, 5], [-0.5, -0.25], "length")

    with served(answer, handover=str(tmp_path)) as (made, _):
        assert sample(made) == Sample([4, 5], [-0.5, -0.25], False)
    if first.status == 503:
        with served(answer, handover=str(tmp_path)) as (made, _):
            made.sync(named_weights(MODEL), 7)
            assert made.version == 7


@pytest.mark.parametrize(
    ("reply", "kind", "says", "asked"),
    [
        (ServerReply(status=500), Outage, r"did not sample a turn: 500.*; 500", 2),
        (ServerReply(body="<html>busy</html>"), Outage, "did not sample a turn: no readable answer", 2),
        (ServerReply(fault="silence"), Outage, r"no answer within 0\.2 s", 1),
        (turn([4, 5], [-0.5, -0.25], "abort"), Outage, "ended a turn by 'abort' after 2 tokens", 1),
        (turn([4, 5], [-0.5, None]), Outage, "for 1 of its tokens", 1),
        (ServerReply(status=400, content="no"), ConfigError, "refused a", 1),
        (ServerReply("text"), ConfigError, "gave no token ids with log-pr", 1),
    ],
)
def test_what_keeps_a_turn_from_being_sampled_is_said(
    reply: ServerReply, kind: type[Exception], says: str, asked: int
) -> None:
    seconds = 0.2 if reply.fault else 60.0
    with served(lambda _: reply, retries=1, request_seconds=seconds) as (made, server):
        with pytest.raises(kind, match=says):
            sample(made)
        assert len(server.seen) == 1 + asked  # the models, and the turn


@pytest.mark.parametrize(
    ("reply", "adapters", "kind", "says"),
    [
        (ServerReply(status=503), False, Outage, "did not load new weights: 503"),
        (ServerReply(fault="silence"), False, Outage, r"did not load new weights: no answer within 0\.2 s"),
        (ServerReply(status=500), False, ConfigError, "does it see that folder"),
        (ServerReply(status=404), False, ConfigError, "start it with VLLM_SERVER_DEV_MODE=1"),
        (ServerReply(status=404), True, ConfigError, "takes no adapters, or does not see .*LORA_UPDATING=1 and --ena"),
        (ServerReply(status=500), True, ConfigError, "could not load the adapter in .*--max-lora-rank 2 or"),
    ],
)
def test_what_keeps_weights_from_being_loaded_is_said(
    reply: ServerReply, adapters: bool, kind: type[Exception], says: str, tmp_path: Path
) -> None:
    config = {"handover": str(tmp_path), "adapters": adapters, "reload_seconds": 0.2 if reply.fault else 60.0}
    with served(lambda _: reply, retries=0, **config) as (made, server):
        with pytest.raises(kind, match=says):
            made.sync(named_weights(MODEL), 7, adapter(0.5) if adapters else None)
        assert (made.version, len(server.seen)) == (NONE, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def test_new_weights_go_through_the_folder_and_salt_the_cache(tmp_path: Path) -> None:
    with served(
        lambda a: ServerReply(body={"results": []}) if "rpc" in a.path else turn([4], [-1.0]), handover=str(tmp_path)
    ) as (made, server):
        assert made.version == NONE
        salts = []
        for version in (3, 4):
            made.sync(named_weights(MODEL), version)
            asked = server.seen[-1]
            assert asked.path == "/collective_rpc"
            assert asked.json == {"method": "reload_weights", "kwargs": {"weights_path": str(tmp_path / "weights")}}
            sample(made)
            salts.append(server.seen[-1].json["cache_salt"])
        assert made.version == 4
        assert salts[0] != salts[1]
        assert list((tmp_path / "weights").glob("*.safetensors"))


def adapter(value: float) -> Adapter:
    return Adapter(7, 2, 8, {"model.layers.0.mlp.up_proj": (torch.full((2, 32), value), torch.ones(96, 2))})


class Holder:
    """Answers as `vllm serve` with adapters does, and keeps what was read of each folder."""

    def __init__(self) -> None:
        self.held: dict[str, float] = {}

    def __call__(self, asked: ReceivedRequest) -> ServerReply:
        if asked.path.endswith("load_lora_adapter"):
            name = asked.json["lora_name"]
            if "unload" in asked.path:
                del self.held[name]
            else:
                folder = Path(asked.json["lora_path"])
                assert json.loads((folder / "adapter_config.json").read_text())["r"] == 2
                key = "base_model.model.model.layers.0.mlp.up_proj.lora_A.weight"
                self.held[name] = float(load_file(folder / "adapter_model.safetensors")[key][0, 0])
            return ServerReply(content="Success")
        name = asked.json["model"]
        return turn([4], [-self.held[name]]) if name in self.held else ServerReply(status=404)


def test_adapters_are_loaded_by_names_of_their_own_and_asked_for_by_them(tmp_path: Path) -> None:
    """Nothing of the weights below is read: the server has them."""
    answer = Holder()
    with served(answer, handover=str(tmp_path), adapters=True) as (made, server):
        assert made.takes_adapters
        for version, value in ((3, 0.5), (4, 0.25)):
            made.sync(iter([None]), version, adapter(value))  # type: ignore[list-item]
            assert sample(made).logprobs == [-value]
            assert list(answer.held) == [server.seen[-1].json["model"]]
            assert len(list(tmp_path.glob("*/adapter_model.safetensors"))) == 1
        assert made.version == 4
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]  # nobody else would remove the last one's


def test_a_server_that_was_started_anew_is_given_the_adapter_again(tmp_path: Path) -> None:
    answer = Holder()
    with served(answer, handover=str(tmp_path), adapters=True) as (made, _):
        made.sync([], 3, adapter(0.5))
        answer.held.clear()
        with pytest.raises(Outage, match="has no adapter any more: it was started anew"):
            sample(made)
        assert made.version == NONE
        made.sync([], 3, adapter(0.5))
        assert sample(made).logprobs == [-0.5]
        made.sync([], 4, adapter(0.25))
        assert sample(made).logprobs == [-0.25]
        assert len(answer.held) == 1


def test_a_server_that_accepts_and_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    """Neither when it is asked for its model, nor when an adapter is to go that nothing needs any more."""
    silent = ServerReply(seconds=60.0)
    with Loopback(lambda _: silent, lists_models=False) as server:
        config = ServedConfig(server.base_url, request_seconds=0.2)
        with pytest.raises(ConfigError, match=r"^no server at http://\S+ \(no answer within 0.2 s\); start one: "):
            ServedSampler(MODEL.config.to_dict(), [1], config)
    answer = Holder()
    settings: dict[str, Any] = {"handover": str(tmp_path), "adapters": True, "reload_seconds": 0.5}
    with served(lambda asked: silent if "unload" in asked.path else answer(asked), **settings) as (made, _):
        for version in (3, 4):
            made.sync([], version, adapter(0.5))
        assert made.version == 4
        assert sample(made).logprobs == [-0.5]


# -- several servers --------------------------------------------------------------------------------------------------


class Script:
    """A server that samples its own number; `dead` makes it answer as one whose process is going down, `broken` as one
    whose engine has died."""

    def __init__(self, number: int) -> None:
        self.number, self.dead, self.broken = number, False, False

    def __call__(self, asked: ReceivedRequest) -> ServerReply:
        if asked.lists_models:
            return ServerReply(body=MODELS)
        if self.dead:
            return ServerReply(status=503)
        if self.broken:
            return ServerReply(status=500)
        return LOADED if "rpc" in asked.path else turn([self.number], [-1.0], "length")


@contextmanager
def several(count: int, folder: Path) -> Iterator[tuple[SeveralServers, list[Script], list[Loopback], list[str]]]:
    scripts, said = [Script(number) for number in range(2, 2 + count)], list[str]()
    with ExitStack() as stack:
        servers = [stack.enter_context(Loopback(script, lists_models=False)) for script in scripts]
        configs = [ServedConfig(s.base_url, length=64, retries=0, handover=str(folder)) for s in servers]
        made = SeveralServers([ServedSampler(MODEL.config.to_dict(), [1], c) for c in configs], said.append)
        stack.callback(made.close)
        yield made, scripts, servers, said


def turns(made: SeveralServers, sessions: Sequence[str]) -> list[Sample | BaseException]:
    async def all_of_them() -> list[Sample | BaseException]:
        asked = (made.sample([5, 6], PARAMS, name) for name in sessions)
        return list(await asyncio.gather(*asked, return_exceptions=True))

    return asyncio.run(all_of_them())


def tokens(found: Sequence[Sample | BaseException]) -> list[int]:
    return [made.tokens[0] for made in found if isinstance(made, Sample)]


def test_an_episode_stays_with_its_server_and_a_new_one_goes_where_there_are_fewest(tmp_path: Path) -> None:
    with several(2, tmp_path) as (made, _, _, _):
        made.sync(named_weights(MODEL), 1)
        assert tokens(turns(made, ["a", "b", "c", "d"])) == [2, 3, 2, 3]
        assert tokens(turns(made, ["d", "c", "b", "a"])) == [3, 2, 3, 2]
        made.release("a")
        made.release("c")
        assert tokens(turns(made, ["e", "f", "g", "b"])) == [2, 2, 2, 3]
        assert tokens(turns(made, ["", ""])) == [3, 2]  # b and d are on the one, e, f and g on the other
        assert made.stats() == {"prefix_hits": 1.0, "servers": 2.0}


def test_weights_are_written_once_and_read_by_all(tmp_path: Path) -> None:
    given: list[str] = []

    def weights() -> Iterator[tuple[str, object]]:
        for name, value in named_weights(MODEL):
            given.append(name)
            yield name, value

    with several(3, tmp_path) as (made, _, servers, _):
        assert made.version == NONE
        made.sync(weights(), 4)  # type: ignore[arg-type]
        assert len(given) == len(set(given))
        for server in servers:
            assert server.seen[-1].json["kwargs"] == {"weights_path": str(tmp_path / "weights")}
        assert made.version == 4
        made.probe([[1], [2]], PARAMS)
        made.probe([[3], [4]], PARAMS)
        asked = [[seen.json["prompt"] for seen in server.seen if "prompt" in seen.json] for server in servers]
        assert sorted(map(len, asked)) == [1, 1, 2]  # both calls together asked all of them


def test_an_adapter_is_written_once_and_read_by_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each version in a folder of its own, of which the last is kept."""
    written: list[Path] = []
    monkeypatch.setattr(vllm_served, "write_adapter", lambda _, folder: (folder.mkdir(), written.append(folder)))
    adapter = Adapter(0, 4, 8, {})
    with several(3, tmp_path) as (made, _, servers, _):
        for version in (1, 2):
            made.sync((), version, adapter)
        assert len(written) == 2
        for server in servers:
            paths = [seen.json["lora_path"] for seen in server.seen if "lora_path" in (seen.json or {})]
            assert paths == [str(folder) for folder in written]
        assert [folder.exists() for folder in written] == [False, True]
    assert not written[-1].exists()


def test_a_server_that_dies_fails_its_turns_and_the_others_go_on(tmp_path: Path) -> None:
    with several(2, tmp_path) as (made, scripts, servers, said):
        made.sync(named_weights(MODEL), 1)
        assert tokens(turns(made, ["a", "b"])) == [2, 3]
        scripts[0].dead = True
        broken, fine = turns(made, ["a", "b"])
        assert isinstance(broken, Outage)
        assert tokens([fine]) == [3]
        count = len(servers[0].seen)
        assert tokens(turns(made, ["a", "c", "d"])) == [3, 3, 3]
        assert len(servers[0].seen) == count  # nobody asks it
        assert made.version == 1
        assert [line.count("left alone") for line in said] == [1]

        made.sync(named_weights(MODEL), 2)
        assert "missed new weights (1 of 3)" in said[-1]
        assert tokens(turns(made, ["a", "c"])) == [3, 3]
        assert made.stats()["servers"] == 1.0

        scripts[0].dead = False  # it was started again
        made.sync(named_weights(MODEL), 3)
        assert tokens(turns(made, ["a", "b"])) == [2, 3]


def test_a_server_whose_engine_has_died_misses_weights_and_probes_and_the_others_go_on(tmp_path: Path) -> None:
    with several(2, tmp_path) as (made, scripts, _, said):
        scripts[0].broken = True
        with pytest.raises(ConfigError, match="could not load the weights"):  # it never took any
            made.sync(named_weights(MODEL), 1)
        scripts[0].broken = False
        made.sync(named_weights(MODEL), 1)
        scripts[0].broken = True
        made.sync(named_weights(MODEL), 2)
        assert "missed new weights (1 of 3)" in said[-1]
        scripts[0].broken = False
        made.sync(named_weights(MODEL), 3)
        scripts[0].dead = True  # between the weights and the question whether it has them
        assert tokens(made.probe([[5, 6]] * 2, PARAMS)) == [3, 3]
        scripts[1].dead = True
        with pytest.raises(Outage, match="no server of 2 is left"):
            made.probe([[5, 6]] * 2, PARAMS)


def test_without_any_server_turns_fail_at_once_and_the_next_weights_end_the_run(tmp_path: Path) -> None:
    with several(2, tmp_path) as (made, scripts, servers, _):
        made.sync(named_weights(MODEL), 1)
        for script in scripts:
            script.dead = True
        turns(made, ["a", "b"])
        counts = [len(server.seen) for server in servers]
        with pytest.raises(Outage, match="no server of 2 is left until the next weights"):
            asyncio.run(made.sample([5], PARAMS, "c"))
        assert [len(server.seen) for server in servers] == counts
        assert made.version == NONE
        with raises(EngineLost, r"no server of 2 took new weights; .*503.*go on with resume=True$", "--resume"):
            made.sync(named_weights(MODEL), 2)


def test_a_server_that_misses_weights_again_and_again_is_not_waited_for(tmp_path: Path) -> None:
    with several(2, tmp_path) as (made, scripts, servers, said):
        scripts[1].dead = True
        for version in range(MOST_MISSED):
            made.sync(named_weights(MODEL), version)
        assert "nobody waits for it any more" in said[-1]
        count = len(servers[1].seen)
        made.sync(named_weights(MODEL), 9)
        assert len(servers[1].seen) == count
        assert made.version == 9


def test_servers_are_named_with_commas() -> None:
    assert server_urls("http://a:1/v1, http://b:1/v1") == ["http://a:1/v1", "http://b:1/v1"]
    for text in ("http://a:1/v1,", "http://a:1/v1,http://a:1/v1"):
        with pytest.raises(ConfigError, match="or several with commas between them, each of them once"):
            server_urls(text)


def test_one_server_that_was_started_anew_within_a_step_is_given_its_weights_again(tmp_path: Path) -> None:
    with several(1, tmp_path) as (made, (script,), (server,), _):
        made.sync(named_weights(MODEL), 1)
        assert tokens(turns(made, ["a"])) == [2]
        script.dead = True
        assert not tokens(turns(made, ["a"]))
        script.dead = False
        assert made.version == made.servers[0].version == NONE  # so the engine hands weights out
        with pytest.raises(Outage, match="no server of 1 is left"):
            made.probe([[1]], PARAMS)
        made.sync(named_weights(MODEL), 1)
        assert "rpc" in server.seen[-1].path
        assert tokens(turns(made, ["a"])) == [2]


def test_a_run_ends_when_its_only_server_has_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its turns fail, and the next one finds out that nobody takes the weights."""
    monkeypatch.setattr(vllm_served, "FIRST_BACKOFF_SECONDS", 0.0)
    monkeypatch.setitem(agreement.TOLERANCE, "float32", 1e9)  # its numbers are no model's
    script = Script(2)
    with Loopback(script, lists_models=False) as server:
        model = ModelConfig(hidden=32, sampler="served", server=server.base_url, handover=str(tmp_path))
        made, _ = build(replace(preset("tiny"), model=model))
        with closing(made):
            assert asyncio.run(made.sample([5, 6], PARAMS)).tokens == [2]
            script.dead = True
            with pytest.raises(Outage, match="503"):
                asyncio.run(made.sample([5, 6], PARAMS))
            with pytest.raises(EngineLost, match=r"no server of 1 took new weights; .*503"):
                asyncio.run(made.sample([5, 6], PARAMS))


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_is_built_with_all_that_it_names(count: int, tmp_path: Path) -> None:
    with ExitStack() as stack:
        scripts = [Script(number) for number in range(count)]
        servers = [stack.enter_context(Loopback(script, lists_models=False)) for script in scripts]
        urls = ",".join(server.base_url for server in servers)
        model = ModelConfig(hidden=32, sampler="served", server=urls, handover=str(tmp_path))
        made, _ = build(replace(preset("tiny"), model=model))
        stack.callback(made.close)
        assert [one.config.base_url for one in made.sampler.servers] == [server.base_url for server in servers]
    gone = ModelConfig(hidden=32, sampler="served", server=f"{urls},http://127.0.0.1:9/v1", handover=str(tmp_path))
    with pytest.raises(ConfigError, match="no server at http"):
        build(replace(preset("tiny"), model=gone))
