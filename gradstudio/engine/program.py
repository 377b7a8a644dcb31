"""A list of torch's operations as a program that torch runs by itself.

Called from Python, an operation takes two microseconds beside its arithmetic, and the interpreter lock each time. So the list is written
down as TorchScript, of which torch makes the same calls in the same order without Python, and without the lock: whatever else runs
Python, such as a window, is not waited for. Nothing is optimized, for that could change bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

FEWEST = 4  # operations that are worth a program: the call of one costs as much as two of them
LONGEST = 1000  # operations in one: torch holds the interpreter lock while it compiles them, a tenth of a second
_CAUSE = "\nRuntimeError: "  # what stands before it where TorchScript tells of one
LET_GO = "let go"  # the name of an operation that frees memory, which a program does by itself

# A tensor that stands for what an operation makes anew each time, and its size, stride and offset there where it is not all of it.
Standing = tuple[Tensor, tuple[Sequence[int], Sequence[int], int] | None]


class Made(NamedTuple):
    """A result that an operation makes anew: which of its results that is, and what becomes of it."""

    position: int
    place: Tensor  # it is copied there
    standing: Sequence[Standing] | None  # or these stand for it from then on


class Operation(NamedTuple):
    """A call. `name` is what TorchScript calls the same with the same arguments, such as "aten.mm"; empty for a function of Python's."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = {}
    name: str = ""
    made: tuple[Made, ...] = ()  # what `function` puts away, and TorchScript's operation gives back
    results: int = 1  # that TorchScript's operation gives back


class Program:
    """Calls operations in their order. Those that TorchScript does not know are called from Python."""

    def __init__(self, operations: Sequence[Operation], *, whole: bool = True) -> None:
        """`whole`: nobody else looks at tensors that stand for something, so that they need not be brought to Python."""
        program = _compiled(operations) if whole and len(operations) <= LONGEST else None
        self._parts: list[Callable[[], Any]] = [program] if program else []
        for scripted, group in groupby([] if program else operations, key=lambda each: bool(each.name) and each.name != LET_GO and not each.made):
            self._parts += _parts(list(group), scripted=scripted)

    def run(self) -> None:
        """RuntimeError as the operation itself raises it."""
        try:
            with torch.jit.optimized_execution(False):  # of this thread
                for part in self._parts:
                    part()
        except RuntimeError as fault:
            raise RuntimeError(str(fault).rpartition(_CAUSE)[2].strip()) from fault


def _parts(operations: Sequence[Operation], *, scripted: bool) -> list[Callable[[], Any]]:
    """What to call one after the other. Where torch does not take a line, it is left out of the program."""
    if not scripted or len(operations) < FEWEST:
        return [partial(each.function, *each.args, **each.kwargs) for each in operations]
    if len(operations) <= LONGEST and (program := _compiled(operations)):
        return [program]
    half = len(operations) // 2
    return _parts(operations[:half], scripted=True) + _parts(operations[half:], scripted=True)


def _compiled(operations: Sequence[Operation]) -> Callable[[], Any] | None:
    """None where torch does not take them."""
    text = _Text()
    try:
        for operation in operations:
            text.write(operation)
        taken = "".join(f"t{number}, " for number in range(len(text.tensors))) + "= tensors"
        script = _script("def program(tensors: List[Tensor]) -> None:\n    " + "\n    ".join([taken, *text.lines]) + "\n")
    except (_Unwritable, RuntimeError):
        return None
    # Python alone would hold these tensors. Each operation then counts Python's references too, for which torch takes the interpreter lock:
    # a list of torch's own holds them as well, and the program runs through.
    return partial(script.program, torch._C.ScriptList(text.tensors))


def _script(text: str) -> Any:
    """Here torch holds on to all that the calling function knows, so that knows nothing else."""
    return torch.jit.CompilationUnit(text)


class _Unwritable(Exception):
    """There is no such thing in TorchScript."""


class _Text:
    """`lines` of TorchScript, and the `tensors` that they call t0, t1 and so on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tensors: list[Tensor] = []
        self._names: dict[int, str] = {}  # of tensors, by their identity

    def write(self, operation: Operation) -> None:
        if operation.name == LET_GO:
            return
        if not operation.name:
            raise _Unwritable
        arguments = [self._written(value) for value in operation.args]
        arguments += [f"{name}={self._written(value)}" for name, value in operation.kwargs.items()]
        call = f"torch.ops.{operation.name}({', '.join(arguments)})"
        if not operation.made:
            self.lines.append(call)
            return
        results = [f"r{len(self.lines)}_{position}" for position in range(operation.results)]
        self.lines.append(f"{', '.join(results)} = {call}")
        for position, place, standing in operation.made:
            if standing is None:
                self.lines.append(f"torch.ops.aten.copy_({self._written(place)}, {results[position]})")
            for tensor, lies in standing or ():
                whole = results[position]
                self._names[id(tensor)] = (
                    whole if lies is None else f"torch.ops.aten.as_strided({whole}, {list(lies[0])}, {list(lies[1])}, {lies[2]})"
                )

    def _written(self, value: Any) -> str:
        if isinstance(value, Tensor):
            if id(value) not in self._names:
                self._names[id(value)] = f"t{len(self.tensors)}"
                self.tensors.append(value)
            return self._names[id(value)]
        if isinstance(value, (list, tuple)) and len(value):
            return f"[{', '.join(map(self._written, value))}]"
        if isinstance(value, float):
            return repr(value) if math.isfinite(value) else f'float("{value}")'
        if value is None or isinstance(value, (bool, int, str, torch.dtype)):
            return repr(value)
        raise _Unwritable
