"""Records as JSON, and back by their declared types: data from another process is never interpreted as anything else.

A float that JSON cannot represent is written with its bits, so that an unmeasured number (core/unknown.py) stays one.
Arrays follow the JSON, as they are in memory."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

_KINDS = frozenset("biuf")  # of numbers in an array


class NotConforming(ValueError):
    """The input is not of the declared type."""


def dumps(plain: Any) -> bytes:
    """Return plain values as strict JSON."""
    return json.dumps(plain, separators=(",", ":"), allow_nan=False).encode()


def loads(text: bytes) -> Any:
    """Parse strict JSON; NotConforming if the text is not."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as fault:
        raise NotConforming(str(fault)) from None


def _refuse(constant: str) -> None:
    raise NotConforming(f"{constant} is not JSON")


def to_plain(value: Any, arrays: list[np.ndarray] | None = None) -> Any:
    """Return a value, a record or a collection of them in JSON form. Its arrays are appended to `arrays`."""
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": struct.pack("<d", value).hex()}
    if isinstance(value, np.ndarray):
        assert arrays is not None, "no place for an array"
        arrays.append(np.ascontiguousarray(value))
        return {"array": [value.dtype.str, list(value.shape)]}
    if isinstance(value, np.generic):
        return to_plain(value.item(), arrays)
    if is_dataclass(value):
        return [to_plain(getattr(value, name), arrays) for name in value.__dataclass_fields__]
    if isinstance(value, Mapping):
        return {str(key): to_plain(part, arrays) for key, part in value.items()}
    if isinstance(value, str):  # of a class of its own
        return str.__str__(value)
    return [to_plain(part, arrays) for part in value]


def from_plain(declared: Any, given: Any, raw: memoryview | None = None) -> Any:
    """Return the value of a declared type that `plain` wrote; `raw` contains its arrays, one after the other.
    NotConforming if it is of another type."""
    reader = _Reader(raw if raw is not None else memoryview(b""))
    value = reader.read(declared, given)
    reader.check_end()
    return value


class _Reader:
    def __init__(self, raw: memoryview) -> None:
        self._raw, self._at = raw, 0

    def check_end(self) -> None:
        if self._at != len(self._raw):
            raise NotConforming("there are more bytes than arrays")

    def read(self, declared: Any, given: Any) -> Any:
        origin, parts = get_origin(declared), get_args(declared)
        if origin in (Union, UnionType):
            return self._any(parts, given)
        if origin is Literal:
            return _checked(given, isinstance(given, str) and given in parts, declared)
        if declared is float:
            return _float(given)
        if declared is np.ndarray:
            return self._array(given)
        if declared in (int, bool, str, NoneType):
            return _checked(given, type(given) is declared, declared)
        if isinstance(declared, type) and (is_dataclass(declared) or hasattr(declared, "_fields")):
            return self._record(declared, given)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            _checked(given, isinstance(given, dict), declared)
            return {self.read(parts[0], key): self.read(parts[1], value) for key, value in given.items()}
        if isinstance(origin, type) and issubclass(origin, tuple | list):
            _checked(given, isinstance(given, list), declared)
            return self._row(origin, parts, given)
        raise NotConforming(f"{declared} is no type that is read")

    def _any(self, parts: tuple[Any, ...], given: Any) -> Any:
        at = self._at
        for part in parts:
            try:
                return self.read(part, given)
            except NotConforming:
                self._at = at
        raise NotConforming(f"{type(given).__name__} is none of what is declared")

    def _record(self, declared: Any, given: Any) -> Any:
        hints = _hints(declared)
        _checked(given, isinstance(given, list) and len(given) == len(hints), declared)
        return declared(*(self.read(hint, part) for hint, part in zip(hints, given, strict=True)))

    def _row(self, origin: Any, parts: tuple[Any, ...], given: list[Any]) -> Any:
        if origin is list or parts[-1] is ...:
            return origin([self.read(parts[0], part) for part in given])
        _checked(given, len(given) == len(parts), tuple)
        return tuple(self.read(part, value) for part, value in zip(parts, given, strict=True))

    def _array(self, given: Any) -> np.ndarray:
        _checked(given, isinstance(given, dict) and list(given) == ["array"], np.ndarray)
        try:
            code, shape = given["array"]
            dtype = np.dtype(str(code))
            size = int(np.prod(shape)) * dtype.itemsize
            if dtype.kind not in _KINDS or not all(type(each) is int and each >= 0 for each in shape):
                raise NotConforming("no array of numbers")
            array = np.frombuffer(self._raw[self._at : self._at + size], dtype).reshape(shape).copy()
        except (TypeError, ValueError) as fault:
            raise NotConforming(str(fault)) from None
        self._at += size
        return array


@lru_cache
def _hints(declared: Any) -> tuple[Any, ...]:
    hints = get_type_hints(declared)
    return tuple(hints[name] for name in getattr(declared, "_fields", None) or declared.__dataclass_fields__)


def _float(given: Any) -> float:
    if isinstance(given, dict) and list(given) == ["float"]:
        try:
            return struct.unpack("<d", bytes.fromhex(given["float"]))[0]
        except (struct.error, TypeError, ValueError):
            pass
    return _checked(given, type(given) in (int, float), float)


def _checked(given: Any, fits: bool, declared: Any) -> Any:
    if not fits:
        raise NotConforming(f"{type(given).__name__} where {getattr(declared, '__name__', declared)} is declared")
    return given
