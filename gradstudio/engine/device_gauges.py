"""What gauges.py measures, summed on the device that trains, so that a few numbers are to be copied and not whole tensors.

Squares and counts are summed in float64 by an operation that gives the same bits each time and for which the host does not wait:
torch.segment_reduce, which on CUDA is CUB's segmented reduction. Tensors are summed in pieces, so that no part of the device gets a whole
large one, and the pieces are put together when they are read. Roots, shares and ratios are made then too, as gauges.py makes them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gradstudio.engine.flat import Layout
from gradstudio.engine.gauges import Change, Gradient, ratio, total

PIECE = 4096  # entries at the most
MOST = 7  # flat tensors that are summed for a step: of the gradient squares, zeros and non-finite entries; squares of what is made of it
# before and after clipping, of the weights and of their change


class DeviceGauges:
    """Measures flat tensors of one layout, a step at a time: first `measure_gradient`, then `measure` what else there is and
    `measure_change`, then `figures`. Takes 8 * MOST bytes a weight on the device."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        bounds, firsts = [], []
        for start, stop in zip(layout.starts.tolist(), layout.stops.tolist(), strict=True):
            firsts.append(len(bounds))
            bounds += range(start, stop, PIECE)
            firsts.append(len(bounds))
            bounds.append(stop)  # what lies between two tensors is a piece too, which nobody reads
        offsets = torch.tensor([[row * layout.length + bound for bound in bounds] for row in range(MOST)])
        self._offsets = torch.cat([offsets.flatten(), torch.tensor([MOST * layout.length])]).to(device)
        self._firsts, self._pieces, self._sizes, self._length = np.array(firsts), len(bounds), layout.sizes, layout.length
        self._summed = torch.zeros(MOST, layout.length, dtype=torch.float64, device=device)
        self._largest = torch.empty(0)
        self._names: list[str] = []

    def measure_gradient(self, gradient: Tensor) -> None:
        """Of a gradient (length,): squares, zeros, non-finite and largest entries."""
        self._names = []
        self.measure("gradient", gradient)
        torch.eq(gradient, 0, out=self._next("zeros"))
        torch.ne(gradient - gradient, 0, out=self._next("nonfinite"))  # NaN - NaN and Inf - Inf are NaN, which differs from 0
        self._largest = torch.segment_reduce(gradient.abs(), "max", offsets=self._offsets[: self._pieces + 1], unsafe=True)

    def measure(self, name: str, flat: Tensor) -> None:
        """Squares of a flat tensor (length,), to be read under this name."""
        self._next(name).copy_(flat)

    def measure_change(self, before: Tensor, after: Tensor) -> None:
        """Squares of weights before an update, and of what it made of them."""
        weights = self._next("weights").copy_(before)
        torch.sub(after, weights, out=self._next("moves"))

    def figures(self, beside: Sequence[Tensor]) -> tuple[tuple[str, ...], Tensor]:
        """What was measured: how its parts are called, and its numbers with those `beside` it behind them, float64, (figures,), on the device."""
        rows = len(self._names)
        summed = self._summed[:rows].view(-1)
        summed.mul_(summed)  # a count of 0 or 1 is its own square
        sums = torch.segment_reduce(summed, "sum", offsets=self._offsets[: rows * self._pieces + 1], unsafe=True)
        return tuple(self._names), torch.cat([sums, self._largest, *beside])

    def read(self, names: Sequence[str], figures: np.ndarray) -> tuple[Gradient, Change, dict[str, float], np.ndarray]:
        """The gradient's measures, those of the change of the weights, all norms by their names, and what was put beside them."""
        count = len(names) * self._pieces
        sums = np.add.reduceat(figures[:count].reshape(len(names), -1), self._firsts, axis=1)[:, ::2]
        each = dict(zip(names, sums, strict=True))
        norms = {name: np.sqrt(squares) for name, squares in each.items()}
        totals = {name: total(parts) for name, parts in norms.items()}
        largest = np.maximum.reduceat(figures[count : count + self._pieces], self._firsts)[::2]
        gradient = Gradient(
            totals["gradient"], int(each["nonfinite"].sum()), norms["gradient"], largest, each["zeros"] / self._sizes, each["nonfinite"] / self._sizes
        )
        change = Change(
            totals["weights"], float(ratio(totals["moves"], totals["weights"])), norms["weights"], ratio(norms["moves"], norms["weights"])
        )
        return gradient, change, totals, figures[count + self._pieces :]

    def _next(self, name: str) -> Tensor:
        self._names.append(name)
        return self._summed[len(self._names) - 1]
