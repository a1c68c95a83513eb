"""The losses, on the log-probabilities of the tokens that count."""

from __future__ import annotations

import torch
from torch import Tensor

from toolorchestra.agents.engines.base import LossParams


def token_losses(new: Tensor, old: Tensor, advantage: Tensor, params: LossParams) -> Tensor:
    """One loss per token: clipped or truncated policy gradient, or plain cross-entropy weighted by the advantage."""
    if params.kind == "cross_entropy":
        return -advantage * new
    ratio = torch.exp(new - old)
    if params.cap:
        return -advantage * ratio.detach().clamp(max=params.cap) * torch.exp(new - new.detach())
    clipped = ratio.clamp(1 - params.clip_low, 1 + params.clip_high)
    loss = torch.maximum(-advantage * ratio, -advantage * clipped)
    bounded = torch.minimum(loss, -advantage * params.dual_clip)
    return torch.where(advantage < 0, bounded, loss)


def kl_to(reference: Tensor, new: Tensor, kind: str) -> Tensor:
    """An estimate of KL(new || reference) per token: k2 is half the squared difference, k3 is the unbiased one."""
    gap = reference - new
    return 0.5 * gap.square() if kind == "k2" else torch.exp(gap) - gap - 1
