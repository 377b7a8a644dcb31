"""Remedies for a NaN or Inf of a script that was watched, by where it was born. A smaller step heals what grew too
large; it heals neither the data nor a loss that is not defined for the finite values it was given."""

from __future__ import annotations

import ast
import math
import re

from gradstudio.core.diagnosis.cause_ranking import MEAN_OF_NONE, OF_NEGATIVE, ROOT_OF_NEGATIVE, undefined_for
from gradstudio.core.diagnosis.overflow_remedies import of_overflow
from gradstudio.core.provenance import OF_A_MASK, Operation, Provenance, operation_of
from gradstudio.core.unknown import UNKNOWN, is_known

_OVERFLOWS = 1e15  # a gradient whose square, which Adam takes, may lie beyond the range of float32
_LOG = (
    "`torch.log(x.clamp_min(1e-8))` in place of `torch.log(x)`, or, where `x` is a softmax or sigmoid, "
    "`F.log_softmax` or `F.logsigmoid` of the scores"
)
_NORM = "`torch.sqrt((x ** 2).sum() + 1e-8)` in place of `x.norm()`: its derivative at 0 is not defined"
# By the name of an operation.
_DEFINED: dict[str, str] = {
    "logit": "`torch.logit(x, eps=1e-6)` in place of `torch.logit(x)`",
    **dict.fromkeys(("log", "log2", "log10"), _LOG),
    "div": "`a / (b + 1e-8)` in place of `a / b`, or no division where `b` is 0",
    "reciprocal": "`1 / (x + 1e-8)` in place of `1 / x`",
    "rsqrt": "`torch.rsqrt(x + 1e-8)` in place of `torch.rsqrt(x)`: at 0 it is Inf",
    "sqrt": "`torch.sqrt(x + 1e-8)` in place of `torch.sqrt(x)`: its derivative at 0 is Inf",
    "pow": "`(x + 1e-8) ** p` in place of `x ** p`: at 0 it or its derivative is not finite",
    **dict.fromkeys(("norm", "linalg_norm", "linalg_vector_norm"), _NORM),
    **dict.fromkeys(
        ("cdist", "cdist_forward", "euclidean_dist"),
        "`torch.sqrt(squares + 1e-8)` in place of `torch.cdist`: its derivative at 0 is not defined",
    ),
    "linalg_slogdet": "`torch.logdet(x + 1e-3 * torch.eye(len(x)))` in place of `torch.logdet(x)`: the determinant of "
    "a singular matrix is 0, and rounding may leave it below that",
    "acos": "`torch.acos(x.clamp(-1 + 1e-6, 1 - 1e-6))`",
    "asin": "`torch.asin(x.clamp(-1 + 1e-6, 1 - 1e-6))`",
    "atanh": "`torch.atanh(x.clamp(-1 + 1e-6, 1 - 1e-6))`",
    "erfinv": "`torch.erfinv(x.clamp(-1 + 1e-6, 1 - 1e-6))`",
}
# The same for operations that are undefined for what is no number, by what their name has in it.
_ALWAYS = {
    "ctc_loss": "`zero_infinity=True` in `ctc_loss`: a target is longer than what the model gave for it",
    "nll_loss": "no step for a batch of which every label is `ignore_index`: the mean over none of them is 0 / 0",
}
_OF_A_SOFTMAX = (
    "`assert torch.isfinite(x).any(-1).all()` before the softmax, or a mask that leaves each row one entry: a row of "
    "nothing but -Inf has no softmax",
)
_OF_THE_DATA = (
    "`assert torch.isfinite(x).all()` on the tensors of every batch, and on what the script or another model makes of "
    "them, to find what holds it",
)


TARGET_BELOW_0 = "`kl_div` takes probabilities as its target"  # in a cause, where it was given others
_OF_A_DIVERGENCE = ("`F.softmax(target, dim)` as the target of `kl_div`, or `log_target=True` where it is a logarithm",)
# Where a finite gradient gave an update that is not finite: no smaller gradient would have helped.
_OF_THE_OPTIMIZER = (
    "`print({optimizer}.param_groups, {optimizer}.state)` before that step: its gradient was finite, so look for an "
    "eps of 0, for a rate or state that is not finite, or for code that changes the weights itself",
)


# The same where the script updates the weights itself.
_BY_HAND = (
    "`torch.isfinite` on what the script takes from its weights in that step: the gradient was finite, so look for a "
    "division by 0, or a factor that is not finite",
)


# Where the gradients were finite after the backward pass, and no longer when the optimizer got them.
_OF_THE_LOOP = (
    "`torch.isfinite(p.grad).all()` for every `p` right before `{optimizer}.step()`: the backward pass gave finite "
    "gradients, so clipping them by hand or another change of the script made them NaN or Inf",
)


