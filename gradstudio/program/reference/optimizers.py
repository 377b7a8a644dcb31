"""The optimizer, the course of its learning rate, the loss scale, and the number format of the weights."""

import math

import torch

from gradstudio.program.reference.ranks import *


def one_cycle(share):
    """Up from 1/25 in the first 30 %, then down to 1/250,000 (Smith 2018), as torch's OneCycleLR does."""
    if share < 0.3:
        return 1 / 25 + (1 - 1 / 25) * 0.5 * (1 - math.cos(math.pi * share / 0.3))
    return 1 / 250_000 + (1 - 1 / 250_000) * 0.5 * (1 + math.cos(math.pi * (share - 0.3) / (1 - 0.3)))


def factor(taken):
    """On the learning rate, after so many optimizer steps."""
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
    """Rounded to bfloat16, up with a chance that is the share of the way there (Gupta 2015)."""
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
    """All singular values near 1, by five steps of Newton and Schulz."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * (square @ square)) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum that is made orthogonal, for matrices (Jordan 2024); AdamW for the others."""

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
    """Return the decay that makes a running mean without a bias towards 0."""
    return beta * (1 - beta ** (step - 1)) / (1 - beta**step)


class StableAdamW(torch.optim.Optimizer):
    """AdamW whose step is divided by the root mean square of g / sqrt(v), where that is above 1 (Wortsman 2023)."""

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
    """Schedule-Free AdamW (Defazio 2024): the gradient is taken at y = (1 - beta1) z + beta1 x; x is to be used."""

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


@inline
def groups():
    """Return the parameters as the optimizer gets them."""
    return players if plan.two_rates else weights if plan.mup else trainable()


if plan.two_rates:
    players = [
        {"params": model.generator.parameters()},
        {
            "params": model.discriminator.parameters(),
            "lr": knobs.optimizer_lr * knobs.optimizer_discriminator_factor,
        },
    ]
if plan.mup:
    weights = [
        {"params": [parameter], "lr": knobs.optimizer_lr * rate_factor(name, parameter)}
        for name, parameter in model.named_parameters()
    ]
if knobs.optimizer_kind == "muon":
    matrices = [parameter for parameter in trainable() if parameter.ndim > 1][1:-1]
    others = [parameter for parameter in trainable() if id(parameter) not in map(id, matrices)]
if knobs.optimizer_kind == "sgd":
    optimizer = torch.optim.SGD(
        groups(), lr=knobs.optimizer_lr, momentum=knobs.optimizer_momentum, weight_decay=knobs.optimizer_weight_decay
    )
elif knobs.optimizer_kind == "rmsprop":
    optimizer = torch.optim.RMSprop(
        groups(),
        lr=knobs.optimizer_lr,
        momentum=knobs.optimizer_momentum,
        eps=knobs.optimizer_eps,
        weight_decay=knobs.optimizer_weight_decay,
    )
elif knobs.optimizer_kind == "lion":
    optimizer = Lion(
        groups(),
        dict(
            lr=knobs.optimizer_lr,
            betas=(knobs.optimizer_beta1, knobs.optimizer_beta2),
            weight_decay=knobs.optimizer_weight_decay,
        ),
    )
elif knobs.optimizer_kind in ("stable_adamw", "schedule_free"):
    optimizer = (StableAdamW if knobs.optimizer_kind == "stable_adamw" else ScheduleFree)(
        groups(),
        dict(
            lr=knobs.optimizer_lr,
            betas=(knobs.optimizer_beta1, knobs.optimizer_beta2),
            eps=knobs.optimizer_eps,
            weight_decay=knobs.optimizer_weight_decay,
        ),
    )
elif knobs.optimizer_kind == "muon":
    optimizer = Muon(
        [{"params": matrices, "others": False}, {"params": others, "others": True, "lr": knobs.optimizer_adamw_lr}],
        dict(
            lr=knobs.optimizer_lr,
            betas=(knobs.optimizer_beta1, knobs.optimizer_beta2),
            eps=knobs.optimizer_eps,
            weight_decay=knobs.optimizer_weight_decay,
        ),
    )
else:
    optimizer = (torch.optim.Adam if knobs.optimizer_kind == "adam" else torch.optim.AdamW)(
        groups(),
        lr=knobs.optimizer_lr,
        betas=(knobs.optimizer_beta1, knobs.optimizer_beta2),
        eps=knobs.optimizer_eps,
        weight_decay=knobs.optimizer_weight_decay,
    )
if plan.scheduled:
    if plan.live_schedule:
        taken = 0  # optimizer steps
    else:
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


