"""The birth of a NaN or Inf in an update: the optimizer made it of finite weights and a gradient that the backward pass
left finite."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from gradstudio.core.history import Layer
from gradstudio.core.provenance import Operation, Provenance
from gradstudio.core.text import listed, number
from gradstudio.core.unknown import is_known
from gradstudio.engine.operation_watcher import values_of
from gradstudio.watching.measured_step import MeasuredStep

MOST_NAMED = 3  # tensors


def born_in_update(
    made: MeasuredStep, optimizer: str, layers: Sequence[Layer], tensors: Sequence[Tensor]
) -> Provenance | None:
    """Return where what is not finite was born in an update that broke the weights; None where they are finite again,
    as the script has mended them."""
    held = [(layer, values_of(tensor)) for layer, tensor in zip(layers, tensors, strict=True)]
    broken = [(layer, values) for layer, values in held if not values.finite]
    if not broken:
        return None
    told = [
        " and ".join([f"{values.nan:,} NaN"] * bool(values.nan) + [f"{values.inf:,} Inf"] * bool(values.inf))
        + f" in {layer.name}"
        for layer, values in broken[:MOST_NAMED]
    ]
    if more := len(broken) - len(told):
        told.append(f"some in {more:,} more")
    norm = made.clipped_norm
    gradient = (
        "a gradient of which no norm is known"
        if not is_known(norm)
        else f"a gradient of norm {number(norm)}"
        if math.isfinite(norm)
        else f"a gradient that was finite after the backward pass, and has the norm {number(norm)} here"
    )
    nan, inf = (sum(getattr(values, kind) for _, values in broken) for kind in ("nan", "inf"))
    operation = Operation(
        "update", "", optimizer or "step", "", str(tensors[0].dtype).removeprefix("torch."),
        norm if math.isfinite(norm) else math.nan, 0, 0, math.nan, nan, inf,
    )  # fmt: skip
    return Provenance(
        made.step, "update", "", operation.name, f"the update left {listed(told)}", 0, 1, None,
        tuple(layer.name for layer, _ in broken), (operation,),
        taken=f"weights of norm {number(made.change.weight_norm)}; {gradient}",
    )  # fmt: skip
