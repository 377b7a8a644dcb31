"""One step made with every operation watched: which of them made the first NaN or Inf that reached the loss, the gradient or the weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradstudio.core.provenance import Operation, Phase, Provenance
from gradstudio.core.text import number, plural
from gradstudio.engine.models.rnn import RecurrentStack
from gradstudio.engine.trainer import Trainer
from gradstudio.engine.watching import Call, SeesOperations, storage_of, tensors_in

LONGEST = 12  # operations of a chain that are told
# What makes an Inf on purpose, such as a mask: no birth of anything.
_FILLS = {
    "masked_fill",
    "masked_fill_",
    "full",
    "full_like",
    "fill",
    "fill_",
    "where",
    "scalar_tensor",
    "new_full",
    "_local_scalar_dense",
    "lift_fresh",
}


class Values(NamedTuple):
    """What a tensor, or several, hold: extremes of the finite values (NaN without any) and how many are none."""

    low: float
    high: float
    nan: int
    inf: int
    zeros: int

    @property
    def finite(self) -> bool:
        return not (self.nan or self.inf)

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high)) if self.low == self.low else math.nan


class Watched(NamedTuple):
    """An operation, with its tensors as they were then. `sources` are the numbers of those that wrote what it took that is not finite,
    `into` the flat tensors of the trainer that it wrote to."""

    name: str
    phase: Phase
    module: str
    node: str
    micro_batch: int
    dtype: torch.dtype
    taken: list[Values]
    given: Values
    sources: list[int]
    into: set[str]

    @property
    def kind(self) -> str:
        return self.name.split(".")[1] if self.name.count(".") else self.name


class Watcher(SeesOperations):
    """Sees every operation of a trainer's step."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        self.operations: list[Watched] = []
        self.phase: Phase = "update"
        self.micro_batch = -1
        self.states: dict[str, Tensor] = {}  # the latest output of each module, by its name, in the order of their ends
        self._model = trainer.model
        self._flat = {storage_of(trainer.flat.gradients): "gradients", storage_of(trainer.flat.weights.data): "weights"}
        self._made: dict[int, int] = {}  # which operation wrote to a storage last
        self._held: list[Any] = []  # so that no storage is used twice
        self._modules: list[str] = []
        self._names = {module: name for name, module in trainer.model.named_modules()}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        taken = tensors_in((args, kwargs))
        before = [values_of(tensor) for tensor in taken]  # an operation may write to what it takes
        sources = [self._made.get(storage_of(tensor), -1) for tensor, values in zip(taken, before, strict=True) if not values.finite]
        results = function(*args, **kwargs)
        written = list(Call(function, args, kwargs, []).written)
        given = [*written, *(tensor for tensor in tensors_in(results) if not any(tensor is other for other in written))]
        places = {storage_of(tensor) for tensor in given}
        if not written and places <= {storage_of(tensor) for tensor in taken}:
            return results  # another view of what was there
        node = torch._C._current_autograd_node()
        module = self._modules[-1] if self._modules else "" if node is None else node.metadata.get("module", "")
        self.operations.append(
            Watched(
                str(function), self.phase if node is None else "backward", module, "" if node is None else node.name(), self.micro_batch,
                given[0].dtype if given else torch.float32, before, _together([values_of(tensor) for tensor in given]),
                [source for source in sources if source >= 0], {self._flat[place] for place in places if place in self._flat},
            )
        )  # fmt: skip
        for place in places:
            self._made[place] = len(self.operations) - 1
        self._held.append(given)
        return results

    def maker(self, tensor: Tensor) -> int:
        """Which operation wrote to a tensor last."""
        return self._made.get(storage_of(tensor), -1)

    @contextmanager
    def within(self, phase: Phase) -> Iterator[None]:
        before, self.phase = self.phase, phase
        try:
            yield
        finally:
            self.phase = before

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Know which module is at work, in the forward pass and in the backward pass."""

        def begin(module: nn.Module, inputs: Any) -> None:
            if module is self._model:
                self.phase = "forward"
                self.micro_batch += module.training
            self._modules.append(self._names[module])

        def end(module: nn.Module, inputs: Any, outputs: Any) -> None:
            self._modules.pop()
            found = tensors_in(outputs)
            for tensor in found:
                _sign(tensor.grad_fn, self._names[module])
            if found:
                self.states[self._names[module]] = found[0].detach()
            if module is self._model:
                self.phase = "loss"

        hooks = []
        for module in self._names:
            hooks += [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def explain(trainer: Trainer) -> Provenance | None:
    """Make the trainer's next step under watch. Gives where its first non-finite value was born; None where none reached the loss, the
    gradients or the weights."""
    watcher, losses = Watcher(trainer), []
    compute, unscale = trainer._compute, trainer._unscale

    def computed(*args: Any, **kwargs: Any) -> Any:
        results = compute(*args, **kwargs)
        if not values_of(results[0]).finite:
            losses.append(watcher.maker(results[0]))
        watcher.phase = "backward"
        return results

    def unscaled() -> None:
        with watcher.within("unscale"):
            unscale()
        watcher.phase = "update"

    trainer._compute, trainer._unscale = computed, unscaled
    step, micro_batches = trainer.step, trainer.experiment.accumulation.steps
    try:
        with trainer.passes.unrecorded(), watcher.hooked(), watcher:
            next(trainer.steps())
    finally:
        del trainer._compute, trainer._unscale
    reached = [number for number, made in enumerate(watcher.operations) if made.into and not made.given.finite]
    sinks = [number for number in (*losses[:1], *reached[:1]) if number >= 0]
    if not sinks:
        return None
    chain = _chain(watcher.operations, min(sinks))
    born = watcher.operations[chain[0]]
    along, growth = _growth(watcher, born, trainer)
    return Provenance(
        step=step, phase=born.phase, module=born.module, operation=born.name, cause=_cause(born), micro_batch=max(born.micro_batch, 0),
        micro_batches=micro_batches, time_step=_time_step(watcher, chain[0], trainer),
        layers=tuple(layer.name for layer in trainer.layers if born.module and f"{layer.name}.".startswith(f"{born.module}.")),
        chain=tuple(_told(watcher.operations[number]) for number in chain[:LONGEST]), growth_along=along, growth=growth,
    )  # fmt: skip


def values_of(tensor: Tensor) -> Values:
    if not tensor.is_floating_point() or not tensor.numel():
        return _NOTHING
    tensor = tensor.detach()
    finite = torch.isfinite(tensor)
    count, nan = int(finite.sum()), int(torch.isnan(tensor).sum())
    low, high = (float(value) for value in torch.aminmax(tensor[finite])) if count else (math.nan, math.nan)
    return Values(low, high, nan, tensor.numel() - count - nan, int((tensor == 0).sum()))


def _together(parts: list[Values]) -> Values:
    lows, highs = (
        ([value for value in values if value == value] for values in zip(*((part.low, part.high) for part in parts), strict=True))
        if parts
        else ([], [])
    )
    nan, inf, zeros = (sum(part[index] for part in parts) for index in (2, 3, 4))
    return Values(min(lows, default=math.nan), max(highs, default=math.nan), nan, inf, zeros)


def _chain(operations: list[Watched], sink: int) -> list[int]:
    """From where a value was born to `sink`: back along what was not finite, a NaN before an Inf, up to who made it of finite values."""
    chain = [sink]
    while True:
        sources = [source for source in operations[chain[-1]].sources if not operations[source].given.finite]
        sources = [source for source in sources if source < chain[-1] and operations[source].kind not in _FILLS]
        if not sources:
            return chain[::-1]
        chain.append(min(sources, key=lambda source: (operations[source].given.nan == 0, source)))


def _told(made: Watched) -> Operation:
    taken = _together(made.taken)
    return Operation(
        made.phase, made.module, made.name, made.node, str(made.dtype).removeprefix("torch."), taken.largest, taken.nan, taken.inf,
        made.given.largest, made.given.nan, made.given.inf,
    )  # fmt: skip


def _cause(born: Watched) -> str:
    """Why an operation gave what is not finite, in a sentence."""
    taken, dtype = _together(born.taken), str(born.dtype).removeprefix("torch.")
    most = torch.finfo(born.dtype).max if born.dtype.is_floating_point else math.inf
    where = f" in the derivative of {born.node.removesuffix('0').removesuffix('Backward')}" if born.node else ""
    first = born.taken[0] if born.taken else _NOTHING
    if not taken.finite:
        return f"it was given {plural(taken.nan + taken.inf, 'value that is', 'values that are')} not finite{where}"
    match born.kind:
        case "log" | "log2" | "log10" if first.low < 0:
            return f"the logarithm of a negative number, {number(first.low)}, is NaN"
        case "log" | "log2" | "log10":
            return "the logarithm of 0 is -Inf"
        case "sqrt" if first.low < 0:
            return f"the root of a negative number, {number(first.low)}, is NaN"
        case "exp":
            return f"exp({number(first.high)}) is over the largest {dtype} number, {number(most)}"
        case "div" | "div_" if len(born.taken) > 1 and born.taken[1].zeros:
            return f"{'0 divided by 0 is NaN' if born.given.nan else 'a division by 0 is Inf'}{where}"
        case "reciprocal" | "rsqrt" | "pow" if first.zeros:
            return f"a division by 0 is Inf{where}"
        case "_to_copy":
            return f"{number(taken.largest)} does not fit into {dtype}, whose largest number is {number(most)}"
    if born.given.inf or taken.largest > math.sqrt(most) / 100:
        sums = "Inf - Inf is NaN" if born.given.nan and not born.given.inf else f"the result is over the largest {dtype} number, {number(most)}"
        return f"of values up to {number(taken.largest)} {sums}{where}"
    return f"it made {plural(born.given.nan, 'NaN', 'NaN')} of finite values up to {number(taken.largest)}{where}"


def _time_steps(trainer: Trainer, module: str) -> int:
    """Of a recurrent part of the model; 0 of any other."""
    part = trainer.model.get_submodule(module) if module else None
    return trainer.task.shape.time_steps if isinstance(part, (nn.RNNBase, RecurrentStack)) else 0


def _backward_steps(watcher: Watcher, module: str) -> list[int]:
    """The operations that take a recurrent layer's gradient through its activation, one a time step, the last time step first."""
    return [
        number for number, made in enumerate(watcher.operations)
        if made.phase == "backward" and made.module == module and made.kind in ("tanh_backward", "sigmoid_backward", "threshold_backward", "gelu_backward")
    ]  # fmt: skip


