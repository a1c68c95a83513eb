"""SkyRL's workers in this process and on a CPU: what its synchronous trainer asks of them. The loss is SkyRL's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from skyrl.backends.skyrl_train.distributed.dispatch import WorkerOutput
from skyrl.backends.skyrl_train.utils.ppo_utils import PolicyLossRegistry


class LocalWorkers:
    """One policy and no other model, in the place of SkyRL's WorkerDispatch."""

    def __init__(self, engine: Any, algorithm: Any, learning_rate: float) -> None:
        self.engine, self.model, self.algorithm = engine, engine.model, algorithm
        self.optimizer = torch.optim.SGD(engine.model.parameters(), lr=learning_rate)  # so that no step looks back
        self.optimizer.zero_grad()  # the supervised start leaves its last gradients
        self.losses: list[tuple[float, float]] = []
        """Of each mini-batch: before its step and after it."""
        self._batch: Any = None

    def init_weight_sync_state(self, client: Any) -> None:
        self.client = client

    async def save_weights_for_sampler(self) -> None:
        await self.client.pause_generation()
        self.engine.adopt(self.engine.snapshot(), self.client.weight_version)
        await self.client.resume_generation()
        self.client.increment_weight_version()

    def get_lcm_dp_size(self) -> int:
        return 1

    def get_timing_metrics(self) -> dict[str, float]:
        return {}

    def empty_cache(self, model: str = "policy") -> None:
        assert model == "policy"

    finalize_pending_saves = empty_cache

    def forward(self, model: str, data: Any) -> WorkerOutput:
        assert model == "policy"
        with torch.no_grad():
            scores = self._logprobs(data, data.metadata["response_length"])
        return WorkerOutput(loss_fn_outputs=[{"logprobs": row.tolist()} for row in scores])

    forward_from_staged = forward

    def stage_data(self, model: str, data: Any, boundaries: Sequence[tuple[int, int]]) -> list[Any]:
        assert model == "policy"
        return [data[begin:end] for begin, end in boundaries]

    def forward_backward_from_staged(self, model: str, batch: Any) -> WorkerOutput:
        assert model == "policy"
        self._batch = batch
        loss, metrics = self._loss(batch)
        loss.backward()
        return WorkerOutput(metrics={"policy_loss": loss.item(), **metrics})

    def optim_step(self, model: str) -> float:
        assert model == "policy"
        with torch.no_grad():
            before, _ = self._loss(self._batch)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            after, _ = self._loss(self._batch)
        self.losses.append((before.item(), after.item()))
        return float(norm)

    def _loss(self, batch: Any) -> tuple[Any, dict[str, float]]:
        """As SkyRL's worker calls its loss; advantages come scaled, so that the masked sum is the mean it names."""
        loss: tuple[Any, dict[str, float]] = PolicyLossRegistry.get(self.algorithm.policy_loss_type)(
            self._logprobs(batch, batch["loss_mask"].shape[1]),
            batch["action_log_probs"],
            batch["advantages"],
            config=self.algorithm,
            loss_mask=batch["loss_mask"],
            rollout_logprobs=batch["rollout_logprobs"],
        )
        return loss

    def _logprobs(self, batch: Any, size: int) -> Any:
        """Of the last `size` tokens of each row."""
        tokens, mask = batch["sequences"], batch["attention_mask"].long()
        places = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self.model(tokens, attention_mask=mask, position_ids=places).logits[:, -size - 1 : -1].float()
        return torch.log_softmax(logits, -1).gather(-1, tokens[:, -size:, None])[..., 0]
