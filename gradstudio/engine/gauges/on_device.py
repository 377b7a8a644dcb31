"""The gauges of every_step.py, summed on the device that trains, so that only a few numbers are copied to the host.

Squares and counts are summed in float64 by torch.segment_reduce: it gives the same bits each time, and the host does
not wait for it. On CUDA it is CUB's segmented reduction. Tensors are summed in pieces, so that no part of the device
gets a whole large one, and in windows of many pieces, so that float64 uses little memory. The pieces are combined when
they are read, which is also when roots, shares and ratios are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine.gauges.every_step import Change, Gradient, ratio, total
from gradstudio.engine.passes.flat import Layout
from gradstudio.engine.torch_internals import device_kernels

PIECE = 4096  # entries, at most
WINDOW = 2**23  # entries that are summed at once, at most one piece more
# Inner products of two flat tensors: the gradient before and after clipping; the change of the weights and the
# gradient.
PAIRED = ("kept", "along_gradient")
COUNTED = ("zeros", "nonfinite", "sums", "cut")  # neither these nor squares


class Figures(NamedTuple):
    """The measurements of a step: of the gradient, of the change of the weights, of clipping by value, all norms and
    products by name, and the numbers that came beside them."""

    gradient: Gradient
    change: Change
    cut_shares: np.ndarray | float
    totals: dict[str, float]
    beside: np.ndarray


class DeviceGauges:
    """Measures flat tensors of one layout, a step at a time: first `measure_gradient`, then any `measure` and
    `measure_change`, then `figures`. Uses 8 bytes per weight on the device, for at most WINDOW weights."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        bounds, firsts = [], []
        for start, stop in zip(layout.starts.tolist(), layout.stops.tolist(), strict=True):
            firsts.append(len(bounds))
            bounds += range(start, stop, PIECE)
            firsts.append(len(bounds))
            bounds.append(stop)  # the gap between two tensors is a piece too, which is never read
        self._firsts, self._pieces, self._sizes = np.array(firsts), len(bounds), np.maximum(layout.sizes, 1)
        self._windows: list[tuple[slice, Tensor]] = []  # the entries of each, and the bounds of its pieces
        bounds.append(layout.length)
        first = 0
        for last, bound in enumerate(bounds):
            if bound - bounds[first] >= WINDOW or last == self._pieces:
                offsets = torch.tensor(bounds[first : last + 1]) - bounds[first]
                self._windows.append((slice(bounds[first], bound), offsets.to(device)))
                first = last
        longest = max(entries.stop - entries.start for entries, _ in self._windows)
        self._room = torch.empty(longest, dtype=torch.float64, device=device)
        self._names: list[str] = []
        self._sums: list[Tensor] = []
        self._largest: list[Tensor] = []

    def measure_gradient(self, gradient: Tensor) -> None:
        """Measure squares, sums, zeros, non-finite and largest entries of a gradient (length,)."""
        self._names, self._sums = [], []
        self.measure("gradient", gradient)
        self._sum("zeros", lambda room, entries: torch.eq(gradient[entries], 0, out=room))
        # NaN - NaN and Inf - Inf are NaN, which differs from 0.
        self._sum("nonfinite", lambda room, entries: torch.ne(gradient[entries] - gradient[entries], 0, out=room))
        self._sum("sums", lambda room, entries: room.copy_(gradient[entries]))
        self._largest = [
            device_kernels.segment_reduce(gradient[entries].abs(), "max", offsets) for entries, offsets in self._windows
        ]

    def measure(self, name: str, flat: Tensor) -> None:
        """Measure the squares of a flat tensor (length,), to be read under this name."""
        self._sum(name, lambda room, entries: room.copy_(flat[entries]).square_())

    def measure_product(self, name: str, one: Tensor, other: Tensor) -> None:
        """Measure the inner product of two flat tensors (length,), to be read under this name."""
        self._sum(name, lambda room, entries: room.copy_(one[entries]).mul_(other[entries]))

    def measure_cut(self, before: Tensor, after: Tensor) -> None:
        """Measure how many entries clipping by value changed; a NaN counts as none."""

        def cut(room: Tensor, entries: slice) -> Tensor:
            return torch.ne(before[entries], after[entries], out=room).mul_(before[entries] == before[entries])

        self._sum("cut", cut)

    def measure_change(self, before: Tensor, after: Tensor, gradient: Tensor) -> None:
        """Measure the squares of the weights before an update, those of their change, and the product of the change and
        the gradient."""

        def change(room: Tensor, entries: slice) -> Tensor:
            return room.copy_(after[entries]).sub_(before[entries])

        self.measure("weights", before)
        self._sum("moves", lambda room, entries: change(room, entries).square_())
        self._sum("along_gradient", lambda room, entries: change(room, entries).mul_(gradient[entries]))

    def figures(self, beside: Sequence[Tensor]) -> tuple[tuple[str, ...], Tensor]:
        """Return the measurements: the names of their parts, and their numbers followed by those in `beside`, float64,
        (figures,), on the device."""
        return tuple(self._names), torch.cat([*self._sums, *self._largest, *beside])

    def read(self, names: Sequence[str], figures: np.ndarray) -> Figures:
        """Return the measurements of these names."""
        count = len(names) * self._pieces
        sums = np.add.reduceat(figures[:count].reshape(len(names), -1), self._firsts, axis=1)[:, ::2]
        each = dict(zip(names, sums, strict=True))
        norms = {name: np.sqrt(squares) for name, squares in each.items() if name not in (*PAIRED, *COUNTED)}
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
            each["sums"] / self._sizes,
        )
        change = Change(
            totals["weights"],
            totals["moves"],
            totals["along_gradient"],
            float(ratio(totals["moves"], totals["weights"])),
            norms["weights"],
            ratio(norms["moves"], norms["weights"]),
        )
        cut = each["cut"] / self._sizes if "cut" in each else UNKNOWN
        return Figures(gradient, change, cut, totals, figures[count + self._pieces :])

    def _sum(self, name: str, write: Callable[[Tensor, slice], object]) -> None:
        """Sum the pieces of what `write` writes into a buffer, window by window, to be read under this name."""
        self._names.append(name)
        for entries, offsets in self._windows:
            room = self._room[: entries.stop - entries.start]
            write(room, entries)
            self._sums.append(device_kernels.segment_reduce(room, "sum", offsets))
