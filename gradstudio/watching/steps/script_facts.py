"""Facts that are read from a user's training instead of declared: the loss of a backward pass, the optimizer and its
knobs, the number format."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import KnobError, Value
from gradstudio.core.row import Settings
from gradstudio.core.unknown import UNKNOWN, is_known
from gradstudio.watching.hooks.torch_hooks import Roots
from gradstudio.watching.measuring.device_parameters import PendingFigures

_DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64"}


def loss_of(roots: Roots) -> float:
    """Return the sum of the roots of a backward pass, without the loss scale; UNKNOWN if that is not a number."""
    if (loss := roots.loss) is not None:
        return loss
    if not roots.tensors:
        return UNKNOWN
    total = 0.0
    for root, gradient, unscaled in zip(roots.tensors, roots.gradients, roots.unscaled, strict=False):
        if root.numel() != 1 or not (is_known(roots.scale) or unscaled is not None):
            return UNKNOWN
        if not roots.scale:  # 0 times a number is 0, and times NaN or Inf it is NaN
            return math.nan if math.isnan(root.item()) else UNKNOWN
        loss = root.item() / roots.scale if unscaled is None else unscaled.item()
        total += loss * (1.0 if gradient is None else gradient.item())
    return total


def loss_later(roots: Roots) -> Callable[[], float]:
    """Start `loss_of`. Return a function that returns the loss, waiting for it if needed."""
    several = (*roots.tensors, *roots.gradients, *roots.unscaled)
    copies = [
        each if each is None or each.numel() != 1 else PendingFigures(each.detach().reshape(1)) for each in several
    ]

    def read() -> float:
        there: list[Any] = [
            torch.from_numpy(each.wait()) if isinstance(each, PendingFigures) else each for each in copies
        ]
        count = len(roots.tensors)
        parts = (tuple(there[first : first + count]) for first in (0, count, 2 * count))
        tensors, gradients, unscaled = parts
        return loss_of(replace(roots, tensors=tensors, gradients=gradients, unscaled=unscaled))

    return read


def rate_of(group: Mapping[str, Any]) -> float:
    """Return the learning rate of a parameter group; UNKNOWN if that is not a number, as for an optimizer that finds
    its own."""
    rate = group.get("lr")
    if type(rate) is float:  # mostly
        return rate
    if isinstance(rate, Tensor) and rate.numel() != 1:
        return UNKNOWN
    return float(rate) if isinstance(rate, (int, float, Tensor)) else UNKNOWN


def settings_of(
    optimizer: Optimizer | None, clipping: tuple[str, float], autocast: torch.dtype | None, tensors: Sequence[Tensor]
) -> Settings:
    """Return the settings with which a step treated its gradient."""
    group: Mapping[str, Any] = optimizer.param_groups[0] if optimizer else {}
    betas = group.get("betas") or (0.0, 0.0)
    kind = type(optimizer).__name__.lower() if optimizer else ""
    if kind == "adam" and group.get("decoupled_weight_decay"):
        kind = "adamw"  # the same under another name
    second = group.get("alpha") if kind == "rmsprop" else betas[1] if len(betas) > 1 else 0.0
    return Settings(
        clipping[0], clipping[1], dtype_name(autocast, tensors), kind,
        _number(group.get("momentum")), _number(betas[0]), _number(second),
        _number(group["weight_decay"]) if "weight_decay" in group else 0.0,
    )  # fmt: skip


class SettingsReader:
    """Reads the settings of each step of an optimizer, again only if their sources have changed."""

    def __init__(self) -> None:
        self._from: tuple[Any, ...] | None = None  # the sources of the latest result; None if they may change in place
        self._settings: Settings | None = None

    def read(
        self,
        optimizer: Optimizer | None,
        clipping: tuple[str, float],
        autocast: torch.dtype | None,
        tensors: Sequence[Tensor],
    ) -> Settings:
        """Return the result of `settings_of`."""
        group: Mapping[str, Any] = optimizer.param_groups[0] if optimizer else {}
        now = (*map(group.get, _READ), type(optimizer), clipping, autocast, tensors[0].dtype)
        if self._settings is None or now != self._from:
            betas: Sequence[Any] = group.get("betas") or ()
            plain = all(type(value) in _PLAIN for value in (*now, *betas))
            self._from = now if plain else None
            self._settings = settings_of(optimizer, clipping, autocast, tensors)
        return self._settings


_READ = ("momentum", "betas", "alpha", "weight_decay", "decoupled_weight_decay")
_PLAIN = (float, int, bool, tuple, type, type(None), torch.dtype)  # never changed in place


def dtype_name(autocast: torch.dtype | None, tensors: Sequence[Tensor]) -> str:
    """Return the number format of the forward pass."""
    return _DTYPES.get(autocast or tensors[0].dtype, str(autocast or tensors[0].dtype).removeprefix("torch."))


def experiment_of(settings: Settings, optimizer: Optimizer | None, micro_batches: int, scale: float) -> Experiment:
    """Return an experiment in which the knobs that could be read have their values, so that the rules offer no remedy
    that is already in force. The other knobs are meaningless."""
    group: Mapping[str, Any] = optimizer.param_groups[0] if optimizer else {}
    limit = {"norm": "clipping.max_norm", "value": "clipping.clip_value"}.get(settings.clipping, "")
    read: dict[str, Value] = {
        "optimizer.kind": settings.optimizer,
        "clipping.kind": settings.clipping,
        **({limit: settings.limit} if limit else {}),
        "accumulation.steps": max(micro_batches, 1),
        "precision.dtype": settings.dtype,
        "precision.scaling": "dynamic" if scale != 1 else "none",
        **{
            f"optimizer.{name}": _number(group[name])
            for name in ("lr", "momentum", "weight_decay", "eps")
            if name in group
        },
        **({"optimizer.beta1": settings.beta1, "optimizer.beta2": settings.beta2} if "betas" in group else {}),
    }
    experiment = Experiment()
    for name, value in read.items():
        try:
            experiment = experiment.with_value(name, value)
        except KnobError:
            continue  # a value that the studio's own knob does not have
    return experiment


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float, Tensor)) else 0.0
