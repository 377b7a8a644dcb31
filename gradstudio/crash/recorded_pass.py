"""The calls of a recorded pass, replayed one by one; the birth of the first non-finite value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gradstudio.crash.attention_calls import NO_ATTENTION, attention_in, soft_capped, with_normed_queries
from gradstudio.crash.call_log import tensors_in
from gradstudio.crash.call_values import CannotCall, from_json, function_of
from gradstudio.crash.change import NO_CHANGE, Change, Guard
from gradstudio.crash.own_derivatives import with_own_derivative
from gradstudio.engine.operation_watcher import FILLS
from gradstudio.session.files.crash_file import PlainCall, RecordedCall, RecordedDerivative

Key = str | int  # the name of a tensor from outside, or the number of one that a call has produced
SAME_ENTRIES = {
    "squeeze", "unsqueeze", "view", "reshape", "flatten", "__getitem__", "select", "chunk", "split", "unbind", "expand",
    "transpose", "permute", "contiguous", "float", "to",
}  # fmt: skip
DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "I32": torch.int32,
    "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64,
}  # fmt: skip
HALVES = (torch.float16, torch.bfloat16)


class CallRaised(Exception):
    """A call has raised an exception, whether or not it did so in the recording. `place` is the index of the call."""

    def __init__(self, place: int, fault: Exception) -> None:
        super().__init__(f"{type(fault).__name__}: {' '.join(str(fault).split())[:200]}")
        self.place = place


class Pass:
    """One replayed pass. `born` is the index of the call that produced the first non-finite value, -1 if there is none;
    `spread` that of the call that let the Inf of a mask into other values, as a mean does; `given` names the non-finite
    inputs of the pass."""

    def __init__(
        self,
        calls: Sequence[PlainCall],
        outside: Callable[[str], Tensor],
        device: str,
        change: Change = NO_CHANGE,
        *,
        looks: bool = False,
        on_call: Callable[[Pass, int], None] | None = None,
    ) -> None:
        """`outside` supplies the tensors that no call produces. Without `looks` nothing is checked. `on_call` is called
        with the index of each finished call."""
        self.calls, self._outside, self._device, self._change = calls, outside, device, change
        self.tensors: dict[Key, Tensor] = {}
        self.born, self.spread, self.given, self.broken_gradient = -1, -1, "", -1
        self._looks, self._on_call = looks, on_call
        self.gradients: dict[Key, Tensor] = {}  # of the results, if they are kept
        self.taken: dict[int, dict[Key, Tensor]] = {}  # inputs of the calls that may be reported, by their index
        self._taken: dict[Key, Tensor] = {}  # inputs of the latest call
        self._broken: set[Key] = set()
        self._put_in: set[Key] = set()  # deliberate Inf, for example in a mask
        self._attention = attention_in(calls) if change.attention else NO_ATTENTION

    def run(self, calls: Sequence[int] | None = None) -> None:
        """Make all calls, or those at these indices."""
        for place in range(len(self.calls)) if calls is None else calls:
            self._make(place, self.calls[place])

    def part(self, calls: Sequence[PlainCall]) -> Pass:
        """Return a pass of other calls with the tensors of this one."""
        made = Pass(calls, self._outside, self._device, self._change)
        made.tensors = self.tensors
        return made

    def tensor(self, key: Key) -> Tensor:
        """Return a tensor by its name or number."""
        if key not in self.tensors:
            if isinstance(key, int):
                raise CannotCall(f"call {key} has given nothing")
            tensor = self.tensors[key] = self._outside(key)
            if self._looks:
                self._look_at_given(key, tensor)
        return self.tensors[key]

    def _with_own_derivative(self, number: int, own: RecordedDerivative, *given: Any) -> Tensor:
        """Return tensor number `number` with its recorded derivative."""

        def derive(gradient: Tensor) -> list[Tensor | None]:
            self.tensors[own.gradient] = gradient
            self.part(own.calls).run()
            return [None if key is None else self.tensor(key) for key in own.gives]

        return with_own_derivative(lambda: self.tensor(number), derive, *given)

    def _make(self, place: int, call: PlainCall) -> None:
        exact = self._change.computes_exactly(call.module)

        def tensor_of(key: Key) -> Tensor:
            tensor = self.tensor(key)
            return tensor.float() if exact and tensor.dtype in HALVES else tensor

        own = call.derivative if isinstance(call, RecordedCall) else None
        if own is not None and call.gives:
            function: Callable[..., Any] = partial(self._with_own_derivative, call.gives[0], own)
        else:
            function = function_of(call.do)
        given = [from_json(each, tensor_of, self._device) for each in call.given]
        named = {name: from_json(each, tensor_of, self._device) for name, each in call.named.items()}
        if self._looks and self.born < 0:  # the call may write into what it takes, or one behind it
            keys = keys_taken(call)
            self._taken = {key: self.tensors[key].detach().clone() for key in keys}
        for guard in [each for each in self._change.guards if each.holds(call)]:
            if guard.how == "softplus":
                function, named = lambda x, *_, by=guard.by: torch.nn.functional.softplus(x) + by, {}
            elif guard.how == "mask":
                given = [_masked(each, guard.by) for each in given]
                named = {name: _masked(each, guard.by) for name, each in named.items()}
            else:
                given = _guarded(given, guard)
        if place in self._attention.products and self._change.attention == "norm":
            given = with_normed_queries(call, given)
        if call.random and (state := self._outside(call.random)).device.type == "cpu":
            _set_random(state, self._device)
        try:
            with self._as_recorded(call, exact=exact):
                result = function(*given, **named)
        except Exception as fault:
            self.taken[place] = self._taken
            raise CallRaised(place, fault) from None
        if place in self._attention.scores and self._change.attention == "cap":
            result = soft_capped(result)
        for number, tensor in zip(call.gives or (), tensors_in(result), strict=False):
            if number >= 0:
                self.tensors[number] = tensor
        if self._looks:
            self._look(place, call)
        if self._on_call is not None:
            self._on_call(self, place)

    def _as_recorded(self, call: PlainCall, *, exact: bool) -> ExitStack:
        block = ExitStack()
        for kind in ("cpu", "cuda"):
            dtype = "" if exact else call.autocast.get("cuda" if "cuda" in call.autocast else "cpu", "")
            is_here = bool(dtype) and kind == self._device
            if is_here or torch.is_autocast_enabled(kind):
                wanted = getattr(torch, self._change.dtype or dtype) if is_here else None
                block.enter_context(torch.autocast(kind, wanted, enabled=is_here, cache_enabled=False))
        block.enter_context(torch.set_grad_enabled(call.grad))
        return block

    # ---- non-finite values

    def _look_at_given(self, key: str, tensor: Tensor) -> None:
        nan, inf = _broken(tensor)
        if nan or (inf and bool((tensor == torch.inf).any())):
            self._broken.add(key)
            self.given = self.given or key
        elif inf:
            self._put_in.add(key)

    def _look(self, place: int, call: PlainCall) -> None:
        taken = set(keys_taken(call))
        for number in written_by(call):
            tensor = self.tensors[number]
            nan, inf = _broken(tensor)
            if not (nan or inf):
                continue
            if not nan and (fills(call) or taken & self._put_in):
                of = [self.tensors[key].numel() for key in taken & self._put_in]
                if self.spread < 0 and not (fills(call) or call.kind in SAME_ENTRIES) and tensor.numel() < max(of):
                    self.spread = place
                    self.taken[place] = self._taken
                self._put_in.add(number)
                continue
            if self.born < 0 and not taken & self._broken:
                self.born = place
                self.taken[place] = self._taken
            self._broken.add(number)

    def hook_gradients(self, *, keeps: bool = False) -> None:
        """Make the backward pass report where the first non-finite gradient comes from: `broken_gradient` becomes the
        index of the call whose derivative produced it."""

        def on_gradient_of(key: Key) -> Callable[[Tensor], None]:
            def on_gradient(gradient: Tensor) -> None:
                if keeps:
                    self.gradients[key] = gradient.detach()
                if self.broken_gradient < 0 and any(_broken(gradient)):
                    self.broken_gradient = self._consumer(key)

            return on_gradient

        for key, tensor in self.tensors.items():
            if tensor.requires_grad:
                tensor.register_hook(on_gradient_of(key))

    def _consumer(self, key: Key) -> int:
        for place in reversed(range(len(self.calls))):
            call = self.calls[place]
            if key in keys_taken(call):
                return place
        return -1


def keys_of(value: Any) -> Iterator[Key]:
    """Yield the tensors that are named in an argument, in a file's form."""
    if isinstance(value, dict):
        if len(value) == 1 and isinstance(value.get("t"), str | int):
            yield value["t"]
        for each in value.values():
            yield from keys_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from keys_of(each)


