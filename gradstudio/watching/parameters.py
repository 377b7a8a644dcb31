"""The parameters that one optimizer trains, measured where they lie."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gradstudio.core.history import LAYER_METRICS
from gradstudio.core.unknown import UNKNOWN
from gradstudio.engine.gauges import addresses, scattered
from gradstudio.engine.gauges.addresses import GRADIENTS, SAME_GRADIENTS, TENSORS, Addresses
from gradstudio.engine.gauges.every_step import ratio
from gradstudio.engine.passes.flat import Layout
from gradstudio.engine.torch_internals import parts
from gradstudio.engine.torch_internals.autograd_nodes import version_of
from gradstudio.engine.torch_internals.entry_points import are_plain_floats, entry_points
from gradstudio.session.library.store import MOST_LAYERS
from gradstudio.watching.host_copies import HostCopies
from gradstudio.watching.waiting_rows import Spare


class NotMeasurable(Exception):
    """These parameters cannot be measured. The text says why, as a sentence."""


def prepare() -> None:
    """Compile the loops that measure, so that no step waits for them, and try what they ask of torch."""
    parts.try_parts_of_a_watch()
    measuring = scattered.measure, scattered.copy_and_norm, scattered.all_zero, scattered.copy, scattered.change
    for loop in (*measuring, *addresses.LOOPS):
        loop.compile()


class Gradient(NamedTuple):
    """The true gradient of a step. `layers`: (metrics, layers), float32, in the order of LAYER_METRICS; the rows of the
    weights are written by `measure_change`."""

    norm: float
    nonfinite: int
    layers: np.ndarray


class Change(NamedTuple):
    """The weights before an update and what it did to them. `along_gradient` is the inner product of the change and the
    gradient that the optimizer got, UNKNOWN where the update has taken that away."""

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

    answers_later = False  # whether figures are still being worked out when a step has been made

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        for tensor in self.tensors:
            if type(tensor).__name__ == "DTensor" or hasattr(tensor, "to_local"):
                raise NotMeasurable("The parameters are shared out among processes (DTensor).")
            if not tensor.is_floating_point():
                raise NotMeasurable("A parameter is not a real number.")
            if _lacks_memory(tensor):
                raise NotMeasurable(f"A parameter has no memory of its own ({type(tensor).__name__}).")
        if len(self.tensors) > MOST_LAYERS:
            raise NotMeasurable(
                f"The model has {len(self.tensors):,} tensors; a run has at most {MOST_LAYERS:,} layers."
            )
        layout = Layout([tensor.numel() for tensor in self.tensors])
        self.sizes = layout.sizes
        self._numels: list[int] = layout.sizes.tolist()
        self._starts = layout.starts
        self._before = np.zeros(layout.length, np.float32)  # the weights before the update
        # loops, as the machine runs them: a look at each of them costs a step
        self._measure, self._copy = scattered.measure.unchecked(), scattered.copy.unchecked()
        self._copy_and_norm, self._change = scattered.copy_and_norm.unchecked(), scattered.change.unchecked()
        self._at: dict[str, tuple[list[int], np.ndarray]] = dict.fromkeys(("weight", "gradient"), ([], np.empty(0)))
        self._has_kept = False  # whether the weights could be read before the update
        self._room = {what: np.zeros(len(self.sizes), np.int64) for what in self._at}
        # five times as fast as an array that is made of a list
        self._write = struct.Struct(f"{len(self.sizes)}q").pack_into
        self._nowhere = np.zeros(len(self.sizes), np.int64)
        self._no_marks = [-1] * len(self.tensors)
        self._layers = Spare(len(self.tensors))
        self._held: list[Tensor | None] = []
        self._held_at: list[int] = []  # where they lie themselves, also those that are copied
        self._asked = None if any(map(Tensor.is_neg, self.tensors)) else asked_in_loops(self.tensors)
        # Lets the loops find where weights and gradients lie, and returns what of it they can read.
        self._look = see_nothing if self._asked is None else self._asked.look
        # A loop cannot ask whether a gradient is to be negated as it is read; autograd gives such of one entry only.
        self._single = [tensor for tensor in self.tensors if tensor.numel() == 1]
        self._copies = {what: HostCopies(self._numels) for what in self._at}

    def marks(self) -> list[int]:
        """Return a number for each gradient that changes whenever torch writes to it; -1 for one that is not there."""
        if self._asked is not None and self._asked.have_no_gradients():  # as after zero_grad
            return self._no_marks
        found = [tensor.grad for tensor in self.tensors]
        if all(map(is_, found, repeat(None))):
            return self._no_marks
        return [-1 if grad is None else version_of(grad) for grad in found]

    @property
    def are_resized(self) -> bool:
        """Whether a script has given a parameter memory of another size. One that it has emptied may come back."""
        now = addresses.sizes(self.tensors)
        return any([size and size != before for size, before in zip(now, self._numels, strict=True)])

    def weight_marks(self) -> list[int]:
        """Return a number for each parameter that changes whenever torch writes to it."""
        return [version_of(tensor) for tensor in self.tensors]

    def have_moved(self, marks: list[int]) -> bool:
        """Return whether torch has written to any gradient since these marks were read."""
        if marks is self._no_marks and self._asked is not None:
            return not self._asked.have_no_gradients()
        return any(
            (-1 if (grad := tensor.grad) is None else version_of(grad)) != mark
            for tensor, mark in zip(self.tensors, marks, strict=True)
        )

    def unmoved(self, marks: list[int]) -> set[int]:
        """Return the places of the gradients that torch has not written to since these marks were read. The gradients
        have just been measured."""
        at, asked = self._at["gradient"][1], self._asked
        if marks is self._no_marks and asked is not None and at is asked.gradients_at and at.all():
            return set()  # quickly, as mostly: there was none, and now there are all
        pairs = enumerate(zip(marks, self.marks(), strict=True))
        return {place for place, (before, now) in pairs if before == now}

    def have_no_gradients(self) -> bool:
        """Return whether no parameter has a gradient."""
        return self.marks() is self._no_marks

    def all_gone(self, marks: list[int] | None = None) -> bool:
        """Return whether every gradient has been set to None or 0. `marks` are those of now, where they were read."""
        if (self.marks() if marks is None else marks) is self._no_marks:
            return True
        return bool(scattered.all_zero(self._gradients(self._look(GRADIENTS)), self.sizes))

    def measure_gradient(self, scale: float = 1.0) -> Gradient:
        """Measure the gradients, which carry the factor `scale`, as if they did not. Where that is UNKNOWN, so are
        their norms."""
        layers = self._layers.take()
        norm, broken = self._measure(self._gradients(self._look(GRADIENTS)), self.sizes, scale, layers)
        return Gradient(norm if scale == scale else UNKNOWN, broken, layers)

    def glance_at_gradient(self) -> Gradient:
        """Return the norm of gradients that are finite, and nothing of their layers; others are measured in full."""
        gradients = self._gradients(self._look(GRADIENTS))
        norm = self._copy_and_norm(self._nowhere, gradients, self._starts, self.sizes, self._before)
        return Gradient(norm, 0, NO_LAYERS) if math.isfinite(norm) else self.measure_gradient()

    def keep_weights(self) -> None:
        """Copy the weights, before an update."""
        self._copy(self._kept_weights(self._look(TENSORS)), self._starts, self.sizes, self._before)

    def keep_weights_and_norm(self) -> float:
        """Copy the weights, before an update, and return the L2 norm of all gradients as they are now."""
        seen = self._look(TENSORS | GRADIENTS)
        weights, gradients = self._kept_weights(seen), self._gradients(seen)
        return self._copy_and_norm(weights, gradients, self._starts, self.sizes, self._before)

    def keep_weights_and_norm_later(self) -> Callable[[], float]:
        """Do what `keep_weights_and_norm` does. Return a function that returns the norm, and waits for it if need
        be."""
        norm = self.keep_weights_and_norm()
        return lambda: norm

    def measure_change_later(self, layers: np.ndarray) -> Callable[[], Change]:
        """Do what `measure_change` does. Return a function that returns the change, and waits for it if need be; it
        writes the rows of `layers` then."""
        found = self.measure_change(layers)
        return lambda: found

    def _kept_weights(self, seen: int) -> np.ndarray:
        weights = self._weights(seen)
        self._has_kept = weights is not None
        return self._nowhere if weights is None else weights

    def let_go(self) -> None:
        """Hold the gradients no longer."""
        self._held = []

    def measure_change(self, layers: np.ndarray) -> Change:
        """Measure the weights that were kept, and what has happened to them since: also along the gradients that were
        measured last. Write their rows of `layers`. Where a script has taken the memory of a weight away, as one does
        that keeps it elsewhere between two steps, nothing of this is known."""
        seen = self._look(TENSORS | SAME_GRADIENTS)
        weights, gradients = self._weights(seen), self._at["gradient"][1]
        if weights is None or not self._has_kept:
            layers[1:3] = UNKNOWN
            return NOT_MEASURED
        if self._are_there(seen):
            found = Change(*self._change(self._before, weights, gradients, self._starts, self.sizes, layers))
            if found.along_gradient or not found.norm or not scattered.all_zero(gradients, self.sizes):
                return found  # else the script has set the gradients to 0 within the update
        else:
            found = Change(*self._change(self._before, weights, self._nowhere, self._starts, self.sizes, layers))
        return found._replace(along_gradient=UNKNOWN)

    def _weights(self, seen: int) -> np.ndarray | None:
        """Return where the weights lie; None where one has no memory, or memory of another size. `seen` is what the
        compiled loops have found just now."""
        if seen & TENSORS and self._asked is not None:
            return self._asked.at
        self._at["weight"] = found = self._addresses(self.tensors, self._at["weight"], "weight")
        return found[1] if np.all((found[1] != 0) | (self.sizes == 0)) else None

    def _gradients(self, seen: int) -> np.ndarray:
        """Return where the gradients lie, of which the compiled loops have `seen` some just now. Those that Python had
        to look for are held, so that they lie there until they are asked for again."""
        if seen & GRADIENTS and self._asked is not None and not (self._single and self._negated()):
            found = self._asked.gradients_at
            self._at["gradient"], self._held = ([], found), []
            return found
        now, held, at = [tensor.grad for tensor in self.tensors], self._held, self._at["gradient"]
        if len(held) == len(now) and all(map(is_, now, held)) and at[0] and 0 not in at[0]:
            there: Any = now
            if list(map(Tensor.data_ptr, there)) == at[0]:  # what a tensor holds may have been replaced
                return at[1]
        self._held, self._held_at = now, list(map(pointer_of, now))
        self._at["gradient"] = found = self._addresses(now, at, "gradient")
        return found[1]

    @property
    def gradients_are_there(self) -> bool:
        """Whether the gradients that were measured last are still those of the parameters, in the memory in which they
        were."""
        seen = self._look(SAME_GRADIENTS)
        if self._held and not all(map(is_, [tensor.grad for tensor in self.tensors], self._held)):
            return False
        return self._are_there(seen)

    def _are_there(self, seen: int) -> bool:
        if self._held:
            return list(map(pointer_of, self._held)) == self._held_at
        return self._asked is None or seen & SAME_GRADIENTS != 0

    def _negated(self) -> bool:
        return any([(gradient := tensor.grad) is not None and gradient.is_neg() for tensor in self._single])

    def _addresses(
        self, tensors: Sequence[Tensor | None], before: tuple[list[int], np.ndarray], what: str
    ) -> tuple[list[int], np.ndarray]:
        """Return where each tensor lies, or a copy of it; 0 for one that has no memory, or another number of entries.
        Tensors that lie where they lay `before` are not looked at again, which is most of the time."""
        where = self._where(tensors)
        if where and where == before[0]:
            return before
        if where and are_plain_floats([tensor for tensor in tensors if tensor is not None]):
            room = self._room[what]
            self._write(room.data, 0, *where)
            return where, room
        there = [None if each is None or self._is_gone(index, each) else each for index, each in enumerate(tensors)]
        found = self._copies[what].readable(there)
        return (where if found == where else []), np.array(found, np.int64)

    def _where(self, tensors: Sequence[Tensor | None]) -> list[int]:
        """Return where each tensor lies; none where one is not contiguous, or has another number of entries than at
        first."""
        there: Any = tensors
        with suppress(RuntimeError):  # a sparse tensor lies in several places
            try:
                if all(map(Tensor.is_contiguous, there)) and list(map(Tensor.numel, there)) == self._numels:
                    return list(map(Tensor.data_ptr, there))
            except TypeError:  # some are None
                pairs = [(each, size) for each, size in zip(there, self._numels, strict=True) if each is not None]
                if all([each.is_contiguous() and each.numel() == size for each, size in pairs]):
                    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]
        return []

    def _is_gone(self, index: int, tensor: Tensor) -> bool:
        return tensor.numel() != self._numels[index] or _lacks_memory(tensor)


def asked_in_loops(tensors: Sequence[Tensor]) -> Addresses | None:
    """Return what asks where these lie; None where there are none, or this version of torch cannot be asked in compiled
    loops. The caller keeps the tensors alive."""
    entry = entry_points()
    return None if entry is None or not tensors else Addresses(tensors, entry)


def see_nothing(_what: int) -> int:
    return 0


def pointer_of(tensor: Tensor | None) -> int:
    """Return where a tensor lies; 0 for one that is not there, lies in several places, or wraps others."""
    if tensor is None or tensor.layout is not torch.strided:
        return 0
    try:
        return tensor.data_ptr()
    except RuntimeError:
        return 0


def _lacks_memory(tensor: Tensor) -> bool:
    """Return whether there is nothing that could be read: of a tensor that wraps others, or whose memory is freed."""
    has_entries = tensor.layout is torch.strided and tensor.numel() > 0
    return has_entries and tensor.device.type in ("cpu", "meta") and not pointer_of(tensor)
