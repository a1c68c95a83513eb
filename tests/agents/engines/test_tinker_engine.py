"""Engine `tinker` against a stand-in of its client library: it learns as engine `local` does, goes on from a state, and
says in a sentence what is wrong with a server.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.agents.engines.conformance import STOP, VOCABULARY, prompts
from tests.agents.engines.tinker_standin import BASE, APIConnectionError, Door, StandIn, StatusError
from tests.two_texts import raises
from toolorchestra.agents.engines import tinker_server
from toolorchestra.agents.engines.base import Datum, EngineLost, LossParams, Sample, SamplingParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.settings import EngineSettings, TinkerSettings
from toolorchestra.agents.engines.tinker_engine import TinkerConfig, TinkerEngine, adam_at_the_start
from toolorchestra.agents.engines.tiny import build_model
from toolorchestra.agents.testing import check_engine
from toolorchestra.agents.training.training_run import FREE
from toolorchestra.envs.base.errors import ConfigError, WrongSetting

RANK, SEED, LENGTH = 4, 3, 192
HELD = EngineSettings(lora_rank=RANK)
SERVER = TinkerSettings(patience_seconds=0.2)
CONFIG = TinkerConfig(HELD, SERVER, BASE, length=LENGTH, seed=SEED)


def tiny() -> Any:
    return build_model(VOCABULARY, hidden=32, layers=2)


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    made.shut()


@pytest.fixture
def module(door: Door, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(tiny)
    monkeypatch.setitem(sys.modules, "tinker", made)  # type: ignore[arg-type]
    monkeypatch.setenv("TINKER_BASE_URL", door.url)
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.setattr(tinker_server, "LOOK_SECONDS", 0.05)
    return made


def engine(config: TinkerConfig = CONFIG, said: list[str] | None = None) -> TinkerEngine:
    return TinkerEngine(config, [STOP], VOCABULARY, [].append if said is None else said.append)


def local(reference: bool = False) -> LocalEngine:
    held = LocalConfig(lora_rank=RANK, length=LENGTH, rows=16, seed=SEED, reference=reference)
    return LocalEngine(tiny(), [STOP], held)


def sampled(made: Any, count: int = 5) -> list[Datum]:
    """Data of two prompts and two lengths, with advantages of both signs."""

    async def all_of_them() -> list[tuple[list[int], Sample]]:
        starts = prompts(count)
        params = SamplingParams(6)
        return list(zip(starts, await asyncio.gather(*(made.sample(p, params) for p in starts)), strict=True))

    return [_datum(prompt, one, 1.5 - number) for number, (prompt, one) in enumerate(asyncio.run(all_of_them()))]


def _datum(prompt: list[int], sample: Sample, advantage: float) -> Datum:
    given, made = len(prompt), len(sample.tokens)
    return Datum(
        [*prompt, *sample.tokens],
        [*[0.0] * given, *sample.logprobs],
        [*[0.0] * given, *[advantage] * made],
        [*[False] * given, *[True] * made],
    )


def moved(data: list[Datum], by: float) -> list[Datum]:
    """As if the sampler had held other weights: some ratios are outside any clip."""
    return [replace(d, logprobs=[p + by * (-1) ** n for n, p in enumerate(d.logprobs)]) for d in data]


LOSSES = {
    "ppo": LossParams(),
    "cross_entropy": LossParams("cross_entropy"),
    "truncated": LossParams(cap=1.2),
    "narrow dual clip": LossParams(dual_clip=1.5),
    "k2": LossParams(kl="k2", kl_weight=0.3),
    "k3": LossParams(kl="k3", kl_weight=0.3),
}


@pytest.mark.parametrize("backend", ["skyrl-jax", "skyrl"])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_step_is_the_local_engines(module: StandIn, loss: LossParams, backend: str) -> None:
    """The same start, the same data, three steps: the same metrics and the same weights, whatever the server sums."""
    module.backend = backend
    far, near = engine(replace(CONFIG, reference=bool(loss.kl))), local(bool(loss.kl))
    data = moved(sampled(far), 0.5)
    for _ in range(3):
        theirs, mine = far.train(data, loss, 1e-2), near.train(data, loss, 1e-2)
        for name in theirs:
            assert theirs[name] == pytest.approx(mine[name], rel=1e-3, abs=1e-5), name
    assert far.backend == backend
    weights = [p for p in module.of(far._client.model_id).model.parameters() if p.requires_grad]
    start = [p for p in local().trained]
    for after, own, before in zip(weights, near.trained, start, strict=True):
        assert torch.allclose(after, own, atol=2e-5)
        assert not torch.allclose(after, before, atol=1e-3)


def test_sampled_logprobs_are_the_trainers_and_follow_the_weights(module: StandIn) -> None:
    made = engine()
    for _ in range(2):
        data = sampled(made)
        for datum, scored in zip(data, made.logprobs(data), strict=True):
            assert [p for p, counts in zip(datum.logprobs, datum.mask, strict=True) if counts] == pytest.approx(
                scored, abs=1e-4
            )
        before = made.logprobs(data)
        made.train(data, LossParams("cross_entropy"), 1e-2)
        assert made.logprobs(data) != before
    assert made.drift.worst < 1e-4


def test_a_newer_library_gives_its_clients_as_futures(module: StandIn) -> None:
    module.newer = True
    assert engine().take_model().model_id in module.models


def test_it_passes_what_every_engine_has_to_do(module: StandIn, tmp_path: Path) -> None:
    check_engine(engine, VOCABULARY, tmp_path)


def test_it_goes_on_from_a_state_as_if_it_had_not_stopped(module: StandIn, tmp_path: Path) -> None:
    """Optimiser, turns that are drawn and the KL term's model."""
    config, loss = replace(CONFIG, reference=True), LossParams(kl="k2", kl_weight=0.1)
    first = engine(config)
    first.train(sampled(first), LossParams("cross_entropy"), 1e-2)
    first.take_reference()
    first.train(sampled(first), loss, 1e-2)
    first.save(tmp_path)
    second = engine(config)
    second.load(tmp_path)
    data = sampled(first)
    assert sampled(second) == data
    one, other = first.train(data, loss, 1e-2), second.train(data, loss, 1e-2)
    assert one == pytest.approx(other, abs=1e-6)
    assert one["kl_reference"] > 1e-6
    assert first.logprobs(data)[0] == pytest.approx(second.logprobs(data)[0], abs=1e-6)


