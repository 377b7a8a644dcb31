"""Measures many tensors where they are on a GPU: a table of their addresses is sent there, and a few figures of each
come back. The tensors themselves are not copied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from torch import Tensor

FORMATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
GRADIENT = ("squares", "largest", "zeros", "nan", "inf", "sums")  # the largest among the entries that are not NaN
CHANGE = ("squares", "moves", "along_gradient", "not_zero")  # of the weights before, the change, the gradient


class Table(Protocol):
    """Measures lists of tensors with fixed sizes, all on one device, each contiguous in memory."""

    def gradient(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """Return the figures GRADIENT of each, (figures, tensors), float64, on the device. None counts as zeros."""
        ...

    def change(self, before: Sequence[Tensor], after: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
        """Return the figures CHANGE of each, (figures, tensors), float64, on the device. Weights before and after have
        the same format."""
        ...


def table_of(tensors: Sequence[Tensor]) -> Table:
    """Return the table for these tensors, and others of their sizes, on their device."""
    return TritonTable(tensors) if _triton_measures(tensors[0].device) else PlainTable(tensors)


@cache
def _triton_measures(device: torch.device) -> bool:
    """Return whether Triton's kernels are available and measure correctly. The first call compiles them."""
    if device.type != "cuda":
        return False
    try:
        with torch.no_grad(), torch.cuda.device(device):
            tried = torch.tensor([3.0, -4.0, 0.0], device=device)
            table = TritonTable([tried])
            gradient, change = table.gradient([tried]), table.change([tried], [tried + 2], [tried])
            right = gradient[:, 0].tolist() == [25, 4, 1, 0, 0, -1] and change[:, 0].tolist() == [25, 12, -2, 2]
    except Exception:  # missing, without a compiler, or with a driver that is too old: it raises arbitrary exceptions
        right = False
    return right


