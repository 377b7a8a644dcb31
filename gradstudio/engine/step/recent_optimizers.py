"""Optimizers that torch lacks, at least in some versions: Lion, Muon, StableAdamW and Schedule-Free. Each step consists
of the same operations as the plain program (program/reference/optimizers.py), so both give the same bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

# Of x -> a x + b (x x^T) x + c (x x^T)^2 x, which moves every singular value of x near 1 (Jordan 2024).
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class OneTensorAtATime(torch.optim.Optimizer):
    """An optimizer whose groups have one learning rate, `betas`, `weight_decay`, and further settings of its kind."""

    def __init__(self, params: Iterable[Any], *, foreach: bool = False, **values: Any) -> None:
        del foreach  # as in torch's own; here each tensor is treated separately
        super().__init__(params, values)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(group, weight, weight.grad, self.state[weight])

    def _update(self, group: dict[str, Any], weight: Tensor, grad: Tensor, state: dict[str, Any]) -> None:
        raise NotImplementedError


class Lion(OneTensorAtATime):
    """Evolved sign momentum (Chen 2023): w <- w - lr (sign(beta1 m + (1 - beta1) g) + weight_decay w), and after that m
    <- beta2 m + (1 - beta2) g."""

    def _update(self, group: dict[str, Any], weight: Tensor, grad: Tensor, state: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        if not state:
            state["exp_avg"] = torch.zeros_like(weight)
        mean = state["exp_avg"]
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(mean.mul(beta1).add_(grad, alpha=1 - beta1).sign_(), alpha=-group["lr"])
        mean.mul_(beta2).add_(grad, alpha=1 - beta2)


class Muon(OneTensorAtATime):
    """Orthogonalized momentum for matrices (Jordan 2024); AdamW for groups that are marked as `others`."""

    def _update(self, group: dict[str, Any], weight: Tensor, grad: Tensor, state: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        if not state:
            state["exp_avg"] = torch.zeros_like(weight)
        mean = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        if not group["others"]:
            ahead = mean.mul(beta1).add_(grad, alpha=1 - beta1)  # Nesterov's
            matrix = orthogonal(ahead.flatten(1))
            longer = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
            weight.add_(matrix.view_as(weight), alpha=-group["lr"] * longer)
            return
        if "step" not in state:
            state["step"], state["exp_avg_sq"] = 0, torch.zeros_like(weight)
        state["step"] += 1
        squares = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        size = squares.sqrt().div_(math.sqrt(1 - beta2 ** state["step"])).add_(group["eps"])
        weight.addcdiv_(mean, size, value=-group["lr"] / (1 - beta1 ** state["step"]))


class StableAdamW(OneTensorAtATime):
    """AdamW whose step is divided by the root mean square of g / sqrt(v) of a tensor, if that is above 1 (Wortsman
    2023, algorithm 2): v lags behind a gradient that has suddenly become large."""

    def _update(self, group: dict[str, Any], weight: Tensor, grad: Tensor, state: dict[str, Any]) -> None:
        if not state:
            state |= {"step": 0, "exp_avg": torch.zeros_like(weight), "exp_avg_sq": torch.zeros_like(weight)}
        state["step"] += 1
        keeps, eps = [_corrected(beta, state["step"]) for beta in group["betas"]], group["eps"]
        mean = state["exp_avg"].mul_(keeps[0]).add_(grad, alpha=1 - keeps[0])
        squares = state["exp_avg_sq"].mul_(keeps[1]).addcmul_(grad, grad, value=1 - keeps[1])
        surprise = grad.square().div_(squares.clamp(min=eps * eps)).mean().sqrt_().clamp_(min=1.0)
        weight.mul_(1 - group["lr"] / surprise * group["weight_decay"])
        weight.addcdiv_(mean / surprise, squares.sqrt().add_(eps), value=-group["lr"])


class ScheduleFree(OneTensorAtATime):
    """Schedule-Free AdamW (Defazio 2024, arXiv 2405.15682, algorithm 1): the weights are y = (1 - beta1) z + beta1 x,
    where AdamW without momentum moves z by the gradient at y, and x is the mean of all z, weighted by their squared
    rates. The tests use x."""

    def _update(self, group: dict[str, Any], weight: Tensor, grad: Tensor, state: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        if not state:
            state |= {"step": 0, "rates": 0.0, "exp_avg_sq": torch.zeros_like(weight)}
            state |= {"z": weight.detach().clone(), "x": weight.detach().clone()}
        state["step"] += 1
        z, x, squares = state["z"], state["x"], state["exp_avg_sq"].mul_(beta2)
        squares.addcmul_(grad, grad, value=1 - beta2)
        rate = group["lr"] * math.sqrt(1 - beta2 ** state["step"])
        state["rates"] += rate * rate
        share = rate * rate / state["rates"] if state["rates"] else 0.0
        z.addcdiv_(grad, squares.sqrt().add_(group["eps"]), value=-rate).add_(
            weight, alpha=-rate * group["weight_decay"]
        )
        x.mul_(1 - share).add_(z, alpha=share)
        weight.copy_(x).mul_(beta1).add_(z, alpha=1 - beta1)


def _corrected(beta: float, step: int) -> float:
    """Return the decay that gives a running mean without a bias towards 0."""
    return beta * (1 - beta ** (step - 1)) / (1 - beta**step)


def orthogonal(matrix: Tensor) -> Tensor:
    """Return the matrix with all its singular values near 1, by five Newton-Schulz steps."""
    a, b, c = NEWTON_SCHULZ
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(ITERATIONS):
        square = x @ x.T
        x = a * x + (b * square + c * (square @ square)) @ x
    return x.T if tall else x