def _time_step(watcher: Watcher, born: int, trainer: Trainer) -> int | None:
    made = watcher.operations[born]
    steps = _time_steps(trainer, made.module)
    if not steps:
        return None
    if made.phase == "forward":
        states = watcher.states[made.module]
        broken = ~torch.isfinite(states).flatten(2).all(2).all(0)
        return int(broken.int().argmax()) if bool(broken.any()) else None
    passed = sum(number <= born for number in _backward_steps(watcher, made.module))
    return steps - 1 - max(passed - 1, 0) % steps if passed else None


def _growth(watcher: Watcher, born: Watched, trainer: Trainer) -> tuple[str, tuple[tuple[str, float], ...]]:
    """The largest absolute value along the time steps or the layers, in the direction in which the pass went."""
    steps = _time_steps(trainer, born.module)
    if steps and born.phase == "forward":
        states = watcher.states[born.module]
        return "time steps", tuple((str(at), values_of(states[:, at]).largest) for at in range(states.shape[1]))
    if steps and (passed := _backward_steps(watcher, born.module)):
        return "time steps", tuple((str(steps - 1 - at % steps), watcher.operations[number].given.largest) for at, number in enumerate(passed))
    phase: Phase = "backward" if born.phase in ("backward", "unscale", "update") else "forward"
    found: dict[str, float] = {}
    for made in watcher.operations:
        if made.phase == phase and made.module and made.micro_batch == max(born.micro_batch, 0):
            found[made.module] = max(found.get(made.module, 0.0), made.given.largest if made.given.largest == made.given.largest else 0.0)
    return "layers", tuple(found.items())


def _sign(node: Any, name: str) -> None:
    """Write a module's name to the part of autograd's graph that it has made."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node is not None and "module" not in node.metadata:
            node.metadata["module"] = name
            waiting += [following for following, _ in node.next_functions]


_NOTHING = Values(math.nan, math.nan, 0, 0, 0)
