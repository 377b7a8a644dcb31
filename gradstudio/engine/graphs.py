"""A forward and backward pass as a CUDA graph: what recording.py does on the CPU, by CUDA's own means.

A small model's step on a GPU is not arithmetic but the launching of kernels, one by one, from Python and from autograd. A graph launches
all of a pass at once. Like a recording it is held against autograd, on other data and to the last bit, before it is trusted; what cannot
be captured, because the host looks at the data or random numbers are drawn, goes through autograd at every step.

No CUDA device was at hand when this was written: `on_cuda` never ran. All the rest was tried on the CPU, with a stand-in for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gradstudio.engine import foreach
from gradstudio.engine.recording import Results, hold_against_autograd, restore

WARM_UP = 3  # passes on the capturing stream before the capture, in which libraries set themselves up

_capturing = threading.Lock()  # one at a time in a process; runs train in one thread and fixes are tried in another

# Captures what a function does: gives its results, and what does it all again, on the same memory.
Capture = Callable[[Callable[[], Results]], tuple[Results, Callable[[], None]]]


def on_cuda(function: Callable[[], Results]) -> tuple[Results, Callable[[], None]]:
    """A capture on a stream of its own. torch.cuda.graph is not used: in older versions it runs Python's garbage collector, which must not
    run in a thread beside Qt. Other threads may use the device meanwhile. Raises what CUDA says where it cannot be captured."""
    stream = torch.cuda.Stream()
    with _capturing, torch.cuda.stream(stream):
        torch.cuda.synchronize()
        for _ in range(WARM_UP):
            function()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            results = function()
        finally:
            graph.capture_end()
        torch.cuda.synchronize()
    return results, graph.replay


class Graph:
    """`results` is what `compute` returned, and the gradients are where they were wanted; `repeat` fills both anew."""

    def __init__(
        self, compute: Callable[..., Results], inputs: Sequence[Tensor], parameters: Sequence[Tensor], grads: Sequence[Tensor],
        state: Sequence[Tensor] = (), capture: Capture = on_cuda,
    ) -> None:  # fmt: skip
        """As of a Recording: capture `compute(*inputs)`, whose first result is differentiated by the `parameters`; the gradients go to `grads`.
        `state` is what it changes beside that. Afterwards all is as if it had run once. Raises, and `state` is as before, where it cannot be
        captured, or gives any other bit than autograd when it is done again."""
        self._inputs = [tensor.clone() for tensor in inputs]
        before = [tensor.clone() for tensor in state]

        def differentiated(*given: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
            results = compute(*given)
            return results, torch.autograd.grad(results[0], parameters, allow_unused=True)

        def once() -> Results:
            results, found = differentiated(*self._inputs)
            pairs = list(zip(grads, found, strict=True))
            foreach.copy_([target for target, grad in pairs if grad is not None], [grad for grad in found if grad is not None])
            for target in [target for target, grad in pairs if grad is None]:
                target.zero_()
            return tuple(result.detach() for result in results)

        try:
            with torch.cuda.device_of(self._inputs[0]):
                self.results, self._again = capture(once)
                hold_against_autograd(self, differentiated, inputs, grads, state, before)
        except BaseException:
            restore(state, before)
            raise

    def repeat(self, inputs: Sequence[Tensor]) -> None:
        """Do it all on these inputs, which must be of the captured shapes."""
        for own, new in zip(self._inputs, inputs, strict=True):
            own.copy_(new, non_blocking=True)
        self._again()
