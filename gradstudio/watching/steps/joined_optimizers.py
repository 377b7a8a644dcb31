"""Several optimizers of one model, treated as one: they step after the same backward pass, such as Muon and AdamW, or
within it, each as soon as the gradients of its own parameters are there."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.optim import Optimizer

from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.watching.measuring.device_parameters import parameters_of
from gradstudio.watching.measuring.parameters import NOT_MEASURED, Change, Gradient, Parameters
from gradstudio.watching.script import model_layers
from gradstudio.watching.steps.measured_step import MeasuredStep


class JoinedOptimizers:
    """Has the groups of all, those of the one with the most parameters first. `on_gone` is called once all are gone."""

    def __init__(self, members: Sequence[Optimizer], on_gone: Callable[[], None]) -> None:
        by_size = sorted(members, key=lambda each: -sum(map(Tensor.numel, model_layers.of_optimizer(each))))
        self._on_gone = on_gone
        self._members = [weakref.ref(each, self._one_gone) for each in by_size]
        self._ids = {id(each): reference for each, reference in zip(by_size, self._members, strict=True)}
        self.skipped: dict[int, bool] = {}  # for those that have stepped, whether their update was skipped

    def _one_gone(self, _: object) -> None:
        if not self.members:
            self._on_gone()

    @property
    def members(self) -> list[Optimizer]:
        return [member for each in self._members if (member := each()) is not None]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for each in self.members for group in each.param_groups]

    def alive(self) -> JoinedOptimizers | None:
        """Return itself while one of them exists, like a weak reference."""
        return self if self.members else None

    def has(self, optimizer: Optimizer) -> bool:
        return (reference := self._ids.get(id(optimizer))) is not None and reference() is optimizer

    def on_step(self, optimizer: Optimizer, *, skipped: bool) -> bool:
        """One of the optimizers has stepped. Return whether all have."""
        self.skipped[id(optimizer)] = skipped
        return all(id(each) in self.skipped for each in self.members)


def main_of(optimizer: Optimizer | JoinedOptimizers | None) -> Optimizer | None:
    """Return the one of several that has the most parameters."""
    return next(iter(optimizer.members), None) if isinstance(optimizer, JoinedOptimizers) else optimizer


def members_of(optimizer: Optimizer | JoinedOptimizers | None) -> list[Optimizer]:
    if isinstance(optimizer, JoinedOptimizers):
        return optimizer.members
    return [] if optimizer is None else [optimizer]


def kind_of(optimizer: Optimizer | JoinedOptimizers | None) -> str:
    """Return the name of its class; 'Muon and AdamW' for several, "" for none."""
    return " and ".join(dict.fromkeys(type(each).__name__ for each in members_of(optimizer)))


class Parts:
    """The inputs and effects of several optimizers within one backward pass."""

    def __init__(self, optimizers: Sequence[Optimizer], tensors: Sequence[Tensor], *, updates: bool) -> None:
        place = {id(tensor): index for index, tensor in enumerate(tensors)}
        self._of: dict[int, tuple[Parameters, list[int]]] = {}
        for each in optimizers:
            own = [tensor for tensor in model_layers.of_optimizer(each) if id(tensor) in place]
            self._of[id(each)] = parameters_of(own), [place[id(tensor)] for tensor in own]
        self._updates, self._count = updates, len(tensors)
        self._gradients: dict[int, tuple[Gradient, float]] = {}
        self._changes: dict[int, Change] = {}

    def before(self, optimizer: Optimizer) -> Gradient:
        """Measure the gradient that an optimizer receives, and copy its weights."""
        parameters, _ = self._of[id(optimizer)]
        gradient = parameters.measure_gradient()
        self._gradients[id(optimizer)] = gradient, parameters.keep_weights_and_norm(keep=self._updates)
        return gradient

    def after(self, optimizer: Optimizer) -> bool:
        """Measure its effect. Return whether it has begun within this pass."""
        if (got := self._gradients.get(id(optimizer))) is None:
            return False
        parameters, _ = self._of[id(optimizer)]
        got[0].layers[1:3] = UNKNOWN
        self._changes[id(optimizer)] = parameters.measure_change(got[0].layers) if self._updates else NOT_MEASURED
        parameters.release()
        return True

    def whole(self) -> tuple[Gradient, Change, float] | None:
        """Return the gradient, the change and the norm after clipping of all that have stepped; None if none has. The
        next pass begins."""
        if not self._changes:
            return None
        layers = np.zeros((len(LAYER_METRICS), self._count), np.float32)
        layers[list(LAYER_METRICS).index("cut_share")] = UNKNOWN
        for key in self._changes:
            layers[:, self._of[key][1]] = self._gradients[key][0].layers
        gradients, norms = zip(*(self._gradients[key] for key in self._changes), strict=True)
        totals = _gradient(gradients, layers), _change([*self._changes.values()]), _root(norms)
        self._gradients.clear()
        self._changes.clear()
        return totals


def together(measured_steps: Sequence[MeasuredStep], places: Sequence[Sequence[int]]) -> MeasuredStep:
    """Return steps that were made after one backward pass as one; `places` are the indices of the layers of each."""

    def of_all(parts: Sequence[Gradient]) -> Gradient:
        layers = np.zeros((len(LAYER_METRICS), sum(map(len, places))), np.float32)
        for part, own in zip(parts, places, strict=True):
            layers[:, own] = part.layers
        return _gradient(parts, layers)

    first = measured_steps[0]
    unused, after = (
        [each.unused for each in measured_steps],
        [each.after for each in measured_steps if each.after is not None],
    )
    return first._replace(
        gradient=of_all([each.gradient for each in measured_steps]),
        after=of_all(after) if len(after) == len(measured_steps) else None,
        change=_change([each.change for each in measured_steps]),
        clipped_norm=_root(each.clipped_norm for each in measured_steps),
        skipped=any(each.skipped for each in measured_steps),
        left_out=any(each.left_out for each in measured_steps),
        unused=None if None in unused else tuple(name for names in unused for name in names or ()),
    )


def _gradient(parts: Sequence[Gradient], layers: np.ndarray) -> Gradient:
    return Gradient(_root(part.norm for part in parts), sum(part.nonfinite for part in parts), layers)


def _change(parts: Sequence[Change]) -> Change:
    return Change(
        _root(part.weight_norm for part in parts), _root(part.norm for part in parts),
        sum(part.along_gradient for part in parts) if all(is_known(part.along_gradient) for part in parts) else UNKNOWN,
    )  # fmt: skip


def _root(norms: Any) -> float:
    """Return the norm of a whole from those of its parts; UNKNOWN if one is."""
    squares = [norm * norm if is_known(norm) else UNKNOWN for norm in norms]
    return math.sqrt(sum(squares)) if all(map(is_known, squares)) else UNKNOWN
