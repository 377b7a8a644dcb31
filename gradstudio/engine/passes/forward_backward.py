"""The forward and backward pass of a micro-batch: through autograd, or replayed from the recording of an earlier one of
its kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from gradstudio.core import recording_switch
from gradstudio.engine import notices
from gradstudio.engine.passes.cuda_graph import Graph
from gradstudio.engine.passes.flat import Flat
from gradstudio.engine.passes.operation_calls import Unrecordable
from gradstudio.engine.passes.recording import Recording, Results

# Number of passes of a kind that go through autograd before one is recorded. A recording costs as much as ten to forty
# passes, so that even a slider that is dragged, which invalidates it again and again, costs at most three times the
# cheapest.
PATIENCE = 20
MOST = 4  # latest kinds that are kept, so that a task with batches of many shapes does not fill the memory
# The recorder of a pass, by device type; on other devices every pass goes through autograd.
RECORDERS: dict[str, Callable[..., Recording | Graph]] = {"cpu": Recording, "cuda": Graph}


class Passes:
    """Makes passes, each of which adds its gradient to flat.gradients.

    After PATIENCE passes of a kind the next one is recorded, on CUDA as a graph, and all later ones replay it. The
    first pass after the gradients were cleared is a kind of its own: it writes them in place of adding."""

    def __init__(self, flat: Flat, state: Sequence[Tensor], *, recorded: bool = True) -> None:
        """`state` is what a pass changes besides the gradient: the model's buffers. Without `recorded` every pass goes
        through autograd."""
        self._flat, self._state = flat, state
        self._fresh = flat.new()
        self._fresh_grads = flat.layout.views(self._fresh, flat.parameters)
        self._wanted = recorded and recording_switch.is_enabled()
        self.watched = False  # whether each pass goes through autograd, for code that watches its operations
        # By kind: number of passes that were made, or the recording, or None if recording is impossible.
        self._known: dict[Hashable, int | Recording | Graph | None] = {}

    def forget(self) -> None:
        """Drop all recordings, after a change of something that a pass depends on."""
        self._known.clear()

    @contextmanager
    def without_recording(self) -> Iterator[None]:
        """Send every pass in this context through autograd."""
        self.watched = True
        try:
            yield
        finally:
            self.watched = False

    def make(self, kind: Hashable, compute: Callable[..., Results], inputs: Sequence[Tensor]) -> Results:
        """Return compute(*inputs), and add the gradient of its first result. Two passes of one `kind` differ only in
        the data. The results are valid until the next pass."""
        first, self._flat.cleared = self._flat.cleared, False
        if self.watched or not self._wanted:
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
        self._known[kind] = known  # at the end, as the latest
        if len(self._known) > MOST:
            self._known.pop(next(iter(self._known)))
        if known is None or isinstance(known, int):
            return _through_autograd(compute, inputs)
        if not first:
            self._flat.gradients.add_(self._fresh)
        return known.results

    def _record(
        self, compute: Callable[..., Results], inputs: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> Recording | Graph | None:
        try:
            return RECORDERS[inputs[0].device.type](compute, inputs, self._flat.parameters, grads, self._state)
        except Unrecordable:
            pass
        except Exception as fault:  # if `compute` is to blame, autograd raises it next
            text = str(fault).strip().partition("\n")[0][:300]
            notices.tell(
                f"A pass could not be recorded ({type(fault).__name__}: {text}); training is slower, with the same "
                "numbers."
            )
        for grad in grads:  # remains of the attempt; an earlier micro-batch's gradient is in flat.gradients
            grad.zero_()
        return None


def _through_autograd(compute: Callable[..., Results], inputs: Sequence[Tensor]) -> Results:
    results = compute(*inputs)
    results[0].backward()
    return tuple(result.detach() for result in results)
