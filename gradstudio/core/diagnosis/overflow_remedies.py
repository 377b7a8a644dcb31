"""Remedies for an Inf that one operation produced from finite values within a pass: a fix for that operation. No
smaller step or shorter gradient changes its result."""

from __future__ import annotations

import re

from gradstudio.core.provenance import Operation, operation_of

OF_EXP = (
    "`x.clamp(max=50).exp()` in place of `x.exp()`: from 88.8 on it is Inf in float32",
    "`torch.log_softmax(x, dim)` or `torch.logsumexp(x, dim)` where `exp` is a part of a softmax: they subtract the "
    "largest value first",
)
_CHAINED = 1e4  # beyond it, what exp is given comes of another one, and so may be what its clamped result is given to
_OF_CHAIN = (
    "`(2 * torch.tanh(x / 2)).exp()` in place of `x.exp()`, in each layer: so large an `x` comes of another `exp`, or "
    "of an outlier"
)
_CLAMPED = "`torch.{0}(x.clamp(-50, 50))` in place of `torch.{0}(x)`: from 89.5 on it is Inf in float32"
_BY_NAME: dict[str, tuple[str, ...]] = {
    "exp": OF_EXP,
    "exp2": ("`torch.exp2(x.clamp(max=80))` in place of `torch.exp2(x)`: from 128 on it is Inf in float32",),
    "expm1": ("`torch.expm1(x.clamp(max=50))` in place of `torch.expm1(x)`: from 88.8 on it is Inf in float32",),
    "sinh": (_CLAMPED.format("sinh"),),
    "cosh": (_CLAMPED.format("cosh"),),
}
# If an operation of the model produced more than float16 can represent.
OF_HALF = (
    "`torch.bfloat16` in place of `torch.float16`: it holds numbers as large as float32",
    "`.float()` on what goes into this operation, and `torch.autocast(device, enabled=False)` around it: float16 holds "
    "no more than 65,504",
)
# The same for the scores of an attention, which are products of long vectors.
_OF_SCORES = (
    "`(q * d ** -0.5) @ k.transpose(-2, -1)` for the scores of an attention: scaled before the product, not after it",
    *OF_HALF,
)


def of_overflow(operation: Operation) -> tuple[str, ...]:
    """Return the fixes for the operation; () if none is known."""
    name = operation_of(operation.name).strip("_")
    if operation.dtype == "float16":
        return _OF_SCORES if re.fullmatch("baddbmm|bmm", name) else OF_HALF
    chained = (_OF_CHAIN,) * (name == "exp" and operation.taken_largest > _CHAINED)
    return (*chained, *_BY_NAME.get(name, ()))
