"""The loss scale: a factor on the loss that lifts small fp16 gradients above the underflow, and is divided out again
before they are used."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from gradstudio.core.sections.loop_knobs import Precision
from gradstudio.engine.torch_internals import plain_optimizers


class StaticScaler:
    """A fixed factor on the loss, divided out of the gradients without any check: the usual hand-written form. It has
    the methods of torch's GradScaler that a training loop calls. A factor of 1 does nothing at all."""

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale

    def get_scale(self) -> float:
        return self._scale

    def scale(self, loss: Tensor) -> Tensor:
        return loss if self._scale == 1 else loss * self._scale

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        if self._scale != 1:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad.mul_(1 / self._scale)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.step()

    def update(self) -> None:
        pass


ScalerState = Literal["", "unscaled", "stepped"]


class DynamicScaler(torch.amp.GradScaler):
    """torch's own scaler. It halves its scale and skips the update at an overflow, and doubles the scale after a quiet
    while.

    `left` is its last call, between two steps, if update was not called: it refuses the next unscale."""

    left: ScalerState = ""


Scaler = StaticScaler | DynamicScaler


def dynamic(knobs: Precision, device: str) -> DynamicScaler:
    return DynamicScaler(
        torch.device(device).type,
        init_scale=knobs.init_scale,
        growth_factor=knobs.growth_factor,
        backoff_factor=knobs.backoff_factor,
        growth_interval=knobs.growth_interval,
    )


SCALERS: dict[str, Callable[[Precision, str], Scaler]] = {
    "dynamic": dynamic,
    "static": lambda knobs, device: StaticScaler(knobs.init_scale),
    "none": lambda knobs, device: StaticScaler(),
}


def build(knobs: Precision, device: str) -> Scaler:
    """Return a fresh scaler. Only fp16 is scaled: the range of bf16 and fp32 needs no scale."""
    return SCALERS[knobs.scaling if knobs.dtype == "fp16" else "none"](knobs, device)


def change(scaler: Scaler, before: Precision, knobs: Precision, device: str) -> Scaler:
    """Return the scaler to use after the values `before` became `knobs`. A new number format or kind of scaling starts
    over at init_scale."""
    if (before.dtype, before.scaling) != (knobs.dtype, knobs.scaling):
        return build(knobs, device)
    if isinstance(scaler, torch.amp.GradScaler):
        scaler.set_growth_interval(knobs.growth_interval)
    return scaler


def kind(scaler: Scaler) -> Literal["dynamic", "static", "none"]:
    """Return the actual behaviour of a scaler."""
    if isinstance(scaler, torch.amp.GradScaler):
        return "dynamic"
    return "none" if scaler.get_scale() == 1 else "static"


def leave(scaler: Scaler, left: ScalerState) -> None:
    """Record the scaler's last call if its update is left out."""
    if isinstance(scaler, DynamicScaler):
        scaler.left = left


def state(scaler: Scaler) -> dict[str, Any]:
    """Return the part of a scaler's state that steps change, between two steps."""
    if not isinstance(scaler, DynamicScaler):
        return {}
    return scaler.state_dict() | ({"left": scaler.left} if scaler.left else {})


def restore(scaler: Scaler, state: dict[str, Any], optimizer: torch.optim.Optimizer) -> None:
    """Restore a former state of a scaler with the same knobs, in place, between two steps. It writes to the gradients
    if its update was left out."""
    if not isinstance(scaler, DynamicScaler):
        return
    scaler.load_state_dict(state)
    scaler.left = state.get("left", "")
    if scaler.left:
        _leave_out_update(scaler, optimizer)


def _leave_out_update(scaler: DynamicScaler, optimizer: torch.optim.Optimizer) -> None:
    """Make the calls of a step except its update, at an overflow, so that no weight moves. The scaler's result for the
    gradients is never read, as it refuses the next call."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    scaler.scale(torch.zeros((), device=weights[0].device))  # which creates its tensors
    for weight in weights:
        weight.grad.fill_(math.inf)
    scaler.unscale_(optimizer)
    if scaler.left == "stepped":
        scaler.step(optimizer)


def in_mid_step(scaler: Scaler) -> bool:
    """Return whether a step stopped between its unscale and its update."""
    return isinstance(scaler, torch.amp.GradScaler) and plain_optimizers.scaler_in_mid_step(scaler)
