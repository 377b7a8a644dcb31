"""What operations of loss code make of what they were given: of the Inf of a mask, of a divisor of 0, of the targets of
a divergence."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from gradstudio.core.diagnosis.birth_remedies import TARGET_BELOW_0
from gradstudio.core.provenance import OF_A_MASK, operation_of
from gradstudio.core.text import number
from gradstudio.engine.operation_watcher import values_of
from gradstudio.watching.births.loss_values import VIEWS, saved_of, target_of_divergence

# Operations that put in a value that somebody chose, and those that leave it where it was put.
_MASKS, _KEEPING = ("masked_fill", "where"), VIEWS | {"log_softmax", "clone", "neg"}


def is_masked(node: Any, tensor: Tensor | None, of_a_mask: bool) -> bool:
    """Return whether a result has the Inf of a mask and nothing else that is not finite: an operation put it in, or
    left it where one did. Of scores that are no mask's, `log_softmax` makes no Inf."""
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
    """Return why `kl_div` makes NaN of its target, which it takes the logarithm of; "" if it does not."""
    if (target := target_of_divergence(node)) is None or not bool((target < 0).any()):
        return ""
    return f"{TARGET_BELOW_0}, and its target goes down to {number(float(target.min()))}: that has no logarithm"


def divides_by_0(node: Any) -> bool:
    """Return whether an operation divides what is not known by 0, which is finite for nothing."""
    by = saved_of(node).get("other") if operation_of(node.name()) == "div" else None
    return by is not None and values_of(by).zeros > 0
