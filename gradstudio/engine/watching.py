"""Watching torch: every operation that it does, with its arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

MOST = 1 << 28  # bytes that a watched pass may take: with more, arithmetic is nearly all of it

# These use the place of their result for what is between, and change its shape for that.
_RESIZING = {"mse_loss"}


class Unrecordable(Exception):
    """What is done depends on the data, or takes too much memory."""


class Call(NamedTuple):
    function: Any  # of torch.ops.aten
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Tensor]  # but for those that are None
    positions: tuple[int, ...] = ()  # which of the operation's results these are, where each is one

    @property
    def name(self) -> str:
        return self.function._schema.name.removeprefix("aten::")

    @property
    def taken(self) -> list[Tensor]:
        return tensors_in((self.args, self.kwargs))

    def given(self, name: str) -> Any:
        """The value of an argument: its default where it was not given, None where there is no such argument."""
        for position, argument in enumerate(self.function._schema.arguments):
            if argument.name == name:
                return self.args[position] if position < len(self.args) else self.kwargs.get(name, argument.default_value)
        return None

    @property
    def written(self) -> Iterator[Tensor]:
        """The arguments that it changes."""
        for argument in self.function._schema.arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from tensors_in(self.given(argument.name))


class SeesOperations(TorchDispatchMode):
    """Sees every operation of torch. Its compiler is not kept away, which would import it, for a second: nothing is compiled here."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Watch(SeesOperations):
    """Keeps every operation with its arguments and results, so that none of their memory is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._storages: set[int] = set()
        self._bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        taken = with_each((args, kwargs), Tensor.detach)  # as they are now, whatever becomes of their shapes
        results = function(*args, **kwargs)
        given = results if isinstance(results, (tuple, list)) else (results,)
        positions = tuple(number for number, result in enumerate(given) if isinstance(result, Tensor))
        self.calls.append(Call(function, *taken, [result.detach() for result in tensors_in(results)], positions))
        self._check(self.calls[-1])
        return results

    def _check(self, call: Call) -> None:
        tags = call.function.tags
        draws = torch.Tag.nondeterministic_seeded in tags and call.given("dropout_p") != 0
        by_mask = any(index.dtype in (torch.bool, torch.uint8) for index in call.taken[1:])
        shaped_by_data = torch.Tag.dynamic_output_shape in tags and (by_mask or call.name != "index")
        if draws or shaped_by_data or torch.Tag.data_dependent_output in tags:
            raise Unrecordable(call.name)
        for result in call.results:
            if storage_of(result) not in self._storages:
                self._storages.add(storage_of(result))
                self._bytes += result.untyped_storage().nbytes()
        if self._bytes > MOST:
            raise Unrecordable("memory")


@lru_cache(None)
def writing_form(function: Any) -> tuple[Callable[..., Any] | None, list[str]]:
    """The form of an operation that writes where it is told to, and what it calls these places; None without one."""
    wanted = [(argument.name, str(argument.type)) for argument in function._schema.arguments]
    for name in function.overloadpacket.overloads():
        form = getattr(function.overloadpacket, name)
        outs = [argument.name for argument in form._schema.arguments if argument.is_out]
        others = [(argument.name, str(argument.type)) for argument in form._schema.arguments if not argument.is_out]
        # A generated form only copies. Some forms know fewer arguments: the kind of memory, which the place already has.
        lacking = {name for name, _ in wanted} - {name for name, _ in others}
        known = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking"}
        if outs and torch.Tag.generated not in form.tags and others == [each for each in wanted if each in others] and not lacking - known:
            return (None, []) if function._schema.name.removeprefix("aten::") in _RESIZING else (form._op, outs)
    return None, []


def with_each(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Arguments with every tensor in them changed."""
    if isinstance(tree, Tensor):
        return change(tree)
    if isinstance(tree, (tuple, list)):
        return type(tree)(with_each(branch, change) for branch in tree)
    return {name: with_each(branch, change) for name, branch in tree.items()} if isinstance(tree, dict) else tree


def tensors_in(tree: Any) -> list[Tensor]:
    """Every tensor in arguments or results."""
    if isinstance(tree, Tensor):
        return [tree]
    branches = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (tuple, list)) else ()
    return [tensor for branch in branches for tensor in tensors_in(branch)]


def storage_of(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
