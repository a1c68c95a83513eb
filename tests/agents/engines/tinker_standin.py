"""A stand-in for the module `tinker`: the same interface, with a torch model in this process behind it.

`StandIn` is the module. It answers as a server of SkyRL's does: `backend` says how it adds up a loss. A test can
make it fall silent, forget its models, or answer as another version.
"""

from __future__ import annotations

import copy
import json
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from toolorchestra.agents.engines.adapter import with_lora
from toolorchestra.agents.engines.settings import EngineSettings

BASE = "tiny/base"


class TinkerError(Exception): ...


class APIConnectionError(TinkerError): ...


class APIResponseValidationError(TinkerError): ...


class StatusError(TinkerError):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.status_code = code


@dataclass
class TensorData:
    data: Any
    dtype: str

    def tolist(self) -> list[Any]:
        return list(np.asarray(self.data).tolist())


@dataclass
class ModelInput:
    tokens: list[int]

    @classmethod
    def from_ints(cls, tokens: list[int]) -> ModelInput:
        return cls(tokens)


@dataclass
class Datum:
    model_input: ModelInput
    loss_fn_inputs: dict[str, TensorData]


@dataclass
class SamplingParams:
    max_tokens: int
    temperature: float
    stop: list[int]
    seed: int


@dataclass
class AdamParams:
    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip_norm: float


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@dataclass
class Trained:
    """A model with its optimiser."""

    model: Any
    optimizer: Any
    rank: int
    steps: int = 0

    def state(self) -> Any:
        return copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict(), self.rank))


@dataclass
class StandIn:
    """The module, and the server behind it."""

    make: Any
    """Makes the base model."""
    backend: str = "skyrl-jax"
    __name__: str = "tinker"
    __version__: str = "0.25.0"
    key: str = "tml-none"
    models: dict[str, Trained] = field(default_factory=dict)
    states: dict[str, Any] = field(default_factory=dict)
    made: int = 0
    fails: dict[str, list[BaseException]] = field(default_factory=dict)
    """What the next calls of a verb raise, one each."""
    silent: set[str] = field(default_factory=set)
    """Verbs that never answer."""
    samples_off: float = 0.0
    """Added to each sampled log-probability."""
    drops_stop: bool = False
    most_models: int = 100
    newer: bool = False
    """Whether clients come as futures."""

    APIConnectionError = APIConnectionError
    APIResponseValidationError = APIResponseValidationError
    types = SimpleNamespace(
        TensorData=TensorData, ModelInput=ModelInput, Datum=Datum, SamplingParams=SamplingParams, AdamParams=AdamParams
    )

    def ServiceClient(self, base_url: str, api_key: str) -> Service:
        self.base_url = base_url
        self.meet("open")
        if api_key != self.key:
            raise StatusError(401, f"no such key: {api_key}")
        return Service(self)

    def meet(self, verb: str) -> None:
        if self.fails.get(verb):
            raise self.fails[verb].pop(0)

    def answer(self, verb: str, value: Any) -> Future[Any]:
        if verb in self.silent:
            return Future()
        try:
            self.meet(verb)
            return done(value())
        except Exception as err:  # noqa: BLE001 - whoever waits raises it
            future: Future[Any] = Future()
            future.set_exception(err)
            return future

    def new(self, rank: int, seed: int) -> str:
        if len(self.models) >= self.most_models:
            raise ValueError("Maximum number of LoRA adapters reached")
        model = with_lora(self.make(), EngineSettings(lora_rank=rank), seed)
        trained = [p for p in model.parameters() if p.requires_grad]
        self.made += 1
        name = f"model_{self.made}"
        self.models[name] = Trained(model, torch.optim.AdamW(trained, lr=1e-3), rank)
        return name

    def of(self, name: str) -> Trained:
        if name not in self.models:
            raise ValueError(f"Error retrieving result: Model {name} not loaded (likely stale request)")
        return self.models[name]


class Service:
    def __init__(self, module: StandIn) -> None:
        self.module = module
        self.holder = SimpleNamespace(close=lambda: None)

    def get_server_capabilities(self) -> Any:
        self.module.meet("capabilities")
        return SimpleNamespace(supported_models=[SimpleNamespace(model_name=BASE)])

    def create_lora_training_client(self, base_model: str, rank: int, seed: int) -> Any:
        assert base_model == BASE
        self.module.meet("create")
        made = Client(self.module, self.module.new(rank, seed))
        return done(made) if self.module.newer else made

    def _from(self, path: str, optimizer: bool) -> Client:
        self.module.meet("create")
        if path not in self.module.states:
            raise StatusError(404, f"Checkpoint not found: {path}")
        weights, moments, rank = copy.deepcopy(self.module.states[path])
        name = self.module.new(rank, 0)
        self.module.models[name].model.load_state_dict(weights)
        if optimizer:
            self.module.models[name].optimizer.load_state_dict(moments)
        return Client(self.module, name)

    def create_training_client_from_state(self, path: str) -> Client:
        return self._from(path, False)

    def create_training_client_from_state_with_optimizer(self, path: str) -> Client:
        return self._from(path, True)

    def create_rest_client(self) -> Any:
        def delete(path: str) -> Future[Any]:
            return done(self.module.states.pop(path))

        return SimpleNamespace(delete_checkpoint_from_tinker_path=delete)


