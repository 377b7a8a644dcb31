"""Copies of tensors that compiled loops cannot read in place: on a GPU, in another number format, non-contiguous."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from gradstudio.engine.torch_internals.plain_floats import are_plain_floats

AT_ONCE = 4_000_000  # entries copied from a GPU together, which need as much extra memory there


class HostCopies:
    """Buffers for copies of tensors with these numbers of entries."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._bounds = [0, *accumulate(sizes)]  # of each tensor in the joint copy of all that are on a GPU
        self._of_gpu: Tensor | None = None
        self._single: dict[int, Tensor] = {}

    def readable(self, tensors: Sequence[Tensor | None]) -> list[int]:
        """Return the address of each tensor, or of a current copy of it; 0 for None."""
        of_gpu = self._copied_together(tensors)
        return [
            0 if tensor is None else of_gpu.get(place) or self._place(place, tensor)
            for place, tensor in enumerate(tensors)
        ]

    def _place(self, place: int, tensor: Tensor) -> int:
        if tensor.layout is torch.strided and tensor.is_contiguous() and are_plain_floats([tensor]):
            return tensor.data_ptr()
        if tensor.layout is not torch.strided:
            tensor = tensor.detach().to_dense()
        copy = self._single.get(place)
        if copy is None or copy.shape != tensor.shape:
            copy = self._single[place] = torch.empty(tensor.shape, dtype=torch.float32, device="cpu")
        with torch.no_grad():
            copy.copy_(tensor.detach())
        return copy.data_ptr()

    def _copied_together(self, tensors: Sequence[Tensor | None]) -> dict[int, int]:
        """Copy those that are on a GPU, many at a time: the script waits for each copy. Return the addresses of the
        copies."""
        addresses: dict[int, int] = {}
        for group in _groups(tensors):
            if self._of_gpu is None:
                self._of_gpu = torch.empty(self._bounds[-1], dtype=torch.float32, device="cpu")
            flat = [tensor.detach().reshape(-1) for _, tensor in group]
            first, last = group[0][0], group[-1][0]
            with torch.no_grad():
                together = flat[0] if len(flat) == 1 else torch.cat(flat)
                self._of_gpu[self._bounds[first] : self._bounds[last + 1]].copy_(together)
            begin, width = self._of_gpu.data_ptr(), self._of_gpu.element_size()
            addresses |= {place: begin + width * self._bounds[place] for place, _ in group}
        return addresses


def _groups(tensors: Sequence[Tensor | None]) -> Iterator[list[tuple[int, Tensor]]]:
    """Yield the tensors on a GPU with their indices, grouped by adjacent ones on one GPU in one format."""
    group: list[tuple[int, Tensor]] = []
    entries, kind = 0, None
    for place, tensor in enumerate(tensors):
        if tensor is None or tensor.layout is not torch.strided or is_on_host(tensor):
            of, size = None, 0
        else:
            of, size = (tensor.device, tensor.dtype), tensor.numel()
        if group and (of != kind or entries + size > AT_ONCE):
            yield group
            group, entries = [], 0
        if tensor is not None and of is not None:
            group.append((place, tensor))
            kind, entries = of, entries + size
    if group:
        yield group


def is_on_host(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"
