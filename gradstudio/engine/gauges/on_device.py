"""The gauges of every_step.py, summed on the device that trains, so that only a few numbers are copied to the host.

Squares and counts are summed in float64 by torch.segment_reduce: it gives the same bits each time, and the host does
not wait for it. On CUDA it is CUB's segmented reduction. Tensors are summed in pieces, so that no part of the device
gets a whole large one. The pieces are put together when they are read, and roots, shares and ratios are taken then
too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gradstudio.engine.gauges.every_step import Change, Gradient, ratio, total
from gradstudio.engine.passes.flat import Layout
from gradstudio.engine.torch_internals import device_kernels

PIECE = 4096  # entries at the most
# Flat tensors that are summed for a step: squares, zeros and non-finite entries of the gradient; its squares before and
# after clipping; squares of the weights and of their change.
MOST = 7
# Inner products of two flat tensors: the gradient before and after clipping; the change of the weights and the
# gradient.
PAIRED = ("kept", "along_gradient")


class DeviceGauges:
    """Measures flat tensors of one layout, a step at a time: first `measure_gradient`, then `measure` what else there
    is and `measure_change`, then `figures`. Takes 8 * (MOST + len(PAIRED)) bytes a weight on the device."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        bounds, firsts = [], []
        for start, stop in zip(layout.starts.tolist(), layout.stops.tolist(), strict=True):
            firsts.append(len(bounds))
            bounds += range(start, stop, PIECE)
            firsts.append(len(bounds))
            bounds.append(stop)  # what lies between two tensors is a piece too, which nobody reads
        offsets = torch.tensor([[row * layout.length + bound for bound in bounds] for row in range(MOST)])
        self._offsets = torch.cat([offsets.flatten(), torch.tensor([MOST * layout.length])]).to(device)
        self._firsts, self._pieces, self._sizes = np.array(firsts), len(bounds), np.maximum(layout.sizes, 1)
        self._length = layout.length
        self._summed = torch.zeros(MOST, layout.length, dtype=torch.float64, device=device)
        self._products = torch.zeros(len(PAIRED), layout.length, dtype=torch.float64, device=device)
        self._largest = torch.empty(0)
        self._names: list[str] = []
        self._paired: list[str] = []

    def measure_gradient(self, gradient: Tensor) -> None:
        """Measure squares, zeros, non-finite and largest entries of a gradient (length,)."""
        self._names, self._paired = [], []
        self.measure("gradient", gradient)
        torch.eq(gradient, 0, out=self._next("zeros"))
        # NaN - NaN and Inf - Inf are NaN, which differs from 0.
        torch.ne(gradient - gradient, 0, out=self._next("nonfinite"))
        self._largest = device_kernels.segment_reduce(gradient.abs(), "max", self._offsets[: self._pieces + 1])

    def measure(self, name: str, flat: Tensor) -> None:
        """Measure the squares of a flat tensor (length,), to be read under this name."""
        self._next(name).copy_(flat)

    def measure_product(self, name: str, one: Tensor, other: Tensor) -> None:
        """Measure the inner product of two flat tensors (length,), to be read under this name."""
        row = self._products[len(self._paired)].copy_(one)
        self._paired.append(name)
        row.mul_(other)

    def measure_change(self, before: Tensor, after: Tensor, gradient: Tensor) -> None:
        """Measure the squares of the weights before an update, those of their change, and the product of the change and
        the gradient."""
        weights = self._next("weights").copy_(before)
        moves = torch.sub(after, weights, out=self._next("moves"))
        self.measure_product("along_gradient", moves, gradient)

    def figures(self, beside: Sequence[Tensor]) -> tuple[tuple[str, ...], Tensor]:
        """Return what was measured: the names of its parts, and its numbers followed by those `beside` it, float64,
        (figures,), on the device."""
        squares = self._summed[: len(self._names)].view(-1)
        squares.mul_(squares)  # a count of 0 or 1 is its own square
        sums = [self._summed_up(squares), self._summed_up(self._products[: len(self._paired)].view(-1))]
        return (*self._names, *self._paired), torch.cat([*sums, self._largest, *beside])

    def read(self, names: Sequence[str], figures: np.ndarray) -> tuple[Gradient, Change, dict[str, float], np.ndarray]:
        """Return the measures of the gradient, those of the change of the weights, all norms and products by their
        names, and what was put beside them."""
        count = len(names) * self._pieces
        sums = np.add.reduceat(figures[:count].reshape(len(names), -1), self._firsts, axis=1)[:, ::2]
        each = dict(zip(names, sums, strict=True))
        norms = {name: np.sqrt(squares) for name, squares in each.items() if name not in PAIRED}
        totals = {name: total(parts) for name, parts in norms.items()}
        totals |= {name: float(each[name].sum()) for name in PAIRED if name in each}
        largest = np.maximum.reduceat(figures[count : count + self._pieces], self._firsts)[::2]
        gradient = Gradient(
            totals["gradient"],
            int(each["nonfinite"].sum()),
            norms["gradient"],
            largest,
            each["zeros"] / self._sizes,
            each["nonfinite"] / self._sizes,
        )
        change = Change(
            totals["weights"],
            totals["moves"],
            totals["along_gradient"],
            float(ratio(totals["moves"], totals["weights"])),
            norms["weights"],
            ratio(norms["moves"], norms["weights"]),
        )
        return gradient, change, totals, figures[count + self._pieces :]

    def _summed_up(self, entries: Tensor) -> Tensor:
        """Return the sums of the pieces of some flat tensors, one after the other."""
        rows = len(entries) // self._length
        return device_kernels.segment_reduce(entries, "sum", self._offsets[: rows * self._pieces + 1])

    def _next(self, name: str) -> Tensor:
        self._names.append(name)
        return self._summed[len(self._names) - 1]
