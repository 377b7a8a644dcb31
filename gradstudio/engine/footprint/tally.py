"""Counts torch's memory: every storage that an operation creates, from its creation to its release."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from gradstudio.core.footprint import PARTS, PHASES, Footprint
from gradstudio.engine.footprint.workspaces import hidden_result, workspace
from gradstudio.engine.passes.operation_calls import OperationInterceptor, storage_of, tensors_in
from gradstudio.engine.torch_internals import memory_and_work, seen_operations

_TEMPORARY = "temporary"
_OWNED = ("parameters", "gradients", "optimizer", "data")  # these keep their use when they are saved for backward


class Storage:
    """One piece of memory. `part` is its use, as far as known."""

    __slots__ = ("alive", "part", "size")

    def __init__(self, size: int) -> None:
        self.size, self.part = size, _TEMPORARY
        self.alive: weakref.ref[Any] | None = None


class Tally(OperationInterceptor):
    """A context that counts. A storage is referenced weakly, so that its release is observed."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "data"
        self._live: dict[int, Storage] = {}
        self._events: list[tuple[Storage, int, str, str]] = []  # +1 or -1, phase, operation
        self._operation = ""
        self._begun = 0  # number of events before the step that counts
        self._multiplications = 0
        self._count = memory_and_work.count_multiplications()
        self._summed = set[int]()  # storages that autograd is currently summing

    def see(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = seen_operations.schema(function).name.rpartition("::")[2]
        # Autograd adds the gradients that reach one tensor. In a part that is recomputed, gradients are enabled.
        sums = self.phase == "backward" and name == "add" and not torch.is_grad_enabled()
        places = filter(_may_be_overwritten, tensors_in(args)) if sums else ()
        self._summed = {id(self._note(tensor)) for tensor in places}
        results = function(*args, **kwargs)
        self._operation = name
        self._multiplications += self._count(function, args, kwargs, results)
        own = Storage(workspace(name, args, results))
        self._note_event(own, 1)
        if larger := hidden_result(name, args, results):
            self._note(*larger)
        for tensor in tensors_in(results):
            self._note(tensor)
        self._note_event(own, -1)
        return results

    def _note(self, tensor: Tensor, size: int | None = None) -> Storage:
        """Return the record of a tensor's storage, which may be new."""
        number = storage_of(tensor)
        if number in self._live:
            return self._live[number]
        memory = tensor.untyped_storage()
        storage = self._live[number] = Storage(memory.nbytes() if size is None else size)

        def end(_: object) -> None:
            del self._live[number]
            self._end(storage)

        storage.alive = weakref.ref(memory, end)
        self._note_event(storage, 1)
        return storage

    def _end(self, storage: Storage) -> None:
        """Record the release of a storage. Autograd adds the second gradient of a tensor to the first in place, unless
        it is observed: the sum was then stored in the memory that is released here."""
        born = self._events[-1] if self._events else None
        self._note_event(storage, -1)
        if id(storage) in self._summed and born is not None and born[1] == 1 and born[0].size == storage.size:
            self._events[-2:] = [self._events[-1], self._events[-2]]
            self._summed = set()

    def _note_event(self, storage: Storage, sign: int) -> None:
        if not storage.size:
            return
        self._events.append((storage, sign, self.phase, self._operation))

    def mark(self, tensors: Iterable[Tensor], part: str) -> None:
        """Record the use of these tensors."""
        for tensor in tensors:
            self._note(tensor).part = part

    def keep(self, tensor: Tensor) -> Tensor:
        """Record that a tensor is saved for the backward pass; a torch hook for saved tensors."""
        storage = self._note(tensor)
        if storage.part not in _OWNED:
            storage.part = "saved"
        return tensor.detach()  # the tensor itself may belong to the graph, which would then refer to itself forever

    def begin(self) -> None:
        """Begin the step that counts."""
        self._begun, self._multiplications = len(self._events), 0

    def footprint(self) -> Footprint:
        """Return what was counted since `begin`. The state of the optimizer, which the first update creates, counts as
        if it had existed before, as it does in every later step."""
        now, sizes, names = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0), dict[str, int]()
        for storage, sign, _, _ in self._events[: self._begun]:
            now[storage.part] += sign * storage.size
        now["optimizer"] = sum(storage.size for storage in self._live.values() if storage.part == "optimizer")
        sizes.update(now)
        before = total = peak = sum(now.values())
        phase, operation, at_peak = "data", "", dict(now)
        curve, phases, operations = list[int](), list[int](), list[int]()
        for storage, sign, in_phase, by in self._events[self._begun :]:
            if storage.part == "optimizer":
                continue
            now[storage.part] += sign * storage.size
            total += sign * storage.size
            sizes[storage.part] = max(sizes[storage.part], now[storage.part])
            if total > peak:
                peak, phase, operation, at_peak = total, in_phase, by, dict(now)
            curve.append(total)
            phases.append(PHASES.index(in_phase))
            operations.append(names.setdefault(by, len(names)))
        return Footprint(
            peak, phase, operation, sizes, at_peak, before, tuple(curve), tuple(phases), tuple(operations),
            tuple(names), self._multiplications,
        )  # fmt: skip


def _may_be_overwritten(tensor: Tensor) -> bool:
    """Return whether autograd may store a sum in a tensor's memory: it is the whole storage, and not a view, whose base
    would also refer to that storage."""
    return not memory_and_work.is_view(tensor) and tensor.nbytes == tensor.untyped_storage().nbytes()


def saving(tally: Tally) -> torch.autograd.graph.saved_tensors_hooks:
    """Return a context in which the tally sees the tensors saved for the backward pass."""
    return torch.autograd.graph.saved_tensors_hooks(tally.keep, lambda tensor: tensor)
