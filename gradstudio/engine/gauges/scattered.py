"""Compiled loops that measure tensors wherever they lie: float32, contiguous, in the host's memory. Each is named by
the address of its first entry; address 0 stands for a tensor that is not there, and counts as zeros."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types
from numba.extending import intrinsic, register_jitable

from gradstudio.core.compiled import compiled

# Entries that are added up in 32 bits, some dozens of sums beside each other; the sums of blocks are added up in 64.
# The relative error of a norm is about 1e-8, and to convert each entry to 64 bits takes up to twice as long. Only loops
# over the whole of a slice become vector instructions: with bounds of their own they take eight times as long.
_BLOCK = 1024
# What is squared is multiplied by this first: of gradients around 1e-20, which vanish and are watched for that, the
# squares would be subnormal numbers, which take an Intel Xeon thirty times as long. Sums of entries of some 500 and
# more are too large, and are added up in 64 bits.
_UP = np.float32(2.0**50)
_DOWN = 2.0**-100
_LEAST = np.float32(2.0**-80)  # a sum below which some squares may have been too small for 32 bits
_INFINITE = np.float32(np.inf)
_ANY_ORDER = {"error_model": "numpy", "fastmath": {"reassoc", "contract"}}  # as Compiled has them


def pointer_to(kind: Any) -> Any:
    """Return a function for compiled loops that takes the address of numbers of this kind and gives a pointer."""

    def typed(_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(address), generate

    return intrinsic(typed)


_float32_at, _int32_at = pointer_to(types.float32), pointer_to(types.int32)


@register_jitable(**_ANY_ORDER)
def _fits(found: Any) -> Any:
    """Return whether a sum in 32 bits is neither too small nor too large for them."""
    return _LEAST <= abs(found) < _INFINITE


@register_jitable(**_ANY_ORDER)
def _squares(block: np.ndarray) -> float:
    """Return the sum of the squares of a block."""
    squares = np.float32(0)
    for index in range(block.size):
        entry = block[index] * _UP
        squares += entry * entry
    return np.float64(squares) * _DOWN if _fits(squares) else _wide_squares(block)


@register_jitable(**_ANY_ORDER)
def _wide_squares(block: np.ndarray) -> float:
    squares = 0.0
    for index in range(block.size):
        entry = np.float64(block[index])
        squares += entry * entry
    return squares


@register_jitable(**_ANY_ORDER)
def _squares_most_zeros(block: np.ndarray, all_bits: np.ndarray) -> tuple[float, np.int32, np.int32]:
    """Return the same as `_squares`, the largest absolute entry as its bits, which are in the order of the numbers, and
    how many entries are 0. `all_bits` are the entries as whole numbers."""
    squares, most, zeros = np.float32(0), np.int32(0), np.int32(0)
    for index in range(block.size):  # in 32 bits throughout, which is three times as fast (kernels.py)
        entry = block[index] * _UP
        squares += entry * entry
        bits = np.int32(all_bits[index] & np.int32(0x7FFFFFFF))
        most = bits if bits > most else most
        zeros = np.int32(zeros + np.int32(bits == 0))
    return np.float64(squares) * _DOWN if _fits(squares) else _wide_squares(block), most, zeros


@register_jitable(**_ANY_ORDER)
def _squares_of_change(old: np.ndarray, new: np.ndarray, along: np.ndarray) -> tuple[float, float, float]:
    """Return the sums of the squares of `old` and of new - old, and the inner product of new - old with `along`."""
    squares, changes, product = np.float32(0), np.float32(0), np.float32(0)
    for index in range(old.size):
        difference = (new[index] - old[index]) * _UP
        squares += old[index] * old[index]
        changes += difference * difference
        product += difference * (along[index] * _UP)
    all_squares = np.float64(squares) if _fits(squares) else _wide_squares(old)
    if _fits(changes) and _fits(product):
        return all_squares, np.float64(changes) * _DOWN, np.float64(product) * _DOWN
    if product == 0:
        moved = np.int32(0)
        for index in range(old.size):
            moved += np.int32(new[index] != old[index])
        if moved == 0:
            return all_squares, 0.0, 0.0
    wide_changes, wide_product = 0.0, 0.0
    for index in range(old.size):
        wide = np.float64(new[index]) - np.float64(old[index])
        wide_changes += wide * wide
        wide_product += wide * np.float64(along[index])
    return all_squares, wide_changes, wide_product


@compiled("Tuple((float64, int64))(int64[::1], int64[::1], float64, float32[:, ::1])", nogil=True, any_order=True)
def measure(addresses: np.ndarray, sizes: np.ndarray, scale: float, layers: np.ndarray) -> tuple[float, int]:
    """Write the L2 norm of each tensor / `scale`, its largest absolute entry / `scale`, and which share of its entries
    is 0, and NaN or Inf, into the rows 0, 3, 4 and 5 (history.LAYER_METRICS). Return the norm of all / `scale`, and how
    many entries are NaN or Inf."""
    whole, broken_in_all = 0.0, 0
    most_of = np.empty(1, np.int32)  # the bits of the largest entry, to be read as a number
    for tensor in range(addresses.size):
        size = sizes[tensor]
        layers[0, tensor], layers[3, tensor], layers[5, tensor] = 0.0, 0.0, 0.0
        layers[4, tensor] = 1.0 if size else 0.0
        if addresses[tensor] == 0 or size == 0:
            continue
        entries = carray(_float32_at(addresses[tensor]), size)
        all_bits = carray(_int32_at(addresses[tensor]), size)
        squares, most, none, bad = 0.0, np.int32(0), 0, 0
        for start in range(0, size, _BLOCK):
            found, largest, zeros = _squares_most_zeros(
                entries[start : start + _BLOCK], all_bits[start : start + _BLOCK]
            )
            squares += found
            most = largest if largest > most else most
            none += zeros
        if most >= np.int32(0x7F800000):
            for index in range(size):
                bad += (all_bits[index] & np.int32(0x7FFFFFFF)) >= np.int32(0x7F800000)
        most_of[0] = most
        layers[0, tensor], layers[3, tensor] = np.sqrt(squares) / scale, most_of.view(np.float32)[0] / scale
        layers[4, tensor], layers[5, tensor] = none / size, bad / size
        whole += squares
        broken_in_all += bad
    return np.sqrt(whole) / scale, broken_in_all


@compiled("boolean(int64[::1], int64[::1])", nogil=True)
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


@compiled("void(int64[::1], int64[::1], int64[::1], float32[::1])", nogil=True)
def copy(addresses: np.ndarray, starts: np.ndarray, sizes: np.ndarray, flat: np.ndarray) -> None:
    """Copy the tensors into a flat one, each to the entries from its start on."""
    for tensor in range(addresses.size):
        if addresses[tensor] != 0:
            entries = carray(_float32_at(addresses[tensor]), sizes[tensor])
            part = flat[starts[tensor] : starts[tensor] + sizes[tensor]]
            for index in range(part.size):
                part[index] = entries[index]


@compiled("float64(int64[::1], int64[::1], int64[::1], int64[::1], float32[::1])", nogil=True, any_order=True)
def copy_and_norm(
    addresses: np.ndarray, others: np.ndarray, starts: np.ndarray, sizes: np.ndarray, flat: np.ndarray
) -> float:
    """Do what `copy` does for the tensors at the addresses, and return the L2 norm of the others, added up as in
    `measure`."""
    whole = 0.0
    for tensor in range(others.size):  # first, as a cache may still hold them
        if others[tensor] == 0:
            continue
        entries = carray(_float32_at(others[tensor]), sizes[tensor])
        squares = 0.0
        for start in range(0, sizes[tensor], _BLOCK):
            squares += _squares(entries[start : start + _BLOCK])
        whole += squares
    for tensor in range(addresses.size):
        if addresses[tensor] != 0:
            entries = carray(_float32_at(addresses[tensor]), sizes[tensor])
            part = flat[starts[tensor] : starts[tensor] + sizes[tensor]]
            for index in range(part.size):
                part[index] = entries[index]
    return np.sqrt(whole)


@compiled(
    "UniTuple(float64, 3)(float32[::1], int64[::1], int64[::1], int64[::1], int64[::1], float32[:, ::1])",
    nogil=True,
    any_order=True,
)
def change(
    before: np.ndarray,
    after: np.ndarray,
    along: np.ndarray,
    starts: np.ndarray,
    sizes: np.ndarray,
    layers: np.ndarray,
) -> tuple[float, float, float]:
    """Write the norm of each tensor as it was `before`, copied into a flat one, and the ratio to it of the norm of its
    change to what now lies at the address in `after` (every_step.ratio), into the rows 1 and 2. Return the norms of
    all, and the inner product of the change with what lies `along`."""
    whole, moved, product = 0.0, 0.0, 0.0
    for tensor in range(after.size):
        old = before[starts[tensor] : starts[tensor] + sizes[tensor]]
        new = carray(_float32_at(after[tensor]), sizes[tensor])
        beside = carray(_float32_at(along[tensor] or after[tensor]), sizes[tensor])
        squares, changes = 0.0, 0.0
        for start in range(0, sizes[tensor], _BLOCK):
            stop = start + _BLOCK
            found = _squares_of_change(old[start:stop], new[start:stop], beside[start:stop])
            squares += found[0]
            changes += found[1]
            product += found[2] if along[tensor] else 0.0
        weight, move = np.sqrt(squares), np.sqrt(changes)
        layers[1, tensor], layers[2, tensor] = weight, 0.0 if weight == 0 and move == 0 else move / weight
        whole += squares
        moved += changes
    return np.sqrt(whole), np.sqrt(moved), product
