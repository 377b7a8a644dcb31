"""The terms that a loss adds up, and faults that are visible in them: a factor of another shape, targets that the
output cannot reach, a term that has no least value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from gradstudio.core.provenance import operation_of
from gradstudio.core.text import number
from gradstudio.watching.births.loss_values import VIEWS, is_leaf
from gradstudio.watching.births.saved_tensors import EXPONENT, saved_of

_PASSED_ON = {"mean", "sum", "neg", "add", "sub", "rsub", "minimum", "maximum", "clone", *VIEWS}
_VIEWS = VIEWS - {"expand"} | {"clone"}
_MOST_TERMS = 200
_DIVIDED = -1  # in place of the numbers that a sum adds up
OF_TARGETS = ("mse_loss", "smooth_l1_loss", "huber_loss")  # they save their operands as they were compared
# Activations with what they reach.
_REACHES = {
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "relu": (0.0, math.inf),
    "softplus": (0.0, math.inf),
}
_SOME = 0.1  # share of targets out of reach


class LossFault(NamedTuple):
    """What is wrong with a loss: the rule (core/diagnosis/script_faults.py), the evidence as a sentence, the operation,
    and the values for the remedy."""

    rule: str
    evidence: str
    operation: str
    known: str = ""


class Term(NamedTuple):
    """One summand of a loss: the operation that computes it, its sign, and over how many numbers a later sum adds it up
    without dividing, 0 if none does."""

    node: Any
    sign: int
    summed: int = 0


def terms_of(roots: Sequence[Tensor]) -> Iterator[Term]:
    """Yield the terms of these losses: what comes before means, sums, differences and factors that are numbers."""
    waiting = [Term(root.grad_fn, 1) for root in roots if root.grad_fn is not None]
    for _ in range(_MOST_TERMS):
        if not waiting:
            return
        node, sign, summed = term = waiting.pop(0)
        operation, inputs = operation_of(node.name()), [each for each, _ in node.next_functions]
        factor = _factor(node) if operation in ("mul", "div") else None
        if factor is None and operation not in _PASSED_ON:
            if not is_leaf(node):
                yield term._replace(summed=max(summed, 0))
            continue
        sign = -sign if operation in ("neg", "rsub") or (factor or 0) < 0 else sign
        if operation in ("mean", "div") or summed == _DIVIDED:
            summed = _DIVIDED
        elif operation == "sum":
            summed = math.prod(map(int, node._saved_self_sym_sizes))
        signs = (sign, -sign) if operation in ("sub", "rsub") else (sign,) * len(inputs)
        waiting += [Term(each, one, summed) for each, one in zip(inputs, signs, strict=False) if each is not None]


def _factor(node: Any) -> float | None:
    """Return the single number that a node multiplies or divides by; None if that is a tensor."""
    if len([each for each, _ in node.next_functions if each is not None]) != 1:
        return None
    other = saved_of(node).get("other", saved_of(node).get("self"))
    return 1.0 if other is None else float(other) if other.numel() == 1 else None


def input_of(node: Any) -> Any:
    """Return the node that produced the first input, looking through views; None if there is none."""
    return past_views(node.next_functions[0][0] if node is not None and node.next_functions else None)


def past_views(node: Any) -> Any:
    while node is not None and operation_of(node.name()) in _VIEWS:
        node = node.next_functions[0][0]
    return node


def more_faults(node: Any) -> Iterator[LossFault]:
    """Yield the faults that show in a single operation of a loss."""
    yield from filter(None, (_unreachable(node), _norm_of_one(node), _unsigned(node)))


def _unreachable(node: Any) -> LossFault | None:
    """Return the fault of comparing targets with an activation that does not reach them."""
    operation, target, given = operation_of(node.name()), saved_of(node).get("target"), input_of(node)
    before = operation_of(given.name()) if given is not None else ""
    if operation not in (*OF_TARGETS, "l1_loss") or before not in _REACHES or target is None or not target.numel():
        return None
    least, most = _REACHES[before]
    room = 0.01 * (most - least) if most < math.inf else 0.01
    share = float(((target < least - room) | (target > most + room)).float().mean())
    if not share > _SOME:
        return None
    bounds = f"from {number(least)} to {number(most)}" if most < math.inf else f"above {number(least)}"
    lowest, highest = float(target.min()), float(target.max())
    text = f"`{operation}` compares the result of a {before}, {bounds}, with targets from {number(lowest)} to "
    text += f"{number(highest)}: {100 * share:.0f} % of those of this batch are beyond it"
    low, wide = f"{lowest:.3g}", f"{highest - lowest:.3g}"
    mend = f"no `{before}` behind the last layer"
    if before == "sigmoid":
        mend = f"`{low} + {wide} * torch.sigmoid(x)` in place of `torch.sigmoid(x)`, or {mend}"
    return LossFault("out_of_reach", text, before, mend)


def _unsigned(node: Any) -> LossFault | None:
    """Return the fault of labels of 0 in a loss that takes 1 and -1: they leave nothing to learn, and none is -1."""
    operation = operation_of(node.name())
    if operation == "soft_margin_loss":
        target = node._saved_target
        zeros, count, negatives = int((target == 0).sum()), target.numel(), int((target < 0).sum())
    elif operation == "add" and [operation_of(each.name()) for each, _ in node.next_functions if each] == ["where"] * 2:
        ones, others = (each._saved_condition for each, _ in node.next_functions)
        if ones.shape != others.shape or any(len(_inputs(each)) != 1 for each, _ in node.next_functions):
            return None  # as in `cosine_embedding_loss` each takes the loss of its kind, and 0 for the other
        zeros, count, negatives = int((~ones & ~others).sum()), ones.numel(), int(others.sum())
        operation = "cosine_embedding_loss"
    else:
        return None
    if not zeros or negatives:
        return None
    text = f"`{operation}` gives {zeros:,} of {count:,} examples no gradient: none of the labels is -1"
    return LossFault("labels_not_signed", text, operation)


def _inputs(node: Any) -> list[Any]:
    return [each for each, _ in node.next_functions if each is not None]


def _norm_of_one(node: Any) -> LossFault | None:
    """Return the fault of a norm over one number, which gives its bias whatever comes in."""
    operation = operation_of(node.name())
    if operation == "native_layer_norm":
        count = math.prod(map(int, node._saved_normalized_shape))
    elif operation == "native_group_norm":
        count = int(node._saved_C) * int(node._saved_HxW) // int(node._saved_group)
    else:
        return None
    text = f"`{operation.removeprefix('native_')}` normalizes each number by itself"
    return LossFault("norm_of_one", text, operation.removeprefix("native_")) if count == 1 else None


def without_floor(roots: Sequence[Tensor]) -> str:
    """Return the operation of a term that is subtracted and has no largest value: an exponential or a square; "" if
    there is none."""
    for node, sign, _ in terms_of(roots):
        operation = operation_of(node.name())
        if sign < 0 and (operation == "exp" or _is_square(node)):
            return operation
    return ""


def _is_square(node: Any) -> bool:
    if operation_of(node.name()) == "pow":
        exponent = saved_of(node).get(EXPONENT)
        return exponent is not None and exponent.numel() == 1 and float(exponent) in (2, 4)
    inputs = [each for each, _ in node.next_functions]
    return operation_of(node.name()) == "mul" and len(inputs) == 2 and inputs[0] is inputs[1] is not None
