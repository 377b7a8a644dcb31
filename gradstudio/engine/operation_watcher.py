"""Passes made with every operation watched: its inputs and outputs, and the module and line that it belongs to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gradstudio.core.provenance import Phase, ProvenanceUnknown
from gradstudio.engine.passes.operation_calls import Call, OperationInterceptor, storage_of, tensors_in
from gradstudio.engine.torch_internals import autograd_nodes

MOST_BYTES = 1 << 30  # bytes of the results of a watched step, all of which are kept until it is over
MOST_OPERATIONS = 400_000  # operations of a watched step; each takes some 1.5 kB and a tenth of a millisecond
# Operations that produce an Inf on purpose, such as a mask: nothing is born there, unless it is NaN.
FILLS = {
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

# Operations that pass on a deliberate Inf, such as a mask that is added to scores.
_HANDING_ON = {
    "add", "sub", "neg", "cat", "stack", "clone", "copy", "_to_copy", "expand", "repeat", "index", "index_put",
    "index_select", "gather", "scatter", "baddbmm", "max", "amax", "maximum", "min", "amin", "minimum",
}  # fmt: skip
# Operations whose other results contain -Inf even if they are correct, such as the table of ctc_loss.
_COUNTED_BY_THE_FIRST = ("aten._ctc_loss.", "aten._cudnn_ctc_loss.")


class Values(NamedTuple):
    """The values of one or several tensors: extremes of the finite ones (NaN if there are none), and counts of the
    others."""

    low: float
    high: float
    nan: int
    inf: int
    zeros: int

    @property
    def finite(self) -> bool:
        return not (self.nan or self.inf)

    @property
    def broken(self) -> str:
        """The non-finite values, in words: '3 NaN and 1 Inf'; "" if all are finite."""
        return " and ".join([f"{self.nan:,} NaN"] * (self.nan > 0) + [f"{self.inf:,} Inf"] * (self.inf > 0))

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high)) if self.low == self.low else math.nan


class WatchedOperation(NamedTuple):
    """An operation, with its tensors as they were then. `sources` are the numbers of the operations that wrote its
    non-finite inputs, `origins` the names of those that were non-finite from the start, `into` the named tensors that
    it wrote to, `place` its line of code as returned by the watcher's `where`, `number` a Python number among its
    arguments that is non-finite, or 0 as a divisor; None without one. `put_in`: its output is a deliberate Inf, or may
    be."""

    name: str
    phase: Phase
    module: str
    node: str
    micro_batch: int
    dtype: torch.dtype
    taken: list[Values]
    given: Values
    sources: list[int]
    origins: tuple[str, ...]
    into: set[str]
    place: Any
    number: float | None = None
    put_in: bool = False

    @property
    def kind(self) -> str:
        return self.name.split(".")[1] if self.name.count(".") else self.name


class Watcher(OperationInterceptor):
    """Records every operation of the passes through a model. `named` are storages with their contents; `where` returns
    the place in the code for the active node of autograd's graph, None in a forward pass."""

    def __init__(
        self,
        model: nn.Module,
        named: Mapping[int, str],
        stopped: Callable[[], bool] = lambda: False,
        where: Callable[[Any], Any] = lambda node: None,
    ) -> None:
        super().__init__()
        self.operations: list[WatchedOperation] = []
        self._stopped = stopped
        self._bytes = 0
        self._node_at_work = autograd_nodes.active_node()
        self.phase: Phase = "update"
        self.micro_batch = -1
        self.states: dict[str, Tensor] = {}  # the latest output of each module, by its name, in the order of their ends
        self._model = model
        self._named, self._where = dict(named), where
        self._made: dict[int, int] = {}  # which operation last wrote to a storage
        self._held: list[Any] = []  # so that no storage is reused
        self._modules: list[str] = []
        self._names = {module: name for name, module in model.named_modules()}

    def see(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do the operation and record its inputs and outputs. ProvenanceUnknown if that is too much, or is stopped."""
        self._check()
        call = Call(function, args, kwargs, [])
        before = [values_of(tensor) for tensor in call.taken]  # an operation may overwrite its inputs
        broken = [place for place, values in zip(call.taken_in, before, strict=True) if not values.finite]
        results = function(*args, **kwargs)
        written = list(call.written_tensors)
        tensors = [
            *written,
            *(tensor for tensor in tensors_in(results) if not any(tensor is other for other in written)),
        ]
        places = {storage_of(tensor) for tensor in tensors}
        if not written and places <= set(call.taken_in):
            return results  # another view of existing memory
        counted = tensors[:1] if str(function).startswith(_COUNTED_BY_THE_FIRST) else tensors
        node = self._node_at_work()
        at_work = self._modules[-1] if self._modules else ""  # a recomputed checkpoint may leave its own
        module = at_work if node is None else node.metadata.get("module", at_work)
        operation = WatchedOperation(
            str(function),
            self.phase if node is None else "backward",
            module,
            "" if node is None else node.name(),
            self.micro_batch,
            tensors[0].dtype if tensors else torch.float32,
            before,
            together([values_of(tensor) for tensor in counted]),
            [self._made[storage] for storage in broken if storage in self._made],
            tuple(self._named[storage] for storage in broken if storage in self._named),
            {self._named[place] for place in places if place in self._named},
            self._where(node),
            _odd_number(str(function), args),
        )
        self.operations.append(operation._replace(put_in=self._is_put_in(operation)))
        for tensor in tensors:
            if storage_of(tensor) not in self._made:
                self._bytes += tensor.untyped_storage().nbytes() if tensor.layout is torch.strided else 0
            self._made[storage_of(tensor)] = len(self.operations) - 1
        self._held.append(tensors)
        return results

    def _is_put_in(self, made: WatchedOperation) -> bool:
        if made.given.nan or made.origins or not all(self.operations[source].put_in for source in made.sources):
            return False
        handed_on = made.kind.removesuffix("_") in _HANDING_ON and any(not values.finite for values in made.taken)
        return handed_on or made.kind in FILLS

    def _check(self) -> None:
        """Raise ProvenanceUnknown if the step must not be watched any further."""
        if self._stopped():
            raise ProvenanceUnknown("the search was stopped")
        if self._bytes > MOST_BYTES or len(self.operations) > MOST_OPERATIONS:
            raise ProvenanceUnknown(
                f"the step is too large to be made again under watch: it takes more than "
                f"{MOST_BYTES / 1e9:.1f} GB or {MOST_OPERATIONS:,} operations"
            )

    def name(self, tensors: Iterable[Tensor], name: str) -> None:
        """Name the contents of these tensors from now on. The caller keeps the tensors alive."""
        self._named.update(dict.fromkeys(map(storage_of, tensors), name))

    def maker(self, tensor: Tensor) -> int:
        """Return the number of the operation that last wrote to a tensor."""
        return self._made.get(storage_of(tensor), -1)

    @contextmanager
    def track_modules(self) -> Iterator[None]:
        """Track the active module in this context, in the forward pass and in the backward pass."""

        def begin(module: nn.Module, inputs: Any, named_inputs: Any) -> None:
            if module is self._model:
                self.phase = "forward"
                self.micro_batch += module.training
            for tensor in tensors_in((inputs, named_inputs)):  # produced by the module around this one, not by this one
                _sign(tensor.grad_fn, self._modules[-1] if self._modules else "")
            self._modules.append(self._names[module])

        def end(module: nn.Module, inputs: Any, outputs: Any) -> None:
            self._modules.pop()
            tensors = tensors_in(outputs)
            for tensor in tensors:
                _sign(tensor.grad_fn, self._names[module])
            if tensors:
                self.states[self._names[module]] = tensors[0].detach()
            if module is self._model:
                self.phase = "loss"

        hooks = []
        for module in self._names:
            hooks += [module.register_forward_pre_hook(begin, with_kwargs=True), module.register_forward_hook(end)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _odd_number(name: str, args: tuple[Any, ...]) -> float | None:
    """Return the first Python number among the arguments of an operation that may make its result non-finite."""
    divides = name.startswith(("aten.div", "aten.pow.Scalar"))  # 0 to a negative power
    raises = name.startswith(("aten.pow.Tensor_Scalar", "aten.pow_.Scalar"))
    for each in args:
        if isinstance(each, (int, float)) and (
            not math.isfinite(each) or (each == 0 and divides) or (each < 0 and raises)
        ):
            return float(each)
    return None


def values_of(tensor: Tensor) -> Values:
    """Return the values of a tensor; a tensor of integers counts as finite."""
    if not tensor.is_floating_point() or not tensor.numel():
        return NOTHING
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = _entries(tensor)
    finite = torch.isfinite(tensor)
    count, nan = int(finite.sum()), int(torch.isnan(tensor).sum())
    low, high = (float(value) for value in torch.aminmax(tensor[finite])) if count else (math.nan, math.nan)
    return Values(low, high, nan, tensor.numel() - count - nan, int((tensor == 0).sum()))


def _entries(tensor: Tensor) -> Tensor:
    """Return the stored values of a sparse tensor; a single 0 for a layout in which they are inaccessible."""
    if tensor.layout is torch.sparse_coo:
        return tensor.coalesce().values()
    return tensor.values() if tensor.is_sparse_csr else torch.zeros(1)


def has_memory(tensor: Tensor) -> bool:
    """Return whether a tensor has memory to read: FSDP2 frees the memory of a layer's weights after its pass."""
    try:
        return tensor.numel() == 0 or tensor.untyped_storage().nbytes() > 0
    except (RuntimeError, NotImplementedError):  # it wraps others
        return True


def is_finite(tensor: Tensor) -> bool:
    """Return whether a tensor contains neither NaN nor Inf."""
    return math.isfinite(tensor.item()) if tensor.numel() == 1 else values_of(tensor).finite


def together(parts: list[Values]) -> Values:
    """Return the values of several tensors as if they were one."""
    some = [part for part in parts if part.low == part.low]  # those with finite values
    return Values(
        min((part.low for part in some), default=math.nan),
        max((part.high for part in some), default=math.nan),
        sum(part.nan for part in parts),
        sum(part.inf for part in parts),
        sum(part.zeros for part in parts),
    )


def _sign(node: Any, name: str) -> None:
    """Write a module's name to the part of autograd's graph that it has created."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node is not None and "module" not in node.metadata:
            node.metadata["module"] = name
            waiting += [following for following, _ in node.next_functions]


NOTHING = Values(math.nan, math.nan, 0, 0, 0)
