"""The rule that turns gradients into a change of the weights: torch's own, by the name that optimizer.kind gives it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch.nn import Parameter

from gradstudio.core import experiment


def groups(knobs: experiment.Optimizer) -> dict[str, object]:
    """What torch calls the knobs that can change live, for the kind of optimizer they are for."""
    common: dict[str, object] = {"lr": knobs.lr, "weight_decay": knobs.weight_decay}
    if knobs.kind in ("adam", "adamw"):
        return common | {"betas": (knobs.beta1, knobs.beta2), "eps": knobs.eps}
    if knobs.kind == "rmsprop":
        return common | {"momentum": knobs.momentum, "eps": knobs.eps}
    return common | {"momentum": knobs.momentum}


def _without_compiler(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """The same optimizer. torch wraps this method so that its compiler leaves it alone, and the first call imports that compiler for it."""
    return type(kind.__name__, (kind,), {"add_param_group": inspect.unwrap(kind.add_param_group)})


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": _without_compiler(torch.optim.SGD),
    "adam": _without_compiler(torch.optim.Adam),
    "adamw": _without_compiler(torch.optim.AdamW),
    "rmsprop": _without_compiler(torch.optim.RMSprop),
}


def build(weights: Parameter, knobs: experiment.Optimizer) -> torch.optim.Optimizer:
    """Over all weights in one flat tensor: what an optimizer does, it does to each entry by itself."""
    return OPTIMIZERS[knobs.kind]([weights], foreach=False, **groups(knobs))


def change(optimizer: torch.optim.Optimizer, knobs: experiment.Optimizer) -> None:
    """Bring a running optimizer to these values. The learning rate is written at every step by the schedule."""
    for group in optimizer.param_groups:
        group.update(groups(knobs))
        if knobs.kind == "rmsprop" and knobs.momentum > 0:
            # SGD makes its momentum buffer when it is first needed; RMSprop only at its very first step, and fails without.
            for parameter in group["params"]:
                if optimizer.state[parameter]:
                    optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))


class Updates:
    """Counts the updates that an optimizer really made. One that a loss scaler skipped is none."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.made = 0
        # torch wraps the method for its profiler and for differentiable optimizers, which takes as long as an update of a small model.
        self._update = inspect.unwrap(type(optimizer).step)
        self._optimizer = optimizer
        optimizer.step = self._step  # which a GradScaler calls

    def _step(self) -> None:
        self._update(self._optimizer)
        self.made += 1