class Holder:
    """What unloading goes through: it has no public door."""

    def __init__(self, module: StandIn) -> None:
        self.module = module

    def run_coroutine_threadsafe(self, coroutine: Any) -> Any:
        coroutine.close()
        raise RuntimeError("no such door")


class Client:
    def __init__(self, module: StandIn, model_id: str) -> None:
        self.module, self.model_id = module, model_id
        self.holder = Holder(module)

    def _scored(self, data: list[Datum], *, backward: bool) -> Any:
        trained = self.module.of(self.model_id)
        outputs, parts = [], []
        for datum in data:
            given = {name: torch.tensor(value.data) for name, value in datum.loss_fn_inputs.items()}
            logits = trained.model(torch.tensor([datum.model_input.tokens])).logits[0]
            new = torch.log_softmax(logits.float(), -1).gather(1, given["target_tokens"][:, None])[:, 0]
            losses = -given["advantages"] * torch.exp(new - given["logprobs"])
            jax = self.module.backend == "skyrl-jax"
            parts.append(losses.sum() / (len(losses) * len(data)) if jax else losses.sum())
            output = {"logprobs": TensorData(new.detach().tolist(), "float32")}
            if jax:
                output["elementwise_loss"] = TensorData(losses.detach().tolist(), "float32")
            outputs.append(output)
        if backward:
            torch.stack(parts).sum().backward()
        return SimpleNamespace(loss_fn_outputs=outputs, metrics={})

    def forward(self, data: list[Datum], loss: str) -> Future[Any]:
        assert loss == "importance_sampling"
        with torch.no_grad():
            return self.module.answer("forward", lambda: self._scored(data, backward=False))

    def forward_backward(self, data: list[Datum], loss: str) -> Future[Any]:
        assert loss == "importance_sampling"
        return self.module.answer("forward_backward", lambda: self._scored(data, backward=True))

    def _stepped(self, adam: AdamParams) -> Any:
        trained = self.module.of(self.model_id)
        (group,) = trained.optimizer.param_groups
        group.update(
            lr=adam.learning_rate, betas=(adam.beta1, adam.beta2), eps=adam.eps, weight_decay=adam.weight_decay
        )
        norm = torch.nn.utils.clip_grad_norm_(group["params"], adam.grad_clip_norm)
        trained.optimizer.step()
        trained.optimizer.zero_grad()
        trained.steps += 1
        return SimpleNamespace(metrics={"skyrl.ai/grad_norm": float(norm)})

    def optim_step(self, adam: AdamParams) -> Future[Any]:
        return self.module.answer("optim_step", lambda: self._stepped(adam))

    def _saved(self, name: str) -> Any:
        path = f"tinker://{self.model_id}/weights/{name}"
        assert path not in self.module.states
        self.module.states[path] = self.module.of(self.model_id).state()
        return SimpleNamespace(path=path)

    def save_state(self, name: str) -> Future[Any]:
        return self.module.answer("save", lambda: self._saved(name))

    def save_weights_and_get_sampling_client(self) -> Sampler:
        self.module.meet("sync")
        return Sampler(self.module, copy.deepcopy(self.module.of(self.model_id).model))


class Sampler:
    def __init__(self, module: StandIn, model: Any) -> None:
        self.module, self.model = module, model

    def sample(self, prompt: ModelInput, num_samples: int, params: SamplingParams) -> Future[Any]:
        assert num_samples == 1
        with torch.no_grad():
            return self.module.answer("sample", lambda: self._drawn(prompt.tokens, params))

    def _drawn(self, prompt: list[int], params: SamplingParams) -> Any:
        generator = torch.Generator().manual_seed(params.seed)
        tokens, logprobs, reason = list(prompt), [], "length"
        for _ in range(params.max_tokens):
            logits = self.model(torch.tensor([tokens])).logits[0, -1].float()
            chances = torch.softmax(logits / (params.temperature or 1), -1)
            token = (
                int(torch.multinomial(chances, 1, generator=generator)) if params.temperature else int(logits.argmax())
            )
            tokens.append(token)
            logprobs.append(float(torch.log_softmax(logits, -1)[token]) + self.module.samples_off)
            if token in params.stop:
                reason = "stop"
                break
        made = tokens[len(prompt) :]
        if self.module.drops_stop and reason == "stop":
            made, logprobs = made[:-1], logprobs[:-1]
        return SimpleNamespace(sequences=[SimpleNamespace(tokens=made, logprobs=logprobs, stop_reason=reason)])


class Door:
    """A socket that says that a server is there, as SkyRL's does. It can be shut."""

    def __init__(self, name: str = "Tinker API Mock", healthz: int = 200) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code = healthz if self.path.endswith("/healthz") else 200
                body = json.dumps({"name": name}).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def shut(self) -> None:
        self._server.shutdown()
        self._server.server_close()
