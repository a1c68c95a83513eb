"""SkyRL's inference client over our own sampler: what its trainers ask of servers, in this process and on a CPU."""

from __future__ import annotations

import asyncio
from typing import Any

from skyrl.backends.skyrl_train.inference_servers.base import InferenceEngineInterface

from toolorchestra.agents.engines.base import Engine, SamplingParams
from toolorchestra.agents.rollouts.rollout import Chat


class LocalClient(InferenceEngineInterface):  # type: ignore[misc]
    """Samples with an engine of ours. Paused as SkyRL pauses: turns that run end, others wait."""

    def __init__(self, engine: Engine, chat: Chat) -> None:
        self.engine, self.chat = engine, chat
        self.weight_version = 0
        self.paused_turns = 0
        self.finished: list[str] = []
        self.salts: set[str | None] = set()
        self._going = asyncio.Event()
        self._going.set()

    @property
    def model_name(self) -> str:
        return "tiny"

    async def generate(self, input_batch: dict[str, Any], model: str | None = None) -> dict[str, Any]:
        assert model == "tiny"
        (prompt,), (session,), asked = (input_batch[k] for k in ("prompt_token_ids", "session_ids", "sampling_params"))
        if not self._going.is_set():
            self.paused_turns += 1
            await self._going.wait()
        self.salts.add(input_batch.get("cache_salt"))
        params = SamplingParams(asked["max_tokens"], asked["temperature"])
        got = await self.engine.sample(prompt, params, session)
        return {
            "responses": [self.chat.tokenizer.decode(got.tokens)],
            "response_ids": [got.tokens],
            "response_logprobs": [got.logprobs],
            "stop_reasons": ["stop" if got.finished else "length"],
        }

    async def finish_session(self, session_id: str) -> None:
        self.finished.append(session_id)
        self.engine.release(session_id)

    async def pause_generation(self) -> None:
        self._going.clear()

    async def resume_generation(self) -> None:
        self._going.set()

    def increment_weight_version(self) -> None:
        self.weight_version += 1

    def get_endpoint_url(self) -> str:
        raise NotImplementedError

    async def _absent(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    chat_completion = render_chat_completion = completion = wake_up = sleep = update_named_weights = _absent
    load_lora_adapter = teardown = reset_prefix_cache = get_world_size = _absent
