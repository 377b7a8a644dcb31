"""Number formats of the forward pass, and the loss scale that lifts small fp16 gradients over the underflow."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from gradstudio.core.experiment import Precision
from gradstudio.core.knobs import KnobError
from gradstudio.engine.runtime import out_of_memory

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(knobs: Precision, device: str) -> AbstractContextManager:
    """The context for a forward pass: torch's autocast, or nothing in fp32."""
    if knobs.dtype == "fp32":
        return nullcontext()
    return torch.autocast(torch.device(device).type, DTYPES[knobs.dtype])


class StaticScaler:
    """A fixed factor on the loss, divided out of the gradients, without any check: what people write by hand. It has the
    methods of torch's GradScaler that a training loop calls; without a scale it does nothing at all."""

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
    """torch's own scaler. It halves its scale and skips the update at an overflow, and doubles it after a quiet while."""
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


def build_scaler(knobs: Precision, device: str) -> Scaler:
    """A fresh scaler. Only fp16 has one: the range of bf16 and fp32 needs none."""
    return SCALERS[knobs.scaling if knobs.dtype == "fp16" else "none"](knobs, device)


def change_scaler(scaler: Scaler, before: Precision, knobs: Precision, device: str) -> Scaler:
    """The scaler to go on with after the values `before` became `knobs`: a new number format or kind of scaling begins anew at
    init_scale."""
    if (before.dtype, before.scaling) != (knobs.dtype, knobs.scaling):
        return build_scaler(knobs, device)
    if isinstance(scaler, torch.amp.GradScaler):
        scaler.set_growth_interval(knobs.growth_interval)
    return scaler


def state(scaler: Scaler) -> dict[str, float]:
    """What a scaler's steps have changed of it, between two steps."""
    return scaler.state_dict() if isinstance(scaler, torch.amp.GradScaler) else {}


def restore(scaler: Scaler, state: dict[str, float]) -> None:
    """Bring a scaler of the same knobs to a state that it had, in place, between two steps."""
    if isinstance(scaler, torch.amp.GradScaler):
        scaler.load_state_dict(state)


def in_mid_step(scaler: Scaler) -> bool:
    """Whether a step broke off between its unscale and its update."""
    return isinstance(scaler, torch.amp.GradScaler) and bool(scaler._per_optimizer_states)


def possible(model: nn.Module, sample: Tensor, knobs: Precision, device: str) -> str:
    """Why the model cannot train in this number format on this device, as torch says it; empty where it can. It is tried, on a
    copy, for what torch can do differs from processor to processor."""
    if knobs.dtype == "fp32":
        return ""
    try:
        trial = copy.deepcopy(model).to(device)
        with autocast(knobs, device):
            outputs = trial(sample[:2].to(device))
        outputs.float().sum().backward()
    except (RuntimeError, NotImplementedError) as fault:
        if out_of_memory(fault):
            raise
        return str(fault).strip().partition("\n")[0].partition(". ")[0]  # the rest is advice about torch's own environment
    return ""


def check(model: nn.Module, sample: Tensor, knobs: Precision, device: str, kind: str) -> None:
    """KnobError where `possible` finds a reason; it says which number formats there are instead."""
    reason = possible(model, sample, knobs, device)
    if reason:
        others = [dtype for dtype in ("bf16", "fp32") if not possible(model, sample, knobs.model_copy(update={"dtype": dtype}), device)]
        raise KnobError(
            f"precision.dtype = {knobs.dtype} is not allowed with model.kind = {kind} on {device}, where torch cannot do it ({reason[:120]}); "
            f"allowed: {', '.join(others)}, or another model.kind or run.device"
        )


def scales(scaler: Scaler) -> Literal["dynamic", "static", "none"]:
    """What a scaler really does."""
    if isinstance(scaler, torch.amp.GradScaler):
        return "dynamic"
    return "none" if scaler.get_scale() == 1 else "static"
