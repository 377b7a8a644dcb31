"""CSV as every file of the program has it: floats read back bit for bit, NaN and Inf are spelled nan, inf and -inf, a
number that nobody measured is an empty cell, and no text is one that a spreadsheet would run."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import BinaryIO

import numpy as np

from gradstudio.core.history import BLOCK
from gradstudio.core.knobs import format_value
from gradstudio.core.unknown import known_mask

COUNTS = ("step", "skipped", "nonfinite")  # columns of the history that hold whole numbers

# How a formula begins in some spreadsheet; the last four are the wide forms of East Asian keyboards.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def write_columns(
    file: BinaryIO, names: Sequence[str], first: int, stop: int, read: Callable[[int, int], Sequence[Sequence[str]]]
) -> None:
    """Write a head and the rows first to stop. `read(start, stop)` returns a part of every column; only one part is
    held at a time."""
    file.write(line(names))
    for start in range(first, stop, BLOCK):
        columns = read(start, min(start + BLOCK, stop))
        file.write("".join(",".join(cells) + "\n" for cells in zip(*columns, strict=True)).encode())


def line(values: Sequence[object]) -> bytes:
    """Return a row of any values, quoted where a cell needs it."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow([_cell(value) for value in values])
    return buffer.getvalue().encode(errors="replace")


def column(name: str, values: np.ndarray) -> list[str]:
    """Return the cells of a column of the history."""
    if name not in COUNTS:
        return floats(values)
    return [str(int(value)) if there else "" for value, there in zip(values, known_mask(values), strict=True)]


def floats(values: np.ndarray) -> list[str]:
    cells = [repr(value) for value in values.tolist()]
    for row in np.flatnonzero(~known_mask(values)):
        cells[row] = ""
    return cells


def _cell(value: object) -> str:
    return harmless(value) if isinstance(value, str) else format_value(value)


def harmless(text: str) -> str:
    """Return a text for a cell of a spreadsheet: one that it would take for a formula gets a quote in front."""
    return "'" + text if text.startswith(_FORMULA) else text
