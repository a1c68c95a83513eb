"""The sampler behind a server, against a scripted one: what is sent, what passes, what ends a turn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from toolorchestra.agents.engines.base import NONE, Adapter, Sample, SamplingParams
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.engines.vllm_served import ServedConfig, ServedSampler
from toolorchestra.agents.engines.weights import named_weights
from toolorchestra.agents.serving.expert_servers import Server, read_servers
from toolorchestra.envs.base.errors import ConfigError, Outage

MODEL = build_model(64, 32, 2)
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


def sample(made: ServedSampler, params: SamplingParams = SamplingParams(4, 0.7, (9,))) -> Sample:  # noqa: B008
    return asyncio.run(made.sample([5, 6, 7], params, "s"))


def test_a_turn_is_token_ids_both_ways_and_names_every_knob_of_the_distribution() -> None:
    with served(lambda _: turn([4, 9], [-0.5, -0.25])) as (made, server):
        assert sample(made) == Sample([4, 9], [-0.5, -0.25], True)
        body = server.seen[-1].json
        assert (body["prompt"], body["model"], body["max_tokens"]) == ([5, 6, 7], "tiny", 4)
        knobs = {k: body[k] for k in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")}
        assert knobs == {"temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
        assert body["stop_token_ids"] == [1, 9]
        assert body["ignore_eos"] is body["return_token_ids"] is True
        assert made.stats() == {"prefix_hits": 2 / 3}


def test_what_passes_is_tried_again_and_what_does_not_is_an_outage() -> None:
    with served(lambda asked: ServerReply(status=503) if asked.number == 1 else turn([4], [-1.0])) as (made, _):
        assert sample(made).tokens == [4]
    with served(lambda _: ServerReply(status=500), retries=1) as (made, server):
        with pytest.raises(Outage, match=r"did not sample a turn: 500.*; 500"):
            sample(made)
        assert len(server.seen) == 3  # the models, a try, a second one
    with (
        served(lambda _: ServerReply(fault="silence"), request_seconds=0.2) as (made, _),
        pytest.raises(Outage, match=r"no answer within 0\.2 s"),
    ):
        sample(made)


def test_a_turn_that_the_server_broke_off_is_an_outage() -> None:
    with served(lambda _: turn([4, 5], [-0.5, -0.25], "abort")) as (made, server):
        with pytest.raises(Outage, match="ended a turn by 'abort' after 2 tokens"):
            sample(made)
        assert len(server.seen) == 2
    with served(lambda _: turn([4, 5], [-0.5, None])) as (made, _), pytest.raises(Outage, match="for 1 of its tokens"):
        sample(made)
    with served(lambda _: turn([4, 5], [-0.5, -0.25], "length")) as (made, _):
        assert sample(made) == Sample([4, 5], [-0.5, -0.25], False)


@pytest.mark.parametrize("body", ["<html>busy</html>", "", "null", "[]", {"error": "x"}, {"choices": []}])
def test_an_answer_that_is_no_completion_may_pass(body: Any) -> None:
    with (
        served(lambda _: ServerReply(body=body), retries=0) as (made, _),
        pytest.raises(Outage, match="did not sample a turn: no readable answer"),
    ):
        sample(made)
    with served(lambda asked: ServerReply(body=body) if asked.number == 1 else turn([4], [-1.0]), retries=1) as (
        made,
        _,
    ):
        assert sample(made).tokens == [4]


@pytest.mark.parametrize("body", ["<html>busy</html>", {"error": "x"}])
def test_a_server_without_models_is_said(body: Any) -> None:
    with (
        Loopback(lambda _: ServerReply(body=body), lists_models=False) as server,
        pytest.raises(ConfigError, match="start one: vllm serve MODEL"),
    ):
        ServedSampler(MODEL.config.to_dict(), [1], ServedConfig(server.base_url))


def test_a_refusal_and_a_server_of_another_kind_are_set_up_wrongly() -> None:
    with (
        served(lambda _: ServerReply(status=400, content="no")) as (made, _),
        pytest.raises(ConfigError, match="refused a"),
    ):
        sample(made)
    with (
        served(lambda _: ServerReply("text")) as (made, _),
        pytest.raises(ConfigError, match="gave no token ids with log-pr"),
    ):
        sample(made)


def test_new_weights_go_through_the_folder_and_salt_the_cache(tmp_path: Path) -> None:
    with served(
        lambda a: ServerReply(body={"results": []}) if "rpc" in a.path else turn([4], [-1.0]), handover=str(tmp_path)
    ) as (
        made,
        server,
    ):
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


def test_a_reload_is_tried_again_where_that_may_help(tmp_path: Path) -> None:
    fine = ServerReply(body={"results": [None]})
    with served(lambda asked: ServerReply(status=503) if asked.number == 1 else fine, handover=str(tmp_path)) as (
        made,
        _,
    ):
        made.sync(named_weights(MODEL), 7)
        assert made.version == 7
    with served(lambda _: ServerReply(status=503), handover=str(tmp_path), retries=0) as (made, _):
        with pytest.raises(Outage, match="did not load new weights: 503"):
            made.sync(named_weights(MODEL), 7)
        assert made.version == NONE
    with served(lambda _: ServerReply(status=500), handover=str(tmp_path)) as (made, server):
        with pytest.raises(ConfigError, match="does it see that folder"):
            made.sync(named_weights(MODEL), 7)
        assert len(server.seen) == 2
    with (
        served(lambda _: ServerReply(fault="silence"), handover=str(tmp_path), reload_seconds=0.2) as (made, _),
        pytest.raises(Outage, match=r"did not load new weights: no answer within 0\.2 s"),
    ):
        made.sync(named_weights(MODEL), 7)


def test_a_server_that_takes_no_weights_is_said(tmp_path: Path) -> None:
    with (
        served(lambda _: ServerReply(status=404), handover=str(tmp_path)) as (made, _),
        pytest.raises(ConfigError, match="start it with VLLM_SERVER_DEV_MODE=1"),
    ):
        made.sync(named_weights(MODEL), 1)


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


def test_a_server_that_takes_no_adapters_is_said(tmp_path: Path) -> None:
    for status, says in ((404, "takes no adapters, or does not see"), (500, "could not load the adapter in")):
        with served(lambda _, status=status: ServerReply(status=status), handover=str(tmp_path), adapters=True) as (
            made,
            _,
        ):
            with pytest.raises(ConfigError, match=rf"{says} .*LORA_UPDATING=1 and --enable-lora --max-lora-rank 2 or"):
                made.sync([], 3, adapter(0.5))
            assert made.version == NONE
            assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def test_a_file_of_servers_is_read_strictly() -> None:
    row = {"model": "m", "names": ["a"], "arguments": ["--x"], "gpu_share": 0.6}
    assert read_servers({"servers": {"one": row}}, "f") == [Server("one", "m", ("a",), 0, 0.6, ("--x",))]
    assert "--gpu-memory-utilization 0.6 --x" in " ".join(Server("one", "m", (), 0, 0.6, ("--x",)).command(8000))
    with pytest.raises(ConfigError, match="f: no server; add one"):
        read_servers({}, "f")
    with pytest.raises(ConfigError, match="f: unknown table 'server'"):
        read_servers({"servers": {"one": row}, "server": {}}, "f")
    with pytest.raises(ConfigError, match="server one: no key 'gpus'"):
        read_servers({"servers": {"one": {**row, "gpus": 2}}}, "f")
    with pytest.raises(ConfigError, match=r"on one GPU add up to 1\.2"):
        read_servers({"servers": {"one": row, "two": row}}, "f")
    alone = {**row, "environment": {"CUDA_VISIBLE_DEVICES": "1"}}
    assert len(read_servers({"servers": {"one": row, "two": alone}}, "f")) == 2
