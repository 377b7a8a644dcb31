"""Optimizers without torch's wrappers, its hooks before their steps, and the loss scaler's position within a step."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from gradstudio.engine.torch_internals.internal import SLOW_START, SLOWER, Internal, check

OptimizerClass = Callable[..., torch.optim.Optimizer]  # called with the weights and the values of its knobs


def _check_without_compiler(call: Callable[[], object]) -> None:
    before = "torch._dynamo" in sys.modules
    call()
    check(before or "torch._dynamo" not in sys.modules)


def _strip_groups(kind: type[torch.optim.Optimizer]) -> OptimizerClass:
    return type(kind.__name__, (kind,), {"add_param_group": inspect.unwrap(kind.add_param_group)})


def _find_plain_groups() -> Callable[[type[torch.optim.Optimizer]], OptimizerClass]:
    weight, kind = nn.Parameter(torch.ones(1)), _strip_groups(torch.optim.SGD)
    _check_without_compiler(lambda: check(kind([weight]).param_groups[0]["params"][0] is weight))
    return _strip_groups


def _find_plain_step() -> Callable[[torch.optim.Optimizer], Callable[..., object]]:
    weight = nn.Parameter(torch.ones(1), requires_grad=False)
    weight.grad = torch.ones(1)
    optimizer = without_compiler(torch.optim.SGD)([weight], lr=0.5, foreach=False)
    step = inspect.unwrap(type(optimizer).step)
    _check_without_compiler(lambda: step(optimizer))
    check(weight.tolist() == [0.5])
    called: list[int] = []

    def count(closure: Any = None) -> Any:
        called.append(1)

    optimizer.step = count
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
    scaler.scale(weight.sum())
    scaler.step(optimizer)
    check(called == [1])  # a GradScaler calls the method that replaces torch's
    return lambda of: inspect.unwrap(type(of).step)


def _find_scaler_states() -> Callable[[torch.amp.GradScaler], bool]:
    weight = torch.ones(1, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(weight.sum()).backward()
    check(not scaler._per_optimizer_states)
    scaler.unscale_(SimpleNamespace(param_groups=[{"params": [weight]}]))  # pyright: ignore[reportArgumentType]
    check(bool(scaler._per_optimizer_states))
    return lambda of: bool(of._per_optimizer_states)


PLAIN_GROUPS = Internal(
    "Optimizer.add_param_group.__wrapped__", "torch's compiler is loaded", SLOW_START, _find_plain_groups
)
PLAIN_STEP = Internal("Optimizer.step.__wrapped__", "Updates go through torch's wrappers", SLOWER, _find_plain_step)

SCALER_STATES = Internal(
    "GradScaler._per_optimizer_states", "A rewind in fp16 records its passes again", SLOWER, _find_scaler_states
)


@cache
def without_compiler(kind: type[torch.optim.Optimizer]) -> OptimizerClass:
    """Return the same kind of optimizer. torch wraps one of its methods to exclude it from its compiler, and the first
    call imports the compiler for that."""
    strip = PLAIN_GROUPS.get()
    return strip(kind) if strip else kind


def plain_step(optimizer: torch.optim.Optimizer) -> Callable[..., object] | None:
    """Return the function that makes an update, to be called with the optimizer; None if only optimizer.step() can.

    torch wraps it for its profiler and for differentiable optimizers, which takes as long as an update of a small
    model. If it is returned, a GradScaler also calls a method that replaces optimizer.step."""
    strip = PLAIN_STEP.get()
    return strip(optimizer) if strip else None


def scaler_in_mid_step(scaler: torch.amp.GradScaler) -> bool:
    """Return whether a step stopped between its unscale and its update. True if unknown."""
    look = SCALER_STATES.get()
    return look(scaler) if look else True


def hooks_of_step(optimizer: torch.optim.Optimizer) -> dict[int, Callable[..., Any]]:
    """Return the table of an optimizer's own hooks before a step, which torch calls after those of all optimizers; an
    unrelated one if torch keeps it elsewhere."""
    hooks: Any = getattr(optimizer, "_optimizer_step_pre_hooks", None)
    return {} if hooks is None else hooks
