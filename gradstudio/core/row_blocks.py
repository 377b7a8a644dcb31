"""Rows in blocks that never move, so that a reader's view of them stays valid while a writer adds rows."""

from __future__ import annotations

from collections.abc import Iterator

BLOCK = 4096  # rows


def stretches(start: int, stop: int | None, count: int) -> list[tuple[int, int, int]]:
    """Return the blocks that contain rows start to stop of `count`: block, first row in it, and the row after the
    last."""
    stop = count if stop is None else min(stop, count)
    start = min(max(start, 0), stop)
    blocks = range(start // BLOCK, -(-stop // BLOCK))
    if len(blocks) == 1:  # as nearly always, thirty times a second
        return [(blocks[0], start - blocks[0] * BLOCK, stop - blocks[0] * BLOCK)]
    return [(block, max(start - block * BLOCK, 0), min(stop - block * BLOCK, BLOCK)) for block in blocks]


def places(count: int, new: int) -> Iterator[tuple[slice, slice]]:
    """Yield where `new` rows go after `count` rows, block by block: their rows in the latest block, which is a new one
    if they begin at row 0, and which of the new rows these are."""
    taken = 0
    while taken < new:
        line = (count + taken) % BLOCK
        fits = min(BLOCK - line, new - taken)
        yield slice(line, line + fits), slice(taken, taken + fits)
        taken += fits
