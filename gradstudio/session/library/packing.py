"""Lossless compression of float arrays: NaN, Inf and -0.0 come back bit for bit.

Each value is replaced by the bits in which it differs from the value one row before, and the bytes are grouped by their
position in the float. Signs, exponents and upper digits change little, so they are adjacent and are compressed; lower
digits look like noise and are not."""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import numpy as np

_UNSIGNED = {np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}


class PackingError(ValueError):
    """The bytes are damaged."""


@cache
def compressor() -> Any:
    """Return the fast compression module, which takes a tenth of the time of zlib; or zlib if it is missing."""
    try:
        from isal import isal_zlib  # imported here, as most commands write nothing
    except ImportError:
        return zlib
    return isal_zlib


def pack(values: np.ndarray) -> bytes:
    """Return `values`, float32 or float64, (rows, ...), as bytes, compact if rows resemble the previous row."""
    compress = compressor().compress
    bits = (
        np.ascontiguousarray(values).view(_UNSIGNED[values.dtype]).reshape(len(values), int(np.prod(values.shape[1:])))
    )
    changes = bits.copy()
    changes[1:] ^= bits[:-1]
    planes = np.ascontiguousarray(changes.T).reshape(-1, 1).view(np.uint8).T
    parts = []
    for plane in planes:
        data = plane.tobytes()
        part = compress(data, 1)
        if compressed := len(part) < 0.95 * len(data):
            data = part
        parts += [len(data).to_bytes(4, "little"), bytes([compressed]), data]
    return b"".join(parts)


def unpack(data: bytes, shape: tuple[int, ...], dtype: type[np.floating]) -> np.ndarray:
    """Return the array of this shape; PackingError if the bytes do not contain one."""
    size, count, at = np.dtype(dtype).itemsize, int(np.prod(shape)), 0
    planes = np.empty((size, count), np.uint8)
    for plane in planes:
        length, compressed = int.from_bytes(data[at : at + 4], "little"), data[at + 4 : at + 5]
        part, at = data[at + 5 : at + 5 + length], at + 5 + length
        try:
            plane[:] = np.frombuffer(_inflate(part, count) if compressed == b"\1" else part, np.uint8)
        except (zlib.error, ValueError) as fault:
            raise PackingError(str(fault)) from None
    if count == 0:
        return np.empty(shape, dtype)
    changes = np.ascontiguousarray(planes.T).view(_UNSIGNED[np.dtype(dtype)]).reshape(-1, shape[0]).T
    return np.bitwise_xor.accumulate(changes, axis=0).view(dtype).reshape(shape)


def _inflate(data: bytes, count: int) -> bytes:
    """Return the decompressed bytes, which must be `count`: a few bytes could otherwise expand to gigabytes."""
    inflater = zlib.decompressobj()
    content = inflater.decompress(data, count + 1)
    if not inflater.eof:
        raise PackingError(f"{len(data):,} bytes do not unpack to {count:,}")
    return content
