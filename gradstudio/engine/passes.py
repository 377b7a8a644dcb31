"""The forward and backward pass of a micro-batch: through autograd, or as what was recorded of an earlier one of its kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from torch import Tensor

from gradstudio.engine.flat import Flat
from gradstudio.engine.recording import Recording, Unrecordable
from gradstudio.engine.runtime import out_of_memory

MOST = 4  # kinds that are recorded: a task whose batches come in many shapes goes through autograd

Results = tuple[Tensor, ...]


class Passes:
    """Each adds its gradient to flat.gradients. The second of a kind is recorded, and those after it repeat that, on the CPU. One that
    comes first after the gradients were cleared writes them where they are wanted."""

    def __init__(self, flat: Flat, state: Sequence[Tensor]) -> None:
        """`state` is what a pass changes beside the gradient: the model's buffers."""
        self._flat, self._state = flat, state
        self._fresh = flat.new()
        self._fresh_grads = flat.layout.views(self._fresh, flat.parameters)
        self._known: dict[Hashable, Recording | None] = {}  # None: seen once, or not to be recorded
        self._unrecordable: set[Hashable] = set()

    def forget(self) -> None:
        """Something has changed that a pass depends on: all recordings are void."""
        self._known.clear()

    def make(self, kind: Hashable, compute: Callable[..., Results], inputs: Sequence[Tensor]) -> Results:
        """compute(*inputs), whose first result is differentiated. A `kind` of pass differs from itself in nothing but the data.
        The results are valid until the next pass."""
        first, self._flat.cleared = self._flat.cleared, False
        kind = (kind, first, *((tensor.shape, tensor.dtype) for tensor in inputs))
        recording = self._known.get(kind)
        if recording is not None:
            recording.repeat(inputs)
        elif kind in self._known and kind not in self._unrecordable:
            recording = self._record(kind, compute, inputs, self._flat.grads if first else self._fresh_grads)
        elif len(self._known) < MOST and inputs[0].device.type == "cpu":
            self._known[kind] = None
        if recording is None:
            results = compute(*inputs)
            results[0].backward()
            return tuple(result.detach() for result in results)
        if not first:
            self._flat.gradients.add_(self._fresh)
        return recording.results

    def _record(self, kind: Hashable, compute: Callable[..., Results], inputs: Sequence[Tensor], grads: Sequence[Tensor]) -> Recording | None:
        try:
            self._known[kind] = Recording(compute, inputs, self._flat.parameters, grads, self._state)
        except (Unrecordable, RuntimeError, MemoryError) as fault:
            if not isinstance(fault, Unrecordable) and not out_of_memory(fault):
                raise
            self._unrecordable.add(kind)
            for grad in grads:  # what it may have left; where another micro-batch was there before, it is in flat.gradients
                grad.zero_()
        return self._known[kind]
