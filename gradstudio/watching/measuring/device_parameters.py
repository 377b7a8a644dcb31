"""The parameters of one optimizer, measured on the GPU that trains them. Only a few figures of each tensor are copied
to the host; the weights before an update are kept on the GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from operator import attrgetter, is_
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine.gauges.device_table import FORMATS, PlainTable, table_of
from gradstudio.engine.gauges.every_step import ratio
from gradstudio.engine.torch_internals import autograd_nodes, tensor_lists
from gradstudio.watching.hooks.guard import say_once
from gradstudio.watching.measuring.parameters import (
    NOT_MEASURED,
    Change,
    Gradient,
    Parameters,
    pointer_of,
    pointers,
)
from gradstudio.watching.measuring.sharded_parameters import are_sharded, parameters_of_shards

SLOWER = "Triton cannot measure on this GPU: a watched step takes some milliseconds longer; the figures are the same."
MEASURED_THERE = ("cuda",)  # kinds of devices; ROCm uses the same name
_FORMAT = attrgetter("dtype")
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by the number of dimensions


def parameters_of(tensors: Sequence[Tensor]) -> Parameters:
    """Return the measurement of these parameters: on their GPU if all of them are on one, otherwise on the host. Raises
    NotMeasurable."""
    on_device = all(tensor.layout is torch.strided and tensor.dtype in FORMATS for tensor in tensors)
    devices = {tensor.device for tensor in tensors}
    there = on_device and len(devices) == 1 and devices.pop().type in MEASURED_THERE
    kind = DeviceParameters if there else Parameters
    return parameters_of_shards(kind, tensors) if are_sharded(tensors) else kind(tensors)


class DeviceParameters(Parameters):
    """Measures parameters and their gradients on their own GPU. Needs memory for a copy of the weights there."""

    answers_later = True

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__(tensors)
        self._table = table_of(self.tensors)
        if isinstance(self._table, PlainTable) and self.tensors[0].is_cuda:
            say_once(SLOWER)
        self._formats, self._strides = list(map(_FORMAT, self.tensors)), list(map(Tensor.stride, self.tensors))
        self._are_dense = all(_dense(tensor) is tensor for tensor in self.tensors)
        self._read: list[Tensor | None] = []  # the gradients as they were read, the held ones unless copied
        self._kept: list[Tensor] = []  # the weights before the update
        self._kept_versions: list[int] = []  # their versions then
        self._entries = np.maximum(self.sizes, 1)

    def all_gone(self, marks: list[int] | None = None) -> bool:
        if (self.marks() if marks is None else marks) == self._no_marks:
            return True
        zeros = self._table.gradient(self._readable_gradients())[2]
        return bool(zeros.cpu().numpy().sum() == self.sizes.sum())

    def measure_gradient(self, scale: float = 1.0) -> Gradient:
        return self.measure_gradient_later(scale)()

    def measure_gradient_later(self, scale: float = 1.0) -> Callable[[], Gradient]:
        figures = PendingFigures(self._table.gradient(self._readable_gradients()))
        return lambda: self._gradient_of(figures.wait(), scale)

    def _gradient_of(self, figures: np.ndarray, scale: float) -> Gradient:
        squares, largest, zeros, nan, inf, sums = figures
        layers = self._layers.take()
        with np.errstate(all="ignore"):  # a loss scale can fall to 0
            layers[0] = np.sqrt(squares) / scale
            layers[3] = np.where(nan > 0, np.nan, largest) / scale
            layers[4], layers[5] = zeros / self._entries, (nan + inf) / self._entries
            layers[6], layers[7] = sums / self._entries / scale, UNKNOWN
            norm = float(np.divide(math.sqrt(squares.sum()), scale))
        return Gradient(norm if scale == scale else UNKNOWN, int((nan + inf).sum()), layers)

    def keep_weights(self) -> None:
        weights = self._readable_weights()
        self._has_kept, self._kept_versions = weights is not None, self.weight_marks()
        if weights is not None:
            if not self._kept:
                self._kept = [torch.empty_like(each, requires_grad=False) for each in weights]
            with torch.no_grad():
                tensor_lists.copy_(self._kept, weights)

    @property
    def can_go_back(self) -> bool:
        return self._has_kept

    @contextmanager
    def before_update(self) -> Generator[None]:
        if self._readable_weights() is None:  # the script has freed the memory of one
            yield
            return
        now, versions = [tensor.detach().clone() for tensor in self.tensors], self.weight_marks()
        try:
            self._write(self._kept, self._kept_versions)
            yield
        finally:
            self._write(now, versions)

    @torch.no_grad()
    def _write(self, values: list[Tensor], versions: list[int]) -> None:
        """Write these values to the weights, so that autograd takes them for those with these versions."""
        tensor_lists.copy_(self.tensors, values)
        autograd_nodes.set_versions(self.tensors, versions)

    def keep_weights_and_norm(self, *, keep: bool = True) -> float:
        return self.keep_weights_and_norm_later(keep=keep)()

    def keep_weights_and_norm_later(self, *, keep: bool = True) -> Callable[[], float]:
        if keep:
            self.keep_weights()
        squares = PendingFigures(self._table.gradient(self._readable_gradients())[0])
        return lambda: math.sqrt(squares.wait().sum())

    def release(self) -> None:
        super().release()
        self._read = []

    def measure_change(self, layers: np.ndarray) -> Change:
        return self.measure_change_later(layers)()

    def measure_change_later(self, layers: np.ndarray) -> Callable[[], Change]:
        weights = self._readable_weights()
        if weights is None or not self._has_kept:
            layers[1:3] = UNKNOWN
            return lambda: NOT_MEASURED
        there = self.gradients_are_current
        gradients = self._readable_gradients() if there else [None] * len(weights)
        figures = PendingFigures(self._table.change(self._kept, weights, gradients))

        def read() -> Change:
            squares, moves, along, not_zero = figures.wait()
            norms = np.sqrt(squares)
            with np.errstate(over="ignore"):  # a norm can be too large for float32
                layers[1], layers[2] = norms, ratio(np.sqrt(moves), norms)
            moved, product = math.sqrt(moves.sum()), float(along.sum())
            # a script that has set the gradients to 0 within the update has destroyed their direction
            is_known = there and (product or not moved or not_zero.sum())
            return Change(math.sqrt(squares.sum()), moved, product if is_known else UNKNOWN)

        return read

    def _readable_weights(self) -> list[Tensor] | None:
        """Return the weights in a form that a kernel can read; None if a script has freed the memory of one."""
        if self._are_dense and self._are_laid_out_as_weights(self.tensors) and all(map(Tensor.data_ptr, self.tensors)):
            return self.tensors
        tensors = [_dense(tensor.detach()) for tensor in self.tensors]
        for tensor, size in zip(tensors, self._numels, strict=True):
            if tensor.numel() != size or (size and not pointer_of(tensor)):
                return None
        return tensors

    def _readable_gradients(self) -> list[Tensor | None]:
        """Return the gradients in a form that a kernel can read, and keep existing ones alive."""
        held = [tensor.grad for tensor in self.tensors]
        at = pointers(held)
        if self._read is self._held and at == self._held_at and all(map(is_, held, self._held)):
            return self._read  # clipped at most
        self._held, self._held_at = held, at
        self._read = self._as_weights(held)
        return self._read

    def _as_weights(self, gradients: list[Tensor | None]) -> list[Tensor | None]:
        """Return gradients with their entries in the order of their weights'."""
        if self._are_dense and self._are_laid_out_as_weights(gradients) and all(self._held_at):
            return gradients
        return [self._as_weight(*each) for each in zip(gradients, self.tensors, self._numels, strict=True)]

    def _are_laid_out_as_weights(self, tensors: Sequence[Tensor | None]) -> bool:
        """Return whether tensors have the memory layout and formats that the weights had initially: usually, and
        quickly."""
        there: Any = tensors
        try:
            return (
                list(map(Tensor.stride, there)) == self._strides
                and list(map(_FORMAT, there)) == self._formats
                and not any(map(Tensor.is_neg, there))
                and list(map(Tensor.numel, there)) == self._numels
            )
        except (TypeError, AttributeError, RuntimeError):  # one is None, or sparse
            return False

    def _as_weight(self, gradient: Tensor | None, weight: Tensor, size: int) -> Tensor | None:
        if gradient is None or gradient.numel() != size:
            return None
        gradient = gradient.detach()
        if gradient.layout is not torch.strided:
            gradient = gradient.to_dense()
        if not pointer_of(gradient):
            return None
        weight, tensor = weight.detach(), _dense(gradient.resolve_neg())
        order = tensor if weight.numel() != size else _dense(weight)  # a script may have emptied the weight meanwhile
        if tensor.stride() == order.stride() and tensor.dtype in FORMATS:
            return tensor
        return torch.empty_like(order).copy_(tensor)


class PendingFigures:
    """Figures that a device is still computing and sends to the host. Nothing waits until they are read."""

    def __init__(self, figures: Tensor) -> None:
        self._figures = figures.to("cpu", non_blocking=True, copy=True)
        self._event = torch.cuda.Event() if figures.is_cuda else None
        if self._event is not None:
            self._event.record(torch.cuda.current_stream(figures.device))

    def wait(self) -> np.ndarray:
        """Wait for the figures and return them."""
        if self._event is not None:
            self._event.synchronize()
        figures = self._figures
        return (figures if figures.dtype in (torch.float32, torch.float64) else figures.float()).numpy()


def _dense(tensor: Tensor) -> Tensor:
    """Return a tensor whose memory has no gaps: this one, or a copy."""
    if tensor.is_contiguous() or tensor.is_contiguous(memory_format=_LAST.get(tensor.dim(), torch.contiguous_format)):
        return tensor
    return tensor.contiguous()