# Where a negative number was raised to a fractional power.
_OF_POSITIVE = ("`x.clamp_min(1e-8) ** p` in place of `x ** p`",)
_OF_ONE_NUMBER = ("`x.var(dim, correction=0)` in place of `x.var(dim)`: of one number, the other divides 0 by 0",)
_OF_POSITIVE_ROOT = ("`torch.sqrt(x.clamp_min(1e-8))` in place of `torch.sqrt(x)`",)
# Operations whose derivative is finite, unless what they are given is too large.
_OF_LARGE = ("mul", "exp", "prod", "cumprod")
# Where one of several derivatives made a NaN, and of one of them nothing is known.
WHICH = "`torch.autograd.set_detect_anomaly(True)` at the top of the script, to see which of these operations it was"
GIVEN_NUMBER = "it was given the number"  # how a cause says that a plain number was not finite
_OF_THE_NUMBER = (
    "`assert math.isfinite(...)` on that number before it is used: the script computes it beside the model",
)
# The same where that number is Inf and what it multiplies is a mask, and where a product or a sum takes up such an Inf.
_OF_A_PRODUCT = (
    "`scores.masked_fill(mask == 0, -math.inf)` in place of a product of a mask with Inf: 0 times Inf is NaN",
)
_OF_A_MASK = ("`-1e9` in place of -Inf in the mask, or `x.masked_fill(mask, 0)` on what holds it, before the product",)
_OF_A_SUM = ("`x.masked_fill(mask, 0)` before the sum or mean (no `label_smoothing`): it takes in what was masked",)
_OF_NONE = ("no step for a batch of which nothing is left to take the mean of, or `x.sum() / max(x.numel(), 1)`",)
# Behind a remedy with a small number.
_IN_HALF = "; computed in float32 (`.float()`), as float16 rounds so small a number away"
# Where the script's own Function made it in its backward.
_OF_A_FUNCTION = (
    "the `backward` of `{0}` gives what is not finite for such values: keep what it divides by, or takes a root or "
    "logarithm of, above 0 there; `torch.autograd.gradcheck({0}.apply, ...)` tries it"
)
# Where loss code in float16 gave more than that can hold.
_OF_HALF = ("`.float()` on what the loss is computed from: float16 holds no more than 65,504",)
# Where an optimizer divides by a root that may be 0 and adds an eps that is 0, written or rounded.
_EPS_IN_HALF = 2.0**-25  # the largest eps that float16 rounds to 0
_OF_EPS = "`eps=1e-8` where `{}` is made: it divides by a root that may be 0, plus eps, and eps is 0"
_OF_EPS_IN_HALF = "`eps=1e-4` where `{}` is made: float16 rounds its eps to 0, and it divides by a root that may be 0"

# Where the loss code gave a gradient that none of its operations makes.
CHANGED_BY_A_HOOK = "a hook of the script changed it"  # how a cause says so
_OF_A_HOOK = ("look for hooks on the loss or on the outputs of the model: one may have changed the gradient",)


def of_birth(
    birth: Provenance, gradient: float = UNKNOWN, optimizer: str = "optimizer", eps: float = UNKNOWN
) -> tuple[str, ...] | None:
    """Return what to change in the script; None if the usual remedies fit. `gradient`: the norm that the optimizer
    was given at the step before; `optimizer`: its name in the script, "" without one; `eps`: what it adds to what it
    divides by, UNKNOWN if it does not."""
    if birth.phase == "update" and gradient < _OVERFLOWS:
        in_half = any(operation.dtype == "float16" for operation in birth.chain)
        if eps <= (_EPS_IN_HALF if in_half else 0):
            return ((_OF_EPS_IN_HALF if eps else _OF_EPS).format(optimizer or "the optimizer"),)
        return of_update(optimizer)
    if birth.phase == "update" and is_known(gradient) and not math.isfinite(gradient):
        return tuple(line.format(optimizer=optimizer) for line in _OF_THE_LOOP)
    if TARGET_BELOW_0 in birth.cause:
        return _OF_A_DIVERGENCE
    if birth.was_given:
        return (*_of_line(birth), *_OF_THE_DATA)
    if _is_softmax_of_inf(birth):
        return _OF_A_SOFTMAX
    if OF_A_MASK in birth.cause:
        return _OF_A_MASK if birth.chain[0].given_nan else _OF_A_SUM
    if _is_product_with_inf(birth):
        return _OF_A_PRODUCT if GIVEN_NUMBER in birth.cause else _OF_A_MASK
    if CHANGED_BY_A_HOOK in birth.cause:
        return _OF_A_HOOK
    if GIVEN_NUMBER in birth.cause:
        return _OF_THE_NUMBER
    if MEAN_OF_NONE in birth.cause:
        return _OF_NONE
    if birth.phase == "backward" and birth.operation.endswith("Backward"):  # without a number: of the script
        name = birth.operation.removesuffix("Backward")
        return (_OF_A_FUNCTION.format(name),)
    if OF_NEGATIVE in birth.cause:
        return _OF_POSITIVE
    if ROOT_OF_NEGATIVE in birth.cause:
        return _OF_POSITIVE_ROOT
    if _is_of_one_number(birth):
        return _OF_ONE_NUMBER
    born, in_half = birth.chain[0] if birth.chain else None, _is_in_half(birth)
    if lines := _of_operations(birth):
        return tuple(line + _IN_HALF * (in_half and "1e-" in line) for line in lines)
    if birth.phase == "loss" and in_half and born is not None and born.given_inf and not born.given_nan:
        return _OF_HALF
    if born is not None and birth.phase != "update" and _has_overflowed(born) and (lines := of_overflow(born)):
        return lines
    return () if undefined_for(birth) or _is_nan_by_itself(birth) else None


