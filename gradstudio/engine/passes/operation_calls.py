"""Watch torch: record every operation, with its arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from gradstudio.engine.torch_internals import seen_operations

MOST = 1 << 28  # bytes that a watched pass may use; arithmetic dominates the time of a larger one

# Operations that make up most passes, and for which torch has a function.
_FUNCTIONS = {
    "add", "add_", "addmm", "argmax", "baddbmm", "bmm", "div", "div_", "eq", "exp", "log", "mean", "mm", "mul",
    "mul_", "neg", "rsqrt", "sigmoid", "sqrt", "square", "stack", "sub", "sub_", "sum", "tanh",
}  # fmt: skip

# Operations that write intermediate values to the place of their result, and change its shape for that.
_RESIZING = {"mse_loss"}


class Unrecordable(Exception):
    """The pass cannot be replayed: what it does depends on the data, or it uses too much memory."""


class Declaration(NamedTuple):
    """The properties in an operation's declaration, read once: torch takes some microseconds for each of these."""

    name: str  # without namespace and overload, such as "mm"
    changes: tuple[tuple[int, str, Any], ...]  # arguments that it changes: position, name, default
    is_mutable: bool
    makes_view: bool  # changes which part of its memory a tensor shows
    draws: bool  # random numbers
    has_shape_of_data: bool
    depends_on_data: bool  # returns a Python value


@lru_cache(None)
def declaration(function: Any) -> Declaration:
    """Return the declaration of an operation. Only if seen_operations.can_intercept_operations."""
    schema, tags = seen_operations.schema(function), function.tags
    changed = [
        (position, argument.name, argument.default_value)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return Declaration(
        schema.name.removeprefix("aten::"), tuple(changed), schema.is_mutable, torch.Tag.inplace_view in tags,
        torch.Tag.nondeterministic_seeded in tags, torch.Tag.dynamic_output_shape in tags,
        torch.Tag.data_dependent_output in tags,
    )  # fmt: skip


class Call:
    """One operation of torch. `taken` is every tensor in the arguments, `results` are those that are not None;
    `taken_in` and `made_in` identify the memory of each of them (`storage_of`)."""

    __slots__ = ("args", "declared", "function", "kwargs", "made_in", "results", "taken", "taken_in")

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: list[Tensor]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs  # `function` is from torch.ops.aten
        self.results = results
        self.declared = declaration(function)
        self.taken = tensors_in((args, kwargs))
        self.taken_in = [storage_of(tensor) for tensor in self.taken]
        self.made_in = [storage_of(result) for result in results]

    @property
    def name(self) -> str:
        return self.declared.name

    def argument(self, name: str) -> Any:
        """Return the value of an argument: its default if it was not given, None if there is no such argument."""
        for position, argument in enumerate(seen_operations.schema(self.function).arguments):
            if argument.name == name:
                return self._argument(position, name, argument.default_value)
        return None

    def _argument(self, position: int, name: str, default: Any) -> Any:
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    @property
    def written_tensors(self) -> Iterator[Tensor]:
        """Every tensor in the arguments that the operation changes."""
        for argument in self.declared.changes:
            yield from tensors_in(self._argument(*argument))


class OperationInterceptor:
    """Base of a context that intercepts every operation of this thread. Only if
    seen_operations.can_intercept_operations()."""

    def __init__(self) -> None:
        self._seeing: AbstractContextManager[Any] | None = None

    def see(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do the operation, and return its results."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._seeing = seen_operations.intercept_operations(self.see)
        self._seeing.__enter__()
        return self

    def __exit__(self, *fault: Any) -> None:
        seeing, self._seeing = self._seeing, None
        if seeing is not None:
            seeing.__exit__(*fault)


class OperationRecorder(OperationInterceptor):
    """Records every operation with its arguments and results, and keeps these alive so that none of their memory is
    reused."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._storages: set[int] = set()
        self._bytes = 0

    def see(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do the operation and record it; Unrecordable if replaying it could give a different result."""
        # Their current shapes: the operation may change them.
        taken_args, taken_kwargs = with_each((args, kwargs), Tensor.detach)
        results = function(*args, **kwargs)
        tensors = [result.detach() for result in tensors_in(results)]
        self.calls.append(Call(function, taken_args, taken_kwargs, tensors))
        self._check(self.calls[-1])
        return results

    def _check(self, call: Call) -> None:
        declared = call.declared
        draws = declared.draws and call.argument("dropout_p") != 0
        shaped_by_data = declared.has_shape_of_data and (
            call.name != "index" or any(index.dtype in (torch.bool, torch.uint8) for index in call.taken[1:])
        )
        if draws or shaped_by_data or declared.depends_on_data:
            raise Unrecordable(call.name)
        for result, memory in zip(call.results, call.made_in, strict=True):
            if memory not in self._storages:
                self._storages.add(memory)
                self._bytes += result.untyped_storage().nbytes()
        if self._bytes > MOST:
            raise Unrecordable("memory")


@lru_cache(None)
def writing_form(function: Any) -> tuple[Callable[..., Any] | None, list[str]]:
    """Return the variant of an operation that writes its results to given places, and the names of those arguments;
    None and [] if there is no such variant."""
    wanted = [(argument.name, str(argument.type)) for argument in seen_operations.schema(function).arguments]
    for name in function.overloadpacket.overloads():
        form = getattr(function.overloadpacket, name)
        arguments = seen_operations.schema(form).arguments
        outs = [argument.name for argument in arguments if argument.is_out]
        others = [(argument.name, str(argument.type)) for argument in arguments if not argument.is_out]
        # A generated variant only copies. Some variants lack the arguments for the memory format, which the place
        # already has.
        lacking = {name for name, _ in wanted} - {name for name, _ in others}
        known = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"}
        if (
            outs
            and torch.Tag.generated not in form.tags
            and others == [each for each in wanted if each in others]
            and not lacking - known
        ):
            return (None, []) if declaration(function).name in _RESIZING else (fast_function(form), outs)
    return None, []


def fast_function(function: Any) -> Callable[..., Any]:
    """Return the fastest way to repeat an operation: torch parses the arguments of its own Python functions in half the
    time of those of an operation from torch.ops."""
    name = declaration(function).name
    outs = [argument.name for argument in seen_operations.schema(function).arguments if argument.is_out]
    if name in _FUNCTIONS and outs in ([], ["out"]):
        return getattr(Tensor if name.endswith("_") else torch, name)
    return seen_operations.direct(function)


def with_each(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return the arguments with every tensor in them changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, (tuple, list)):
        return type(tree)([with_each(branch, change) for branch in tree])
    return {name: with_each(branch, change) for name, branch in tree.items()} if isinstance(tree, dict) else tree


def tensors_in(tree: Any) -> list[Tensor]:
    """Return every tensor in arguments or results."""
    tensors: list[Tensor] = []
    _gather(tree, tensors)
    return tensors


def _gather(tree: Any, tensors: list[Tensor]) -> None:
    if isinstance(tree, Tensor):
        tensors.append(tree)
    elif isinstance(tree, (tuple, list, dict)):
        for branch in tree.values() if isinstance(tree, dict) else tree:
            _gather(branch, tensors)


def storage_of(tensor: Tensor) -> int:
    """Return a number that tensors share if they use the same memory; valid as long as one of them lives. A sparse
    tensor has a number of its own."""
    try:
        return id(tensor.untyped_storage())  # torch keeps the storage's Python object as long as the storage
    except NotImplementedError:
        return id(tensor)
