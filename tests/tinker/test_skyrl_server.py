"""Engine `tinker` and SkyRL's own server (JAX on the CPU): beside engine `local` on the same data, and as a run."""

from __future__ import annotations

import asyncio
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from tests.tinker.conftest import Server, served, toolorchestra
from toolorchestra.agents.engines.base import Datum, EngineLost, LossParams, SamplingParams
from toolorchestra.agents.engines.local import LocalConfig, LocalEngine
from toolorchestra.agents.engines.policy_update import PolicyUpdate
from toolorchestra.agents.engines.pretrained import load as load_pretrained
from toolorchestra.agents.engines.settings import EngineSettings, TinkerSettings
from toolorchestra.agents.engines.tinker_engine import TinkerConfig, TinkerEngine
from toolorchestra.envs.base.errors import ConfigError

RANK, LENGTH, RATE = 4, 64, 3e-3
HELD = EngineSettings(lora_rank=RANK, clip_norm=1e9)
"""Clipped by nobody: this server clips no gradient."""
PROMPTS = [[11, 12, 13], [700, 5, 6, 7, 8, 9], [40, 41]]
"""All within one bucket of lengths, which is compiled once."""
LOSSES = [LossParams("cross_entropy"), LossParams(), LossParams(cap=1.3), LossParams(kl="k2", kl_weight=0.5)]


def far(server: Server, seed: int = 3) -> TinkerEngine:
    settings = TinkerSettings(server.url, patience_seconds=20, request_seconds=300)
    config = TinkerConfig(HELD, settings, "", length=LENGTH, seed=seed, reference=True)
    _, tokenizer = load_pretrained(str(server.model), "float32")
    return TinkerEngine(config, [int(tokenizer.eos_token_id)], len(tokenizer))


def near(server: Server) -> LocalEngine:
    model, tokenizer = load_pretrained(str(server.model), "float32")
    config = LocalConfig(lora_rank=RANK, clip_norm=1e9, length=LENGTH, rows=8, reference=True)
    made = LocalEngine(model, [int(tokenizer.eos_token_id)], config)
    share_as_the_server(made)
    return made


def share_as_the_server(made: LocalEngine) -> None:
    """This server fuses q, k and v, and gate and up: the projections of a group have one lora_A."""
    for layer in made.model.get_base_model().model.layers:
        groups = (layer.self_attn, ("q_proj", "k_proj", "v_proj")), (layer.mlp, ("gate_proj", "up_proj"))
        for part, (first, *others) in groups:
            for other in others:
                getattr(part, other).lora_A.default.weight = getattr(part, first).lora_A.default.weight
    made._update = PolicyUpdate(made.model, made.config, made._reference)


def data_of(made: TinkerEngine) -> list[Datum]:
    """Six sampled turns, with advantages of both signs."""

    async def all_of_them() -> list[Any]:
        return list(await asyncio.gather(*(made.sample(p, SamplingParams(6)) for p in PROMPTS * 2)))

    rows = []
    for number, (prompt, sample) in enumerate(zip(PROMPTS * 2, asyncio.run(all_of_them()), strict=True)):
        given, new = len(prompt), len(sample.tokens)
        rows.append(
            Datum(
                [*prompt, *sample.tokens],
                [*[0.0] * given, *sample.logprobs],
                [*[0.0] * given, *[2.0 - number] * new],
                [*[False] * given, *[True] * new],
            )
        )
    return rows


def adapter_of(server: Server, made: TinkerEngine) -> dict[str, torch.Tensor]:
    """The server's adapter, from the file that it handed to its sampler."""
    asyncio.run(made.sample(PROMPTS[0], SamplingParams(6)))
    folder = server.folder / "checkpoints" / made.take_model().model_id / "sampler_weights"
    newest = max(folder.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime_ns)
    with tarfile.open(newest) as archive:
        file = archive.extractfile(next(m for m in archive.getmembers() if m.name.endswith(".safetensors")))
        assert file is not None
        return load(file.read())


def take_over(made: LocalEngine, adapter: dict[str, torch.Tensor]) -> None:
    own = parameters(made)
    assert own.keys() == adapter.keys()
    with torch.no_grad():
        for name, p in own.items():
            p.copy_(adapter[name])


def flat(adapter: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([adapter[name].flatten() for name in sorted(adapter)])


def parameters(made: LocalEngine) -> dict[str, torch.nn.Parameter]:
    """By the server's names."""
    named = made.model.named_parameters(remove_duplicate=False)
    return {name.replace(".default.", "."): p for name, p in named if p.requires_grad}


def trained(made: LocalEngine) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in parameters(made).items()}


