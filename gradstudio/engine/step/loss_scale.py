"""The loss scale: a factor on the loss that lifts small fp16 gradients above the underflow, and is divided out again
before anything looks at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from gradstudio.core.experiment import Precision
from gradstudio.engine import torch_internals


class StaticScaler:
    """A fixed factor on the loss, divided out of the gradients without any check: what people write by hand. It has the
    methods of torch's GradScaler that a training loop calls. A factor of 1 does nothing at all."""

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


Scaler = StaticScaler | torch.amp.GradScaler


def dynamic(knobs: Precision, device: str) -> torch.amp.GradScaler:
    """Return torch's own scaler. It halves its scale and skips the update at an overflow, and doubles the scale after a
    quiet while."""
    return torch.amp.GradScaler(
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
    """Return a fresh scaler. Only fp16 scales: the range of bf16 and fp32 needs no scale."""
    return SCALERS[knobs.scaling if knobs.dtype == "fp16" else "none"](knobs, device)


def change(scaler: Scaler, before: Precision, knobs: Precision, device: str) -> Scaler:
    """Return the scaler to go on with after the values `before` became `knobs`. A new number format or kind of scaling
    begins again at init_scale."""
    if (before.dtype, before.scaling) != (knobs.dtype, knobs.scaling):
        return build(knobs, device)
    if isinstance(scaler, torch.amp.GradScaler):
        scaler.set_growth_interval(knobs.growth_interval)
    return scaler


def kind(scaler: Scaler) -> Literal["dynamic", "static", "none"]:
    """Return what a scaler really does."""
    if isinstance(scaler, torch.amp.GradScaler):
        return "dynamic"
    return "none" if scaler.get_scale() == 1 else "static"


def state(scaler: Scaler) -> dict[str, Any]:
    """Return what the steps have changed of a scaler, between two steps."""
    return scaler.state_dict() if isinstance(scaler, torch.amp.GradScaler) else {}


def restore(scaler: Scaler, state: dict[str, Any]) -> None:
    """Bring a scaler of the same knobs to a state that it had, in place, between two steps."""
    if isinstance(scaler, torch.amp.GradScaler):
        scaler.load_state_dict(state)


def in_mid_step(scaler: Scaler) -> bool:
    """Return whether a step broke off between its unscale and its update."""
    return isinstance(scaler, torch.amp.GradScaler) and torch_internals.scaler_in_mid_step(scaler)
