"""A list of torch's operations as a program that torch runs by itself.

Called from Python, an operation takes two microseconds beside its arithmetic, and the interpreter lock each time. So the list is written
down as TorchScript, of which torch makes the same calls in the same order without Python, and without the lock: whatever else runs
Python, such as a window, is not waited for. Nothing is optimized, for that could change bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

FEWEST = 4  # operations that are worth a program: the call of one costs as much as two of them


class Operation(NamedTuple):
    """A call. `name` is what TorchScript calls the same with the same arguments, such as "aten.mm"; empty for a function of Python's."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = {}
    name: str = ""


class Program:
    """Calls operations in their order. Those that TorchScript does not know are called from Python."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._parts: list[Callable[[], Any]] = []
        for scripted, group in groupby(operations, key=lambda operation: bool(_line(operation, {}))):
            self._parts += _parts(list(group), scripted=scripted)

    def run(self) -> None:
        with torch.jit.optimized_execution(False):  # of this thread
            for part in self._parts:
                part()


def _parts(operations: Sequence[Operation], *, scripted: bool) -> list[Callable[[], Any]]:
    """What to call one after the other. Where torch does not take a line, it is left out of the program."""
    if not scripted or len(operations) < FEWEST:
        return [partial(each.function, *each.args, **each.kwargs) for each in operations]
    if program := _compiled(operations):
        return [program]
    half = len(operations) // 2
    return _parts(operations[:half], scripted=True) + _parts(operations[half:], scripted=True)


def _compiled(operations: Iterable[Operation]) -> Callable[[], Any] | None:
    """None where torch does not take them."""
    names: dict[int, str] = {}
    tensors: list[Tensor] = []
    lines = [_line(operation, names, tensors) for operation in operations]
    arguments = ", ".join(f"{name}: Tensor" for name in names.values())
    try:
        script = torch.jit.CompilationUnit(f"def program({arguments}) -> None:\n    " + "\n    ".join(lines) + "\n")
    except RuntimeError:
        return None
    return partial(script.program, *tensors)


def _line(operation: Operation, names: dict[int, str], tensors: list[Tensor] | None = None) -> str:
    """The operation as a line of TorchScript; empty where it has no such form. Tensors get `names` by their identity."""
    if not operation.name:
        return ""
    tensors = [] if tensors is None else tensors
    written = [_written(value, names, tensors) for value in operation.args]
    named = {name: _written(value, names, tensors) for name, value in operation.kwargs.items()}
    if None in written or None in named.values():
        return ""
    return f"torch.ops.{operation.name}({', '.join([*written, *(f'{name}={value}' for name, value in named.items())])})"


def _written(value: Any, names: dict[int, str], tensors: list[Tensor]) -> str | None:
    """An argument in TorchScript; None where it has no such form."""
    if isinstance(value, Tensor):
        if id(value) not in names:
            names[id(value)] = f"t{len(names)}"
            tensors.append(value)
        return names[id(value)]
    if isinstance(value, (list, tuple)):
        parts = [_written(part, names, tensors) for part in value]
        return None if None in parts or not parts else f"[{', '.join(parts)}]"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if value is None or isinstance(value, (bool, int, str, torch.dtype)):
        return repr(value)
    return None