def test_it_agrees_with_the_local_engine(server: Server) -> None:
    """Log-probabilities to 1e-4; then, from the same weights each time, the loss, its gradient's norm and the update.
    Over many steps the two drift apart: Adam makes a whole step of a gradient's last digits."""
    theirs, mine = far(server), near(server)
    first = adapter_of(server, theirs)
    take_over(mine, first)
    data = data_of(theirs)
    worst = {"sampled": 0.0, "loss": 0.0, "after": 0.0}
    for datum, scored, own in zip(data, theirs.logprobs(data), mine.logprobs(data), strict=True):
        sampled = [p for p, counts in zip(datum.logprobs, datum.mask, strict=True) if counts]
        worst["sampled"] = max(worst["sampled"], *(abs(a - b) for a, b in zip(sampled, own, strict=True)))
        assert sampled == pytest.approx(own, abs=1e-4)
        assert scored == pytest.approx(own, abs=1e-4)
    old = [replace(d, logprobs=[p + 0.3 * (-1) ** n for n, p in enumerate(d.logprobs)]) for d in data]
    alike: list[float] = []
    for loss in [LOSSES[0], *LOSSES]:
        start = adapter_of(server, theirs)
        take_over(mine, start)
        before = flat(start)
        one, other = theirs.train(old, loss, RATE), mine.train(old, loss, RATE)
        worst["loss"] = max(worst["loss"], abs(one["loss"] - other["loss"]))
        for name in ("loss", "kl_sampler", "mismatch", "clipped", "gradient_norm"):
            assert one[name] == pytest.approx(other[name], rel=1e-3, abs=1e-4), (loss, name)
        ends = adapter_of(server, theirs), trained(mine)
        steps = [flat(end) - before for end in ends]
        alike.append(float(torch.cosine_similarity(*steps, dim=0)))
    for scored, own in zip(theirs.logprobs(data), mine.logprobs(data), strict=True):
        worst["after"] = max(worst["after"], *(abs(a - b) for a, b in zip(scored, own, strict=True)))
    print(f"\nworst gaps in nats {worst}, cosine of each update {alike}, drift {theirs.drift}")
    assert min(alike) > 0.999
    assert worst["after"] < 1e-3
    assert float((flat(trained(mine)) - flat(first)).norm()) > 0.1  # something was learnt
    theirs.close()


def test_it_goes_on_from_a_state(server: Server, tmp_path: Path) -> None:
    first = far(server)
    data = data_of(first)
    first.train(data, LOSSES[0], RATE)
    first.save(tmp_path)
    after = first.train(data, LOSSES[0], RATE)
    second = far(server, seed=4)
    second.load(tmp_path)
    again = second.train(data, LOSSES[0], RATE)
    assert again == pytest.approx(after, rel=1e-4, abs=1e-5)
    for one, other in zip(first.logprobs(data), second.logprobs(data), strict=True):
        assert one == pytest.approx(other, abs=1e-4)
    first.close()
    second.close()


def run_options(server: Server, out: Path, steps: int) -> list[object]:
    few = ["--groups", 2, "--rollouts", 4, "--updates", 1, "--evaluation-tasks", 2, "--evaluate-every", 100]
    engine = ["--engine", "tinker", "--tinker.url", server.url, "--tinker.patience-seconds", 15]
    model = ["--model.path", server.model, "--model.lora-rank", RANK, "--model.processes", 1]
    loss = ["--loss.entropy-weight", 0, "--average", 0, "--learning-rate", 0.003, "--final-learning-rate", 0.003]
    environment = ["--env", "HLE-v0", "style=brief", "shown_characters=0", "max_turns=4"]
    return [
        *("train", "--warm-start.steps", 0, "--steps", steps, "--save-every", 1, "--no-report", "--out", out),
        *(*few, *engine, *model, *loss, *environment, "--resume"),
    ]


def test_a_run_trains_stops_with_its_server_and_goes_on(model: Path, tmp_path: Path) -> None:
    """A few steps of GRPO; the server is killed and started again with what it had on disk; the run goes on."""
    out = tmp_path / "run"
    with served(model, tmp_path) as server:
        said = toolorchestra(*run_options(server, out, 3))
        assert said.endswith("exit 0"), said
        assert "backend 'skyrl-jax'; sampler and trainer agree" in said
        rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        steps = [row for row in rows if "loss/mismatch" in row]
        assert steps, rows
        assert all(row["loss/mismatch"] < 1e-4 for row in steps)
        state = json.loads((out / "checkpoints" / "step-000003" / "tinker.json").read_text())
        assert state["updates"] == len(steps)
        held = far(server)
        held.take_model()
        server.kill()
        with pytest.raises(EngineLost, match=r"(has not been reachable|cannot be reached).*resume=True"):
            held.train(data_of_no_server(), LossParams(), RATE)
        said = toolorchestra(*run_options(server, out, 4))
        assert "no Tinker server can be reached" in said
        assert said.endswith("exit 2")
        server.start()
        with pytest.raises(EngineLost, match=r"knows this run's model no more.*resume=True"):
            held.train(data_of_no_server(), LossParams(), RATE)
        said = toolorchestra(*run_options(server, out, 4))
        assert "resuming from step-000003" in said
        assert said.endswith("exit 0"), said
        (out / "checkpoints" / "step-000004" / "tinker.json").write_text(
            json.dumps({**state, "path": "tinker://a/weights/b"})
        )
        with pytest.raises(ConfigError, match="does not load tinker://a/weights/b"):
            far(server).load(out / "checkpoints" / "step-000004")


def data_of_no_server() -> list[Datum]:
    return [Datum([11, 12, 13, 14], [0.0, 0.0, -1.0, -1.0], [0.0, 0.0, 1.0, 1.0], [False, False, True, True])]
