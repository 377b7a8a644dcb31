"""The effect of operations of loss code on special inputs: the Inf of a mask, a divisor of 0, the targets of a
divergence."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from gradstudio.core.diagnosis.birth_remedies import TARGET_BELOW_0
from gradstudio.core.provenance import OF_A_MASK, operation_of
from gradstudio.core.text import number
from gradstudio.engine.operation_watcher import values_of
from gradstudio.watching.births.loss_values import VIEWS
from gradstudio.watching.births.saved_tensors import saved_of, target_of_divergence

# Operations that put in a chosen value, and those that preserve it.
_MASKS, _KEEPING = ("masked_fill", "where"), VIEWS | {"log_softmax", "clone", "neg"}


def is_masked(node: Any, tensor: Tensor | None, of_a_mask: bool) -> bool:
    """Return whether the only non-finite values of a result come from a mask: an operation put them in, or preserved
    them. `log_softmax` produces no Inf from unmasked scores."""
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
