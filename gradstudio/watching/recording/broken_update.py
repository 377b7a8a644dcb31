"""The birth of a NaN or Inf in an update of the weights, if the gradient was finite after the backward pass."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from gradstudio.core.provenance import Operation, Provenance
from gradstudio.core.row import Layer
from gradstudio.core.text import join_with_and, number
from gradstudio.core.unknown import is_known
from gradstudio.engine.operation_watcher import together, values_of
from gradstudio.watching.steps.measured_step import MeasuredStep

MOST_NAMED = 3  # tensors


def born_in_update(
    measured_step: MeasuredStep, optimizer: str, layers: Sequence[Layer], tensors: Sequence[Tensor]
) -> Provenance | None:
    """Return where the non-finite weights were born: in the update of a step, or before it if the previous step was not
    measured. None if they are finite again, as the script has corrected them. `optimizer` is the name of its class, ""
    if the script updates the weights itself."""
    held = [(layer, values_of(tensor)) for layer, tensor in zip(layers, tensors, strict=True)]
    broken = [(layer, values) for layer, values in held if not values.finite]
    if not broken:
        return None
    texts = [f"{values.broken} in {layer.name}" for layer, values in broken[:MOST_NAMED]]
    if more := len(broken) - len(texts):
        texts.append(f"some in {more:,} more")
    whole = together([values for _, values in broken])
    norm, names = measured_step.clipped_norm, tuple(layer.name for layer, _ in broken)
    if math.isfinite(measured_step.change.weight_norm):
        name, cause, before = optimizer or "the script's own code", f"the update left {join_with_and(texts)}", (0, 0)
        taken = f"weights of norm {number(measured_step.change.weight_norm)}; {_gradient(norm)}"
    else:
        name, taken, before = names[0], "", (whole.nan, whole.inf)
        cause = f"{join_with_and(texts)}, which an update since the row before or the script made"
    dtype = str(tensors[0].dtype).removeprefix("torch.")
    largest = norm if math.isfinite(norm) else math.nan
    operation = Operation("update", "", name, "", dtype, largest, *before, math.nan, whole.nan, whole.inf)
    return Provenance(measured_step.step, "update", "", name, cause, 0, 1, None, names, (operation,), taken=taken)


def _gradient(norm: float) -> str:
    """Return what is known of the gradient that the optimizer received."""
    if not is_known(norm):
        return "a gradient of which no norm is known"
    if math.isfinite(norm):
        return f"a gradient of norm {number(norm)}"
    return f"a gradient that was finite after the backward pass, and has the norm {number(norm)} here"
