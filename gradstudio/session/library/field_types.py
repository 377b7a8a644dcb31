"""Whether stored values are of the types that their record declares.

An edited file may contain anything. A text in place of a number would raise much later, when a run is painted."""

from __future__ import annotations

import math
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from gradstudio.core.experiment import KNOBS

MOST_STEPS = int(KNOBS["run.steps"].maximum)

_Record = TypeVar("_Record")


def check_types(record: _Record) -> _Record:
    """Return a dataclass or a named tuple; TypeError if one of its fields is not of its declared type, ValueError for
    an impossible step."""
    for name, declared in _fields(type(record)).items():
        value = getattr(record, name)
        if not _fits(value, declared):
            raise TypeError(f"{type(record).__name__}.{name} is {type(value).__name__}, which it cannot be")
        if name.endswith("step") and value is not None and not 0 <= value <= MOST_STEPS:
            raise ValueError(f"{type(record).__name__}.{name} is not among the steps 0 to {MOST_STEPS:,}")
    return record


@lru_cache
def _fields(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, declared: Any) -> bool:
    """Return whether a value is of a declared type. An int is also a float, unless it exceeds the range of floats."""
    origin, parts = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if parts[-1] is ...:
            return all(_fits(part, parts[0]) for part in value)
        return len(value) == len(parts) and all(map(_fits, value, parts))
    if declared is float:
        return type(value) is float or (type(value) is int and math.log2(abs(value) + 1) < 1000)
    if declared is NoneType:
        return value is None
    if declared is int:
        return type(value) is int and abs(value) < 1 << 63
    return type(value) is declared or (declared not in (str, bool) and isinstance(value, declared))
