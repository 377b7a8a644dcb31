"""Remedies for a NaN or Inf in a watched script, by where it was born. A smaller step helps if a value grew too large;
it does not help bad data, nor a loss that is undefined for the finite values it received."""

from __future__ import annotations

import ast
import math
import re

from gradstudio.core.diagnosis.operation_remedies import plain_name, remedy_of_name, remedy_of_part
from gradstudio.core.diagnosis.overflow_remedies import of_overflow
from gradstudio.core.diagnosis.undefined_operations import MEAN_OF_NONE, OF_NEGATIVE, ROOT_OF_NEGATIVE, undefined_for
from gradstudio.core.provenance import OF_A_MASK, Operation, Provenance
from gradstudio.core.unknown import UNKNOWN, is_known

_OVERFLOWS = 1e15  # a gradient whose square, which Adam uses, may exceed the range of float32
_OF_A_SOFTMAX = (
    "`assert torch.isfinite(x).any(-1).all()` before the softmax, or a mask that leaves each row one entry: a row of "
    "nothing but -Inf has no softmax",
)
# What loss code computes in several operations, and what takes their place in one that neither overflows nor ends at 0.
WRITTEN_AS = "it is written as"  # phrase in a cause before one of these
IN_ONE: dict[str, str] = {
    "`prod(x).log()`": "`x.log().sum(dim)` in place of `x.prod(dim).log()`: a product of many small numbers is 0",
    "`exp(x).sum().log()`": "`torch.logsumexp(x, dim)` in place of `x.exp().sum(dim).log()`; the logarithm of a factor "
    "of `x.exp()` is added to `x`",
    "`(1 + exp(x)).log()`": "`F.softplus(x)` in place of `torch.log(1 + torch.exp(x))`",
    "`softmax(x).log()`": "`F.log_softmax(x, dim)` in place of `F.softmax(x, dim).log()`",
    "`sigmoid(x).log()`": "`F.logsigmoid(x)` in place of `torch.sigmoid(x).log()`",
    "`(1 - sigmoid(x)).log()`": "`F.logsigmoid(-x)` in place of `(1 - torch.sigmoid(x)).log()`",
    "`exp(x) / exp(x).sum()`": "`F.softmax(x, dim)` in place of `x.exp() / x.exp().sum(dim)`",
    "`mask * softmax(x) / sum`": "`x.masked_fill(mask == 0, -1e9).softmax(dim)` in place of a softmax that is masked "
    "and divided by its sum",
    "`weight.log()`": "`x.exp()` in place of the weight `x`, which begins at its logarithm, and `x` for `x.log()`",
}
# For a NaN or Inf that the loss or the model was given: what leaves it out.
_OF_TARGETS = (
    "`keep = torch.isfinite(target)`, and the loss of `output[keep]` and `target[keep]` alone: a mask as a factor "
    "leaves NaN, as NaN times 0 is NaN"
)
_OF_FACTORS = "`torch.nan_to_num(x, 0, 0, 0)` on this factor, so that what holds it counts nothing"
_OF_EXAMPLES = "`keep = torch.isfinite(x).flatten(1).all(1)`, and `x[keep]` with its targets in the pass"
_COMPARES = ("sub", "rsub", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy_with_logits")
_OF_THE_DATA = (
    "`assert torch.isfinite(x).all()` on the tensors of every batch, and on what the script or another model makes of "
    "them, to find what holds it",
)


TARGET_BELOW_0 = "`kl_div` takes probabilities as its target"  # in a cause, if the operation received other values
_OF_A_DIVERGENCE = ("`F.softmax(target, dim)` as the target of `kl_div`, or `log_target=True` where it is a logarithm",)
# For a finite gradient that led to a non-finite update: no smaller gradient would have helped.
_OF_THE_OPTIMIZER = (
    "`print({optimizer}.param_groups, {optimizer}.state)` before that step: its gradient was finite, so look for an "
    "eps of 0, for a rate or state that is not finite, or for code that changes the weights itself",
)


# The same if the script updates the weights itself.
_BY_HAND = (
    "`torch.isfinite` on what the script takes from its weights in that step: the gradient was finite, so look for a "
    "division by 0, or a factor that is not finite",
)


# For gradients that were finite after the backward pass and no longer so when the optimizer received them.
_OF_THE_LOOP = (
    "`torch.isfinite(p.grad).all()` for every `p` right before `{optimizer}.step()`: the backward pass gave finite "
    "gradients, so clipping them by hand or another change of the script made them NaN or Inf",
)


# For a negative number raised to a fractional power.
_OF_POSITIVE = ("`x.clamp_min(1e-8) ** p` in place of `x ** p`",)
_OF_ONE_NUMBER = ("`x.var(dim, correction=0)` in place of `x.var(dim)`: of one number, the other divides 0 by 0",)
_OF_POSITIVE_ROOT = ("`torch.sqrt(x.clamp_min(1e-8))` in place of `torch.sqrt(x)`",)
# Operations whose derivative is finite unless their inputs are too large.
_OF_LARGE = ("mul", "exp", "prod", "cumprod")
# If one of several derivatives produced a NaN, and one of them is unknown.
WHICH = "`torch.autograd.set_detect_anomaly(True)` at the top of the script, to see which of these operations it was"
GIVEN_NUMBER = "it was given the number"  # phrase in a cause: a plain number was not finite
_OF_THE_NUMBER = (
    "`assert math.isfinite(...)` on that number before it is used: the script computes it beside the model",
)
# The same if that number is Inf: it multiplies a mask, or a product or sum includes it.
_OF_A_PRODUCT = (
    "`scores.masked_fill(mask == 0, -math.inf)` in place of a product of a mask with Inf: 0 times Inf is NaN",
)
_OF_A_MASK = ("`-1e9` in place of -Inf in the mask, or `x.masked_fill(mask, 0)` on what holds it, before the product",)
_OF_A_SUM = ("`x.masked_fill(mask, 0)` before the sum or mean (no `label_smoothing`): it takes in what was masked",)
_OF_NONE = ("no step for a batch of which nothing is left to take the mean of, or `x.sum() / max(x.numel(), 1)`",)
# Follows a remedy with a small number.
_IN_HALF = "; computed in float32 (`.float()`), as float16 rounds so small a number away"
# If the script's own Function produced it in its backward.
_OF_A_FUNCTION = (
    "the `backward` of `{0}` gives what is not finite for such values: keep what it divides by, or takes a root or "
    "logarithm of, above 0 there; `torch.autograd.gradcheck({0}.apply, ...)` tries it"
)
# If loss code in float16 produced more than float16 can represent.
_OF_HALF = ("`.float()` on what the loss is computed from: float16 holds no more than 65,504",)
# If an optimizer divides by a root that may be 0 and adds an eps that is 0, as written or after rounding.
_EPS_IN_HALF = 2.0**-25  # the largest eps that float16 rounds to 0
_OF_EPS = "`eps=1e-8` where `{}` is made: it divides by a root that may be 0, plus eps, and eps is 0"
_OF_EPS_IN_HALF = "`eps=1e-4` where `{}` is made: float16 rounds its eps to 0, and it divides by a root that may be 0"

# If the loss code returned a gradient that none of its operations produces.
CHANGED_BY_A_HOOK = "a hook of the script changed it"  # phrase in a cause for this
_OF_A_HOOK = ("look for hooks on the loss or on the outputs of the model: one may have changed the gradient",)
_BY_PHRASE = {CHANGED_BY_A_HOOK: _OF_A_HOOK, GIVEN_NUMBER: _OF_THE_NUMBER, MEAN_OF_NONE: _OF_NONE}


def of_birth(
    birth: Provenance, gradient: float = UNKNOWN, optimizer: str = "optimizer", eps: float = UNKNOWN
) -> tuple[str, ...] | None:
    """Return what to change in the script; None if the usual remedies fit. `gradient`: the norm that the optimizer
    received at the step before; `optimizer`: its name in the script, "" without one; `eps`: the constant that it adds
    to its denominator, UNKNOWN if it adds none."""
    if birth.phase == "update" and gradient < _OVERFLOWS:
        return _of_denominator(birth, optimizer, eps) or of_update(optimizer)
    if birth.phase == "update" and is_known(gradient) and not math.isfinite(gradient):
        return tuple(line.format(optimizer=optimizer) for line in _OF_THE_LOOP)
    if TARGET_BELOW_0 in birth.cause:
        return _OF_A_DIVERGENCE
    if birth.was_given:
        return (*_of_line(birth), *_without(birth), *_OF_THE_DATA)
    if _is_softmax_of_inf(birth):
        return _OF_A_SOFTMAX
    if OF_A_MASK in birth.cause:
        return _OF_A_MASK if birth.chain[0].given_nan else _OF_A_SUM
    if _is_product_with_inf(birth):
        return _OF_A_PRODUCT if GIVEN_NUMBER in birth.cause else _OF_A_MASK
    if lines := next((lines for phrase, lines in _BY_PHRASE.items() if phrase in birth.cause), ()):
        return lines
    if birth.phase == "backward" and birth.operation.endswith("Backward"):  # without a number: of the script
        return (_OF_A_FUNCTION.format(birth.operation.removesuffix("Backward")),)
    if OF_NEGATIVE in birth.cause:
        return _OF_POSITIVE
    if ROOT_OF_NEGATIVE in birth.cause:
        return _OF_POSITIVE_ROOT
    if _is_of_one_number(birth):
        return _OF_ONE_NUMBER
    if form := birth.cause.partition(f"{WRITTEN_AS} ")[2]:
        return (IN_ONE[form],)
    born, in_half = birth.chain[0] if birth.chain else None, _is_in_half(birth)
    if lines := _of_operations(birth):
        return tuple(line + _IN_HALF * (in_half and "1e-" in line) for line in lines)
    if birth.phase == "loss" and in_half and born is not None and born.given_inf and not born.given_nan:
        return _OF_HALF
    if born is not None and birth.phase != "update" and _has_overflowed(born) and (lines := of_overflow(born)):
        return lines
    if born is not None and birth.phase == "forward" and born.taken_known and not born.is_birth:
        return _OF_THE_DATA  # a tensor that the model keeps, or takes from the script
    return () if undefined_for(birth) or _is_nan_by_itself(birth) else None


def _of_denominator(birth: Provenance, optimizer: str, eps: float) -> tuple[str, ...]:
    """Return what to change if the constant that the optimizer adds to its denominator is too small; () if not."""
    in_half = any(operation.dtype == "float16" for operation in birth.chain)
    if eps <= (_EPS_IN_HALF if in_half else 0):
        return ((_OF_EPS_IN_HALF if eps else _OF_EPS).format(optimizer or "the optimizer"),)
    return ()


def of_update(optimizer: str) -> tuple[str, ...]:
    """Return what to check when an update turned weights into NaN or Inf although the gradient was finite. `optimizer`
    is its name in the script, "" if the script updates the weights itself."""
    return tuple(line.format(optimizer=optimizer) for line in _OF_THE_OPTIMIZER) if optimizer else _BY_HAND


def _has_overflowed(operation: Operation) -> bool:
    """Return whether an operation produced Inf from finite or unknown values that had not already grown too large."""
    inf_alone = operation.given_inf > 0 and not operation.given_nan
    if plain_name(operation.name) == "exp" and inf_alone and operation.is_birth:
        return True  # it is Inf of 89, and of what is larger likewise
    return inf_alone and (operation.is_birth or not operation.taken_known) and not operation.taken_largest > _OVERFLOWS


def _is_nan_by_itself(birth: Provenance) -> bool:
    """Return whether an operation produced NaN from values that are not too large, such as the deviation of one number
    or 0 times Inf: smaller gradients would not have helped."""
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
    """Return whether a product of 0 and Inf produced the NaN."""
    made = birth.chain[0] if birth.chain and birth.phase != "backward" else None
    if made is None or plain_name(made.name) != "mul" or not made.given_nan or made.taken_nan:
        return False
    return made.taken_inf > 0 or f"{GIVEN_NUMBER} -Inf" in birth.cause or f"{GIVEN_NUMBER} Inf" in birth.cause


def _is_of_one_number(birth: Provenance) -> bool:
    """Return whether a variance or a deviation produced NaN from finite values, which only happens for a single
    number."""
    born = birth.chain[0] if birth.chain else None
    if born is None or birth.phase == "backward" or not born.is_birth or not born.given_nan:
        return False
    return plain_name(born.name) in ("var", "std", "var_mean", "std_mean")


def _is_in_half(birth: Provenance) -> bool:
    """Return whether the value was produced from finite ones in float16."""
    operation = birth.chain[0] if birth.chain else None
    return operation is not None and operation.is_birth and operation.dtype == "float16"


def _of_operations(birth: Provenance) -> tuple[str, ...]:
    """Return one line for each operation of the loss code that may have produced the value."""
    operation = birth.chain[0] if birth.chain else None
    if operation is None or not operation.is_birth:
        return ()
    several = operation.name.split(" or ")
    if len(several) == 1 and not undefined_for(birth) and not remedy_of_part(operation.name):
        return ()
    if len(several) == 1:  # the derivative of a root contains a division, which does not appear in the code
        lines = [remedy_of_name(operation.of) or remedy_of_name(operation.name)]
    else:
        lines = list(map(remedy_of_name, several))
    named = zip(several, lines, strict=False)
    strange = [name for name, line in named if not line and plain_name(name) not in _OF_LARGE]
    if birth.phase == "backward" and len(several) > 1 and strange:
        lines.insert(0, WHICH)
    return tuple(dict.fromkeys(line for line in lines if line))


def _without(birth: Provenance) -> tuple[str, ...]:
    """Return how to leave out what the loss or the model was given."""
    operation = plain_name(birth.operation)
    if birth.phase == "data" or birth.operation == "input":
        return (_OF_EXAMPLES,)
    return (_OF_TARGETS,) if operation in _COMPARES else (_OF_FACTORS,) if operation == "mul" else ()


def _of_line(birth: Provenance) -> tuple[str, ...]:
    """Return a remedy for the operation on the line that produced a tensor, if exactly one operation there may be
    undefined for its inputs."""
    try:
        code = ast.parse(re.sub(r"^[^:]+:\d+: ", "", birth.source))
    except SyntaxError:
        return ()
    if not any(isinstance(each, ast.Assign) for each in code.body):
        return ()  # this line received the tensor
    remedies: list[str] = []
    for each in ast.walk(code):
        match each:
            case ast.BinOp(op=ast.Div(), right=divisor) if not isinstance(divisor, ast.Constant):
                remedies.append(remedy_of_name("div"))
            case ast.Call(func=ast.Attribute(attr=name)) if line := remedy_of_name(name):
                remedies.append(line)
            case _:
                continue
    return tuple(remedies) if len(remedies) == 1 else ()


def _is_softmax_of_inf(birth: Provenance) -> bool:
    operation = birth.chain[0] if birth.chain else None
    return (
        operation is not None
        and "softmax" in operation.name.lower()
        and operation.taken_inf > 0
        and not operation.taken_nan
    )
