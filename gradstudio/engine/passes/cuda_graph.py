"""Capture a forward and backward pass as a CUDA graph: the counterpart of recording.py on a GPU.

A small model's step on a GPU spends its time not on arithmetic but on launching kernels one by one. A graph launches
all kernels of a pass at once. Like a recording it is compared with autograd, on other data and to the last bit, before
it is used. A pass that cannot be captured, because the host reads data or random numbers are drawn, goes through
autograd at every step.

tests/engine/test_graphs.py replaces `on_cuda`, so that everything else is tested without a GPU too."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from gradstudio.engine.passes.operation_calls import Unrecordable
from gradstudio.engine.passes.recording import Results, compare_with_autograd, restore
from gradstudio.engine.runtime import out_of_memory
from gradstudio.engine.torch_internals import tensor_lists

WARM_UP = 3  # passes on the capturing stream before the capture, which initialize CUDA's libraries

_capturing = threading.Lock()  # one capture at a time: runs train in one thread and fixes are tried in another

# Captures a function: returns its results, and a function that replays it on the same memory.
Capture = Callable[[Callable[[], Results]], tuple[Results, Callable[[], None]]]


def on_cuda(function: Callable[[], Results]) -> tuple[Results, Callable[[], None]]:
    """Capture a function on its own stream; other threads may use the device meanwhile. CUDA's RuntimeError if the
    function cannot be captured."""
    # torch.cuda.graph would run Python's garbage collector in older versions, which must not run in a thread beside Qt.
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


def _capture(capture: Capture, once: Callable[[], Results]) -> tuple[Results, Callable[[], None]]:
    try:
        return capture(once)
    except RuntimeError as fault:
        if out_of_memory(fault):
            raise
        raise Unrecordable(str(fault)) from fault


class Graph:
    """A pass that can be replayed. `results` is the return value of `compute`; `repeat` refills it and the
    gradients."""

    def __init__(
        self, compute: Callable[..., Results], inputs: Sequence[Tensor], parameters: Sequence[Tensor],
        grads: Sequence[Tensor],
        state: Sequence[Tensor] = (), capture: Capture = on_cuda,
    ) -> None:  # fmt: skip
        """Capture `compute(*inputs)` and the backward pass of its first result. The gradients of the `parameters` go to
        `grads`; `state` is what the pass changes besides that. Afterwards everything is as if the pass had been made
        once.

        Raises Unrecordable, with `state` as before, if it cannot be captured, or if replaying it differs from autograd
        in any bit."""
        self._inputs = [tensor.clone() for tensor in inputs]
        before = [tensor.clone() for tensor in state]

        def differentiate(*tensors: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
            results = compute(*tensors)
            return results, torch.autograd.grad(results[0], parameters, allow_unused=True)

        def once() -> Results:
            results, tensors = differentiate(*self._inputs)
            pairs = list(zip(grads, tensors, strict=True))
            tensor_lists.copy_(
                [target for target, grad in pairs if grad is not None], [grad for grad in tensors if grad is not None]
            )
            for target in [target for target, grad in pairs if grad is None]:
                target.zero_()
            return tuple(result.detach() for result in results)

        try:
            with torch.cuda.device_of(self._inputs[0]):
                self.results, self._again = _capture(capture, once)
                compare_with_autograd(self, differentiate, inputs, grads, state, before)
        except BaseException:
            restore(state, before)
            raise

    def repeat(self, inputs: Sequence[Tensor]) -> None:
        """Replay the pass on these inputs, which must have the captured shapes."""
        for own, new in zip(self._inputs, inputs, strict=True):
            own.copy_(new, non_blocking=True)
        self._again()
