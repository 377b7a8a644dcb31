"""Turn a list of torch's operations into a program that torch runs by itself.

Called from Python, an operation takes two microseconds beside its arithmetic, and the interpreter lock each time. So
the list is written as TorchScript, from which torch makes the same calls in the same order without Python and without
the lock, so that training does not wait for a window. Nothing is optimized, for that could change bits. TorchScript is
deprecated: where it is missing, Python calls the operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradstudio.engine.torch_internals import scripts

FEWEST = 4  # operations that are worth a program, whose call costs as much as two of them
LONGEST = 1000  # operations in a program: torch holds the interpreter lock while it compiles them, for 0.1 s
_CAUSE = "\nRuntimeError: "  # stands before the message of an operation in an error of TorchScript
LET_GO = "let go"  # name of an operation that frees memory; a program frees it by itself, and leaves this out

# A tensor that stands for a result which an operation makes in new memory each time; and, if it is only a part of the
# result, its size, stride and offset there.
Standing = tuple[Tensor, tuple[Sequence[int], Sequence[int], int] | None]


class Made(NamedTuple):
    """A result that an operation makes in new memory, as it cannot write to a given place."""

    position: int  # among the operation's results
    place: Tensor  # where the result is copied, if nothing stands for it
    standing: Sequence[Standing] | None  # tensors that get the new memory in place of a copy


class Operation(NamedTuple):
    """A call with its arguments. `name` is TorchScript's name for the same operation, such as "aten.mm"; empty for a
    function that only Python knows."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = {}
    name: str = ""
    made: tuple[Made, ...] = ()  # results that `function` puts to their places, and TorchScript's operation returns
    results: int = 1  # number of results that TorchScript's operation returns


class Program:
    """Operations that are called in their order, from Python where TorchScript does not know them."""

    def __init__(self, operations: Sequence[Operation], *, whole: bool = True) -> None:
        """`whole`: nobody else reads the tensors that stand for a result, so that Python need not see them."""
        program = _compiled(operations) if whole and len(operations) <= LONGEST else None
        self._parts: list[Callable[[], Any]] = [program] if program else []
        for scripted, group in groupby(
            [] if program else operations, key=lambda each: bool(each.name) and each.name != LET_GO and not each.made
        ):
            self._parts += _parts(list(group), scripted=scripted)

    def run(self) -> None:
        """Call the operations. Raises the RuntimeError that the operation itself raises."""
        try:
            with scripts.unoptimized():
                for part in self._parts:
                    part()
        except RuntimeError as fault:
            raise RuntimeError(str(fault).rpartition(_CAUSE)[2].strip()) from fault


def _parts(operations: Sequence[Operation], *, scripted: bool) -> list[Callable[[], Any]]:
    """Return the functions to call one after the other. An operation that torch does not take is called from Python."""
    if not scripted or len(operations) < FEWEST:
        return [partial(each.function, *each.args, **each.kwargs) for each in operations]
    if len(operations) <= LONGEST and (program := _compiled(operations)):
        return [program]
    half = len(operations) // 2
    return _parts(operations[:half], scripted=True) + _parts(operations[half:], scripted=True)


def _compiled(operations: Sequence[Operation]) -> Callable[[], Any] | None:
    """Return one program of all operations; None if torch does not take them."""
    if not scripts.scripting_possible():
        return None
    text = _Text()
    try:
        for operation in operations:
            text.write(operation)
        taken = "".join(f"t{number}, " for number in range(len(text.tensors))) + "= tensors"
        script = scripts.script(
            "def program(tensors: List[Tensor]) -> None:\n    " + "\n    ".join([taken, *text.lines]) + "\n"
        )
    except (_Unwritable, RuntimeError):
        return None
    # If Python alone holds these tensors, torch takes the interpreter lock in each operation to count Python's
    # references. A list of torch's own holds them as well, and the program runs through.
    return partial(script.program, scripts.script_list(text.tensors))


class _Unwritable(Exception):
    """TorchScript has no word for an argument."""


class _Text:
    """The `lines` of a TorchScript program, and the `tensors` that they call t0, t1 and so on."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.tensors: list[Tensor] = []
        self._names: dict[int, str] = {}  # by id() of a tensor

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
                    whole
                    if lies is None
                    else f"torch.ops.aten.as_strided({whole}, {list(lies[0])}, {list(lies[1])}, {lies[2]})"
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
