"""Which operations are undefined for finite inputs: 0 / 0, the log of 0 or less, a root at 0 or its derivative."""

from __future__ import annotations

import re

from gradstudio.core.provenance import Provenance

_UNDEFINED = (
    "log", "div", "sqrt", "pow", "reciprocal", "norm", "cdist", "acos", "asin", "atanh", "erfinv", "slogdet", "gamma",
)  # fmt: skip
# Substrings of the names of operations that are defined for every input that does not overflow.
NOT_UNDEFINED = re.compile("(layer|batch|group|instance|rms)_?norm|log_?softmax|with_?logits")
# Those among them that are infinite only for inputs that are too large, unless they divide by 0.
_OF_LARGE = ("pow", "norm", "cdist")
OF_NEGATIVE = "a fractional power of a negative number is NaN"  # phrase in a cause for this
ROOT_OF_NEGATIVE = "the root of a negative number"  # phrase in a cause for this
MEAN_OF_NONE = "the mean of no numbers at all is 0 / 0"  # phrase in a cause for this
BEYOND = "a result beyond"  # phrase in a cause: a value grew too large for its number format
_OVERFLOWS = 1e15  # values whose powers and quotients may lie beyond 3.4e38, the largest float32


def is_born_in_loss(provenance: Provenance) -> bool:
    """Return whether the loss produced the first NaN or Inf from finite values for which it is undefined: 0 / 0, the
    log of 0 or less, a root at 0 or its derivative. A value that merely grew too large does not count."""
    return not provenance.module and provenance.phase in ("loss", "backward") and undefined_for(provenance)


def undefined_for(provenance: Provenance) -> bool:
    """Return whether any operation produced the first NaN or Inf from finite values for which it is undefined."""
    operation = provenance.chain[0] if provenance.chain else None
    if operation is None or not operation.is_birth:
        return False
    if MEAN_OF_NONE in provenance.cause:  # a mean of some numbers only overflows
        return True
    if operation.given_inf and not operation.given_nan and operation.taken_largest > _OVERFLOWS:
        return False
    if BEYOND in provenance.cause and any(part in operation.name.lower() for part in _OF_LARGE):
        return False
    # if it may be one of several, all of them must be undefined
    of = "" if operation.of == operation.name else operation.of
    names = [NOT_UNDEFINED.sub("", f"{name} {of}".lower()) for name in operation.name.split(" or ")]
    return all(any(part in name for part in _UNDEFINED) for name in names)
