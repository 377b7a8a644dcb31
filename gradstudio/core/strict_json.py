"""Strict JSON has no NaN and no Inf: the writer decides how to encode them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

Number = float | Literal["nan", "inf", "-inf"]

_PLAIN = (str, int, bool, type(None))


def encode_floats(value: Any, code: Callable[[float], Any]) -> Any:
    """Return the same lists, tables and values with every float that is NaN or Inf replaced by the result of `code`."""
    if type(value) in _PLAIN:  # most of them; checking against an abstract class takes ten times as long
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return code(value)
    if isinstance(value, Mapping):
        return {key: encode_floats(part, code) for key, part in value.items()}
    return [encode_floats(part, code) for part in value] if isinstance(value, list | tuple) else value


def in_json(value: float) -> Number:
    """Return a number as JSON has it: NaN and Inf as words."""
    if math.isfinite(value):
        return float(value)
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
