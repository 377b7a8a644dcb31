"""Batch norm over the examples of all ranks, like torch's SyncBatchNorm, which does not support the CPU and in whose
calls a waiting rank would be invisible."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gradstudio.engine.ranks.collectives import Collectives

Norm = nn.BatchNorm1d | nn.BatchNorm2d


class Link:
    """The state that the batch norms of a model share. `on`: whether all ranks make this pass."""

    def __init__(self, together: Collectives) -> None:
        self.together, self.on = together, False

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean of a tensor over the ranks, through which gradients flow back to all of them."""
        summed: Any = _Sum.apply(tensor, self)
        return summed / self.together.world


class _Sum(torch.autograd.Function):
    """The sum over the ranks. Each rank's part affects the losses of all, so its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, link: Link) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.link = link
        return _sum(tensor, link)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _sum(gradient, ctx.link), None


def _sum(tensor: Tensor, link: Link) -> Tensor:
    total = tensor.clone().contiguous()
    link.together.all_reduce(total)
    return total


def sync(model: nn.Module, link: Link) -> None:
    """Let every batch norm of a model normalize over all ranks, in the passes that all of them make. Their shares must
    have equal sizes."""
    for norm in model.modules():
        if isinstance(norm, (nn.BatchNorm1d, nn.BatchNorm2d)):
            norm.forward = _SyncedForward(norm, link)


class _SyncedForward:
    """The forward pass of a batch norm."""

    def __init__(self, norm: Norm, link: Link) -> None:
        self._norm, self._link, self._alone = norm, link, norm.forward

    def __call__(self, input: Tensor) -> Tensor:
        norm, link = self._norm, self._link
        if not (norm.training and link.on):
            return self._alone(input)
        dtype, input = input.dtype, input.float()  # like torch's own: its statistics are fp32 in bf16 and fp16 too
        over = [0, *range(2, input.ndim)]
        shape = (1, -1, *[1] * (input.ndim - 2))
        mean = link.mean(input.mean(over))
        centered = input - mean.view(shape)
        variance = link.mean(centered.square().mean(over))
        self._keep(mean, variance, input.numel() // input.shape[1] * link.together.world)
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        return (centered * scale.view(shape) + norm.bias.view(shape)).to(dtype)

    @torch.no_grad()
    def _keep(self, mean: Tensor, variance: Tensor, count: int) -> None:
        """Update the running statistics."""
        momentum = self._norm.momentum
        assert momentum is not None
        self._norm.get_buffer("running_mean").lerp_(mean, momentum)
        self._norm.get_buffer("running_var").lerp_(variance * (count / (count - 1)), momentum)
        self._norm.get_buffer("num_batches_tracked").add_(1)
