"""Where each tensor of a watched pass is stored when the pass is replayed from its recording."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gradstudio.engine.passes.flat import ALIGNED
from gradstudio.engine.passes.operation_calls import (
    Call,
    Unrecordable,
    fast_function,
    storage_of,
    with_each,
    writing_form,
)

COPIED = 1 << 16  # bytes; a larger result is taken over where it is, as copying it would take longer

# Operations whose results depend only on the shapes of their arguments.
_OF_SHAPES = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"}
_EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}


# A tensor that stands for a result which an operation allocates each time; and, if it is only a part of the result, its
# size, stride and offset there.
Standing = tuple[Tensor, tuple[Sequence[int], Sequence[int], int] | None]


def copy_to(inputs: Tensor, place: Tensor) -> partial[Any]:
    return partial(Tensor.copy_, place, inputs)


# Operations that torch implements by another one, which can write to a given place.
_SAME: dict[str, Callable[[Tensor, Tensor], partial[Any]]] = {
    "relu": lambda inputs, place: partial(torch.clamp_min, inputs, 0, out=place),
    "clone": copy_to,
    "_to_copy": copy_to,
}


class TensorPlaces:
    """Plans where each tensor of a watched pass is stored when the pass is replayed.

    Results of the operations get a place in one block of memory, where those that are not needed at the same time share
    it. All others, and constants, stay where they are. A large result of an operation that cannot write to a given
    place is *taken over*: the tensors that stand for it get its new memory at each replay."""

    def __init__(self, calls: list[Call]) -> None:
        # By storage (watching.storage_of):
        self._makers: dict[int, Call] = {}  # the call that produced it
        self._sizes: dict[int, int] = {}  # in bytes
        self._dtypes: dict[int, torch.dtype] = {}
        self._first: dict[int, int] = {}  # number of the call that produces it
        self._last: dict[int, int] = {}  # number of the last call that uses it
        self._elsewhere: dict[int, tuple[torch.UntypedStorage, int]] = {}  # where it is moved to, and the first byte
        self._moved: dict[Hashable, Tensor] = {}  # by storage, offset, shape, stride and dtype
        self.taken_over: dict[int, list[Standing]] = {}  # the tensors that stand for it
        self._ending: dict[int, list[int]] = defaultdict(list)  # by call: those that it is the last to use
        found_there, written = set(), set()
        for number, call in enumerate(calls):
            written |= {storage_of(tensor) for tensor in call.written_tensors}
            found_there |= {key for key in call.taken_in if key not in self._makers}
            for key, result in zip(call.made_in, call.results, strict=True):
                if key not in found_there and key not in self._makers:
                    self._makers[key], self._first[key] = call, number
                    self._sizes[key], self._dtypes[key] = result.untyped_storage().nbytes(), result.dtype
            for key in (*call.taken_in, *call.made_in):
                self._last[key] = number
        self._constant = {
            key
            for key, call in self._makers.items()
            if key not in written and (call.name in _OF_SHAPES or not call.taken)
        }

    def move(self, tensor: Tensor, target: Tensor) -> bool:
        """Let the operation that produces `tensor` write to `target`. Return False if that is not possible."""
        key = storage_of(tensor)
        size = target.numel() * target.element_size()
        possible = (
            key in self._makers
            and key not in self._constant
            and key not in self._elsewhere
            and self._sizes[key] == size
            and tensor.dtype == target.dtype
            and tensor.stride() == target.stride()
        )
        if possible:
            self._elsewhere[key] = (target.untyped_storage(), int(target.storage_offset()) * target.element_size())
        return possible

    def settle(self, kept: Iterable[Tensor]) -> None:
        """Give each remaining tensor the lowest place that is free from its first to its last use. Those in `kept` are
        never overwritten."""
        forever = {storage_of(tensor) for tensor in kept}
        taken: list[tuple[int, int, float]] = []  # first byte, end and last use, in order
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
        whole = torch.empty(
            max((place + self._sizes[key] for key, place in places.items()), default=0), dtype=torch.uint8
        )
        self._elsewhere |= {key: (whole.untyped_storage(), place) for key, place in places.items()}

    def of(self, tensor: Tensor) -> Tensor:
        """Return the tensor that replaces a watched one."""
        described = (storage_of(tensor), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        if described not in self._moved:
            self._moved[described] = self._at_its_place(tensor)
        return self._moved[described]

    def repeat(self, number: int, call: Call) -> Iterator[partial[Any]]:
        """Yield the operations that repeat the call with this number, and release what was taken over and has no later
        use."""
        again = self._again(call)
        if again is not None:
            yield again
        for key in self._ending[number]:
            yield partial(release, self.taken_over[key])

    def _again(self, call: Call) -> partial[Any] | None:
        declared = call.declared
        if declared.makes_view or call.name in _EMPTY:
            return None
        made = [key for key in call.made_in if self._makers.get(key) is call]
        if not declared.is_mutable and all(key in self._constant for key in made):
            return None  # a view of a tensor that already has its place, or a constant
        args, kwargs = with_each((call.args, call.kwargs), self.of)
        if declared.is_mutable:
            return partial(fast_function(call.function), *args, **kwargs)
        places = [self.of(result) for result in call.results]
        if call.name in _SAME:
            return _SAME[call.name](args[0], places[0])
        if not _writes(call):
            standing = [self.taken_over.get(key) for key in call.made_in]
            return partial(
                _placing(fast_function(call.function), list(zip(places, standing, strict=True))), *args, **kwargs
            )
        writing, names = writing_form(call.function)
        assert writing is not None
        return partial(writing, *args, **(kwargs | dict(zip(names, places, strict=True))))

    def _at_its_place(self, tensor: Tensor) -> Tensor:
        if storage_of(tensor) in self.taken_over:
            standing = tensor.detach()
            made = next(
                result
                for result in self._makers[storage_of(tensor)].results
                if storage_of(result) == storage_of(tensor)
            )
            lies = (tensor.shape, tensor.stride(), int(tensor.storage_offset()))
            self.taken_over[storage_of(tensor)].append(
                (standing, None if lies == (made.shape, made.stride(), 0) else lies)
            )
            return standing
        if storage_of(tensor) not in self._elsewhere:
            return tensor.detach()
        storage, start = self._elsewhere[storage_of(tensor)]
        offset = start // tensor.element_size() + tensor.storage_offset()
        return torch.empty(0, dtype=tensor.dtype).set_(storage, offset, tensor.size(), tensor.stride())


def _placing(function: Callable[..., Any], places: list[tuple[Tensor, list[Standing] | None]]) -> Callable[..., None]:
    """Wrap an operation that cannot write to given places: each result is copied to its place, or taken over by the
    tensors that stand for it."""

    def run_and_place(*args: Any, **kwargs: Any) -> None:
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

    return run_and_place


_NOTHING = {dtype: torch.empty(0, dtype=dtype) for dtype in (torch.float32, torch.bfloat16, torch.float16)}


def release(standing: list[Standing]) -> None:
    """Release what was taken over, so that the next operation gets this memory, which is still in the processor's
    cache."""
    for tensor, _ in standing:
        tensor.data = _NOTHING[tensor.dtype]


def _writes(call: Call) -> bool:
    """Return whether a call can write its results to given places."""
    return call.name in _SAME or len(writing_form(call.function)[1]) == len(call.results)
