"""The parameters of one optimizer, measured where they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine.gauges.every_step import ratio
from gradstudio.engine.passes.flat import Layout
from gradstudio.engine.torch_internals.autograd_nodes import version_of
from gradstudio.engine.torch_internals.plain_floats import are_plain_floats
from gradstudio.watching.measuring.host_copies import HostCopies
from gradstudio.watching.measuring.host_loops import HostLoops
from gradstudio.watching.measuring.waiting_rows import Spare

MOST_TENSORS = 100_000


class NotMeasurable(Exception):
    """These parameters cannot be measured. The text says why, as a sentence."""


class Gradient(NamedTuple):
    """The true gradient of a step. `layers`: (metrics, layers), float32, in the order of LAYER_METRICS;
    `measure_change` writes the rows of the weights."""

    norm: float
    nonfinite: int
    layers: np.ndarray


class Change(NamedTuple):
    """The weights before an update and its effect on them. `along_gradient` is the inner product of the change and the
    gradient that the optimizer received, UNKNOWN if the update has destroyed that."""

    weight_norm: float
    norm: float
    along_gradient: float

    @property
    def update_ratio(self) -> float:
        return self.norm / self.weight_norm if self.weight_norm else float(ratio(self.norm, self.weight_norm))


NO_LAYERS = np.empty((len(LAYER_METRICS), 0), np.float32)
NOT_MEASURED = Change(UNKNOWN, UNKNOWN, UNKNOWN)


class Parameters:
    """Measures parameters and their gradients. Tensors that are not float32, contiguous and on the host are copied
    first."""

    may_wait = False  # whether gradients may be kept elsewhere until the last backward pass of a step
    answers_later = False  # whether figures are still being computed when a step has been made
    can_go_back = False  # whether `before_update` can restore the weights from before an update

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        for tensor in self.tensors:
            if not tensor.is_floating_point():
                raise NotMeasurable("A parameter is not a real number.")
            if lacks_memory(tensor):
                raise NotMeasurable(f"A parameter has no memory of its own ({type(tensor).__name__}).")
        if len(self.tensors) > MOST_TENSORS:
            raise NotMeasurable(f"The model has {len(self.tensors):,} tensors; at most {MOST_TENSORS:,} are measured.")
        layout = Layout([tensor.numel() for tensor in self.tensors])
        self.sizes = layout.sizes
        self._numels: list[int] = layout.sizes.tolist()
        self._starts = layout.starts
        self._length = layout.length
        self._before = np.empty(0, np.float32)  # the weights before the update, once they are kept
        self._at: dict[str, tuple[list[int], np.ndarray]] = dict.fromkeys(("weight", "gradient"), ([], np.empty(0)))
        self._has_kept = False  # whether the weights could be read before the update
        self._nowhere = np.zeros(len(self.sizes), np.int64)
        self._no_marks = [-1] * len(self.tensors)
        self._layers = Spare(len(self.tensors))
        self._loops = HostLoops(self.sizes)
        self._held: list[Tensor | None] = []  # the last measured gradients
        self._held_at: list[int] = []  # their own addresses, even if they are copied
        self._copies = {what: HostCopies(self._numels) for what in self._at}

    @property
    def as_given(self) -> list[Tensor]:
        """The parameters as they are in the script."""
        return self.tensors

    def marks(self) -> list[int]:
        """Return a number for each gradient that changes whenever torch writes to it; -1 for a missing one."""
        return [-1 if (grad := tensor.grad) is None else version_of(grad) for tensor in self.tensors]

    @property
    def are_resized(self) -> bool:
        """Whether a script has given a parameter memory of another size. One that it has emptied may come back."""
        now = sizes(self.tensors)
        return any([size and size != before for size, before in zip(now, self._numels, strict=True)])

    def weight_marks(self) -> list[int]:
        """Return a number for each parameter that changes whenever torch writes to it."""
        return [version_of(tensor) for tensor in self.tensors]

    def have_moved(self, marks: list[int]) -> bool:
        """Return whether torch has written to any gradient since these marks were read."""
        return self.marks() != marks

    def unmoved_places(self, marks: list[int]) -> set[int]:
        """Return the indices of the gradients that torch has not written to since these marks were read. The gradients
        have just been measured."""
        pairs = enumerate(zip(marks, self.marks(), strict=True))
        return {place for place, (before, now) in pairs if before == now}

    def have_no_gradients(self) -> bool:
        """Return whether no parameter has a gradient."""
        return self.marks() == self._no_marks

    def all_gone(self, marks: list[int] | None = None) -> bool:
        """Return whether every gradient has been set to None or 0. `marks` are the current ones, if already read."""
        if (self.marks() if marks is None else marks) == self._no_marks:
            return True
        return bool(self._loops.now.all_zero(self._gradients(), self.sizes))

    def measure_gradient(self, scale: float = 1.0) -> Gradient:
        """Measure the gradients, which carry the factor `scale`, without that factor. If it is UNKNOWN, so are their
        norms."""
        layers = self._layers.take()
        layers[7] = UNKNOWN
        norm, broken = self._loops.now.measure(self._gradients(), self.sizes, scale, layers)
        return Gradient(norm if scale == scale else UNKNOWN, broken, layers)

    def measure_gradient_later(self, scale: float = 1.0) -> Callable[[], Gradient]:
        """Start `measure_gradient`. Return a function that returns the figures, waiting for them if needed."""
        gradient = self.measure_gradient(scale)
        return lambda: gradient

    def glance_at_gradient(self) -> Gradient:
        """Return only the norm of gradients that are finite, without their layers; others are measured in full."""
        gradients = self._gradients()
        norm = self._loops.now.copy_and_norm(self._nowhere, gradients, self._starts, self.sizes, self._before)
        return Gradient(norm, 0, NO_LAYERS) if math.isfinite(norm) else self.measure_gradient()

    def keep_weights(self) -> None:
        """Copy the weights, before an update."""
        self._loops.now.copy(self._kept_weights(), self._starts, self.sizes, self._before)

    def keep_weights_and_norm(self, *, keep: bool = True) -> float:
        """Copy the weights, before an update, if they are to be kept, and return the L2 norm of all current
        gradients."""
        weights, gradients = self._kept_weights() if keep else self._nowhere, self._gradients()
        return self._loops.now.copy_and_norm(weights, gradients, self._starts, self.sizes, self._before)

    def keep_weights_and_norm_later(self, *, keep: bool = True) -> Callable[[], float]:
        """Start `keep_weights_and_norm`. Return a function that returns the norm, waiting for it if needed."""
        norm = self.keep_weights_and_norm(keep=keep)
        return lambda: norm

    def measure_change_later(self, layers: np.ndarray) -> Callable[[], Change]:
        """Start `measure_change`. Return a function that returns the change, waiting for it if needed; only then it
        writes the rows of `layers`."""
        change = self.measure_change(layers)
        return lambda: change

    def before_update(self) -> AbstractContextManager[None]:
        """Return a context in which the weights are those that were kept, for one who looks at them after the
        update."""
        raise NotImplementedError

    def _kept_weights(self) -> np.ndarray:
        weights = self._weights()
        self._has_kept = weights is not None
        if not self._before.size:
            self._before = np.zeros(self._length, np.float32)
        return self._nowhere if weights is None else weights

    def release(self) -> None:
        """Release the gradients: the step is over."""
        if self._held:
            self._loops.step_is_over()
        self._held = []

    def measure_change(self, layers: np.ndarray) -> Change:
        """Measure the weights that were kept, and their change since, including its component along the last measured
        gradients. Write their rows of `layers`. If a script has freed the memory of a weight, because it stores it
        elsewhere between two steps, nothing of this is known."""
        weights, gradients = self._weights(), self._at["gradient"][1]
        if weights is None or not self._has_kept:
            layers[1:3] = UNKNOWN
            return NOT_MEASURED
        there = self.gradients_are_current
        along = gradients if there else self._nowhere
        change = Change(*self._loops.now.change(self._before, weights, along, self._starts, self.sizes, layers))
        if there and (change.along_gradient or not change.norm or not self._loops.now.all_zero(gradients, self.sizes)):
            return change  # otherwise the script has set the gradients to 0 within the update
        return change._replace(along_gradient=UNKNOWN)

    def _weights(self) -> np.ndarray | None:
        """Return the addresses of the weights; None if one has no memory, or memory of another size."""
        self._at["weight"] = addresses = self._addresses(self.tensors, self._at["weight"], "weight")
        return addresses[1] if np.all((addresses[1] != 0) | (self.sizes == 0)) else None

    def _gradients(self) -> np.ndarray:
        """Return the addresses of the gradients. They are kept alive, so that the addresses stay valid until the next
        call."""
        self._held = now = [tensor.grad for tensor in self.tensors]
        self._at["gradient"] = addresses = self._addresses(now, self._at["gradient"], "gradient")
        self._held_at = addresses[0] or pointers(now)
        return addresses[1]

    @property
    def gradients_are_current(self) -> bool:
        """Whether the last measured gradients are still those of the parameters, in the same memory."""
        now = [tensor.grad for tensor in self.tensors]
        is_same = len(now) == len(self._held) and all(map(is_, now, self._held))
        return is_same and pointers(now) == self._held_at

    def _addresses(
        self, tensors: Sequence[Tensor | None], before: tuple[list[int], np.ndarray], what: str
    ) -> tuple[list[int], np.ndarray]:
        """Return the address of each tensor, or of a copy of it; 0 for one that has no memory, or another number of
        entries. `before` is the last result."""
        where = self._where(tensors)
        if where and are_plain_floats([tensor for tensor in tensors if tensor is not None]):
            return before if where == before[0] else (where, np.array(where, np.int64))
        there = [None if each is None or self._is_gone(index, each) else each for index, each in enumerate(tensors)]
        return [], np.array(self._copies[what].readable(there), np.int64)

    def _where(self, tensors: Sequence[Tensor | None]) -> list[int]:
        """Return the address of each tensor; none if one is not contiguous, or its number of entries has changed."""
        there: Any = tensors
        with suppress(RuntimeError):  # a sparse tensor has several storages
            try:
                if all(map(Tensor.is_contiguous, there)) and list(map(Tensor.numel, there)) == self._numels:
                    return list(map(Tensor.data_ptr, there))
            except TypeError:  # some are None
                pairs = [(each, size) for each, size in zip(there, self._numels, strict=True) if each is not None]
                if all([each.is_contiguous() and each.numel() == size for each, size in pairs]):
                    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        return []

    def _is_gone(self, index: int, tensor: Tensor) -> bool:
        return tensor.numel() != self._numels[index] or lacks_memory(tensor)


def sizes(tensors: Sequence[Tensor]) -> list[int]:
    """Return how many entries each tensor has, 0 for one that does not exist yet."""
    try:
        return list(map(Tensor.numel, tensors))
    except ValueError:
        return [0 if is_lazy(tensor) else tensor.numel() for tensor in tensors]


def pointers(tensors: list[Tensor | None]) -> list[int]:
    """Return the address of each tensor; 0 for one that is missing, has several pieces of memory, or wraps other
    tensors."""
    there: Any = tensors
    try:
        return list(map(Tensor.data_ptr, there))
    except (TypeError, RuntimeError):
        return list(map(pointer_of, tensors))


def pointer_of(tensor: Tensor | None) -> int:
    """Return the address of a tensor; 0 for a missing one, and one that has several storages or wraps others."""
    if tensor is None or tensor.layout is not torch.strided:
        return 0
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


def lacks_memory(tensor: Tensor) -> bool:
    """Return whether there is nothing to read: for a tensor that wraps others, or whose memory is freed."""
    has_entries = tensor.layout is torch.strided and tensor.numel() > 0
    return has_entries and tensor.device.type in ("cpu", "meta") and not pointer_of(tensor)
