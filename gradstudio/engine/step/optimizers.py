"""Optimizers: torch's own, by the name that optimizer.kind gives them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import Parameter

from gradstudio.core import experiment
from gradstudio.engine import torch_internals

ALPHA = 0.99  # decay of RMSprop's running mean of squared gradients, which no knob sets: torch's default


def groups(knobs: experiment.Optimizer) -> dict[str, object]:
    """Return the values of the live knobs under torch's names, for this kind of optimizer."""
    common: dict[str, object] = {"lr": knobs.lr, "weight_decay": knobs.weight_decay}
    if knobs.kind in ("adam", "adamw"):
        return common | {"betas": (knobs.beta1, knobs.beta2), "eps": knobs.eps}
    if knobs.kind == "rmsprop":
        return common | {"momentum": knobs.momentum, "eps": knobs.eps, "alpha": ALPHA}
    return common | {"momentum": knobs.momentum}


OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}


def build(weights: Parameter, knobs: experiment.Optimizer) -> torch.optim.Optimizer:
    """Build an optimizer of all weights in one flat tensor, which it treats entry by entry."""
    return torch_internals.without_compiler(OPTIMIZERS[knobs.kind])([weights], foreach=False, **groups(knobs))


def change(optimizer: torch.optim.Optimizer, knobs: experiment.Optimizer) -> None:
    """Bring a running optimizer to these values. The schedule writes the learning rate at every step."""
    for group in optimizer.param_groups:
        group.update(groups(knobs))
        if knobs.kind == "rmsprop" and knobs.momentum > 0:
            # SGD makes its momentum buffer when it is first needed; RMSprop only at its very first step, and fails
            # without.
            for parameter in group["params"]:
                if optimizer.state[parameter]:
                    optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))


class Updates:
    """Counts the updates that an optimizer made. An update that a loss scaler skipped does not count."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.made = 0
        update = torch_internals.plain_step(optimizer)
        if update is None:
            optimizer.register_step_post_hook(lambda *_: self._count())
        else:
            self._update, self._optimizer = update, optimizer
            optimizer.step = self._step  # which a GradScaler calls

    def _step(self, closure: Any = None) -> Any:
        self._update(self._optimizer)
        self.made += 1

    def _count(self) -> None:
        self.made += 1
