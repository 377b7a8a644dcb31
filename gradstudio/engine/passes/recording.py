"""Record a forward and backward pass as a list of operations, and replay them on other data.

Half the time of a small model's step is spent not on arithmetic but on modules, autograd's graph and fresh memory. So
one pass is watched, and later passes do its operations alone: the same ones in the same order with the same bits, each
writing to memory that was allocated for it once. A recording does on the CPU what a CUDA graph does on a GPU.

A pass whose operations depend on the data is Unrecordable, and goes through autograd at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from gradstudio.engine.passes.operation_calls import Call, OperationRecorder, Unrecordable
from gradstudio.engine.passes.tensor_places import TensorPlaces, copy_to, release
from gradstudio.engine.torch_internals import seen_operations

Results = tuple[Tensor, ...]


class Recording:
    """A pass that can be replayed. `results` is the return value of `compute`; `repeat` refills it and the
    gradients."""

    def __init__(
        self, compute: Callable[..., Results], inputs: Sequence[Tensor], parameters: Sequence[Tensor],
        grads: Sequence[Tensor], state: Sequence[Tensor] = (),
    ) -> None:  # fmt: skip
        """Watch `compute(*inputs)` and the backward pass of its first result. The gradients of the `parameters` go to
        `grads`; `state` is what the pass changes besides that. Afterwards everything is as if the pass had been made
        once.

        Raises Unrecordable, with `state` as before, if replaying it on these inputs or on others differs from autograd
        in any bit. Exceptions of `compute` pass through."""
        if not seen_operations.can_intercept_operations():
            raise Unrecordable("torch cannot be watched")
        self._inputs = [tensor.clone() for tensor in inputs]
        before = [tensor.clone() for tensor in state]

        def differentiate(*tensors: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
            results = compute(*tensors)
            return results, torch.autograd.grad(results[0], parameters, allow_unused=True)

        try:
            with OperationRecorder() as watch:
                results, tensors = differentiate(*self._inputs)
            self._place(watch.calls, results, tensors, grads)
            compare_with_autograd(self, differentiate, inputs, grads, state, before)
        except BaseException:
            restore(state, before)
            raise

    @torch.no_grad()
    def _place(
        self, calls: list[Call], results: Sequence[Tensor], tensors: Sequence[Tensor | None], grads: Sequence[Tensor]
    ) -> None:
        places = TensorPlaces(calls)
        copied = [
            (grad, target)
            for grad, target in zip(tensors, grads, strict=True)
            if grad is not None and not places.move(grad, target)
        ]
        places.settle([*results, *(grad for grad, _ in copied)])
        self.results = tuple(places.of(result) for result in results)
        self.operations = [repeated for number, call in enumerate(calls) for repeated in places.repeat(number, call)]
        self.operations += [copy_to(places.of(grad), target) for grad, target in copied]
        missing = [target for grad, target in zip(tensors, grads, strict=True) if grad is None]
        self.operations += [partial(Tensor.zero_, target) for target in missing]
        for standing in places.taken_over.values():
            release(standing)  # so that no memory of the watched pass is kept

    def repeat(self, inputs: Sequence[Tensor]) -> None:
        """Replay the pass on these inputs, which must have the recorded shapes."""
        # Not in no_grad, where some operations leave out results that their backward needs; no recorded tensor requires
        # a gradient anyway.
        for own, new in zip(self._inputs, inputs, strict=True):
            own.copy_(new)
        for operation in self.operations:
            operation()


class RepeatablePass(Protocol):
    """A pass that can be replayed on other inputs."""

    @property
    def results(self) -> Results: ...

    def repeat(self, inputs: Sequence[Tensor]) -> None: ...


def compare_with_autograd(
    again: RepeatablePass, differentiated: Callable[..., tuple[Sequence[Tensor], Sequence[Tensor | None]]],
    inputs: Sequence[Tensor],
    grads: Sequence[Tensor], state: Sequence[Tensor], before: Sequence[Tensor],
) -> None:  # fmt: skip
    """Raise Unrecordable if the replayed pass differs from autograd in any bit. `before` is the value of `state` before
    both passes; afterwards the pass counts as made once."""
    # Data that bypassed torch's operations was recorded as a constant: the same examples in another order reveal that.
    for given in ([tensor.flip(0) for tensor in inputs], inputs):
        restore(state, before)
        results, tensors = differentiated(*given)
        after = [tensor.clone() for tensor in state]
        restore(state, before)
        again.repeat(given)
        there = [target for grad, target in zip(tensors, grads, strict=True) if grad is not None]
        once = [*results, *(grad for grad in tensors if grad is not None), *after]
        if not all(map(_same_bits, once, [*again.results, *there, *state])):
            raise Unrecordable("it gave other numbers")


def restore(state: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    """Copy the values that `state` had before back to it."""
    for tensor, old in zip(state, before, strict=True):
        tensor.copy_(old)


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal to the last bit; a NaN is equal to itself."""
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))
