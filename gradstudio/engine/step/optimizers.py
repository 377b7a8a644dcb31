"""Optimizers, by their name in optimizer.kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gradstudio.core.combinations import WHOLE_TENSORS
from gradstudio.core.experiment import Experiment
from gradstudio.core.sections import loop_knobs
from gradstudio.engine.models.parametrization import rate_factor, ratio
from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.step.recent_optimizers import Lion, Muon, ScheduleFree, StableAdamW
from gradstudio.engine.torch_internals import plain_optimizers

ALPHA = 0.99  # decay of RMSprop's running mean of squared gradients, which no knob sets: torch's default


def groups(knobs: loop_knobs.Optimizer) -> dict[str, object]:
    """Return the values of the live knobs under torch's names, for this kind of optimizer."""
    common: dict[str, object] = {"lr": knobs.lr, "weight_decay": knobs.weight_decay}
    if knobs.kind in ("adam", "adamw", "muon", "stable_adamw", "schedule_free"):
        return common | {"betas": (knobs.beta1, knobs.beta2), "eps": knobs.eps}
    if knobs.kind == "lion":
        return common | {"betas": (knobs.beta1, knobs.beta2)}
    if knobs.kind == "rmsprop":
        return common | {"momentum": knobs.momentum, "eps": knobs.eps, "alpha": ALPHA}
    return common | {"momentum": knobs.momentum}


OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "lion": Lion,
    "muon": Muon,
    "stable_adamw": StableAdamW,
    "schedule_free": ScheduleFree,
}


_DISCRIMINATOR = "discriminator"  # marker of a group of its weights
_FACTOR = "rate_factor"  # on the learning rate of a group, if it has one
_OTHERS = "others"  # marker of a group that AdamW trains beside Muon


def build(flat: Flat, knobs: Experiment) -> torch.optim.Optimizer:
    """Build an optimizer of all weights in one flat tensor, which it treats entry by entry. The two players of a gan
    have a group each; under muP each stretch of adjacent weights with the same rate has one."""
    parts: list[dict[str, object]] = [{"params": [flat.weights]}]
    if knobs.model.kind == "gan":
        names = [name for name, _ in flat.named]
        cut = int(flat.layout.starts[next(at for at, name in enumerate(names) if name.startswith(_DISCRIMINATOR))])
        parts = [{"params": [flat.part(slice(cut))]}, {"params": [flat.part(slice(cut, None))], _DISCRIMINATOR: True}]
    elif knobs.optimizer.kind in WHOLE_TENSORS:
        parts = _of_one_tensor(flat, muon=knobs.optimizer.kind == "muon")
    elif ratio(knobs.model) != 1 and knobs.studio_file is None:
        parts = _of_one_rate(flat, knobs)
    kind = plain_optimizers.without_compiler(OPTIMIZERS[knobs.optimizer.kind])
    # torch's own choice for each device, made explicit: the two ways round differently on a GPU.
    return kind(parts, foreach=flat.weights.is_cuda, **groups(knobs.optimizer))


def rate_factors(flat: Flat, knobs: Experiment) -> list[float]:
    """Return the factor on the learning rate of each tensor."""
    if knobs.studio_file is not None:
        return [1.0] * len(flat.named)
    return [rate_factor(name, weight, knobs.model, knobs.optimizer.kind) for name, weight in flat.named]


def _of_one_rate(flat: Flat, knobs: Experiment) -> list[dict[str, object]]:
    """Return a group for each stretch of weights with the same rate."""
    starts, factors = [int(start) for start in flat.layout.starts], rate_factors(flat, knobs)
    begins = [at for at in range(len(factors)) if at == 0 or factors[at] != factors[at - 1]]
    ends = [*(starts[at] for at in begins[1:]), None]
    return [
        {"params": [flat.part(slice(starts[at], end))], _FACTOR: factors[at]}
        for at, end in zip(begins, ends, strict=True)
    ]


def _of_one_tensor(flat: Flat, *, muon: bool) -> list[dict[str, object]]:
    """Return a group for each tensor, in its own shape. Muon trains all matrices except the first and the last."""
    matrices = [at for at, weight in enumerate(flat.parameters) if weight.ndim > 1][1:-1]
    parameter_groups: list[dict[str, object]] = []
    for at, (weight, grad) in enumerate(zip(flat.parameters, flat.grads, strict=True)):
        leaf = torch.nn.Parameter(weight.data, requires_grad=False)
        leaf.grad = grad
        parameter_groups.append({"params": [leaf], **({_OTHERS: at not in matrices} if muon else {})})
    return parameter_groups


def set_rates(optimizer: torch.optim.Optimizer, knobs: loop_knobs.Optimizer, share: float) -> float:
    """Set the learning rates for the next update, given the schedule's share of optimizer.lr. Return that of the first
    group."""
    for group in optimizer.param_groups:
        factor = knobs.discriminator_factor if group.get(_DISCRIMINATOR) else 1.0
        rate = knobs.adamw_lr if group.get(_OTHERS) else knobs.lr
        group["lr"] = rate * factor * group.get(_FACTOR, 1.0) * share
    return knobs.lr * share


def averaged_weights(optimizer: torch.optim.Optimizer) -> Tensor | None:
    """Return the mean of the weights, flat, if the tests use it in place of the weights; None otherwise."""
    kept = state(optimizer) if isinstance(optimizer, ScheduleFree) else {}
    return kept.get("x")


def state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the optimizer's state for all weights, as if they were one group: copies, each of one dimension, or a
    count that all groups have in common. The first tensor is one that Muon leaves to AdamW, so it has all kinds of
    state."""
    states = [optimizer.state[parameter] for group in optimizer.param_groups for parameter in group["params"]]
    return {
        name: torch.cat([each[name].flatten() for each in states if name in each])
        if isinstance(value, Tensor) and value.dim()
        else value.clone()
        if isinstance(value, Tensor)
        else value
        for name, value in states[0].items()
    }


def restore(optimizer: torch.optim.Optimizer, kept: Mapping[str, Any]) -> None:
    """Give an optimizer the state that `state` returned."""
    starts = dict.fromkeys(kept, 0)
    for group in optimizer.param_groups:
        names = [name for name in kept if group.get(_OTHERS, True) or name == "exp_avg"]
        for parameter in group["params"]:
            new_state = optimizer.state[parameter] = {}
            for name in names:
                value, start = kept[name], starts[name]
                if isinstance(value, Tensor) and value.dim():
                    starts[name] += parameter.numel()
                    value = value[start : starts[name]].view_as(parameter)
                new_state[name] = value.clone() if isinstance(value, Tensor) else value


def change(optimizer: torch.optim.Optimizer, knobs: loop_knobs.Optimizer) -> None:
    """Apply these values to a running optimizer. The schedule writes the learning rate at every step."""
    for group in optimizer.param_groups:
        group.update(groups(knobs))
        if knobs.kind == "rmsprop" and knobs.momentum > 0:
            # SGD creates its momentum buffer when it is first needed; RMSprop only at its very first step, and fails
            # without.
            for parameter in group["params"]:
                if optimizer.state[parameter]:
                    optimizer.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))


class Updates:
    """Counts the updates of an optimizer. An update that a loss scaler skipped does not count."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.made = 0
        update = plain_optimizers.plain_step(optimizer)
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
