"""Compiled loops that measure a flat tensor: float32, (length,). Its tensors are at starts[i] to stops[i]; the results
for each go into arrays of (tensors,)."""

from __future__ import annotations

import numpy as np

from gradstudio.core.jit import jit
from gradstudio.engine.gauges import plain_loops

_WHERE = "int64[::1], int64[::1]"  # starts, stops
_BLOCK = 2048  # number of entries whose zeros are counted in 32 bits


@jit(f"float64(float32[::1], {_WHERE}, float64[::1])", nogil=True, any_order=True, plain=plain_loops.norms)
def norms(entries: np.ndarray, starts: np.ndarray, stops: np.ndarray, values: np.ndarray) -> float:
    """Write the L2 norm of each tensor, its squares summed in float64, and return the norm of all."""
    whole = 0.0
    for tensor in range(starts.size):
        part = entries[starts[tensor] : stops[tensor]]
        squares = 0.0
        for index in range(part.size):
            entry = np.float64(part[index])
            squares += entry * entry
        values[tensor] = np.sqrt(squares)
        whole += squares
    return np.sqrt(whole)


@jit(f"float64(float32[::1], float32[::1], {_WHERE})", nogil=True, any_order=True, plain=plain_loops.product)
def product(one: np.ndarray, other: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> float:
    """Return the inner product of the entries of all tensors, summed in float64."""
    whole = 0.0
    for tensor in range(starts.size):
        part, beside = one[starts[tensor] : stops[tensor]], other[starts[tensor] : stops[tensor]]
        for index in range(part.size):
            whole += np.float64(part[index]) * np.float64(beside[index])
    return whole


@jit(
    f"UniTuple(float64, 3)(float32[::1], float32[::1], float32[::1], {_WHERE}, float64[::1], float64[::1])",
    nogil=True,
    any_order=True,
    plain=plain_loops.norms_of_change,
)
def norms_of_change(
    before: np.ndarray,
    after: np.ndarray,
    along: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
    norms: np.ndarray,
    moves: np.ndarray,
) -> tuple[float, float, float]:
    """Write the L2 norms of the tensors in `before`, and those of after - before, which is exact in float64. Return the
    norm of all of each, and the inner product of after - before with `along`."""
    whole, moved, product = 0.0, 0.0, 0.0
    for tensor in range(starts.size):
        old, new = before[starts[tensor] : stops[tensor]], after[starts[tensor] : stops[tensor]]
        beside = along[starts[tensor] : stops[tensor]]
        squares, changes = 0.0, 0.0
        for index in range(old.size):
            entry = np.float64(old[index])
            change = np.float64(new[index]) - entry
            squares += entry * entry
            changes += change * change
            product += change * np.float64(beside[index])
        norms[tensor], moves[tensor] = np.sqrt(squares), np.sqrt(changes)
        whole += squares
        moved += changes
    return np.sqrt(whole), np.sqrt(moved), product


@jit(
    f"void(float32[::1], int32[::1], {_WHERE}, int32[::1], float64[::1], float64[::1], float64[::1])",
    nogil=True,
    any_order=True,
    plain=plain_loops.inspect,
)
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
    """Write the largest absolute entry of each tensor (NaN if it has one), how many entries are 0, how many are NaN or
    Inf, and their sum in float64. The largest is found in the bits of float32: without the sign they are ordered like
    the numbers, with Inf above all numbers and NaN above Inf (IEEE 754)."""
    for tensor in range(starts.size):
        most, none, bad, total = np.int32(0), 0, 0, 0.0
        for start in range(starts[tensor], stops[tensor], _BLOCK):
            stop = min(start + _BLOCK, stops[tensor])
            part, numbers = all_bits[start:stop], entries[start:stop]
            for index in range(numbers.size):  # its own loop, which is vectorized
                total += np.float64(numbers[index])
            counted = np.int32(0)
            for index in range(part.size):  # numba's max and sums use 64 bits, and take three times as long
                bits = np.int32(part[index] & np.int32(0x7FFFFFFF))
                most = bits if bits > most else most
                counted = np.int32(counted + np.int32(bits == 0))
            none += counted
        if most >= np.int32(0x7F800000):
            for index in range(starts[tensor], stops[tensor]):
                bad += (all_bits[index] & np.int32(0x7FFFFFFF)) >= np.int32(0x7F800000)
        largest[tensor] = most
        zeros[tensor], nonfinite[tensor], sums[tensor] = none, bad, total


@jit(f"void(float32[::1], float32[::1], {_WHERE}, float64[::1])", nogil=True, plain=plain_loops.count_differing)
def count_differing(
    one: np.ndarray, other: np.ndarray, starts: np.ndarray, stops: np.ndarray, counts: np.ndarray
) -> None:
    """Write how many entries of each tensor differ; a NaN counts as none."""
    for tensor in range(starts.size):
        part, beside = one[starts[tensor] : stops[tensor]], other[starts[tensor] : stops[tensor]]
        counted = 0
        for index in range(part.size):
            counted += (part[index] < beside[index]) | (part[index] > beside[index])
        counts[tensor] = counted
