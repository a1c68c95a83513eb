"""Engine `tinker`: the model lives on a Tinker server (SkyRL's on a node or a Ray cluster, or the hosted service).

Tokens, log-probabilities and slopes go over the wire; weights and the optimiser stay on the server. A checkpoint's
folder has the name of the server's state, and a run goes on with a model that is made from it, optimiser and all.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import json
import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from toolorchestra.agents.engines import agreement
from toolorchestra.agents.engines.base import Datum, EngineLost, LossParams, Sample, SamplingParams
from toolorchestra.agents.engines.settings import EngineSettings, TinkerBackend, TinkerSettings
from toolorchestra.agents.engines.tinker_loss import Rows, check_loss, scaled, slopes
from toolorchestra.agents.engines.tinker_server import TinkerServer
from toolorchestra.envs.base.errors import ConfigError

STATE = "tinker.json"
"""What a checkpoint's folder has of this engine."""
ALPHA = 32
"""Of every server's adapters."""
EPSILON = 1e-8
"""Of Adam, as torch has it."""
TRIES = 3
"""Of one turn, while the server is there."""
PROBE_TOKENS = 4
LOSS = "importance_sampling"
Say = Callable[[str], None]


@dataclass(frozen=True)
class TinkerConfig:
    """What a user says of the engine, and what follows from the run."""

    held: EngineSettings
    """The adapter's rank, Adam's settings; the rest is the server's."""
    server: TinkerSettings = field(default_factory=TinkerSettings)
    model: str = ""
    """The base model, as far as the settings name it."""
    length: int = 512
    """Most tokens of a context."""
    seed: int = 0
    reference: bool = False
    """Whether a KL term needs the model as it began."""

    def __post_init__(self) -> None:
        held = self.held
        if held.lora_rank and held.lora_alpha != ALPHA:
            raise ConfigError(
                f"a Tinker server's adapters have alpha {ALPHA}, and the run asks for {held.lora_alpha}; set "
                f"model.lora_alpha={ALPHA}, and scale the learning rate"
            )
        if held.optimizer != "adamw":
            raise ConfigError(
                f"a Tinker server steps by AdamW, and the run asks for {held.optimizer}; set model.optimizer=adamw"
            )
        if not held.lora_rank and self.server.backend in ("hosted", "skyrl-jax"):
            raise ConfigError(f"tinker.backend={self.server.backend} trains adapters alone; set model.lora_rank")
        if not held.lora_rank and self.reference:
            raise ConfigError(
                "a KL term needs a second model on the server, and a server that trains all weights holds one; set "
                "model.lora_rank above 0, or loss.kl="
            )


class State(NamedTuple):
    """A checkpoint on the server, as a folder names it."""

    path: str
    """The checkpoint's address on the server, tinker://..."""
    base_model: str
    lora_rank: int
    updates: int
    reference: str
    """The state of the KL term's model; "" is the base model."""
    not_finite: int

    @classmethod
    def read(cls, folder: Path) -> State:
        """Raises ConfigError where the folder is another engine's."""
        try:
            found = cls(**json.loads((folder / STATE).read_bytes()))
        except FileNotFoundError:
            raise ConfigError(
                f"{folder} has no {STATE}: another engine wrote it, and a Tinker server takes no weights from here; "
                "name a checkpoint of engine tinker"
            ) from None
        except (OSError, ValueError, TypeError) as err:
            raise ConfigError(f"{folder / STATE} does not name a state of a Tinker server ({err!s:.200})") from None
        return found

    def write(self, folder: Path) -> None:
        """Writes the state into a checkpoint's folder."""
        (folder / STATE).write_text(json.dumps(self._asdict(), indent=1) + "\n", encoding="utf-8")