def test_states_that_no_checkpoint_names_are_deleted(module: StandIn, tmp_path: Path) -> None:
    made = engine()
    for number in range(4):
        folder = tmp_path / f"step-{number}"
        folder.mkdir()
        made.save(folder)
        if number > 1:
            (tmp_path / f"step-{number - 2}" / "tinker.json").unlink()
    made.save(folder)
    named = {json.loads(f.read_text())["path"] for f in tmp_path.glob("*/tinker.json")}
    assert set(module.states) == named
    assert len(named) == 2


def test_another_run_starts_from_the_weights_alone(module: StandIn, tmp_path: Path) -> None:
    first = engine()
    data = sampled(first)
    first.train(data, LossParams("cross_entropy"), 1e-2)
    first.save(tmp_path)
    other = engine()
    other.start_from(tmp_path)
    assert other.logprobs(data)[0] == pytest.approx(first.logprobs(data)[0], abs=1e-6)
    assert not module.of(other._client.model_id).optimizer.state_dict()["state"]
    (tmp_path / "tinker.json").unlink()
    with pytest.raises(ConfigError, match=r"has no tinker\.json: another engine wrote it"):
        other.start_from(tmp_path)


def test_where_there_is_no_room_for_two_the_old_model_goes_first(module: StandIn, tmp_path: Path) -> None:
    made = engine()
    made.save(tmp_path)
    module.most_models = 1
    with pytest.raises(ConfigError, match="does not load"):  # the stand-in unloads nothing
        made.load(tmp_path)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (lambda: TinkerConfig(EngineSettings(lora_rank=4, lora_alpha=16)), "adapters have alpha 32"),
        (lambda: TinkerConfig(EngineSettings(), TinkerSettings(backend="skyrl-jax")), "set model.lora_rank"),
        (lambda: TinkerConfig(EngineSettings(), reference=True), "needs a second model on the server"),
        (lambda: TinkerSettings(backend="jax"), "no tinker.backend 'jax'; valid: '', 'hosted', 'skyrl'"),  # type: ignore[arg-type]
        (lambda: TinkerSettings(patience_seconds=0), "tinker.patience_seconds must be a number above 0"),
    ],
)
def test_settings_that_no_server_follows_are_refused(config: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config()


@pytest.mark.parametrize(
    ("loss", "says"),
    [(LossParams(entropy_weight=0.1), "set loss.entropy_weight=0"), (LossParams(temperature=0.5), "set temperature=1")],
)
def test_losses_that_need_whole_distributions_are_refused(module: StandIn, loss: LossParams, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        engine().train([], loss, 1e-3)


def test_the_library_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tinker", None)
    with pytest.raises(ConfigError, match=r'not installed: pip install "toolorchestra\[tinker\]"'):
        engine()


def test_a_server_that_is_not_there(module: StandIn, door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    door.shut()
    said, option = r"can be reached at http://127.* \(.*refused\); start it, or check tinker\.url$", tinker_server.URL
    with raises(ConfigError, f"no Tinker server {said}", option):
        engine()
    for url, says in [("localhost:8000", "is http://HOST:PORT"), ("http://me:secret@h", "holds a user or a password")]:
        with raises(ConfigError, f"^tinker.url {says}", option) as seen:
            engine(replace(CONFIG, server=TinkerSettings(url)))
        assert "secret" not in str(seen.value)


def test_what_is_no_tinker_server(module: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Door("shop", 404)
    with raises(ConfigError, r"is no Tinker server .*; check tinker\.url$", "--tinker.url http://HOST:PORT"):
        engine(replace(CONFIG, server=TinkerSettings(other.url)))
    other.shut()


def test_a_wrong_key_is_said_and_never_shown(module: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-secret")
    with pytest.raises(WrongSetting, match=r"refuses the key in TINKER_API_KEY \(401\); set the right one") as seen:
        engine()
    assert "secret" not in str(seen.value)
    module.fails["capabilities"] = [ValueError("what is tml-secret?")]
    module.key = "tml-secret"
    with pytest.raises(EngineLost, match=r"what is \*\*\*\?"):
        engine()
    monkeypatch.setenv("TINKER_API_KEY", "sk-other")
    with pytest.raises(WrongSetting, match="is none of Tinker's") as seen:
        engine()
    assert "sk-other" not in str(seen.value)
    monkeypatch.delenv("TINKER_BASE_URL")
    monkeypatch.delenv("TINKER_API_KEY")
    with pytest.raises(WrongSetting, match="hosted Tinker service needs a key"):
        engine()


@pytest.mark.parametrize(
    ("verb", "error"),
    [
        ("open", StatusError(404, "Not Found")),
        ("capabilities", StatusError(422, "field required")),
        ("sample", AssertionError("asample promises always carry sample_sequence_ids")),
        ("forward", StatusError(415, "requires a protobuf body")),
    ],
)
def test_a_server_of_another_version(module: StandIn, verb: str, error: Exception) -> None:
    module.fails[verb] = [error]
    with pytest.raises(ConfigError, match=r"does not answer as a server of tinker 0\.25\.0 does .*SkyRL 0\.4 speaks"):
        engine().take_model()


def test_a_model_that_it_does_not_serve(module: StandIn) -> None:
    assert engine(replace(CONFIG, model="another")).base_model == BASE  # there is only one
    said = r"no model 'another'; valid: tiny/base\. Set tinker\.base_model$"
    with raises(ConfigError, said, "--tinker.base-model NAME"):
        engine(replace(CONFIG, server=replace(SERVER, base_model="another")))


def test_a_sampler_of_another_model_is_found_out(module: StandIn) -> None:
    module.samples_off = 0.2
    with pytest.raises(ConfigError, match=r"samples from another model than it trains: .* differ by 0.2 nats"):
        engine().take_model()


def test_a_turn_without_its_last_token_is_refused(module: StandIn) -> None:
    made = engine()
    module.drops_stop = True
    with pytest.raises(ConfigError, match="leaves out the token that ends a turn"):
        asyncio.run(made.sample([3, 4], SamplingParams(60, 1.0, tuple(range(2, 40)))))


def test_what_does_not_fit_is_said(module: StandIn) -> None:
    with pytest.raises(ValueError, match=r"too long for the sampler: 190 tokens of prompt and 20 to sample, of 192"):
        asyncio.run(engine().sample([2] * 190, SamplingParams(20)))


def test_the_settings_of_adam_are_said_where_the_server_does_not_read_them(module: StandIn) -> None:
    said: list[str] = []
    module.backend = "skyrl"
    engine(CONFIG, said).take_model()
    assert adam_at_the_start(HELD) in said[1]
    assert json.loads(adam_at_the_start(HELD))["trainer.policy.optimizer_config.adam_betas"] == [0.9, 0.95]


# -- a server that goes away -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["sample", "forward_backward"])
def test_a_server_that_goes_away_is_given_up_after_its_patience(module: StandIn, door: Door, verb: str) -> None:
    """The client library would ask for ever."""
    made = engine()
    data = sampled(made)
    module.silent.add(verb)
    door.shut()
    says = r"has not been reachable for \d+ s; once it is back, go on from the last checkpoint with resume=True$"
    use = {
        "sample": lambda: asyncio.run(made.sample([5], SamplingParams(2))),
        "forward_backward": lambda: made.train(data, LossParams(), 1e-3),
    }[verb]
    with raises(EngineLost, says, "--resume"):
        use()


def test_one_that_is_there_and_says_nothing_is_given_up_too(module: StandIn) -> None:
    made = engine(replace(CONFIG, server=replace(SERVER, request_seconds=0.3)))
    module.silent.add("save")
    with pytest.raises(EngineLost, match=r"gave no answer within 0\.3 s when asked to save its state"):
        made.save(Path())


def test_a_turn_is_asked_for_again_and_a_step_is_not(module: StandIn) -> None:
    made = engine()
    data = sampled(made)
    module.fails["sample"] = [RuntimeError("busy"), RuntimeError("busy")]
    assert asyncio.run(made.sample([5], SamplingParams(2))).tokens
    module.fails["sample"] = [RuntimeError("busy")] * 3
    said = r"could not sample a turn: RuntimeError: busy; go on from the last checkpoint with resume=True$"
    with raises(EngineLost, said, "--resume"):
        asyncio.run(made.sample([5], SamplingParams(2)))
    module.fails["forward_backward"] = [APIConnectionError("refused")]
    with pytest.raises(EngineLost, match=r"cannot be reached \(refused\)"):
        made.train(data, LossParams(), 1e-3)


def test_a_server_that_was_restarted_and_the_state_that_the_run_goes_on_from(module: StandIn, tmp_path: Path) -> None:
    made = engine()
    data = sampled(made)
    made.train(data, LossParams(), 1e-2)
    made.save(tmp_path)
    module.models.clear()
    said = r"knows this run's model no more .*: it was restarted.* with resume=True$"
    with raises(EngineLost, said, "--resume"):
        made.train(data, LossParams(), 1e-2)
    again = engine()
    again.load(tmp_path)
    assert again.train(data, LossParams(), 1e-2)["tokens"] > 0
    module.states.clear()
    with pytest.raises(ConfigError, match=r"does not load tinker://.* started with the same checkpoints"):
        engine().load(tmp_path)


def test_numbers_that_are_none_leave_a_step_out(module: StandIn) -> None:
    made = engine()
    data = sampled(made)
    bad = [replace(d, logprobs=[float("nan")] * len(d.logprobs)) for d in data]
    before = made.logprobs(data)
    assert made.train(bad, LossParams(), 1e-2)["not_finite"] == 1
    assert made.logprobs(data) == before
    for _ in range(3):
        made.train(bad, LossParams(), 1e-2)
    with pytest.raises(FloatingPointError, match="5 steps in a row"):
        made.train(bad, LossParams(), 1e-2)


def test_a_server_that_goes_away_while_it_is_opened_is_told_with_its_setting(module: StandIn) -> None:
    module.fails["capabilities"] = [APIConnectionError("refused")]
    with raises(ConfigError, r"cannot be reached \(refused\); check tinker\.url$", "--tinker.url http://HOST:PORT"):
        engine()


def test_a_gradient_that_is_no_number_ends_the_run(module: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server took the step, so the run cannot go on with these weights; nor may a resumed one learn more slowly."""
    made = engine()
    data = sampled(made)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: float("nan"))
    with pytest.raises(FloatingPointError, match=r"norm was nan .*: begin another run .* \(init_from\), with a lower "):
        made.train(data, LossParams(), 1e-2)
    assert not {"learning_rate", "init_from"} & FREE
