"""The optimizer, the loss scale, live changes, and the number format of the weights."""

import torch

from gradstudio.program.reference.update_rules import *


@inline
def groups():
    """Return the parameters in the form in which the optimizer takes them."""
    return players if plan.two_rates else weights if plan.mup else trainable()


if plan.two_rates:
    players = [
        {"params": model.generator.parameters()},
        {"params": model.discriminator.parameters(), "lr": knobs.optimizer_lr * knobs.optimizer_discriminator_factor},
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
    """Advance the schedule by one step."""
    global taken
    if plan.live_schedule:
        taken += 1
    else:
        scheduler.step()


@inline
def new_scaler():
    """Return a loss scaler, which does nothing unless it is enabled."""
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
    """Return the static loss scale, which is never checked for overflow."""
    return (
        knobs.precision_init_scale if knobs.precision_dtype == "fp16" and knobs.precision_scaling == "static" else 1.0
    )


if plan.dynamic:
    scaler = new_scaler()
if plan.static:
    scale = fixed_scale()  # without any check


@inline
def take_live_changes():
    """Apply the changes of knobs that are due, and pass the new values on to the optimizer."""
    global scaler, scale
    if plan.changing_knobs():
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
    """Set the learning rate of this step, as the schedule gives it."""
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
    """Round the weights to the format of precision.weights."""
    if knobs.precision_weights == "bf16":
        with torch.no_grad():  # precision.weights = bf16
            for parameter in trainable():
                parameter.copy_(parameter.bfloat16())
    elif knobs.precision_weights == "bf16_stochastic":
        rounding = torch.Generator().manual_seed(seed + 7_000_003 + 1009 * step)
        with torch.no_grad():  # precision.weights = bf16_stochastic
            for parameter in trainable():
                parameter.copy_(stochastic(parameter, rounding))
