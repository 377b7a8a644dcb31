"""The calls of a kept backward pass in the form of a crash file: the loss code as observed, and each forward pass,
replayed to observe the calls of the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from gradstudio.crash.call_log import CallLog
from gradstudio.crash.call_values import CannotTell, name_of, to_json
from gradstudio.crash.logged_calls import LoggedCall, LoggedDerivative, OutsideTensor, Ref
from gradstudio.crash.own_derivatives import without_reentrant_checkpoints
from gradstudio.crash.recorded_pass import keys_taken
from gradstudio.session.files.crash_file import PlainCall, RecordedCall, RecordedDerivative
from gradstudio.watching.births.replay import as_at_the_pass, restore_after
from gradstudio.watching.hooks.trees import tensors_of, with_tensors
from gradstudio.watching.recorder.kept_state import CalledModel, KeptBackward, PassEvent

Key = str | int
# Calls that write, or draw random numbers.
_DOES_MORE = re.compile(r"[^_]_$|__[is]\w+__|dropout|bernoulli|multinomial|rand|rnn|lstm|gru")
Numbers = dict[int, Key | CannotTell]  # of the results of calls; why one is lost, if it cannot be recorded


class ProgramMaker:
    """Creates the program of one backward pass. `tensors` are those of its batch, `root` is the start of the pass; -1
    if a call has raised before that."""

    def __init__(self, names: Mapping[int, str], models: Mapping[nn.Module, str], device: str) -> None:
        """`names` are those of weights and buffers by id; `models` those of the models, "" for one."""
        self._names, self._models, self._device = names, models, device
        self.calls: list[RecordedCall] = []
        self.tensors: dict[str, Tensor] = {}
        self.root = -1
        self._count = 0
        self._outsides: dict[int, str] = {}

    def make(self, kept: KeptBackward) -> None:
        """Record the calls. CannotTell if a crash file cannot represent one."""
        log = kept.log
        numbers: Numbers = {}
        _refuse_own_derivative(log)
        for event in log.events:
            if isinstance(event, PassEvent):
                self._pass(event, log, numbers)
            else:
                self._call(event, log, numbers, {})
            if self.calls and self.calls[-1].gives is None:
                return
        root = _key(numbers, kept.root) if kept.root in numbers else None
        if not isinstance(root, int):
            raise CannotTell("it is not known what the backward pass began from")
        self.root = root if kept.scale == 1 else self._unscaled(root, kept.scale)
        self._drop_unused()

    def _drop_unused(self) -> None:
        """Drop calls whose results are not used, such as those that inspect values."""
        taken: set[Key] = {self.root}
        needed: list[RecordedCall] = []
        for call in reversed(self.calls):
            gives = call.gives or [-1]
            if min(gives) < 0 or taken.intersection(gives) or _DOES_MORE.search(call.kind):
                taken |= set(keys_taken(call))
                own = call.derivative
                for part in own.calls if own is not None else ():
                    taken |= set(keys_taken(part))
                needed.append(call)
        self.calls = needed[::-1]

    def _unscaled(self, root: int, scale: float) -> int:
        """Return the loss before a scaler has multiplied it, and drop that call."""
        for place in reversed(range(len(self.calls))):
            call = self.calls[place]
            if call.gives == [root] and call.kind in ("mul", "__mul__", "__rmul__", "multiply"):
                del self.calls[place:]
                loss = call.given[0].get("t") if isinstance(call.given[0], dict) else None
                if isinstance(loss, int) and scale == scale:
                    return loss
                break
        raise CannotTell("the loss scale of the step is not known")

    def _call(self, call: LoggedCall, log: CallLog, numbers: Numbers, known: Mapping[int, Key]) -> None:
        def name_of_ref(ref: Ref) -> Key:
            return self._name(ref, log, numbers, known)

        try:
            do = name_of(call.function)
            given = [to_json(each, name_of_ref, self._device) for each in call.given]
            named = {name: to_json(each, name_of_ref, self._device) for name, each in call.named.items()}
        except CannotTell as fault:
            if not call.gives or min(call.gives) < 0:
                raise
            numbers.update(dict.fromkeys(call.gives, CannotTell(str(fault))))  # which does no harm if it is unused
            return
        gives = None if call.gives is None else [self._number(each, numbers) for each in call.gives]
        random = ""
        if call.random is not None:
            random = f"r:{sum(name.startswith('r:') for name in self.tensors)}"
            self.tensors[random] = call.random
        autocast: Any = {kind: str(dtype).removeprefix("torch.") for kind, dtype in call.autocast}
        self.calls.append(
            RecordedCall(
                do=do, given=given, named=named, gives=gives, module=call.module, line=call.line,
                autocast=autocast, grad=call.grad, random=random,
            )
        )  # fmt: skip

    def _name(self, ref: Ref, log: CallLog, numbers: Numbers, known: Mapping[int, Key]) -> Key:
        return _key(numbers, ref.place) if ref.is_given else self._outside(log.outside[ref.place], known)

    def _derivative(self, own: LoggedDerivative, log: CallLog, numbers: Numbers, known: Mapping[int, Key]) -> None:
        gradient, before, self.calls = self._number(own.gradient, numbers), self.calls, []
        for each in own.calls:
            self._call(each, log, numbers, known)
        calls, self.calls = self.calls, before
        names = [
            [None if ref is None else self._name(ref, log, numbers, known) for ref in refs]
            for refs in (own.takes, own.gives)
        ]
        result = _key(numbers, own.of)
        if not isinstance(result, int):
            raise CannotTell(f"the derivative of {own.name} is that of a weight")
        derivative = RecordedDerivative(gradient=gradient, calls=[_plain(each) for each in calls], gives=names[1])
        self.calls.append(
            RecordedCall(
                do=f"torch.autograd.{re.sub(r'[^A-Za-z0-9_]', '_', own.name)[:80]}",
                given=[None if name is None else {"t": name} for name in names[0]], gives=[result],
                module=own.module, line=own.line, derivative=derivative,
            )
        )  # fmt: skip

    def _number(self, place: int, numbers: Numbers) -> int:
        if place < 0:
            return -1
        if place not in numbers:
            numbers[place], self._count = self._count, self._count + 1
        number = numbers[place]
        return number if isinstance(number, int) else -1

    def _outside(self, outside: OutsideTensor, known: Mapping[int, Key]) -> Key:
        """Return the name of a tensor that no call has produced."""
        tensor = outside.of
        if (name := self._names.get(id(tensor))) is not None:
            return f"w:{name}"
        if (key := known.get(id(tensor), self._outsides.get(id(outside.tensor)))) is not None:
            return key
        if tensor.grad_fn is not None:
            raise CannotTell("something was computed for the step before the forward pass, or where it is not heard")
        if not outside.is_unchanged:
            what = "a weight of another model" if tensor.requires_grad else "a tensor of the batch"
            raise CannotTell(f"the script has written into {what} since; from now on it is copied")
        stays = "h" if tensor.device.type == "cpu" != self._device else "i"  # on the host, as lengths of sequences do
        name = self._outsides[id(outside.tensor)] = f"{stays}:{len(self._outsides)}"
        self.tensors[name] = outside.tensor
        return name

    def _pass(self, event: PassEvent, log: CallLog, numbers: Numbers) -> None:
        """Replay a forward pass, and record its calls."""
        kept, model = event.kept, event.kept.of.inner
        keys = [
            _key(numbers, ref.place) if ref.is_given else self._outside(log.outside[ref.place], {})
            for ref in event.taken
        ]
        sources = [None if ref.is_given else log.outside[ref.place].tensor for ref in event.taken]
        known: dict[int, Key] = {}
        inputs, named, holds = _inputs_again(kept, zip(keys, sources, strict=True), known)
        inner = CallLog(holds=True, device=self._device)
        raised: Exception | None = None
        outputs: list[Tensor] = []
        inner.named = self._names
        direct = without_reentrant_checkpoints()
        with restore_after(model), as_at_the_pass(kept), self._naming(model, inner), direct:
            try:
                with inner:
                    outputs = tensors_of(model(*inputs, **named))
            except Exception as fault:  # the step's own
                raised = fault
            ends = [inner.ref(each) for each in outputs]  # which may have a derivative of their own
        own: Numbers = {}
        for logged in inner.events:
            if isinstance(logged, LoggedDerivative):
                self._derivative(logged, inner, own, known)
            else:
                self._call(logged, inner, own, known)
        if raised is not None:
            if self.calls and self.calls[-1].gives is None:
                return
            raise CannotTell(f"making the forward pass again ended with {type(raised).__name__}")
        if event.gave is None or len(outputs) != len(event.gave):
            raise CannotTell("the model gave something else when the forward pass was made again")
        for ref, number in zip(ends, event.gave, strict=True):
            key = self._name(ref, inner, own, known)
            if number >= 0:
                numbers[number] = key
        _refuse_own_derivative(inner)
        holds.clear()

    @contextmanager
    def _naming(self, model: nn.Module, log: CallLog) -> Iterator[None]:
        """Let a log know the active module."""
        before = self._models.get(model, "")
        names = {each: ".".join(filter(None, (before, name))) for name, each in model.named_modules()}
        at_work: list[str] = []

        def begin(module: nn.Module, _inputs: Any) -> None:
            at_work.append(names.get(module, ""))

        def end(_module: nn.Module, _inputs: Any, _outputs: Any) -> None:
            if at_work:
                at_work.pop()

        find: Callable[[], str] = lambda: at_work[-1] if at_work else before  # noqa: E731
        log.module = find
        handles = register_module_forward_pre_hook(begin), register_module_forward_hook(end, always_call=True)
        try:
            yield
        finally:
            for each in handles:
                each.remove()


def _inputs_again(
    kept: CalledModel, sources: Iterator[tuple[Key, Tensor | None]], known: dict[int, Key]
) -> tuple[Any, Any, list[Tensor]]:
    """Return the inputs of a pass with the recorded tensors in the place of its own, where there is one, and all of
    them, so that each keeps its id. `known` gets their names."""
    holds: list[Tensor] = []

    def put_in(tensor: Tensor) -> Tensor:
        key, source = next(sources)
        source = tensor if source is None else source
        if source.grad_fn is not None or id(source) in known:
            source = source.detach()
        if tensor.requires_grad:
            source = source.detach().requires_grad_()
        holds.append(source)
        known[id(source)] = key
        return source

    try:
        return with_tensors(kept.inputs, put_in), with_tensors(kept.named_inputs, put_in), holds
    except TypeError as fault:
        raise CannotTell(f"the inputs of the model cannot be given again: {fault}") from None


def _key(numbers: Numbers, place: int) -> Key:
    number = numbers[place]
    if isinstance(number, CannotTell):
        raise number
    return number


def _plain(call: RecordedCall) -> PlainCall:
    return PlainCall(**{name: getattr(call, name) for name in PlainCall.model_fields})


def _refuse_own_derivative(log: CallLog) -> None:
    if log.own_derivative:
        raise CannotTell(f"the derivative of {log.own_derivative} is the script's own, which no crash file holds")


@contextmanager
def temporary_weights(weights: list[Tensor], values: list[Tensor]) -> Iterator[None]:
    """Give weights other values in this context. Nothing is copied."""
    own = [each.data for each in weights]
    try:
        for each, value in zip(weights, values, strict=True):
            each.data = value
        yield
    finally:
        for each, value in zip(weights, own, strict=True):
            each.data = value


def why_no_program(fault: Exception) -> str:
    """Return why there is no program, in a clause."""
    if isinstance(fault, torch.OutOfMemoryError):
        return "there is no memory to make the step again"
    return str(fault) if isinstance(fault, CannotTell) else f"{type(fault).__name__}: {str(fault)[:200]}"
