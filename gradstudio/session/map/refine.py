"""Which cells of a panel to train: first a coarse grid of blocks, and then the parts of each block that differs from a
neighbouring cell, down to single cells.

A block has 2^k x 2^k cells, one of which is trained and represents all. Two cells differ in their outcome, or by more
than half a decade in the loss that they reached. At the end every cell that differs from one that it shares an edge
with was trained itself, so the coast is followed to the cell. Including corners would add a quarter more cells to
train."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FIRST = 4  # blocks along the longer axis that are trained first, at most
COARSE = 8  # blocks along the longer axis to begin with, at least
DECADES = 0.5  # difference of the loss that counts
LEARNED = 0  # index of that outcome


class Blocks(NamedTuple):
    """For each cell the size of its block, and the cell that represents it; (rows, columns)."""

    sizes: np.ndarray
    rows: np.ndarray
    columns: np.ndarray


def next_cells(outcomes: np.ndarray, levels: np.ndarray, *, full: bool) -> list[tuple[int, int]]:
    """Return (row, column) of the cells to train next, given the outcomes, which are below 0 for an untrained cell."""
    blocks = _blocks(outcomes, levels, full=full)
    missing = outcomes[blocks.rows, blocks.columns] < 0
    places = np.unique(np.stack([blocks.rows[missing], blocks.columns[missing]], axis=-1), axis=0)
    return [(int(row), int(column)) for row, column in places]


def representatives(outcomes: np.ndarray, levels: np.ndarray, *, full: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return for each cell the row and the column of the cell whose outcome it takes: itself if it was trained, or else
    the representative of its smallest block with a trained one."""
    blocks = _blocks(outcomes, levels, full=full)
    rows, columns = np.indices(outcomes.shape)
    unknown = outcomes < 0
    given_rows, given_columns = np.where(unknown, blocks.rows, rows), np.where(unknown, blocks.columns, columns)
    size = int(blocks.sizes.max(initial=1))
    while (missing := outcomes[given_rows, given_columns] < 0).any() and size <= _first(outcomes.shape):
        larger = _at(outcomes.shape, np.maximum(blocks.sizes, size))
        given_rows[missing], given_columns[missing] = larger.rows[missing], larger.columns[missing]
        size *= 2
    return given_rows, given_columns


def stages(shape: tuple[int, ...]) -> np.ndarray:
    """Return for each cell, (rows, columns), how early it is trained among the others of its level: 0 for the
    representatives of the largest blocks, 1 for those of blocks half that size, and so on."""
    order, size = np.full(shape, -1), _first(shape)
    for stage in range(size.bit_length()):
        blocks = _at(shape, np.full(shape, size >> stage))
        places = blocks.rows, blocks.columns
        order[places] = np.where(order[places] < 0, stage, order[places])
    return order


def _blocks(outcomes: np.ndarray, levels: np.ndarray, *, full: bool) -> Blocks:
    """Split blocks as far as the known results require, stopping at a new block whose representative is not trained
    yet."""
    first = 1 if full else _coarsest(outcomes.shape)
    blocks = _at(outcomes.shape, np.full(outcomes.shape, first))
    with np.errstate(invalid="ignore", divide="ignore"):
        decades = np.where(outcomes == LEARNED, np.log10(np.maximum(levels, 1e-300)), 0.0)
    while not (outcomes[blocks.rows, blocks.columns] < 0).any():
        differing = _beside(outcomes[blocks.rows, blocks.columns], decades[blocks.rows, blocks.columns])
        split = np.zeros(outcomes.shape, bool)
        split[blocks.rows[differing], blocks.columns[differing]] = True
        split = split[blocks.rows, blocks.columns] & (blocks.sizes > 1)
        if not split.any():
            break
        blocks = _at(outcomes.shape, np.where(split, blocks.sizes // 2, blocks.sizes))
    return blocks


def _beside(outcomes: np.ndarray, decades: np.ndarray) -> np.ndarray:
    """Return which cells differ from one of the four that they share an edge with."""
    differs = np.zeros(outcomes.shape, bool)
    for axis in (0, 1):
        apart = (np.diff(outcomes, axis=axis) != 0) | (abs(np.diff(decades, axis=axis)) > DECADES)
        differs |= np.insert(apart, 0, False, axis) | np.insert(apart, apart.shape[axis], False, axis)
    return differs


def _at(shape: tuple[int, ...], sizes: np.ndarray) -> Blocks:
    """Return the blocks of these sizes. The representative of a block is near its middle, and also represents one of
    its parts."""
    rows, columns = np.indices(shape)
    offsets = np.vectorize(_offset, otypes=[np.int64])(sizes)
    return Blocks(
        sizes,
        np.minimum(rows // sizes * sizes + offsets, shape[0] - 1),
        np.minimum(columns // sizes * sizes + offsets, shape[1] - 1),
    )


def _offset(size: int) -> int:
    """Return the position in a block of this size of the cell that represents it: 0 of 1, 1 of 2, 1 of 4, 5 of 8, 5 of
    16."""
    return sum(4**power for power in range(size.bit_length()) if 4**power * 2 <= size)


def _first(shape: tuple[int, ...]) -> int:
    """Return the size of the largest blocks: the smallest power of two that leaves few enough of them."""
    return 1 << (-(-max(shape) // FIRST) - 1).bit_length()


def _coarsest(shape: tuple[int, ...]) -> int:
    """Return the size of the blocks to begin with."""
    return 1 << max(max(shape) // COARSE, 1).bit_length() - 1
