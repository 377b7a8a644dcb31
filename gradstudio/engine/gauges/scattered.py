"""Compiled loops that measure tensors at arbitrary addresses: float32, contiguous, in host memory. Each is given by the
address of its first entry; address 0 stands for a missing tensor, and counts as zeros."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic

from gradstudio.core.jit import jit

# Number of entries that are read twice while they are in the L1 cache. Only loops over the whole of a slice are
# vectorized: with their own bounds they take eight times as long.
_BLOCK = 2048


def pointer_to(kind: Any) -> Any:
    """Return a function for compiled loops that converts an address into a pointer to numbers of this type."""

    def typed(_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(address), generate

    return intrinsic(typed)


_float32_at, _int32_at = pointer_to(types.float32), pointer_to(types.int32)


@jit("Tuple((float64, int64))(int64[::1], int64[::1], float64, float32[:, ::1])", nogil=True, any_order=True)
def measure(addresses: np.ndarray, sizes: np.ndarray, scale: float, layers: np.ndarray) -> tuple[float, int]:
    """Write the L2 norm of each tensor / `scale`, its largest absolute entry / `scale`, the shares of its entries that
    are 0, and NaN or Inf, and their mean / `scale`, into the rows 0 and 3 to 6 (history.LAYER_METRICS). Return the norm
    of all / `scale`, and how many entries are NaN or Inf."""
    whole, broken_in_all = 0.0, 0
    most_of = np.empty(1, np.int32)  # the largest entry as its bits, which are ordered like the numbers (kernels.py)
    for tensor in range(addresses.size):
        size = sizes[tensor]
        layers[0, tensor], layers[3, tensor], layers[5, tensor], layers[6, tensor] = 0.0, 0.0, 0.0, 0.0
        layers[4, tensor] = 1.0 if size else 0.0
        if addresses[tensor] == 0 or size == 0:
            continue
        entries = carray(_float32_at(addresses[tensor]), size)
        all_bits = carray(_int32_at(addresses[tensor]), size)
        squares, most, none, bad, total = 0.0, np.int32(0), 0, 0, 0.0
        for start in range(0, size, _BLOCK):
            part, bits_of_part = entries[start : start + _BLOCK], all_bits[start : start + _BLOCK]
            for index in range(part.size):
                entry = np.float64(part[index])
                squares += entry * entry
            for index in range(part.size):  # its own loop, which leaves the bits of the other sum as they are
                total += np.float64(part[index])
            zeros = np.int32(0)
            for index in range(bits_of_part.size):  # in 32 bits throughout, which is three times as fast (kernels.py)
                bits = np.int32(bits_of_part[index] & np.int32(0x7FFFFFFF))
                most = bits if bits > most else most
                zeros = np.int32(zeros + np.int32(bits == 0))
            none += zeros
        if most >= np.int32(0x7F800000):
            for index in range(size):
                bad += (all_bits[index] & np.int32(0x7FFFFFFF)) >= np.int32(0x7F800000)
        most_of[0] = most
        layers[0, tensor], layers[3, tensor] = np.sqrt(squares) / scale, most_of.view(np.float32)[0] / scale
        layers[4, tensor], layers[5, tensor], layers[6, tensor] = none / size, bad / size, total / size / scale
        whole += squares
        broken_in_all += bad
    return np.sqrt(whole) / scale, broken_in_all


@jit("boolean(int64[::1], int64[::1])", nogil=True)
def all_zero(addresses: np.ndarray, sizes: np.ndarray) -> bool:
    """Return whether every entry of all tensors is 0."""
    for tensor in range(addresses.size):
        if addresses[tensor] == 0:
            continue
        entries = carray(_float32_at(addresses[tensor]), sizes[tensor])
        for index in range(sizes[tensor]):
            if entries[index] != 0:
                return False
    return True


@jit("void(int64[::1], int64[::1], int64[::1], float32[::1])", nogil=True)
def copy(addresses: np.ndarray, starts: np.ndarray, sizes: np.ndarray, flat: np.ndarray) -> None:
    """Copy the tensors into a flat one, each to the entries from its start on."""
    for tensor in range(addresses.size):
        if addresses[tensor] != 0:
            entries = carray(_float32_at(addresses[tensor]), sizes[tensor])
            part = flat[starts[tensor] : starts[tensor] + sizes[tensor]]
            for index in range(part.size):
                part[index] = entries[index]


@jit("float64(int64[::1], int64[::1], int64[::1], int64[::1], float32[::1])", nogil=True, any_order=True)
def copy_and_norm(
    addresses: np.ndarray, others: np.ndarray, starts: np.ndarray, sizes: np.ndarray, flat: np.ndarray
) -> float:
    """Copy the tensors at the addresses into a flat one, each to the entries from its start on, and return the L2 norm
    of the others, in the same order of additions as `measure`."""
    for tensor in range(addresses.size):
        if addresses[tensor] != 0:
            entries = carray(_float32_at(addresses[tensor]), sizes[tensor])
            part = flat[starts[tensor] : starts[tensor] + sizes[tensor]]
            for index in range(part.size):
                part[index] = entries[index]
    whole = 0.0
    for tensor in range(others.size):  # a separate loop: a combined one takes twice as long
        if others[tensor] == 0:
            continue
        entries = carray(_float32_at(others[tensor]), sizes[tensor])
        squares = 0.0
        for start in range(0, sizes[tensor], _BLOCK):
            part = entries[start : start + _BLOCK]
            for index in range(part.size):
                entry = np.float64(part[index])
                squares += entry * entry
        whole += squares
    return np.sqrt(whole)


@jit(
    "UniTuple(float64, 3)(float32[::1], int64[::1], int64[::1], int64[::1], int64[::1], float32[:, ::1])",
    nogil=True,
    any_order=True,
)
def change(
    before: np.ndarray, after: np.ndarray, along: np.ndarray, starts: np.ndarray, sizes: np.ndarray, layers: np.ndarray
) -> tuple[float, float, float]:
    """Write the norm of each tensor as it was `before`, copied into a flat one, and the ratio to it of the norm of its
    change to the current values at the address in `after` (every_step.ratio), into the rows 1 and 2. Return the norms
    of all, and the inner product of the change with `along`."""
    whole, moved, product = 0.0, 0.0, 0.0
    for tensor in range(after.size):
        old = before[starts[tensor] : starts[tensor] + sizes[tensor]]
        new = carray(_float32_at(after[tensor]), sizes[tensor])
        squares, changes = 0.0, 0.0
        if along[tensor] != 0:
            beside = carray(_float32_at(along[tensor]), sizes[tensor])
            for index in range(sizes[tensor]):
                entry = np.float64(old[index])
                difference = np.float64(new[index]) - entry
                squares += entry * entry
                changes += difference * difference
                product += difference * np.float64(beside[index])
        else:
            for index in range(sizes[tensor]):
                entry = np.float64(old[index])
                difference = np.float64(new[index]) - entry
                squares += entry * entry
                changes += difference * difference
        weight, move = np.sqrt(squares), np.sqrt(changes)
        layers[1, tensor], layers[2, tensor] = weight, 0.0 if weight == 0 and move == 0 else move / weight
        whole += squares
        moved += changes
    return np.sqrt(whole), np.sqrt(moved), product
