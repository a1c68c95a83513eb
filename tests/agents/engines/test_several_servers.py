"""Several servers behind one sampler, against scripted ones: who is asked, what a dead one breaks, and who goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agents.engines.test_served import MODEL, MODELS, turn
from tests.support.loopback import Loopback, ReceivedRequest, ServerReply
from tests.two_texts import raises
from toolorchestra.agents.configuration.config import ModelConfig
from toolorchestra.agents.configuration.presets import preset
from toolorchestra.agents.engines.base import NONE, EngineLost, Sample, SamplingParams
from toolorchestra.agents.engines.local import LocalConfig
from toolorchestra.agents.engines.lora import adapter_of, with_lora
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

PARAMS = SamplingParams(4)
LOADED = ServerReply(body={"results": [None]})


class Script:
    """A server that samples its own number; `dead` makes it answer as one whose process is going down."""

    def __init__(self, number: int) -> None:
        self.number, self.dead = number, False

    def __call__(self, asked: ReceivedRequest) -> ServerReply:
        if asked.lists_models:
            return ServerReply(body=MODELS)
        if self.dead:
            return ServerReply(status=503)
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


def test_every_server_takes_an_adapter_from_files_of_its_own(tmp_path: Path) -> None:
    model = with_lora(build_model(64, 32, 2), LocalConfig(lora_rank=4), 0)

    def answer(asked: ReceivedRequest) -> ServerReply:
        if "lora" in asked.path:
            folder = Path(asked.json.get("lora_path", tmp_path))
            return ServerReply(body="ok") if folder.is_dir() else ServerReply(status=404)
        return ServerReply(body=MODELS) if asked.lists_models else turn([5], [-1.0], "length")

    with ExitStack() as stack:
        servers = [stack.enter_context(Loopback(answer, lists_models=False)) for _ in range(2)]
        configs = [ServedConfig(s.base_url, length=64, handover=str(tmp_path), adapters=True) for s in servers]
        made = SeveralServers([ServedSampler(MODEL.config.to_dict(), [1], c) for c in configs])
        stack.callback(made.close)
        assert made.takes_adapters
        made.sync((), 1, adapter_of(model, 0))
        turns(made, ["a", "b"])
        asked = [[seen.json for seen in server.seen if seen.json] for server in servers]
        names = [loaded["lora_name"] for loaded, _ in asked]
        assert len(set(names)) == 2
        assert [sampled["model"] for _, sampled in asked] == names


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


def test_without_any_server_turns_fail_at_once_and_the_next_weights_end_the_run(tmp_path: Path) -> None:
    with several(2, tmp_path) as (made, scripts, servers, _):
        made.sync(named_weights(MODEL), 1)
        for script in scripts:
            script.dead = True
        turns(made, ["a", "b"])
        counts = [len(server.seen) for server in servers]
        with pytest.raises(Outage, match="none of 2 servers is left until the next weights"):
            asyncio.run(made.sample([5], PARAMS, "c"))
        assert [len(server.seen) for server in servers] == counts
        assert made.version == NONE
        with raises(EngineLost, r"none of 2 servers took new weights; .*503.*go on with resume=True$", "--resume"):
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


def test_a_server_without_development_mode_is_set_up_wrongly(tmp_path: Path) -> None:
    def plain(asked: ReceivedRequest) -> ServerReply:
        return ServerReply(body=MODELS) if asked.lists_models else ServerReply(status=404)

    with ExitStack() as stack:
        servers = [stack.enter_context(Loopback(s, lists_models=False)) for s in (Script(2), plain)]
        configs = [ServedConfig(s.base_url, length=64, handover=str(tmp_path)) for s in servers]
        made = SeveralServers([ServedSampler(MODEL.config.to_dict(), [1], c) for c in configs])
        stack.callback(made.close)
        with pytest.raises(ConfigError, match="start it with VLLM_SERVER_DEV_MODE=1"):
            made.sync(named_weights(MODEL), 1)


def test_servers_are_named_with_commas() -> None:
    assert server_urls("http://a:1/v1, http://b:1/v1") == ["http://a:1/v1", "http://b:1/v1"]
    for text in ("http://a:1/v1,", "http://a:1/v1,http://a:1/v1"):
        with pytest.raises(ConfigError, match="or several with commas between them, each of them once"):
            server_urls(text)


@pytest.mark.parametrize(("count", "kind"), [(1, ServedSampler), (2, SeveralServers)])
def test_a_run_is_built_with_all_that_it_names(count: int, kind: Callable[..., object], tmp_path: Path) -> None:
    with ExitStack() as stack:
        scripts = [Script(number) for number in range(count)]
        servers = [stack.enter_context(Loopback(script, lists_models=False)) for script in scripts]
        urls = ",".join(server.base_url for server in servers)
        model = ModelConfig(hidden=32, sampler="served", server=urls, handover=str(tmp_path))
        made, _ = build(replace(preset("tiny"), model=model))
        stack.callback(made.close)
        assert type(made.sampler) is kind
    gone = ModelConfig(hidden=32, sampler="served", server=f"{urls},http://127.0.0.1:9/v1", handover=str(tmp_path))
    with pytest.raises(ConfigError, match="no server at http"):
        build(replace(preset("tiny"), model=gone))
