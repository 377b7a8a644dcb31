"""How a non-finite value spread from where it was born, among operations that were watched or that autograd knows, and
why it was born there: one sentence for each cause."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from gradstudio.core.diagnosis.birth_remedies import GIVEN_NUMBER
from gradstudio.core.diagnosis.undefined_operations import BEYOND, MEAN_OF_NONE, OF_NEGATIVE, ROOT_OF_NEGATIVE
from gradstudio.core.provenance import Operation, Phase, Provenance, operation_of
from gradstudio.core.text import number, plural
from gradstudio.engine.operation_watcher import FILLS, NOTHING, Values, WatchedOperation, together

LONGEST = 12  # operations kept in a chain
NO_LABEL = "the mean over no label at all is 0 / 0: every label is the one that is left out, or has a weight of 0"
SINGULAR = "the determinant of a matrix is 0 or negative, of which there is no logarithm"
# Functions that are NaN for a non-finite number.
NAN_OF_A_NUMBER = {
    "sqrt": f"{ROOT_OF_NEGATIVE} is NaN",
    **dict.fromkeys(("log", "log2", "log10"), "the logarithm of a negative number is NaN"),
    **dict.fromkeys(("acos", "asin"), "it was given a number beyond 1 or -1, and is NaN there"),
}
_DIVIDES = ("log", "div", "sqrt", "pow", "reciprocal", "norm", "dist", "std")  # in names of those whose derivative does
_ROUNDING = 1e-3  # beyond 1 or -1, of what would be a cosine
_SOFTMAX = {"_softmax", "_log_softmax", "_safe_softmax"}


def chain_to(operations: list[WatchedOperation], sink: int) -> list[int]:
    """Return the operations from the birth of a value to `sink`. The search follows non-finite values backwards, NaN
    before Inf, to the operation that produced one from finite values, or a NaN from a deliberate Inf."""
    chain = [sink]
    while True:
        operation = operations[chain[-1]]
        makes_nan = operation.given.nan > 0 and not any(values.nan for values in operation.taken)
        sources = [source for source in operation.sources if source < chain[-1] and not operations[source].given.finite]
        sources = [
            source
            for source in sources
            if not (_is_fill(operations[source]) or (makes_nan and operations[source].put_in))
        ]
        if not sources:
            return chain[::-1]
        chain.append(min(sources, key=lambda source: (operations[source].given.nan == 0, source)))


def _is_fill(operation: WatchedOperation) -> bool:
    """Return whether an operation only writes a chosen value. A NaN in a batch belongs to the batch."""
    return operation.kind in FILLS and (operation.phase == "data" or operation.put_in)


def operation_record(operation: WatchedOperation, *, is_known: bool = True) -> Operation:
    """Return the record of an operation for a provenance. `is_known`: all of its inputs are known."""
    values = together(operation.taken)
    return Operation(
        operation.phase, operation.module, operation.name, operation.node,
        str(operation.dtype).removeprefix("torch."), values.largest, values.nan,
        values.inf,
        operation.given.largest, operation.given.nan, operation.given.inf, is_known,
    )  # fmt: skip


def provenance(
    operations: Sequence[WatchedOperation], chain: Sequence[int], layers: Iterable[str], /, **known: Any
) -> Provenance:
    """Return the birth at the head of a chain. `layers` are the names of all, `known` the fields that override those of
    the operation."""
    operation = operations[chain[0]]
    module = known.get("module", operation.module)
    fields: dict[str, Any] = {
        "step": 0, "phase": operation.phase, "module": module, "operation": operation.name,
        "micro_batch": 0, "micro_batches": 1,
        "time_step": None, "cause": known.get("cause") or cause_of(operation),
        "layers": tuple(name for name in layers if module and f"{name}.".startswith(f"{module}.")),
        "chain": tuple(operation_record(operations[number]) for number in chain[:LONGEST]),
    }  # fmt: skip
    return Provenance(**{**fields, **known})


def inputs_in_words(taken: list[Values]) -> str:
    """Return the inputs of an operation, as half a sentence."""
    return "; ".join(_values_in_words(values) for values in taken if values.low == values.low or not values.finite)


def _values_in_words(values: Values) -> str:
    parts = [f"{number(values.low)} to {number(values.high)}"] if values.low == values.low else []
    parts += [plural(values.zeros, "zero", "zeros")] if values.zeros else []
    parts += [f"{values.nan:,} NaN"] if values.nan else []
    parts += [f"{values.inf:,} Inf"] if values.inf else []
    return ", ".join(parts)


def growth_of(operations: Iterable[WatchedOperation], phase: Phase, micro_batch: int | None = None) -> dict[str, float]:
    """Return the largest absolute value of each module, in the direction of the pass."""
    growth: dict[str, float] = {}
    for operation in operations:
        if operation.phase == phase and operation.module and micro_batch in (None, operation.micro_batch):
            largest = operation.given.largest
            if largest == largest:
                growth[operation.module] = max(growth.get(operation.module, 0.0), largest)
    return growth


def _most(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).max if dtype.is_floating_point else math.inf


def largest_of(dtype: torch.dtype) -> str:
    """Return the largest number of a format, in words."""
    return f"{number(_most(dtype))}, the largest {str(dtype).removeprefix('torch.')} number"


def cause_of(operation: WatchedOperation) -> str:
    """Return why an operation produced a non-finite value, as a sentence."""
    values, dtype, most = together(operation.taken), str(operation.dtype).removeprefix("torch."), _most(operation.dtype)
    where = (
        f" in the derivative of {operation.node.removesuffix('0').removesuffix('Backward')}" if operation.node else ""
    )
    if operation.node.endswith("AccumulateGrad"):
        where = " where the gradient of a weight arrives"
    first = operation.taken[0] if operation.taken else NOTHING
    if operation.kind in _SOFTMAX and values.inf and not values.nan:
        return f"it was given {values.inf:,} Inf: a row with +Inf, or of nothing but -Inf, has no softmax"
    if not values.finite:
        return f"it was given {plural(values.nan + values.inf, 'value that is', 'values that are')} not finite{where}"
    if operation.name == operation.node and (why := _cause_in_a_derivative(operation, where)):
        return why
    if why := _cause_by_kind(operation, first, where):
        return why
    if operation.kind.removesuffix("_") == "_to_copy":
        return f"{number(values.largest)} does not fit into {dtype}, whose largest number is {number(most)}"
    if operation.given.inf or values.largest > math.sqrt(most) / 100:
        is_difference = operation.given.nan and not operation.given.inf
        sums = "Inf - Inf, which is NaN" if is_difference else f"{BEYOND} {largest_of(operation.dtype)}"
        return f"inputs up to {number(values.largest)} gave {sums}{where}"
    of = f" of finite values up to {number(values.largest)}" if values.largest == values.largest else ""
    return f"it made {operation.given.nan:,} NaN{of}{where}"


def _cause_by_kind(operation: WatchedOperation, first: Values, where: str) -> str:
    """Return the known cause for an operation of this kind, given its first input; empty for others."""
    match operation.kind.removesuffix("_"):
        case kind if kind.startswith("nll_loss") and operation.given.nan:
            return NO_LABEL
        case "div" if operation.number == 0:
            return f"a division by the number 0{where}"
        case "add" | "sub" | "mul" | "div" | "pow" | "fill" | "full" if operation.number and not math.isfinite(
            operation.number
        ):
            return f"{GIVEN_NUMBER} {number(operation.number)}{where}"
        case "log" | "log2" | "log10" if first.low < 0:
            return f"the logarithm of a negative number, {number(first.low)}, is NaN"
        case "log" | "log2" | "log10":
            return "the logarithm of 0 is -Inf"
        case "sqrt" if first.low < 0:
            return f"{ROOT_OF_NEGATIVE}, {number(first.low)}, is NaN"
        case "exp":
            return f"exp({number(first.high)}) is beyond {largest_of(operation.dtype)}"
        case "div" if len(operation.taken) > 1 and operation.taken[1].zeros:
            return f"{'0 divided by 0 is NaN' if operation.given.nan else 'a division by 0 is Inf'}{where}"
        case "reciprocal" | "rsqrt" if first.zeros:
            return f"a division by 0 is Inf{where}"
        case "pow" if why := _cause_in_a_power(operation, first):
            return f"{why}{where}"
        case "mean" if first.low != first.low:
            return MEAN_OF_NONE
        case "log1p" if first.low <= -1:
            return "log1p of -1 is -Inf, and of less NaN"
        case "lgamma" | "digamma" if first.low > 0:
            pass
        case "acos" | "asin" if 0 < (beyond := max(first.high - 1, -1 - first.low)) < _ROUNDING:
            return f"it was given a number by {number(beyond)} beyond 1 or -1, as rounding leaves it, and is NaN there"
        case "atanh" | "erfinv" | "logit" | "lgamma" | "digamma" | "acos" | "asin" | "acosh" | "remainder" | "fmod":
            return (
                f"it has no finite value for one of what it was given, from {number(first.low)} to {number(first.high)}"
            )
    return ""


def _cause_in_a_derivative(operation: WatchedOperation, where: str) -> str:
    """Return why a derivative of the loss code is non-finite; "" if none of the tensors saved for it explains that."""
    saved = together(operation.taken[1:])  # after the gradient that reached it
    name = operation_of(operation.name)
    if saved.zeros and any(part in name for part in _DIVIDES):
        return f"{'0 divided by 0 is NaN' if operation.given.nan else 'a division by 0 is Inf'}{where}"
    if saved.largest != saved.largest or together(operation.taken).largest > math.sqrt(_most(operation.dtype)) / 100:
        return ""
    of = f"the derivative of {name}"
    return f"{of} is not finite for one of what it was given, from {number(saved.low)} to {number(saved.high)}"


def _cause_in_a_power(operation: WatchedOperation, first: Values) -> str:
    """Return why a power is non-finite; "" if it is too large."""
    if operation.given.nan:
        return OF_NEGATIVE
    if operation.number is not None:  # a negative exponent, or 0 as the base
        return f"a division by {'0' if first.zeros or operation.number == 0 else 'a number near 0'} is Inf"
    if len(operation.taken) > 1 and operation.taken[1].low < 0:
        return "a power that is too large, or a negative one of 0, is Inf"
    return ""
