"""Observed calls of torch: which function, with which input and output tensors."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

import gradstudio
from gradstudio.crash.logged_calls import LoggedCall, LoggedDerivative, NotObserved, OutsideTensor, Ref
from gradstudio.crash.own_derivatives import name_of_own
from gradstudio.engine.torch_internals.autograd_nodes import results_of_node, version_of

MOST_CALLS = 20_000
_GRADIENT: Any = Tensor.grad  # is inspected by whatever clears it
_FILES = [os.path.abspath(str(each.__file__)) for each in (torch, gradstudio)]
_NOT_OWN = tuple([os.path.join(os.path.dirname(file), "") for file in _FILES])
# Whose values receive no gradient, though a size may be a tensor.
_DRAWS = {"rand_like", "randn_like", "randint_like", "normal", "zeros", "ones", "full", "arange", "rand", "randn"}
_COMPILED = "CompiledFunction"  # torch's own, around a compiled model
_CUTS = {"detach"}  # whose result is like one from outside, if it takes what was computed elsewhere
_WRITES = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"}


class CallLog(TorchFunctionMode):
    """Records calls while it is on. Their results are referenced weakly, so that memory is freed as usual, unless it
    `holds` them; `events` are the calls, and whatever else is put between them."""

    def __init__(
        self,
        *,
        holds: bool = False,
        most: int = MOST_CALLS,
        copies: bool = False,
        device: str = "cpu",
        own: frozenset[int] | None = None,
        sleeps: bool = False,
    ) -> None:
        """`own` are the ids of the trained weights: other weights are copied. None: unknown. If it `sleeps`, it begins
        with the first call whose result requires a gradient."""
        super().__init__()
        self.events: list[Any] = []
        self.outside: list[OutsideTensor] = []
        self.is_full = False
        self.own_derivative = ""  # an autograd function of the script that was used, and cannot be recorded
        self.of_models: set[int] = set()  # numbers of the outputs of models, each of which is recorded by itself
        self.named: Collection[int] = ()  # ids of weights and buffers
        self._derivatives: dict[tuple[int, int], Any] = {}  # that are recorded
        self._is_aside = False  # whether a derivative is recorded
        self._own = own
        self.copies = copies  # whether tensors from outside are copied, because the script overwrites them
        self.module: Callable[[], str] = str
        self.most, self._holds, self._sleeps = most, holds, sleeps
        self._given: dict[int, tuple[Any, int]] = {}
        self._places: dict[int, int] = {}
        self._count = 0
        self.device = device  # whose random numbers are recorded
        self._random: Tensor | None = None  # their state after the latest call that drew some
        self._held: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if self.is_full or not (self._holds or torch.is_grad_enabled()) or getattr(func, "__self__", None) is _GRADIENT:
            return func(*args, **named)
        before = random_state(self.device) if self._holds else None
        try:
            result = func(*args, **named)
        except Exception:
            self._note(func, args, named, None, None)
            self.is_full = True
            raise
        name = getattr(func, "__name__", "")
        if self._sleeps:
            if not any(each.requires_grad for each in tensors_in(result)):
                return result
            self._sleeps = False
        if isinstance(result, Tensor | tuple | list) and (given := list(tensors_in(result))):
            if name in _CUTS and self._is_of_another(args):
                self.ref(given[0])
            elif (
                name in _DRAWS
                or name.startswith("new_")
                or not (_has_tensor(args) or _has_tensor(tuple(named.values())))
            ):
                for each in given:  # its values are kept, so that they need not be recomputed
                    self.ref(each, copy=True)
            else:
                self._note(func, args, named, given, before)
        elif name in _WRITES:
            self._note(func, args, named, (), before)
        return result

    def _is_of_another(self, args: Any) -> bool:
        """Return whether the first argument was computed where it is not observed, as by another model."""
        return isinstance(args[0], Tensor) and args[0].grad_fn is not None and self.place_of(args[0]) is None

    def _note(self, func: Any, args: Any, named: Any, result: Any, before: Tensor | None) -> None:
        if len(self.events) >= self.most:
            self.is_full = True
            return
        given, by_name = self._swapped(args), self._swapped(named) if named else {}
        gives = None if result is None else tuple([self.give(each) for each in result])
        random = None
        if before is not None and not torch.equal(before, after := random_state(self.device)):
            random = None if self._random is not None and torch.equal(before, self._random) else before
            self._random = after
        self.events.append(
            LoggedCall(
                func, given, by_name, gives, self.module(), _line(), autocast_now(), torch.is_grad_enabled(), random
            )
        )  # fmt: skip

    def give(self, tensor: Tensor) -> int:
        """Return the number of a tensor that a call has produced; a new one if it has none."""
        if (place := self.place_of(tensor)) is not None:
            return place
        if id(tensor) in self._places:  # written to in place: its reference stays the same
            return -1 - self._places[id(tensor)]
        place, self._count = self._count, self._count + 1
        self._given[id(tensor)] = weakref.ref(tensor), place
        if self._holds:
            self._held.append(tensor)
        return place

    def place_of(self, tensor: Tensor) -> int | None:
        """Return the number of a tensor that a call has produced; None for any other."""
        entry = self._given.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def ref(self, tensor: Tensor, *, copy: bool = False) -> Ref:
        """Return the reference to a tensor among arguments. One from outside is kept alive from here on, or a `copy` of
        it."""
        self.note_derivative(tensor)
        if (place := self.place_of(tensor)) is not None:
            return Ref(True, place)
        place = self._places.get(id(tensor))
        if place is None and self._is_aside and not copy and id(tensor) not in self.named:
            return self._ref_of_saved(tensor)
        if place is not None and self.outside[place].is_outdated:
            place = None
        if place is None:
            place = self._places[id(tensor)] = len(self.outside)
            if tensor.requires_grad:
                copied = self._own is not None and tensor.is_leaf and id(tensor) not in self._own
            else:
                copied = copy or self.copies or tensor.numel() == 1
            kept = tensor.detach().clone() if copied else tensor
            # `of` is kept alive, so that its id stays unique
            self.outside.append(OutsideTensor(kept, version_of(kept), tensor, version_of(tensor)))
        return Ref(False, place)

    def note_derivative(self, tensor: Tensor) -> None:
        """Record the autograd function with which the script itself defines the derivative of a tensor, if it does."""
        name = name_of_own(tensor)
        if (
            name in ("", _COMPILED)
            or self._is_aside
            or (key := (id(tensor.grad_fn), tensor.output_nr)) in self._derivatives
        ):
            return
        if self._holds:
            self._derivatives[key] = tensor.grad_fn
            if (logged := self._logged_derivative(tensor, _line())) is not None:
                self.events.append(logged)
                return
        elif self.place_of(tensor) in self.of_models:
            return
        self.own_derivative = name

    def _logged_derivative(self, tensor: Tensor, line: str) -> LoggedDerivative | None:
        """Call the derivative of a tensor once, and return its calls; None if not all of it can be observed."""
        node: Any = tensor.grad_fn
        before = node.next_functions
        sources = [None if source is None else self.result_of(source, place) for source, place in before]
        shapes, of = results_of_node(node), self.place_of(tensor)
        is_known = all((one is None) == (other[0] is None) for one, other in zip(sources, before, strict=True))
        if of is None or not is_known or not shapes:
            return None
        gradients = [torch.zeros(each.shape, dtype=each.dtype, device=tensor.device) for each in shapes]
        own = gradients[tensor.output_nr].fill_(1)
        takes = [None if each is None else self.ref(each) for each in sources]
        with self.aside() as calls, self, torch.no_grad():  # torch takes a mode off its stack while that is called
            number = self.give(own)
            try:
                given = node.apply(*gradients)
                given = given if isinstance(given, tuple) else (given,)
                gives = [None if each is None else self.ref(each) for each in given]
            except Exception:  # from the script's own code, or NotObserved
                return None
        return LoggedDerivative(name_of_own(tensor), of, takes, number, calls, gives, self.module(), line)

    @contextmanager
    def aside(self) -> Iterator[list[Any]]:
        """Record calls of a derivative apart from the others."""
        before, self.events, self._is_aside = self.events, [], True
        try:
            yield self.events
        finally:
            self.events, self._is_aside = before, False

    def result_of(self, node: Any, place: int) -> Tensor | None:
        """Return a tensor by its place among the results of a node of autograd's graph; None if it is not known."""
        if (leaf := getattr(node, "variable", None)) is not None:
            return leaf
        return next((each for each in self._held if each.grad_fn is node and each.output_nr == place), None)

    def _ref_of_saved(self, tensor: Tensor) -> Ref:
        """Return the reference to a tensor that autograd has saved, as which it is another object."""
        for each in (*reversed(self._held), *[outside.tensor for outside in self.outside]):
            if _memory(each) == _memory(tensor):
                return self.ref(each)
        raise NotObserved

    def _swapped(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.ref(value)
        if type(value) in (tuple, list):
            return type(value)([self._swapped(each) for each in value])
        if type(value) is dict:
            return {name: self._swapped(each) for name, each in value.items()}
        return value


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors of a result, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors_in(each)


def _memory(tensor: Tensor) -> Any:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def random_state(device: str) -> Tensor:
    """Return the state of torch's random numbers on a kind of device."""
    return torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()


def _has_tensor(values: Any) -> bool:
    return any([isinstance(each, Tensor) or (isinstance(each, tuple | list) and _has_tensor(each)) for each in values])


def autocast_now() -> tuple[tuple[str, torch.dtype], ...]:
    """Return the autocast setting for each kind of device where it is on."""
    return tuple(
        [(kind, torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    )


def _line() -> str:
    """Return 'train.py:41', the innermost running line that is neither torch's nor ours."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_OWN):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