def of_update(optimizer: str = "optimizer") -> tuple[str, ...]:
    """Return what to look at where an update made weights NaN or Inf of a finite gradient. `optimizer` is its name in
    the script, "" if it has none and updates the weights itself."""
    return tuple(line.format(optimizer=optimizer) for line in _OF_THE_OPTIMIZER) if optimizer else _BY_HAND


def _has_overflowed(operation: Operation) -> bool:
    """Return whether an operation gave Inf of finite values, or of values that nobody knows, which are not so large
    that they had grown before it."""
    inf_alone = operation.given_inf > 0 and not operation.given_nan
    return inf_alone and (operation.is_birth or not operation.taken_known) and not operation.taken_largest > _OVERFLOWS


def _is_nan_by_itself(birth: Provenance) -> bool:
    """Return whether an operation gave NaN for what is not too large, as the deviation of one number or 0 times Inf:
    smaller gradients would not have helped."""
    operation = birth.chain[0] if birth.chain else None
    if (
        operation is None
        or birth.phase == "update"
        or not operation.given_nan
        or operation.taken_nan
        or _is_in_half(birth)
    ):
        return False
    return operation.taken_inf > 0 or not operation.taken_largest > _OVERFLOWS


def _is_product_with_inf(birth: Provenance) -> bool:
    """Return whether a product made NaN of 0 and Inf."""
    made = birth.chain[0] if birth.chain and birth.phase != "backward" else None
    if made is None or _plain(made.name) != "mul" or not made.given_nan or made.taken_nan:
        return False
    return made.taken_inf > 0 or f"{GIVEN_NUMBER} -Inf" in birth.cause or f"{GIVEN_NUMBER} Inf" in birth.cause


def _is_of_one_number(found: Provenance) -> bool:
    """Return whether a variance or a deviation, which have no other way to, gave NaN of finite values."""
    born = found.chain[0] if found.chain else None
    if born is None or found.phase == "backward" or not born.is_birth or not born.given_nan:
        return False
    return _plain(born.name) in ("var", "std", "var_mean", "std_mean")


def _is_in_half(birth: Provenance) -> bool:
    """Return whether the value was made of finite ones in float16."""
    operation = birth.chain[0] if birth.chain else None
    return operation is not None and operation.is_birth and operation.dtype == "float16"


def _of_operations(birth: Provenance) -> tuple[str, ...]:
    """Return a line for each operation of the loss code of which one made the value, or for the one that did."""
    operation = birth.chain[0] if birth.chain else None
    if operation is None or not operation.is_birth:
        return ()
    several = operation.name.split(" or ")
    if len(several) == 1 and not undefined_for(birth) and not _always(operation.name):
        return ()
    # the derivative of a root has a division, which nobody wrote
    lines = [_of_name(operation.of) or _of_name(operation.name)] if len(several) == 1 else list(map(_of_name, several))
    strange = [name for name, line in zip(several, lines, strict=False) if not line and _plain(name) not in _OF_LARGE]
    if birth.phase == "backward" and len(several) > 1 and strange:
        lines.insert(0, WHICH)
    return tuple(dict.fromkeys(line for line in lines if line))


def _of_line(birth: Provenance) -> tuple[str, ...]:
    """Return what heals the one operation on the line that gave a tensor its value for which that may be undefined."""
    try:
        code = ast.parse(re.sub(r"^[^:]+:\d+: ", "", birth.source))
    except SyntaxError:
        return ()
    if not any(isinstance(each, ast.Assign) for each in code.body):
        return ()  # it is the line that was given the tensor
    found: list[str] = []
    for each in ast.walk(code):
        match each:
            case ast.BinOp(op=ast.Div(), right=divisor) if not isinstance(divisor, ast.Constant):
                found.append(_of_name("div"))
            case ast.Call(func=ast.Attribute(attr=name)) if line := _of_name(name):
                found.append(line)
            case _:
                continue
    return tuple(found) if len(found) == 1 else ()


def _of_name(name: str) -> str:
    return _always(name) or _DEFINED.get(_plain(name), "")


def _always(name: str) -> str:
    return next((line for part, line in _ALWAYS.items() if part in _plain(name)), "")


def _plain(name: str) -> str:
    """Return the name of an operation; "" for a Function of the script, whose name says nothing: its node has no
    number."""
    return "" if name.endswith("Backward") else operation_of(name).strip("_")


def _is_softmax_of_inf(birth: Provenance) -> bool:
    operation = birth.chain[0] if birth.chain else None
    return (
        operation is not None
        and "softmax" in operation.name.lower()
        and operation.taken_inf > 0
        and not operation.taken_nan
    )