class TinkerEngine:
    """See Engine. The model on the server is made when it is first needed, so that one that goes on is made once."""

    def __init__(self, config: TinkerConfig, stop: Sequence[int], vocabulary: int, say: Say = print) -> None:
        self.config, self._stop, self._vocabulary, self._say = config, tuple(stop), vocabulary, say
        self.server = TinkerServer(config.server)
        self._types = self.server.sdk.types
        self.base_model = self.server.base_model(config.model)
        self.backend: TinkerBackend = config.server.backend
        self.drift = agreement.Agreement(0.0, 0.0)
        """Of sampler and trainer, when the model was made."""
        self.updates = 0
        """Optimiser steps taken."""
        self._not_finite = 0
        self._client: Any = None
        self._sampler: Any = None
        """Of the weights of now; None when they have changed."""
        self._reference: Any = None
        self._reference_state = ""
        self._drawn: Counter[tuple[int, ...]] = Counter()
        """How often each prompt was sampled from with these weights."""
        self._saved: dict[str, Path] = {}
        """States on the server, with the folder that the checkpoint which names them is in."""
        self._syncing: asyncio.Task[None] | None = None
        self._introduced = False

    # -- the model on the server -------------------------------------------------------------------------------------

    def take_model(self) -> Any:
        """The model on the server, made now if there is none. Raises where the server is of another version."""
        if self._client is None:
            self._take(self._fresh_model)
        return self._client

    def _fresh_model(self) -> Any:
        held = self.config.held
        return self.server.call(
            lambda: self.server.service.create_lora_training_client(
                base_model=self.base_model, rank=held.lora_rank, seed=self.config.seed
            ),
            f"make a model of {self.base_model}",
        )

    def _from_state(self, state: str, *, optimizer: bool) -> Any:
        service = self.server.service
        make = service.create_training_client_from_state
        if optimizer:
            make = service.create_training_client_from_state_with_optimizer
        try:
            return self.server.call(lambda: make(state), f"load {state}")
        except (EngineLost, ConfigError) as err:
            raise ConfigError(
                f"{self.server.url} does not load {state}: {err.__cause__ or err!s:.200}; the server has to be started "
                "with the same checkpoints and the same database as then, and the state must not be deleted"
            ) from err

    def _take(self, make: Callable[[], Any]) -> None:
        """Train another model from here on. The old one goes afterwards: SkyRL ends its workers with their last model.
        Where there is no room for both it goes first."""
        before, self._client = self._client, None
        self._changed()
        try:
            if not self.config.held.lora_rank:
                self._forget_model(before)
            self._client = make()
        except (ConfigError, EngineLost):
            if before is None or not self.config.held.lora_rank:
                raise
            self._forget_model(before)
            self._client = make()
        else:
            self._forget_model(before)
        self._probe()

    def _probe(self) -> None:
        """Sample a few tokens and score them: a server of another version fails here, or gives other numbers."""
        prompt = agreement.probe_prompts(self._vocabulary, min(16, self.config.length), self.config.seed)[0]
        self._sync()
        made = self._read(
            self.server.wait(self._ask(prompt, SamplingParams(PROBE_TOKENS), seed=1), "sample a turn"),
            SamplingParams(PROBE_TOKENS),
        )
        tokens, given = [*prompt, *made.tokens], len(prompt)
        datum = Datum(
            tokens,
            [*[0.0] * given, *made.logprobs],
            [0.0] * len(tokens),
            [*[False] * given, *[True] * len(made.tokens)],
        )
        outputs = self._forward(self._client, [datum])
        self.backend = self.server.backend(outputs[0])
        gaps = [abs(a - b) for a, b in zip(_numbers(outputs[0])[given - 1 :], made.logprobs, strict=True)]
        self.drift = agreement.Agreement(sum(gaps) / len(gaps), max(gaps))
        self._introduce()
        if not self.drift.mean <= (self.config.held.tolerance or agreement.TOLERANCE["bfloat16"]):
            raise ConfigError(
                f"{self.server.url} samples from another model than it trains: the log-probabilities of {len(gaps)} "
                f"tokens differ by {self.drift.mean:.2g} nats on average; where 16-bit weights merely round more, "
                "raise model.tolerance"
            )

    def _introduce(self) -> None:
        """Say once what was found, and which settings of the optimiser the server reads."""
        if self._introduced:
            return
        self._introduced = True
        name, held = self.server.sdk.__version__, self.config.held
        drift = f"sampler and trainer agree to {self.drift.worst:.1g} nats"
        self._say(f"tinker {name}, {self.server.url}: {self.base_model} by backend {self.backend!r}; {drift}")
        if self.backend == "skyrl":
            wanted = adam_at_the_start(held)
            self._say(
                f"this server takes Adam's settings when it is started; the run's are --backend-config '{wanted}'"
            )
        elif self.backend == "skyrl-jax":
            self._say(f"this server clips no gradient: model.clip_norm={held.clip_norm:g} is not read")

    def _forget_model(self, client: Any) -> None:
        """Free its place on the server. The client library does this through no public door, so it may fail."""
        if client is None:
            return
        with contextlib.suppress(Exception):
            pool = _training_pool(self.server.sdk)
            request = self._types.UnloadModelRequest(model_id=client.model_id)

            async def unload() -> None:
                with client.holder.aclient(pool) as http:
                    await http.models.unload(request=request)

            client.holder.run_coroutine_threadsafe(unload()).result(timeout=10)

    def _changed(self) -> None:
        self._sampler = None
        self._drawn.clear()

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def sample(self, prompt: Sequence[int], params: SamplingParams, session: str = "") -> Sample:
        """See Engine. What follows a change of the weights waits until the sampler has them."""
        del session
        if len(prompt) + params.max_tokens > self.config.length:
            need = f"{len(prompt)} tokens of prompt and {params.max_tokens} to sample"
            raise ValueError(f"the context is too long for the sampler: {need}, of {self.config.length}")
        seed = self._seed(prompt)
        if self._sampler is None:
            await self._catch_up()
        for last in (*[False] * (TRIES - 1), True):
            try:
                reply = await self.server.until_done(self._ask(prompt, params, seed), "sample a turn")
                return self._read(reply, params)
            except EngineLost:
                if last:
                    raise
        raise AssertionError("unreachable")

    def release(self, session: str) -> None:
        """Nothing: the server's cache drops what is not used."""

    async def _catch_up(self) -> None:
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.create_task(asyncio.to_thread(self._sync))
        await asyncio.shield(self._syncing)  # who is cancelled here must not cancel it for the others

    def _sync(self) -> None:
        client = self.take_model()
        if self._sampler is None:
            make = client.save_weights_and_get_sampling_client
            self._sampler = self.server.call(make, "hand the weights to its sampler")

    def _seed(self, prompt: Sequence[int]) -> int:
        """Of one turn: it follows from the weights, the prompt and how often it was asked, not from who asked first."""
        key = tuple(prompt)
        self._drawn[key] += 1
        named = repr((self.config.seed, self.updates, key, self._drawn[key]))
        return int.from_bytes(hashlib.blake2b(named.encode(), digest_size=4).digest(), "big") >> 1

    def _ask(self, prompt: Sequence[int], params: SamplingParams, seed: int) -> Any:
        asked = self._types.SamplingParams(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            stop=[*self._stop, *params.stops],
            seed=seed,
        )
        return self._sampler.sample(self._types.ModelInput.from_ints(list(prompt)), 1, asked)

    def _read(self, reply: Any, params: SamplingParams) -> Sample:
        (made,) = reply.sequences
        tokens, logprobs = list(made.tokens), made.logprobs
        if not tokens or logprobs is None or len(logprobs) != len(tokens):
            raise ConfigError(f"{self.server.url} gave no log-probability for each sampled token; it has to give them")
        finished = tokens[-1] in (*self._stop, *params.stops)
        if made.stop_reason == "stop" and not finished:
            raise ConfigError(
                f"{self.server.url} leaves out the token that ends a turn, so nothing could learn to end one; it has "
                "to keep it"
            )
        return Sample(tokens, [float(value) for value in logprobs], finished)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """See Engine. No average is kept: the weights never come here."""
        yield

    # -- training ----------------------------------------------------------------------------------------------------

    def train(self, data: Sequence[Datum], loss: LossParams, learning_rate: float) -> Mapping[str, float]:
        """See Engine. One forward pass for the log-probabilities of now, one with gradients, one step."""
        check_loss(loss)
        data = [datum for datum in data if any(datum.mask[1:])]
        total = sum(sum(datum.mask[1:]) for datum in data)
        if not total:
            return {"tokens": 0.0}
        client = self.take_model()
        new = self._scores(client, data)
        reference = self._scores(self._reference_model(), data) if loss.kl else None
        found = slopes(data, new, reference, loss)
        metrics = {**found.metrics, "tokens": float(total)}
        if not found.finite:
            return {**metrics, "not_finite": self._leave_out()}
        self._not_finite = 0
        return {**metrics, **self._step(client, data, new, found.rows, learning_rate), "not_finite": 0.0}

    def logprobs(self, data: Sequence[Datum]) -> list[list[float]]:
        """The trainer's own log-probabilities of the tokens that count, to hold against the sampler's."""
        rows = self._scores(self.take_model(), data)
        return [
            [p for p, counts in zip(row, d.mask[1:], strict=True) if counts] for row, d in zip(rows, data, strict=True)
        ]

    def _step(
        self, client: Any, data: Sequence[Datum], new: Rows, rows: Rows, learning_rate: float
    ) -> dict[str, float]:
        held = self.config.held
        sent = [self._datum(d, n, a) for d, n, a in zip(data, new, scaled(rows, self.backend), strict=True)]
        adam = self._types.AdamParams(
            learning_rate=learning_rate,
            beta1=held.betas[0],
            beta2=held.betas[1],
            eps=EPSILON,
            weight_decay=held.weight_decay,
            grad_clip_norm=held.clip_norm,
        )
        backward = client.forward_backward(sent, LOSS)  # both on their way before either is waited for
        step = client.optim_step(adam)
        self.server.wait(backward, "compute a gradient")
        done = self.server.wait(step, "take an optimiser step")
        self.updates += 1
        self._changed()
        norms = [value for name, value in (done.metrics or {}).items() if name.endswith("grad_norm")]
        if norms and not math.isfinite(norms[0]):
            raise FloatingPointError(
                f"the gradient's norm was {norms[0]} on the server, which takes such a step: begin another run "
                "from the last checkpoint (init_from), with a lower learning_rate"
            )
        return {"gradient_norm": float(norms[0])} if norms else {}

    def _leave_out(self) -> float:
        self._not_finite += 1
        if self._not_finite >= self.config.held.most_not_finite:
            raise FloatingPointError(
                f"the loss was not finite in {self._not_finite} steps in a row, and none of them was taken: lower "
                "learning_rate, or look for what is not finite in the rewards"
            )
        return 1.0

    def _scores(self, client: Any, data: Sequence[Datum]) -> Rows:
        return [_numbers(output) for output in self._forward(client, data)]

    def _forward(self, client: Any, data: Sequence[Datum]) -> Sequence[Any]:
        rows = [[0.0] * (len(datum.tokens) - 1) for datum in data]
        sent = [self._datum(d, row, row) for d, row in zip(data, rows, strict=True)]
        made = self.server.wait(client.forward(sent, LOSS), "score tokens").loss_fn_outputs
        if [len(_numbers(output)) for output in made] != [len(row) for row in rows]:
            raise ConfigError(f"{self.server.url} gave no log-probability for each token of a forward pass")
        return list(made)

    def _datum(self, datum: Datum, old: Sequence[float], advantages: Sequence[float]) -> Any:
        types, tokens = self._types, list(datum.tokens)
        return types.Datum(
            model_input=types.ModelInput.from_ints(tokens[:-1]),
            loss_fn_inputs={
                "target_tokens": types.TensorData(data=tokens[1:], dtype="int64"),
                "logprobs": types.TensorData(data=list(old), dtype="float32"),
                "advantages": types.TensorData(data=list(advantages), dtype="float32"),
            },
        )

    # -- the KL term's model -----------------------------------------------------------------------------------------

    def take_reference(self) -> None:
        """See Engine. Before the first step the base model is the reference, which needs no state."""
        if self.config.reference and (self.updates or self._reference_state):
            self._refer_to(self._save_state("reference"))

    def _refer_to(self, state: str) -> None:
        self._forget_model(self._reference)
        self._reference, self._reference_state = None, state

    def _reference_model(self) -> Any:
        """A second model, which no step is ever taken of: a sampler of older weights would change what is trained in
        SkyRL's JAX backend."""
        if not self.config.reference:
            raise ConfigError("a KL term needs the starting weights: set reference=True")
        if self._reference is None:
            state = self._reference_state
            self._reference = self._from_state(state, optimizer=False) if state else self._fresh_model()
        return self._reference

    # -- keeping -----------------------------------------------------------------------------------------------------

    def save(self, path: Path) -> None:
        """See Engine. The state stays on the server; the folder has its name. States that no checkpoint of the run
        names any more are deleted."""
        state = self._save_state(f"step{self.updates}")
        rank = self.config.held.lora_rank
        State(state, self.base_model, rank, self.updates, self._reference_state, self._not_finite).write(path)
        self._delete_unnamed()
        self._saved[state] = path.parent

    def load(self, path: Path) -> None:
        """See Engine."""
        state = self._state_in(path)
        self._take(lambda: self._from_state(state.path, optimizer=True))
        self.updates, self._not_finite = state.updates, state.not_finite
        if self.config.reference:
            self._refer_to(state.reference)
        self._remember(path.parent)

    def start_from(self, path: Path) -> None:
        """See Engine."""
        state = self._state_in(path).path
        self._take(lambda: self._from_state(state, optimizer=False))
        self.updates = max(self.updates, 1)  # the base model is no longer what it begins with

    def _state_in(self, path: Path) -> State:
        state = State.read(path)
        mine = (self.base_model, self.config.held.lora_rank)
        if (state.base_model, state.lora_rank) != mine:
            raise ConfigError(
                f"{path} names a state of {state.base_model} with rank {state.lora_rank}, and this run trains "
                f"{mine[0]} with rank {mine[1]}; give the same ones"
            )
        return state

    def _save_state(self, name: str) -> str:
        saving = self.take_model().save_state(f"{name}-{uuid.uuid4().hex[:12]}")  # a name is given once, on any server
        return str(self.server.wait(saving, "save its state").path)

    def _remember(self, folder: Path) -> None:
        for file in folder.glob(f"*/{STATE}"):
            with contextlib.suppress(ConfigError):
                self._saved[State.read(file.parent).path] = folder

    def _delete_unnamed(self) -> None:
        """A state that cannot be deleted is left: the server's owner may."""
        named = {
            state
            for folder in set(self._saved.values())
            for file in folder.glob(f"*/{STATE}")
            for state in _states_of(file.parent)
        }
        for state in [state for state in self._saved if state not in named]:
            del self._saved[state]
            with contextlib.suppress(Exception):
                rest = self.server.service.create_rest_client()
                self.server.wait(rest.delete_checkpoint_from_tinker_path(state), f"delete {state}")

    def close(self) -> None:
        """See Engine."""
        models, self._client, self._reference = (self._client, self._reference), None, None
        for client in models:
            self._forget_model(client)
        self.server.close()


def adam_at_the_start(held: EngineSettings) -> str:
    """What SkyRL's fsdp and megatron servers have to be started with, for a run's own Adam: of what is sent with a step
    they read the learning rate alone."""
    part = "trainer.policy.optimizer_config."
    return json.dumps(
        {
            f"{part}adam_betas": list(held.betas),
            f"{part}weight_decay": held.weight_decay,
            f"{part}max_grad_norm": held.clip_norm,
        }
    )


def _training_pool(sdk: Any) -> Any:
    """The pool of connections that unloading goes through."""
    return importlib.import_module(f"{sdk.__name__}.lib.client_connection_pool_type").ClientConnectionPoolType.TRAIN


def _states_of(folder: Path) -> tuple[str, ...]:
    with contextlib.suppress(ConfigError):
        found = State.read(folder)
        return found.path, found.reference
    return ()


def _numbers(output: Mapping[str, Any]) -> list[float]:
    """The log-probabilities of one datum."""
    given = output.get("logprobs")
    return [] if given is None else [float(value) for value in given.tolist()]
