"""The course of the learning rate, stochastic rounding, and the optimizers that torch does not have."""

import math

import torch

from gradstudio.program.reference.ranks import *


def one_cycle(share):
    """Rise from 1/25 in the first 30 %, then fall to 1/250,000 (Smith 2018), as torch's OneCycleLR does."""
    if share < 0.3:
        return 1 / 25 + (1 - 1 / 25) * 0.5 * (1 - math.cos(math.pi * share / 0.3))
    return 1 / 250_000 + (1 - 1 / 250_000) * 0.5 * (1 + math.cos(math.pi * (share - 0.3) / (1 - 0.3)))


def factor(taken):
    """Return the factor on the learning rate after this many optimizer steps."""
    if plan.rises and taken < knobs.schedule_warmup_steps:  # warmup
        return (taken + 1) / knobs.schedule_warmup_steps
    if plan.falls:
        share = min(
            1.0,
            (taken - knobs.schedule_warmup_steps) / max(knobs.schedule_total_steps - knobs.schedule_warmup_steps, 1),
        )
    if knobs.schedule_kind == "cosine":
        return 0.5 * (1 + math.cos(math.pi * share))
    if knobs.schedule_kind == "linear":
        return 1.0 - share
    if knobs.schedule_kind == "exponential":
        return 0.01**share
    if knobs.schedule_kind == "one_cycle":
        return one_cycle(share)
    if knobs.schedule_kind == "wsd":  # warmup, stable, decay (Hu 2024)
        return min(1.0, (1.0 - share) / 0.2)
    return 1.0


def stochastic(weights, source):
    """Round to bfloat16, up with a probability equal to the fraction that is cut off (Gupta 2015)."""
    chance = torch.randint(0, 1 << 16, weights.shape, generator=source, dtype=torch.int32).to(device)
    bits = (weights.view(torch.int32) + chance) & -(1 << 16)
    return torch.where(weights.isfinite(), bits.view(torch.float32), weights)


class Lion(torch.optim.Optimizer):
    """Evolved sign momentum (Chen 2023)."""

    @torch.no_grad()
    def step(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                if weight.grad is not None:
                    mean = self.state[weight].setdefault("exp_avg", torch.zeros_like(weight))
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.add_(mean.mul(beta1).add_(weight.grad, alpha=1 - beta1).sign_(), alpha=-group["lr"])
                    mean.mul_(beta2).add_(weight.grad, alpha=1 - beta2)


def orthogonal(matrix):
    """Bring all singular values of a matrix near 1, by five Newton-Schulz steps."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * (square @ square)) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Orthogonalized momentum for matrices (Jordan 2024); AdamW for all other parameters."""

    @torch.no_grad()
    def step(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self.update(group, weight, self.state[weight])

    def update(self, group, weight, state):
        beta1, beta2 = group["betas"]
        mean = state.setdefault("exp_avg", torch.zeros_like(weight))
        mean.mul_(beta1).add_(weight.grad, alpha=1 - beta1)
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        if group["others"]:
            state["step"] = state.get("step", 0) + 1
            squares = state.setdefault("exp_avg_sq", torch.zeros_like(weight))
            squares.mul_(beta2).addcmul_(weight.grad, weight.grad, value=1 - beta2)
            size = squares.sqrt().div_(math.sqrt(1 - beta2 ** state["step"])).add_(group["eps"])
            weight.addcdiv_(mean, size, value=-group["lr"] / (1 - beta1 ** state["step"]))
        else:
            matrix = orthogonal(mean.mul(beta1).add_(weight.grad, alpha=1 - beta1).flatten(1))  # Nesterov's
            longer = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
            weight.add_(matrix.view_as(weight), alpha=-group["lr"] * longer)


def corrected(beta, step):
    """Return the decay with which a running mean has no bias towards its initial 0."""
    return beta * (1 - beta ** (step - 1)) / (1 - beta**step)


class StableAdamW(torch.optim.Optimizer):
    """AdamW whose step is divided by the root mean square of g / sqrt(v) if that is above 1 (Wortsman 2023)."""

    @torch.no_grad()
    def step(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self.update(group, weight, weight.grad, self.state[weight])

    def update(self, group, weight, grad, state):
        state["step"] = state.get("step", 0) + 1
        beta1, beta2 = (corrected(beta, state["step"]) for beta in group["betas"])
        mean = state.setdefault("exp_avg", torch.zeros_like(weight)).mul_(beta1).add_(grad, alpha=1 - beta1)
        squares = state.setdefault("exp_avg_sq", torch.zeros_like(weight))
        squares.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        surprise = grad.square().div_(squares.clamp(min=group["eps"] ** 2)).mean().sqrt_().clamp_(min=1.0)
        weight.mul_(1 - group["lr"] / surprise * group["weight_decay"])
        weight.addcdiv_(mean / surprise, squares.sqrt().add_(group["eps"]), value=-group["lr"])


class ScheduleFree(torch.optim.Optimizer):
    """Schedule-Free AdamW (Defazio 2024): gradients are taken at y = (1 - beta1) z + beta1 x; the result is x."""

    @torch.no_grad()
    def step(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self.update(group, weight, weight.grad, self.state[weight])

    def update(self, group, y, grad, state):
        beta1, beta2 = group["betas"]
        state["step"] = state.get("step", 0) + 1
        z, x = state.setdefault("z", y.detach().clone()), state.setdefault("x", y.detach().clone())
        squares = state.setdefault("exp_avg_sq", torch.zeros_like(y)).mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        rate = group["lr"] * math.sqrt(1 - beta2 ** state["step"])
        state["rates"] = state.get("rates", 0.0) + rate * rate
        share = rate * rate / state["rates"] if state["rates"] else 0.0
        z.addcdiv_(grad, squares.sqrt().add_(group["eps"]), value=-rate).add_(y, alpha=-rate * group["weight_decay"])
        x.mul_(1 - share).add_(z, alpha=share)
        y.copy_(x).mul_(beta1).add_(z, alpha=1 - beta1)
