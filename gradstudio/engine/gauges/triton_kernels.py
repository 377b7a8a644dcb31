"""Triton kernels that measure tensors where they are on a GPU. Each program reads one piece of one tensor, of which the
host knows only the address; a second kernel combines the pieces in their order, so that a repeated run has the same
bits. Address 0 stands for a missing tensor, and counts as zeros. Sums are in float64.

Only device_table.py imports this: Triton comes only with torch for CUDA and ROCm."""

# pyright: reportMissingImports=false

from __future__ import annotations

import triton
import triton.language as tl

PIECE, BLOCK = 16384, 1024  # entries of a piece, and those that are read together


@triton.jit
def _entries(address, place, inside, FORMAT: tl.constexpr):
    """Return the entries at some positions of the tensor at an address, as float64; those outside it are 0. FORMAT is
    an index into device_table.FORMATS."""
    if FORMAT == 0:
        values = tl.load(address.to(tl.pointer_type(tl.float32)) + place, mask=inside, other=0.0)
    elif FORMAT == 1:
        values = tl.load(address.to(tl.pointer_type(tl.bfloat16)) + place, mask=inside, other=0.0)
    elif FORMAT == 2:
        values = tl.load(address.to(tl.pointer_type(tl.float16)) + place, mask=inside, other=0.0)
    else:
        values = tl.load(address.to(tl.pointer_type(tl.float64)) + place, mask=inside, other=0.0)
    return values.to(tl.float64)


@triton.jit
def measure_gradient(
    addresses, tensors, starts, sizes, first, parts, pieces,
    FORMAT: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the figures device_table.GRADIENT of each piece into `parts` (figures, pieces), beginning with piece
    `first`."""
    piece = first + tl.program_id(0)
    tensor = tl.load(tensors + piece)
    start, size, address = tl.load(starts + piece), tl.load(sizes + tensor), tl.load(addresses + tensor)
    squares, largest = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.float64)
    sums = tl.zeros((BLOCK,), tl.float64)
    zeros, nan, inf = tl.zeros((BLOCK,), tl.int32), tl.zeros((BLOCK,), tl.int32), tl.zeros((BLOCK,), tl.int32)
    for offset in range(0, PIECE, BLOCK):
        place = start + offset + tl.arange(0, BLOCK)
        inside = place < size
        entry = _entries(address, place, inside & (address != 0), FORMAT)
        magnitude = tl.abs(entry)
        squares += entry * entry
        sums += entry
        largest = tl.maximum(largest, magnitude)
        zeros += (inside & (entry == 0)).to(tl.int32)
        nan += (entry != entry).to(tl.int32)
        inf += (magnitude == float("inf")).to(tl.int32)
    at = parts + piece
    tl.store(at, tl.sum(squares))
    tl.store(at + pieces, tl.max(largest))
    tl.store(at + 2 * pieces, tl.sum(zeros).to(tl.float64))
    tl.store(at + 3 * pieces, tl.sum(nan).to(tl.float64))
    tl.store(at + 4 * pieces, tl.sum(inf).to(tl.float64))
    tl.store(at + 5 * pieces, tl.sum(sums))


@triton.jit
def measure_change(
    before, after, gradients, tensors, starts, sizes, first, parts, pieces,
    FORMAT: tl.constexpr, GRADIENT_FORMAT: tl.constexpr, PIECE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the figures device_table.CHANGE of each piece into `parts` (figures, pieces), beginning with piece
    `first`."""
    piece = first + tl.program_id(0)
    tensor = tl.load(tensors + piece)
    start, size = tl.load(starts + piece), tl.load(sizes + tensor)
    old_at, new_at, gradient_at = tl.load(before + tensor), tl.load(after + tensor), tl.load(gradients + tensor)
    squares, moves = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.float64)
    along, not_zero = tl.zeros((BLOCK,), tl.float64), tl.zeros((BLOCK,), tl.int32)
    for offset in range(0, PIECE, BLOCK):
        place = start + offset + tl.arange(0, BLOCK)
        inside = place < size
        old = _entries(old_at, place, inside, FORMAT)
        move = _entries(new_at, place, inside, FORMAT) - old
        gradient = _entries(gradient_at, place, inside & (gradient_at != 0), GRADIENT_FORMAT)
        squares += old * old
        moves += move * move
        along += tl.where(gradient_at != 0, move * gradient, 0.0)
        not_zero += (gradient != 0).to(tl.int32)
    at = parts + piece
    tl.store(at, tl.sum(squares))
    tl.store(at + pieces, tl.sum(moves))
    tl.store(at + 2 * pieces, tl.sum(along))
    tl.store(at + 3 * pieces, tl.sum(not_zero).to(tl.float64))


@triton.jit
def sum_pieces(parts, pieces, firsts, counts, figures, tensors, LARGEST: tl.constexpr, BLOCK: tl.constexpr):
    """Sum a figure over the pieces of each tensor, in their order; for the figure LARGEST take the maximum. `figures`:
    (figures, tensors)."""
    tensor, figure = tl.program_id(0), tl.program_id(1)
    first, count = tl.load(firsts + tensor), tl.load(counts + tensor)
    total = tl.zeros((BLOCK,), tl.float64)
    for offset in range(0, count, BLOCK):
        place = offset + tl.arange(0, BLOCK)
        part = tl.load(parts + figure * pieces + first + place, mask=place < count, other=0.0)
        if figure == LARGEST:
            total = tl.maximum(total, part)
        else:
            total += part
    whole = tl.sum(total)
    if figure == LARGEST:
        whole = tl.max(total)
    tl.store(figures + figure * tensors + tensor, whole)