@inline
def advance():
    """Let the schedule know of a step."""
    global taken
    if plan.live_schedule:
        taken += 1
    else:
        scheduler.step()


@inline
def new_scaler():
    """Return a scaler, which does nothing while it is not enabled."""
    return torch.amp.GradScaler(
        device.type,
        init_scale=knobs.precision_init_scale,
        growth_factor=knobs.precision_growth_factor,
        backoff_factor=knobs.precision_backoff_factor,
        growth_interval=knobs.precision_growth_interval,
        enabled=knobs.precision_dtype == "fp16" and knobs.precision_scaling == "dynamic",
    )


@inline
def fixed_scale():
    """Return the scale of a loss that nothing checks."""
    return (
        knobs.precision_init_scale if knobs.precision_dtype == "fp16" and knobs.precision_scaling == "static" else 1.0
    )


if plan.dynamic:
    scaler = new_scaler()
if plan.static:
    scale = fixed_scale()  # without any check


@inline
def take_live_changes():
    """Give the knobs their new values, and the optimizer what follows from them."""
    global scaler, scale
    if plan.changing():
        for at, name, value in TIMELINE:
            if at == step:
                setattr(knobs, name, value)
                if plan.rebuilds_scaler and plan.dynamic and name in ("precision_dtype", "precision_scaling"):
                    scaler = new_scaler()
                if plan.rebuilds_scaler and plan.static:
                    scale = fixed_scale()
                if plan.dynamic and plan.changes("precision_growth_interval") and name == "precision_growth_interval":
                    scaler.set_growth_interval(value)
    if plan.new_rates and plan.mup:
        for group, (name, parameter) in zip(optimizer.param_groups, model.named_parameters()):
            group["lr"] = knobs.optimizer_lr * rate_factor(name, parameter)
    for group in optimizer.param_groups:
        if plan.new_rates and not plan.mup:
            group["lr"] = knobs.optimizer_lr
        if plan.changes("optimizer_momentum") and knobs.optimizer_kind in ("sgd", "rmsprop"):
            group["momentum"] = knobs.optimizer_momentum
        if plan.changes("optimizer_beta1", "optimizer_beta2") and knobs.optimizer_kind not in ("sgd", "rmsprop"):
            group["betas"] = (knobs.optimizer_beta1, knobs.optimizer_beta2)
        if plan.changes("optimizer_eps") and knobs.optimizer_kind not in ("sgd", "lion"):
            group["eps"] = knobs.optimizer_eps
        if plan.changes("optimizer_weight_decay"):
            group["weight_decay"] = knobs.optimizer_weight_decay
    if plan.new_rates and plan.two_rates:
        optimizer.param_groups[1]["lr"] = knobs.optimizer_lr * knobs.optimizer_discriminator_factor
    if plan.new_rates and knobs.optimizer_kind == "muon":
        optimizer.param_groups[1]["lr"] = knobs.optimizer_adamw_lr
    if plan.adds_momentum:
        # RMSprop makes its momentum buffer at its first step or never
        for parameter, state in optimizer.state.items():
            state.setdefault("momentum_buffer", torch.zeros_like(parameter))


@inline
def set_rates():
    """Give the optimizer the learning rate of the schedule."""
    if plan.scheduled and plan.live_schedule and plan.mup:
        for group, (name, parameter) in zip(optimizer.param_groups, model.named_parameters()):
            group["lr"] = knobs.optimizer_lr * rate_factor(name, parameter) * factor(taken)
    elif plan.scheduled and plan.live_schedule:
        for group in optimizer.param_groups:
            group["lr"] = knobs.optimizer_lr * factor(taken)
        if plan.two_rates:
            rate = knobs.optimizer_lr * knobs.optimizer_discriminator_factor
            optimizer.param_groups[1]["lr"] = rate * factor(taken)
        if knobs.optimizer_kind == "muon":
            optimizer.param_groups[1]["lr"] = knobs.optimizer_adamw_lr * factor(taken)


@inline
def round_weights():
    """Keep the weights in the format of precision.weights."""
    if knobs.precision_weights == "bf16":
        with torch.no_grad():  # precision.weights = bf16
            for parameter in trainable():
                parameter.copy_(parameter.bfloat16())
    elif knobs.precision_weights == "bf16_stochastic":
        rounding = torch.Generator().manual_seed(seed + 7_000_003 + 1009 * step)
        with torch.no_grad():  # precision.weights = bf16_stochastic
            for parameter in trainable():
                parameter.copy_(stochastic(parameter, rounding))
