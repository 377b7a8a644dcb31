"""What is measured at a step. Squares are summed in float64, so that norms are right from 1e-38 to 1e38; nothing hides a NaN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gradstudio.core.history import LAYER_METRICS
from gradstudio.engine import foreach


@dataclass(frozen=True, slots=True)
class Gradient:
    """The true gradient of a step. Arrays are float64, one entry a parameter tensor."""

    norm: float
    nonfinite: int
    norms: np.ndarray
    largest: np.ndarray
    zero_shares: np.ndarray
    nonfinite_shares: np.ndarray


@dataclass(frozen=True, slots=True)
class Change:
    """What an update did to the weights. Arrays are float64, one entry a parameter tensor."""

    weight_norm: float
    update_ratio: float
    weight_norms: np.ndarray
    update_ratios: np.ndarray


@torch.no_grad()
def norms(tensors: Sequence[Tensor]) -> Tensor:
    """L2 norm of each tensor: float64, (tensors,), on the CPU."""
    if tensors[0].device.type == "mps":  # which knows no float64
        tensors = [tensor.cpu() for tensor in tensors]
    return foreach.norms(tensors, torch.float64).cpu()


def norm(tensors: Sequence[Tensor]) -> float:
    """L2 norm of all tensors together."""
    return total(norms(tensors))


def total(each: Tensor) -> float:
    """The norm of a whole from the norms of its parts, as torch.nn.utils.get_total_norm sums them."""
    return torch.linalg.vector_norm(each).item()


@torch.no_grad()
def measure_gradient(grads: Sequence[Tensor], scale: float = 1.0) -> Gradient:
    """Measure gradients that still carry the factor `scale` as if they did not."""
    each = norms(grads)
    sizes = np.array([grad.numel() for grad in grads], dtype=np.float64)
    nonzero = torch.stack([torch.count_nonzero(grad) for grad in grads]).cpu().numpy()
    largest = foreach.largest(grads).cpu().double().numpy()
    nonfinite = np.zeros(len(grads))
    if not torch.isfinite(each).all():  # a sum in float64 is finite where every entry is
        nonfinite = sizes - torch.stack([torch.isfinite(grad).sum() for grad in grads]).cpu().numpy()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a loss scale can fall to 0
        return Gradient(
            norm=float(np.divide(total(each), scale)),
            nonfinite=int(nonfinite.sum()),
            norms=each.numpy() / scale,
            largest=largest / scale,
            zero_shares=1 - nonzero / sizes,
            nonfinite_shares=nonfinite / sizes,
        )


@torch.no_grad()
def measure_change(before: Sequence[Tensor], after: Sequence[Tensor]) -> Change:
    """Measure weights before and after an update."""
    weights, moves = norms(before), norms(foreach.subtract(after, before))
    weight_norm, move = total(weights), total(moves)
    return Change(weight_norm, float(ratio(move, weight_norm)), weights.numpy(), ratio(moves.numpy(), weights.numpy()))


def ratio(move: np.ndarray | float, weight: np.ndarray | float) -> np.ndarray:
    """Norm of a change / norm of what changed. Weights that are all 0 have moved by inf times themselves, or by 0 times
    where they stayed."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        divided = np.divide(move, weight)
    return np.where(np.equal(weight, 0) & np.equal(move, 0), 0.0, divided)


def by_layer(gradient: Gradient, change: Change) -> np.ndarray:
    """(metrics, layers) in the order of history.LAYER_METRICS."""
    metrics = {
        "grad_norm": gradient.norms,
        "weight_norm": change.weight_norms,
        "update_ratio": change.update_ratios,
        "largest_grad": gradient.largest,
        "zero_share": gradient.zero_shares,
        "nonfinite_share": gradient.nonfinite_shares,
    }
    return np.stack([metrics[name] for name in LAYER_METRICS])
