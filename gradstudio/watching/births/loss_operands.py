"""The effect of operations of loss code on special inputs: the Inf of a mask, a divisor of 0, the targets of a
divergence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from gradstudio.core.diagnosis.birth_remedies import TARGET_BELOW_0
from gradstudio.core.provenance import OF_A_MASK, operation_of
from gradstudio.core.text import number
from gradstudio.engine.operation_watcher import values_of
from gradstudio.watching.births.loss_values import VIEWS, weight_behind
from gradstudio.watching.births.saved_tensors import saved_of, target_of_divergence

# Operations that put in a chosen value, and those that preserve it.
_ENDS = ("log", "div")  # of a form that begins with `exp`
_PICKS = VIEWS | {"gather", "select", "index", "slice"}  # their logarithm is that of what they pick from
_MASKS, _KEEPING = ("masked_fill", "where"), VIEWS | {"log_softmax", "clone", "neg"}


def is_masked(node: Any, tensor: Tensor | None, of_a_mask: bool) -> bool:
    """Return whether the only non-finite values of a result come from a mask: an operation wrote them, or passed them
    on. `log_softmax` produces no Inf from unmasked scores."""
    operation = operation_of(node.name())
    if tensor is None or not (values := values_of(tensor)).inf or values.nan:
        return False
    return operation in _MASKS or (operation in _KEEPING and (of_a_mask or operation == "log_softmax"))


def cause_behind_a_mask(node: Any, tensor: Tensor) -> str:
    operation = operation_of(node.name())
    if operation in ("softmax", "log_softmax"):
        return f"a row that holds nothing but the {OF_A_MASK} has no softmax"
    if values_of(tensor).nan:
        return f"0 times the {OF_A_MASK} is NaN" if operation == "mul" else f"it makes NaN of the {OF_A_MASK}"
    return f"it takes the {OF_A_MASK} into its result"


def cause_in_a_divergence(node: Any) -> str:
    """Return why `kl_div` produces NaN from its target, whose logarithm it takes; "" if it does not."""
    if (target := target_of_divergence(node)) is None or not bool((target < 0).any()):
        return ""
    return f"{TARGET_BELOW_0}, and its target goes down to {number(float(target.min()))}: that has no logarithm"


def divides_by_0(node: Any) -> bool:
    """Return whether an operation divides an unknown value by 0, which is non-finite for any value."""
    by = saved_of(node).get("other") if operation_of(node.name()) == "div" else None
    return by is not None and values_of(by).zeros > 0


def written_as(node: Any, nodes: Sequence[Any]) -> str:
    """Return the form in which loss code spells out what a single operation computes, by the operation that broke,
    among all `nodes`; "" if none is known. The forms are those of `IN_ONE`."""
    match operation_of(node.name()):
        case "log":
            return _logarithm_of(_maker(node))
        case "div" if len(node.next_functions) > 1:
            return _share_of(_maker(node), _maker(node, 1))
        case "exp":
            ends = _users_of(node, nodes, ("add", "sum", "mean", "mul"))
            return next(filter(None, (written_as(end, ()) for end in ends if operation_of(end.name()) in _ENDS)), "")
    return ""


def _logarithm_of(of: Any) -> str:
    operation = _name(of)
    if operation == "sum" and "exp" in _factors(_maker(of)):
        return "`exp(x).sum().log()`"
    if operation == "add" and _name(_maker(of)) == "exp" and len(of.next_functions) > 1 and _maker(of, 1) is None:
        return "`(1 + exp(x)).log()`"
    if operation == "rsub" and _name(_maker(of)) == "sigmoid":
        return "`(1 - sigmoid(x)).log()`"
    if weight_behind(of) is not None:
        return "`weight.log()`"
    return f"`{operation}(x).log()`" if operation in ("prod", "softmax", "sigmoid") else ""


def _share_of(part: Any, whole: Any) -> str:
    if _name(whole) != "sum" or _maker(whole) is None:
        return ""
    if _maker(whole) is part and "softmax" in _factors(part):
        return "`mask * softmax(x) / sum`"
    return "`exp(x) / exp(x).sum()`" if "exp" in _factors(part) and "exp" in _factors(_maker(whole)) else ""


def _factors(node: Any) -> list[str]:
    """Return the operation of a node, or those of the factors of a product."""
    is_product = _name(node) == "mul"
    return [_name(_maker(node, place)) for place in range(len(node.next_functions))] if is_product else [_name(node)]


def _users_of(node: Any, nodes: Sequence[Any], through: Sequence[str]) -> list[Any]:
    """Return the operations that take the result of a node, also as handed on by some."""
    users, after = [node], []
    for each in nodes:
        if any(maker in users for maker, _ in each.next_functions):
            after.append(each)
            users += [each] if operation_of(each.name()) in (*through, *_PICKS) else []
    return after


def _name(node: Any) -> str:
    return operation_of(node.name()) if node is not None else ""


def _maker(node: Any, place: int = 0) -> Any:
    """Return the operation whose result an input is, past views and picks; None without one."""
    maker = node.next_functions[place][0] if node is not None and node.next_functions else None
    while maker is not None and operation_of(maker.name()) in _PICKS:
        maker = maker.next_functions[0][0]
    return maker
