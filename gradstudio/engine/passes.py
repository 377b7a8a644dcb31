"""The forward and backward pass of a micro-batch: through autograd, or as what was recorded of an earlier one of its kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from gradstudio.engine.flat import Flat
from gradstudio.engine.graphs import Graph
from gradstudio.engine.recording import Recording, Results

# Of a kind that go through autograd before one is recorded, which costs as much as ten to forty: then no course of things, such as a
# slider that is dragged, is dearer than three times the cheapest.
PATIENCE = 20
MOST = 4  # kinds that are kept, those made last: a task whose batches come in many shapes goes through autograd
# What makes a pass that can be done again, by the type of the device; on others every pass goes through autograd.
RECORDERS: dict[str, Callable[..., Recording | Graph]] = {"cpu": Recording, "cuda": Graph}


class Passes:
    """Each adds its gradient to flat.gradients. After some of a kind one is recorded, on CUDA as a graph, and those after it repeat that. One
    that comes first after the gradients were cleared writes them where they are wanted."""

    def __init__(self, flat: Flat, state: Sequence[Tensor]) -> None:
        """`state` is what a pass changes beside the gradient: the model's buffers."""
        self._flat, self._state = flat, state
        self._fresh = flat.new()
        self._fresh_grads = flat.layout.views(self._fresh, flat.parameters)
        self.watched = False  # whether each goes through autograd, for someone to see its operations
        self._known: dict[Hashable, int | Recording | Graph | None] = {}  # how many were made, or what was recorded, or that it cannot be

    def forget(self) -> None:
        """Something has changed that a pass depends on: all recordings are void."""
        self._known.clear()

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Every pass in here goes through autograd."""
        self.watched = True
        try:
            yield
        finally:
            self.watched = False

    def make(self, kind: Hashable, compute: Callable[..., Results], inputs: Sequence[Tensor]) -> Results:
        """compute(*inputs), whose first result is differentiated. A `kind` of pass differs from itself in nothing but the data.
        The results are valid until the next pass."""
        first, self._flat.cleared = self._flat.cleared, False
        if self.watched:
            return _through_autograd(compute, inputs)
        kind = (kind, first, *((tensor.shape, tensor.dtype) for tensor in inputs))
        known = self._known.pop(kind, 0)
        if isinstance(known, int):
            if known >= PATIENCE and inputs[0].device.type in RECORDERS:
                known = self._record(compute, inputs, self._flat.grads if first else self._fresh_grads)
            else:
                known += 1
        elif known is not None:
            known.repeat(inputs)
        self._known[kind] = known  # the last of all
        if len(self._known) > MOST:
            self._known.pop(next(iter(self._known)))
        if known is None or isinstance(known, int):
            return _through_autograd(compute, inputs)
        if not first:
            self._flat.gradients.add_(self._fresh)
        return known.results

    def _record(self, compute: Callable[..., Results], inputs: Sequence[Tensor], grads: Sequence[Tensor]) -> Recording | Graph | None:
        try:
            return RECORDERS[inputs[0].device.type](compute, inputs, self._flat.parameters, grads, self._state)
        except Exception:  # Unrecordable, or out of memory; what is compute's own fault autograd says next
            for grad in grads:  # what was left; where another micro-batch was there before, it is in flat.gradients
                grad.zero_()
            return None


def _through_autograd(compute: Callable[..., Results], inputs: Sequence[Tensor]) -> Results:
    results = compute(*inputs)
    results[0].backward()
    return tuple(result.detach() for result in results)
