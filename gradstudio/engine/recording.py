"""A forward and backward pass as the list of operations that autograd made of it, to be done again on other data.

Half of what a small model's step takes is not arithmetic: modules, the building of autograd's graph, fresh memory. So one pass is
watched, and from then on its operations alone are done: the same ones in the same order with the same bits, each into memory that has
its place beforehand. It is on the CPU what a CUDA graph is on a GPU.

What cannot be repeated, because what is done depends on the data, is Unrecordable, and goes through autograd at every step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from gradstudio.engine.flat import ALIGNED
from gradstudio.engine.program import LET_GO, Made, Operation, Program, Standing
from gradstudio.engine.watching import Call, Unrecordable, Watch, storage_of, with_each, writing_form

COPIED = 1 << 16  # bytes; a larger result is taken over where it is, as copying it would take longer

# Their results depend on nothing but the shapes of their arguments.
_OF_SHAPES = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}


def _copied(inputs: Tensor, place: Tensor) -> Operation:
    return Operation(Tensor.copy_, (place, inputs), name="aten.copy_")


# What torch does by another operation, which unlike it can write where it is told to.
_SAME: dict[str, Callable[[Tensor, Tensor], Operation]] = {
    "relu": lambda inputs, place: Operation(torch.clamp_min, (inputs, 0), {"out": place}, "aten.clamp_min"),
    "clone": _copied,
    "_to_copy": _copied,
}

Results = tuple[Tensor, ...]


class Recording:
    """`results` is what `compute` returned, and the gradients are where they were wanted; `repeat` fills both anew."""

    def __init__(
        self, compute: Callable[..., Results], inputs: Sequence[Tensor], parameters: Sequence[Tensor],
        grads: Sequence[Tensor], state: Sequence[Tensor] = (),
    ) -> None:  # fmt: skip
        """Watch `compute(*inputs)`, whose first result is differentiated by the `parameters`; the gradients go to `grads`. `state` is what
        it changes beside that. Afterwards all is as if it had run once. Unrecordable, and all is as before, where doing it again, on
        these inputs or on others, gives any other bit than autograd; what `compute` raises passes through."""
        self._inputs = [tensor.clone() for tensor in inputs]
        before = [tensor.clone() for tensor in state]

        def differentiated(*given: Tensor) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
            results = compute(*given)
            return results, torch.autograd.grad(results[0], parameters, allow_unused=True)

        try:
            with Watch() as watch:
                results, found = differentiated(*self._inputs)
            self._place(watch.calls, results, found, grads)
            hold_against_autograd(self, differentiated, inputs, grads, state, before)
        except BaseException:
            restore(state, before)
            raise

    @torch.no_grad()
    def _place(self, calls: list[Call], results: Sequence[Tensor], found: Sequence[Tensor | None], grads: Sequence[Tensor]) -> None:
        places = _Places(calls)
        copied = [(grad, target) for grad, target in zip(found, grads, strict=True) if grad is not None and not places.move(grad, target)]
        places.settle([*results, *(grad for grad, _ in copied)])
        self.results = tuple(places.of(result) for result in results)
        self.operations = [repeated for number, call in enumerate(calls) for repeated in places.repeated(number, call)]
        self.operations += [_copied(places.of(grad), target) for grad, target in copied]
        missing = [target for grad, target in zip(found, grads, strict=True) if grad is None]
        self.operations += [Operation(Tensor.zero_, (target,), name="aten.zero_") for target in missing]
        for standing in places.taken_over.values():
            _let_go(standing)  # of what was watched
        self._program = Program(self.operations, whole=not any(storage_of(result) in places.taken_over for result in results))

    def repeat(self, inputs: Sequence[Tensor]) -> None:
        """Do it all on these inputs, which must be of the recorded shapes."""
        # Not in no_grad, where some operations leave out what their backward needs; none of the recorded tensors asks for a gradient.
        for own, new in zip(self._inputs, inputs, strict=True):
            own.copy_(new)
        self._program.run()


class Repeated(Protocol):
    """A pass that can be done again."""

    results: Results

    def repeat(self, inputs: Sequence[Tensor]) -> None: ...


def hold_against_autograd(
    again: Repeated, differentiated: Callable[..., tuple[Sequence[Tensor], Sequence[Tensor | None]]], inputs: Sequence[Tensor],
    grads: Sequence[Tensor], state: Sequence[Tensor], before: Sequence[Tensor],
) -> None:  # fmt: skip
    """Unrecordable where doing it again gives any other bit. Afterwards all is as if it had been done once since `state` was as `before`."""
    # Whatever was read of the data past torch's operations would be taken for a constant: the same examples in another order tell.
    for given in ([tensor.flip(0) for tensor in inputs], inputs):
        restore(state, before)
        results, found = differentiated(*given)
        after = [tensor.clone() for tensor in state]
        restore(state, before)
        again.repeat(given)
        there = [target for grad, target in zip(found, grads, strict=True) if grad is not None]
        once = [*results, *(grad for grad in found if grad is not None), *after]
        if not all(map(_same_bits, once, [*again.results, *there, *state])):
            raise Unrecordable("it gave other numbers")


class _Places:
    """Where recorded tensors lie when their operations are repeated: what the operations made, in one tensor in which those share a
    place that are not needed at the same time; all others, and constants, where they are. Large results of operations that cannot write
    where they are told to are taken over: the tensors that stand for them change their memory each time."""

    def __init__(self, calls: list[Call]) -> None:
        self._makers: dict[int, Call] = {}  # of each storage
        self._sizes: dict[int, int] = {}  # in bytes
        self._dtypes: dict[int, torch.dtype] = {}
        self._first: dict[int, int] = {}  # the number of the call that makes it
        self._last: dict[int, int] = {}  # and of the last one that uses it
        self._elsewhere: dict[int, tuple[torch.UntypedStorage, int]] = {}  # where it is moved to, from which byte on
        self._moved: dict[Hashable, Tensor] = {}  # by what tells recorded tensors apart
        self.taken_over: dict[int, list[Standing]] = {}  # all that stand for a storage
        self._ending: dict[int, list[int]] = defaultdict(list)  # which of these a call is the last to use
        found_there, written = set(), set()
        for number, call in enumerate(calls):
            written |= {storage_of(tensor) for tensor in call.written}
            found_there |= {storage_of(tensor) for tensor in call.taken if storage_of(tensor) not in self._makers}
            for result in call.results:
                key = storage_of(result)
                if key not in found_there and key not in self._makers:
                    self._makers[key], self._first[key] = call, number
                    self._sizes[key], self._dtypes[key] = result.untyped_storage().nbytes(), result.dtype
            for tensor in (*call.taken, *call.results):
                self._last[storage_of(tensor)] = number
        self._constant = {key for key, call in self._makers.items() if key not in written and (call.name in _OF_SHAPES or not call.taken)}

    def move(self, tensor: Tensor, target: Tensor) -> bool:
        """Let the operation that makes `tensor` write into `target`; False where that cannot be."""
        key = storage_of(tensor)
        size = target.numel() * target.element_size()
        possible = (
            key in self._makers and key not in self._constant and key not in self._elsewhere and self._sizes[key] == size
            and tensor.dtype == target.dtype and tensor.stride() == target.stride()
        )  # fmt: skip
        if possible:
            self._elsewhere[key] = (target.untyped_storage(), target.storage_offset() * target.element_size())
        return possible

    def settle(self, kept: Iterable[Tensor]) -> None:
        """Give everything that is left its place: the lowest that is free from its first to its last use. `kept` outlasts them all."""
        forever = {storage_of(tensor) for tensor in kept}
        taken: list[tuple[int, int, float]] = []  # from, to and last use, in order
        places: dict[int, int] = {}
        for key, first in self._first.items():
            if key in self._constant or key in self._elsewhere:
                continue
            if self._sizes[key] > COPIED and not _writes(self._makers[key]) and self._dtypes[key] in _NOTHING:
                self.taken_over[key] = []
                if key not in forever:
                    self._ending[self._last[key]].append(key)
                continue
            taken = [used for used in taken if used[2] >= first]
            size, place = -(-self._sizes[key] // (4 * ALIGNED)) * 4 * ALIGNED, 0
            for start, stop, _ in taken:
                if place + size <= start:
                    break
                place = stop
            taken.append((place, place + size, float("inf") if key in forever else self._last[key]))
            taken.sort()
            places[key] = place
        whole = torch.empty(max((place + self._sizes[key] for key, place in places.items()), default=0), dtype=torch.uint8)
        self._elsewhere |= {key: (whole.untyped_storage(), place) for key, place in places.items()}

    def of(self, tensor: Tensor) -> Tensor:
        """A recorded tensor at its place."""
        described = (storage_of(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if described not in self._moved:
            self._moved[described] = self._at_its_place(tensor)
        return self._moved[described]

    def repeated(self, number: int, call: Call) -> Iterator[Operation]:
        """What does the call of that number again, if anything, and lets go of what was taken over and is not needed any more."""
        again = self._again(call)
        if again is not None:
            yield again
        for key in self._ending[number]:
            yield Operation(_let_go, (self.taken_over[key],), name=LET_GO)

    def _again(self, call: Call) -> Operation | None:
        if torch.Tag.inplace_view in call.function.tags or call.name in _EMPTY:
            return None
        made = [result for result in call.results if self._makers.get(storage_of(result)) is call]
        args, kwargs = with_each((call.args, call.kwargs), self.of)
        name = call.function._schema.name.replace("::", ".")
        if call.function._schema.is_mutable:
            return Operation(call.function._op, args, kwargs, name)
        if not made or all(storage_of(result) in self._constant for result in made):
            return None  # a view of what has its place, or always the same
        places = [self.of(result) for result in call.results]
        if call.name in _SAME:
            return _SAME[call.name](args[0], places[0])
        if not _writes(call):
            standing = [self.taken_over.get(storage_of(result)) for result in call.results]
            keeping = _keeping(call.function._op, list(zip(places, standing, strict=True)))
            returned = call.function._schema.returns
            if len(call.positions) != len(places) or any(str(each.type) != "Tensor" for each in returned):
                return Operation(keeping, args, kwargs)  # among its results are lists
            return Operation(keeping, args, kwargs, name, tuple(map(Made, call.positions, places, standing)), len(returned))
        writing, names = writing_form(call.function)
        return Operation(writing, args, kwargs | dict(zip(names, places, strict=True)), name)

    def _at_its_place(self, tensor: Tensor) -> Tensor:
        if storage_of(tensor) in self.taken_over:
            standing = tensor.detach()
            made = next(result for result in self._makers[storage_of(tensor)].results if storage_of(result) == storage_of(tensor))
            lies = (tensor.shape, tensor.stride(), tensor.storage_offset())
            self.taken_over[storage_of(tensor)].append((standing, None if lies == (made.shape, made.stride(), 0) else lies))
            return standing
        if storage_of(tensor) not in self._elsewhere:
            return tensor.detach()
        storage, start = self._elsewhere[storage_of(tensor)]
        offset = start // tensor.element_size() + tensor.storage_offset()
        return torch.empty(0, dtype=tensor.dtype).set_(storage, offset, tensor.size(), tensor.stride())


def _keeping(function: Callable[..., Any], places: list[tuple[Tensor, list[Standing] | None]]) -> Callable[..., None]:
    """An operation that cannot write where it is told to: a result is copied to its place, or taken over by all that stand for it."""

    def kept(*args: Any, **kwargs: Any) -> None:
        results = function(*args, **kwargs)
        results = [results] if isinstance(results, Tensor) else [result for result in results if result is not None]
        if len(results) != len(places):
            raise Unrecordable("an operation gives other results without autograd")
        for (place, standing), result in zip(places, results, strict=True):
            if standing is None:
                place.copy_(result)
                continue
            for tensor, lies in standing:
                tensor.data = result if lies is None else result.as_strided(*lies)

    return kept


_NOTHING = {dtype: torch.empty(0, dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)}


def _let_go(standing: list[Standing]) -> None:
    """So that the next operation gets this memory, which the processor still has at hand."""
    for tensor, _ in standing:
        tensor.data = _NOTHING[tensor.dtype]


def _writes(call: Call) -> bool:
    """Whether a call can write its results where it is told to."""
    return call.name in _SAME or len(writing_form(call.function)[1]) == len(call.results)


def restore(state: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    for tensor, old in zip(state, before, strict=True):
        tensor.copy_(old)


def _same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether they are equal to the last bit; a NaN is equal to itself."""
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))