class PlainTable:
    """Measures with torch's public operations, about ten for each tensor."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._sizes = [tensor.numel() for tensor in tensors]
        self._device = tensors[0].device

    @torch.no_grad()
    def gradient(self, gradients: Sequence[Tensor | None]) -> Tensor:
        return self._stack([self._of_gradient(*each) for each in zip(gradients, self._sizes, strict=True)])

    @torch.no_grad()
    def change(self, before: Sequence[Tensor], after: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
        return self._stack([self._of_change(*each) for each in zip(before, after, gradients, strict=True)])

    def _of_gradient(self, gradient: Tensor | None, size: int) -> list[Tensor]:
        if gradient is None or not size:
            return [self._number(size if figure == "zeros" else 0) for figure in GRADIENT]
        entries = gradient.double()
        largest = entries.abs().nan_to_num(nan=0.0, posinf=math.inf).amax()
        counts = (entries == 0).sum(), entries.isnan().sum(), entries.isinf().sum()
        return [entries.square().sum(), largest, *(count.double() for count in counts), entries.sum()]

    def _of_change(self, before: Tensor, after: Tensor, gradient: Tensor | None) -> list[Tensor]:
        weights = before.double()
        moves = after.double() - weights
        squares = [weights.square().sum(), moves.square().sum()]
        if gradient is None:
            return [*squares, self._number(0), self._number(0)]
        return [*squares, (moves * gradient.double()).sum(), (gradient != 0).sum().double()]

    def _number(self, value: float) -> Tensor:
        return torch.full((), value, dtype=torch.float64, device=self._device)

    def _stack(self, figures: list[list[Tensor]]) -> Tensor:
        return torch.stack([torch.stack(each) for each in figures], dim=1)


@dataclass(frozen=True)
class _Pieces:
    """Tensors of given formats, cut into pieces that are consecutive for each pair of formats. Tables on the device."""

    tensors: Tensor  # (pieces,), tensor of each piece
    starts: Tensor  # (pieces,), its first entry
    firsts: Tensor  # (tensors,), first piece of each tensor
    counts: Tensor  # (tensors,), its pieces
    groups: tuple[tuple[tuple[int, int], int, int], ...]  # formats, first piece, pieces


class TritonTable:
    """Measures with the kernels of triton_kernels.py: two launches for each list of tensors."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._numels = [tensor.numel() for tensor in tensors]
        self._device = tensors[0].device
        self._sizes = self._send(self._numels)
        self._known: dict[tuple[torch.dtype | None, ...], _Pieces] = {}
        self._lists: dict[str, tuple[list[int], Tensor]] = {}  # addresses sent last, for each list
        from gradstudio.engine.gauges import triton_kernels

        self._kernels: Any = triton_kernels

    def gradient(self, gradients: Sequence[Tensor | None]) -> Tensor:
        pieces = self._pieces(gradients, ())
        addresses = self._addresses("gradient", gradients)
        parts = self._parts(GRADIENT, pieces)
        for (form, _), first, count in pieces.groups:
            self._kernels.measure_gradient[(count,)](
                addresses, pieces.tensors, pieces.starts, self._sizes, first, parts, parts.shape[1],
                FORMAT=form, PIECE=self._kernels.PIECE, BLOCK=self._kernels.BLOCK,
            )  # fmt: skip
        return self._together(parts, pieces, GRADIENT.index("largest"))

    def change(self, before: Sequence[Tensor], after: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
        pieces = self._pieces(after, gradients)
        at = [self._addresses("before", before), self._addresses("after", after), self._addresses("along", gradients)]
        parts = self._parts(CHANGE, pieces)
        for (form, of_gradient), first, count in pieces.groups:
            self._kernels.measure_change[(count,)](
                *at, pieces.tensors, pieces.starts, self._sizes, first, parts, parts.shape[1],
                FORMAT=form, GRADIENT_FORMAT=of_gradient, PIECE=self._kernels.PIECE, BLOCK=self._kernels.BLOCK,
            )  # fmt: skip
        return self._together(parts, pieces, -1)

    def _parts(self, figures: Sequence[str], pieces: _Pieces) -> Tensor:
        return torch.empty(len(figures), len(pieces.tensors), dtype=torch.float64, device=self._device)

    def _together(self, parts: Tensor, pieces: _Pieces, largest: int) -> Tensor:
        figures = torch.empty(len(parts), len(self._numels), dtype=torch.float64, device=self._device)
        self._kernels.sum_pieces[(len(self._numels), len(parts))](
            parts, parts.shape[1], pieces.firsts, pieces.counts, figures, len(self._numels), LARGEST=largest, BLOCK=128
        )
        return figures

    def _addresses(self, name: str, tensors: Sequence[Tensor | None]) -> Tensor:
        """Return the addresses of the tensors, on the device; a table that is already there is not sent again."""
        now = [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        before = self._lists.get(name)
        if before is None or before[0] != now:
            before = self._lists[name] = now, self._send(now)
        return before[1]

    def _pieces(self, tensors: Sequence[Tensor | None], others: Sequence[Tensor | None]) -> _Pieces:
        """Return the pieces of tensors, grouped by their format and that of the others."""
        formats = tuple([None if each is None else each.dtype for each in (*tensors, *others)])
        if (pieces := self._known.get(formats)) is None:
            places = [0 if each is None else FORMATS.index(each) for each in formats]
            one, other = places[: len(tensors)], places[len(tensors) :] or [0] * len(tensors)
            pieces = self._known[formats] = self._split(tuple(zip(one, other, strict=True)))
        return pieces

    def _split(self, formats: tuple[tuple[int, int], ...]) -> _Pieces:
        tensors, starts, groups = list[int](), list[int](), []
        firsts, counts = [0] * len(formats), [0] * len(formats)
        for kind in sorted(set(formats)):
            first = len(tensors)
            for place, size in enumerate(self._numels):
                if formats[place] == kind:
                    cuts = range(0, size, self._kernels.PIECE)
                    firsts[place], counts[place] = len(tensors), len(cuts)
                    tensors += [place] * len(cuts)
                    starts += cuts
            if len(tensors) > first:
                groups.append((kind, first, len(tensors) - first))
        sent = [self._send(each) for each in (tensors, starts, firsts, counts)]
        return _Pieces(sent[0], sent[1], sent[2], sent[3], tuple(groups))

    def _send(self, numbers: Sequence[int]) -> Tensor:
        # From memory that is not pinned the data is copied before the call returns, and nothing waits for the device.
        return torch.tensor(numbers, dtype=torch.int64).to(self._device, non_blocking=True)