def keys_taken(call: PlainCall) -> list[Key]:
    """Return the tensors that a call takes."""
    return [*keys_of(call.given), *keys_of(call.named)]


def fills(call: PlainCall) -> bool:
    """Return whether a call writes a constant into a tensor, as a mask does with -Inf: there it is intended."""
    return call.kind in FILLS or (call.kind == "__setitem__" and {"float": "-inf"} in call.given)


def written_by(call: PlainCall) -> list[Key]:
    """Return the results of a call; for one without a result, as an assignment, the tensor that it writes into."""
    return [each for each in call.gives or () if each >= 0] or list(keys_of(call.given))[:1]


def is_broken(tensor: Tensor) -> bool:
    """Return whether an entry is non-finite."""
    return any(_broken(tensor))


def _broken(tensor: Tensor) -> tuple[bool, bool]:
    """Return whether it contains NaN, and Inf."""
    tensor = tensor.detach()
    if not (tensor.is_floating_point() or tensor.is_complex()) or bool(torch.isfinite(tensor).all()):
        return False, False
    nan = bool(torch.isnan(tensor).any())
    return nan, not nan or bool(torch.isinf(tensor).any())


def _masked(value: Any, by: float) -> Any:
    return by if isinstance(value, float) and value == -math.inf else value


def _guarded(given: list[Any], guard: Guard) -> list[Any]:
    """Return the arguments of a call with its dangerous one kept within bounds."""
    place = 1 if guard.how == "divisor" and len(given) > 1 else 0
    if not given:
        return given
    value, by = given[place], guard.by
    if not isinstance(value, Tensor):
        return [*given[:place], value + by, *given[place + 1 :]] if isinstance(value, float | int) else given
    match guard.how:
        case "both":
            kept = value.clamp(-by, by)
        case "least":
            kept = value.clamp_min(by)
        case _:
            kept = value + by
    return [*given[:place], kept, *given[place + 1 :]]


def _set_random(state: Tensor, device: str) -> None:
    """Restore the random state for the next call, if it is on the same kind of device."""
    if (state.numel() == 16) == (device == "cuda"):
        torch.cuda.set_rng_state(state) if device == "cuda" else torch.set_rng_state(state)
