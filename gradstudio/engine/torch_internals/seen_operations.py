"""Observation of every operation of a thread, with the properties in its declaration."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from gradstudio.engine.torch_internals.internal import SLOW_START, SLOWER, Internal, check

NO_BIRTH = "training is slower, and it is not found where a NaN was born"

# Observes one operation of torch: is called with the operation, its arguments and its keyword arguments, and returns
# its results.
See = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


def _find_skip_compiler() -> bool:
    from torch.utils._python_dispatch import TorchDispatchMode

    check(TorchDispatchMode._should_skip_dynamo() is True)
    return True


def _find_dispatch_mode() -> Callable[[See], AbstractContextManager[Any]]:
    from torch.utils._python_dispatch import TorchDispatchMode

    SKIP_COMPILER.get()

    class Seeing(TorchDispatchMode):
        # torch would exclude the method below from its compiler, and import it for that, which takes a second.
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __init__(self, see: See) -> None:
            super().__init__()
            self._see = see

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self._see(function, args, kwargs or {})

    seen: list[str] = []

    def see(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        seen.append(str(function))
        return function(*args, **kwargs)

    weight = torch.ones(2, requires_grad=True)
    with Seeing(see):
        (gradient,) = torch.autograd.grad((weight * 3).sum(), weight)
    check(gradient.tolist() == [3, 3] and seen[:2] == ["aten.mul.Tensor", "aten.sum.default"] and len(seen) > 3)
    return Seeing


def _find_schema() -> Callable[[Any], Any]:
    aten: Any = torch.ops.aten
    plain, in_place, writing = aten.add.Tensor._schema, aten.add_.Tensor._schema, aten.add.out._schema
    check(plain.name == "aten::add" and not plain.is_mutable and in_place.is_mutable)
    check([str(each.type) for each in plain.returns] == ["Tensor"])
    check([argument.name for argument in plain.arguments] == ["self", "other", "alpha"])
    check(plain.arguments[2].default_value == 1 and plain.arguments[0].alias_info is None)
    check(in_place.arguments[0].alias_info.is_write)
    check([argument.is_out for argument in writing.arguments] == [False, False, False, True])
    return lambda function: function._schema


def _find_direct_call() -> Callable[[Any], Callable[..., Any]]:
    check(torch.ops.aten.mul.Tensor._op(torch.ones(1), torch.full((1,), 3.0)).tolist() == [3])
    return lambda function: function._op


SKIP_COMPILER = Internal(
    "TorchDispatchMode._should_skip_dynamo", "torch's compiler may be loaded", SLOW_START, _find_skip_compiler
)
SEEING = Internal("torch.utils._python_dispatch", "Recorded passes are off", NO_BIRTH, _find_dispatch_mode)
SCHEMA = Internal("OpOverload._schema", "Recorded passes are off", NO_BIRTH, _find_schema)

DIRECT_CALL = Internal("OpOverload._op", "Recorded passes call torch the long way", SLOWER, _find_direct_call)


def can_intercept_operations() -> bool:
    """Return whether operations can be observed at all, with their effects on their arguments."""
    return SEEING.get() is not None and SCHEMA.get() is not None


def intercept_operations(see: See) -> AbstractContextManager[Any]:
    """Return a context in which `see` is called in place of every operation of this thread. Only if
    can_intercept_operations()."""
    return SEEING.get()(see)


def schema(function: Any) -> Any:
    """Return the declaration of an operation: its name, arguments and results. Only if can_intercept_operations."""
    return SCHEMA.get()(function)


def direct(function: Any) -> Callable[..., Any]:
    """Return the underlying function of an operation, without the Python code around it."""
    find = DIRECT_CALL.get()
    return find(function) if find else function
