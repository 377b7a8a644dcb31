"""CSV as in every file of the program: floats are read back bit for bit, NaN and Inf are written nan, inf and -inf, an
unmeasured number is an empty cell, and no text can be executed by a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import BinaryIO

import numpy as np

from gradstudio.core.history import BLOCK
from gradstudio.core.knobs import format_value
from gradstudio.core.unknown import known_mask

COUNTS = ("step", "skipped", "nonfinite")  # columns of the history that contain whole numbers

# The first character of a formula in some spreadsheet; the last four are the full-width forms on East Asian keyboards.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def write_columns(
    file: BinaryIO, names: Sequence[str], first: int, stop: int, read: Callable[[int, int], Sequence[Sequence[str]]]
) -> None:
    """Write a header and the rows first to stop. `read(start, stop)` returns a part of every column; only one part is
    in memory at a time."""
    file.write(line(names))
    for start in range(first, stop, BLOCK):
        columns = read(start, min(start + BLOCK, stop))
        file.write("".join(",".join(cells) + "\n" for cells in zip(*columns, strict=True)).encode())


def line(values: Sequence[object]) -> bytes:
    """Return a row of any values, quoted if a cell needs it."""
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
    """Return a text for a cell of a spreadsheet: one that it would take for a formula gets a leading quote."""
    return "'" + text if text.startswith(_FORMULA) else text
