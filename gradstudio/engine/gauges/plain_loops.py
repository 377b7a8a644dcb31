"""The loops of kernels.py and scattered.py without a compiler, in numpy: the same figures up to rounding, in about ten
times the time. A call sums in the same order each time, and `copy_and_norm` in that of `measure`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from ctypes import c_float
from functools import lru_cache
from typing import Any

import numpy as np

_BLOCK = 8192  # entries that stay in the L1 cache; from 10,000 on numpy's dot would wait for other threads
_INF = 0x7F800000  # as the bits of float32
_QUIET = np.errstate(all="ignore")  # non-finite results are valid figures


@_QUIET
def norms(entries: np.ndarray, starts: np.ndarray, stops: np.ndarray, values: np.ndarray) -> float:
    squares = [_squares(entries[start:stop]) for start, stop in _ranges(starts, stops)]
    values[:] = np.sqrt(squares)
    return math.sqrt(sum(squares))


@_QUIET
def product(one: np.ndarray, other: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> float:
    return sum(_product(one[start:stop], other[start:stop]) for start, stop in _ranges(starts, stops))


@_QUIET
def norms_of_change(
    before: np.ndarray,
    after: np.ndarray,
    along: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    norms: np.ndarray,
    moves: np.ndarray,
) -> tuple[float, float, float]:
    changes = [_change(before[at:to], after[at:to], along[at:to]) for at, to in _ranges(starts, stops)]
    sums = np.array(changes, np.float64).reshape(-1, 3)
    norms[:], moves[:] = np.sqrt(sums[:, 0]), np.sqrt(sums[:, 1])
    return math.sqrt(sum(sums[:, 0])), math.sqrt(sum(sums[:, 1])), float(sum(sums[:, 2]))


@_QUIET
def inspect(
    entries: np.ndarray,
    all_bits: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    largest: np.ndarray,
    zeros: np.ndarray,
    nonfinite: np.ndarray,
    sums: np.ndarray,
) -> None:
    for tensor, (start, stop) in enumerate(_ranges(starts, stops)):
        largest[tensor], zeros[tensor], nonfinite[tensor] = _inspected(all_bits[start:stop])
        sums[tensor] = entries[start:stop].sum(dtype=np.float64)


def count_differing(
    one: np.ndarray, other: np.ndarray, starts: np.ndarray, stops: np.ndarray, counts: np.ndarray
) -> None:
    for tensor, (start, stop) in enumerate(_ranges(starts, stops)):
        part, beside = one[start:stop], other[start:stop]
        counts[tensor] = np.count_nonzero((part < beside) | (part > beside))


@_QUIET
def measure(addresses: np.ndarray, sizes: np.ndarray, scale: float, layers: np.ndarray) -> tuple[float, int]:
    whole, broken_in_all = 0.0, 0
    for tensor, (address, size) in enumerate(_ranges(addresses, sizes)):
        layers[0, tensor], layers[3, tensor], layers[5, tensor], layers[6, tensor] = 0.0, 0.0, 0.0, 0.0
        layers[4, tensor] = 1.0 if size else 0.0
        if not address or not size:
            continue
        entries = _at(address, size)
        squares, (most, none, bad) = _squares(entries), _inspected(entries.view(np.int32))
        layers[0, tensor] = np.divide(math.sqrt(squares), scale)
        layers[3, tensor] = np.divide(np.array(most, np.int32).view(np.float32), scale)
        layers[4, tensor], layers[5, tensor] = none / size, bad / size
        layers[6, tensor] = np.divide(entries.sum(dtype=np.float64) / size, scale)
        whole += squares
        broken_in_all += bad
    return float(np.divide(math.sqrt(whole), scale)), broken_in_all


def all_zero(addresses: np.ndarray, sizes: np.ndarray) -> bool:
    return not any(address and size and _at(address, size).any() for address, size in _ranges(addresses, sizes))


def copy(addresses: np.ndarray, starts: np.ndarray, sizes: np.ndarray, flat: np.ndarray) -> None:
    for address, start, size in zip(addresses.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        if address and size:
            flat[start : start + size] = _at(address, size)


@_QUIET
def copy_and_norm(
    addresses: np.ndarray, others: np.ndarray, starts: np.ndarray, sizes: np.ndarray, flat: np.ndarray
) -> float:
    copy(addresses, starts, sizes, flat)
    return math.sqrt(sum(_squares(_at(at, size)) for at, size in _ranges(others, sizes) if at and size))


@_QUIET
def change(
    before: np.ndarray, after: np.ndarray, along: np.ndarray, starts: np.ndarray, sizes: np.ndarray, layers: np.ndarray
) -> tuple[float, float, float]:
    wholes = np.zeros(3)
    for tensor, (start, size) in enumerate(_ranges(starts, sizes)):
        new, beside = _at(int(after[tensor]), size), _at(int(along[tensor]), size) if along[tensor] else None
        sums = _change(before[start : start + size], new, beside)
        weight, move = math.sqrt(sums[0]), math.sqrt(sums[1])
        moved = 0.0 if weight == 0 and move == 0 else np.divide(move, weight)
        layers[1, tensor], layers[2, tensor] = weight, moved
        wholes += sums
    return math.sqrt(wholes[0]), math.sqrt(wholes[1]), float(wholes[2])


def _ranges(one: np.ndarray, other: np.ndarray) -> Iterator[tuple[int, int]]:
    return zip(one.tolist(), other.tolist(), strict=True)


@lru_cache(1 << 14)
def _at(address: int, size: int) -> np.ndarray:
    """Return the array at an address, without a copy. It keeps nothing alive: the caller guarantees that the memory is
    valid."""
    there: Any = (c_float * max(size, 1)).from_address(address)
    return np.frombuffer(there, np.float32)[:size]


def _squares(entries: np.ndarray) -> float:
    return _product(entries, entries)


def _product(one: np.ndarray, other: np.ndarray) -> float:
    total = 0.0
    for start in range(0, one.size, _BLOCK):
        wide = one[start : start + _BLOCK].astype(np.float64)
        total += float(wide.dot(wide if one is other else other[start : start + _BLOCK].astype(np.float64)))
    return total


def _change(before: np.ndarray, after: np.ndarray, along: np.ndarray | None) -> tuple[float, float, float]:
    """Return the squares of `before`, those of after - before, and the inner product of that with `along`."""
    squares = changes = product = 0.0
    for start in range(0, before.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        old = before[block].astype(np.float64)
        moved = after[block] - old
        squares += float(old.dot(old))
        changes += float(moved.dot(moved))
        product += 0.0 if along is None else float(moved.dot(along[block].astype(np.float64)))
    return squares, changes, product


def _inspected(bits: np.ndarray) -> tuple[int, int, int]:
    """Return for the bits of float32 the largest without its sign, how many are 0, and how many are NaN or Inf."""
    most = none = bad = 0
    for start in range(0, bits.size, _BLOCK):
        block = bits[start : start + _BLOCK] & np.int32(0x7FFFFFFF)
        most = max(most, int(block.max()))
        none += block.size - int(np.count_nonzero(block))
        bad += int(np.count_nonzero(block >= _INF))
    return most, none, bad
