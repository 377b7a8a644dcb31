"""Gauges of plug-ins: numbers computed from the model, measured periodically and stored beside the rows."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

from gradstudio.core import plugins


def measure(model: nn.Module | None, step: int) -> tuple[tuple[str, float], ...]:
    """Return name and value of every gauge that is due after a step."""
    if model is None or not plugins.names("gauges"):
        return ()
    values: list[tuple[str, float]] = []
    with torch.no_grad():
        for name in plugins.names("gauges"):
            value = plugins.attempt("gauges", name, lambda name=name: _measure(_make(name), model, step))
            if value is not None:
                values.append((name, value))
    return tuple(values)


def _measure(gauge: Any, model: nn.Module, step: int) -> float | None:
    every = int(getattr(gauge, "every", 1))
    return float(gauge.measure(model)) if step % every == 0 else None


@cache
def _make(name: str) -> Any:
    return plugins.get("gauges", name)()
