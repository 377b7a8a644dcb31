"""Curves from a text table: a row for each step, a column for each curve, as spreadsheets, loggers, W&B and TensorBoard
write them."""

from __future__ import annotations

import csv
import io
import math
import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gradstudio.core.knobs import quote
from gradstudio.core.text import one_line
from gradstudio.session.files.curve_import.imported_curve import (
    LONGEST_NAME,
    MOST_CURVES,
    Curve,
    CurveError,
    from_rows,
    load,
)

# Columns that count steps, in order of preference; by their names in lower case without punctuation.
STEPS = ("step", "steps", "global_step", "trainer_global_step", "iteration", "iterations", "iter", "epoch", "epochs")
TIMES = (
    "wall_time",
    "timestamp",
    "runtime",
    "time",
    "relative_time_process",
    "relative_time_wall",
    "date",
)  # which are not curves
MISSING = ("", "-", "–", "na", "n/a", "#n/a", "none", "null", "<na>")  # a step at which nothing was logged
_SPELLED = {
    "∞": math.inf, "+∞": math.inf, "-∞": -math.inf, "1.#inf": math.inf, "-1.#inf": -math.inf, "1.#qnan": math.nan,
    "-1.#ind": math.nan,
    "1.#ind": math.nan, "nan(ind)": math.nan, "-nan(ind)": math.nan, "#num!": math.nan, "#div/0!": math.nan,
}  # fmt: skip
_DELIMITERS = ",;\t|"


def read(path: Path) -> list[Curve]:
    """Return the curves of a file; CurveError names the file, the line and what is allowed."""
    text = _text(path)
    delimiter = _delimiter(text)
    try:
        rows = _rows(text, delimiter)
        first = next(rows, None)
        if first is None:
            raise CurveError(path, "empty; allowed: a table with a row a step and a column a curve")
        _, head = first
        if len(head) > MOST_CURVES:
            raise CurveError(path, f"{len(head):,} columns; allowed: at most {MOST_CURVES:,}")
        comma = delimiter != ","
        if all(parse_number(cell, comma) is not None for cell in head):  # no header
            rows, head = _rows(text, delimiter), [f"column {index}" for index in range(1, len(head) + 1)]
        columns = _columns(path, head, rows, comma)
    except csv.Error as fault:
        raise CurveError(path, f"no table: {fault}") from None
    return _curves(path, head, columns)


def _text(path: Path) -> str:
    data = load(path)
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as fault:
        line = data[: fault.start].count(b"\n") + 1
        raise CurveError(
            path, f", line {line}: not UTF-8 text; allowed: a CSV file saved as UTF-8, or a TensorBoard event file"
        ) from None
    if "\0" in text:
        raise CurveError(
            path, "not a table of text; allowed: a CSV file, or a TensorBoard event file with tfevents in its name"
        )
    return text


def _delimiter(text: str) -> str:
    """Return the delimiter that splits the first lines into the most columns, with the same number in each line."""
    start = text[:65536].splitlines()[:20]

    def count_cells(delimiter: str) -> int:
        counts = {len(row) for row in csv.reader(start, delimiter=delimiter) if row}
        return min(counts, default=0)

    try:
        return max(_DELIMITERS, key=count_cells)
    except csv.Error:
        return ","


def _rows(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the last line of each row, and its cells."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    return ((reader.line_num, row) for row in reader if any(cell.strip() for cell in row))


class _Column(NamedTuple):
    """The nonempty cells of a column: their rows and their values."""

    rows: array
    values: array


def _columns(
    path: Path, head: Sequence[str], rows: Iterator[tuple[int, list[str]]], comma: bool
) -> list[_Column | None]:
    """Return every column as numbers; None for a column of words or times."""
    columns = [None if plain_name(name) in TIMES else _Column(array("q"), array("d")) for name in head]
    steps = _step_column(head)
    for row, (line, cells) in enumerate((line, cells) for line, cells in rows if cells != head):  # of a second start
        if len(cells) > len(head):
            raise CurveError(path, f", line {line}: {len(cells)} cells under {len(head)} columns")
        if steps is not None and len(cells) <= steps:
            raise CurveError(path, f", line {line}: the row ends before its {_name(head[steps])}")
        for place, cell in enumerate(cells):
            column = columns[place]
            if column is None:
                continue
            value = parse_number(cell, comma)
            if value is not None and (place != steps or math.isfinite(value)):
                column.rows.append(row)
                column.values.append(value)
            elif place == steps:
                raise _error(path, line, head[place], cell, "a finite number")
            elif cell.strip().lower() in MISSING:
                continue
            elif column.rows:
                raise _error(path, line, head[place], cell, "a number, nan, inf, or nothing where there is none")
            else:
                columns[place] = None  # words, from its first cell on
    return columns


def _error(path: Path, line: int, name: str, cell: str, allowed: str) -> CurveError:
    return CurveError(
        path, f", line {line}: {_name(name)} = {quote(one_line(cell))} is not allowed; allowed: {allowed}"
    )


def _curves(path: Path, head: Sequence[str], columns: Sequence[_Column | None]) -> list[Curve]:
    place = _step_column(head)
    counted = columns[place] if place is not None else None
    plain = [plain_name(name) for name in head]
    one_scalar = plain == [
        "wall_time",
        "step",
        "value",
    ]  # as in TensorBoard's own download, whose file name says what the values are
    found = [
        (path.stem if one_scalar else _name(name) or f"column {number}", column.rows, column.values)
        for number, (name, column) in enumerate(zip(head, columns, strict=True), 1)
        if column is not None and column is not counted and column.rows
    ]
    if not found:
        wanted = "a table with a column of numbers beside the steps"
        raise CurveError(
            path, f"no column of numbers among {', '.join(map(quote, map(_name, head[:5])))}; allowed: {wanted}"
        )
    return from_rows(found, None if counted is None else np.array(counted.values))


def _step_column(head: Sequence[str]) -> int | None:
    plain = [plain_name(name) for name in head]
    return next((plain.index(name) for name in STEPS if name in plain), None)


def plain_name(name: str) -> str:
    """Return a column's name in lower case, with _ for all punctuation: wall_time for 'Wall time', trainer_global_step
    for 'trainer/global_step'."""
    return re.sub(r"\W+", "_", name.strip().lower()).strip("_")


def _name(name: str) -> str:
    return one_line(name)[:LONGEST_NAME]


def parse_number(cell: str, comma: bool = False) -> float | None:
    """Return the number in a cell, or None. `comma`: 0,5 is one half."""
    try:
        return None if "_" in cell else float(cell)  # a million rows have millions of cells: the usual ones first
    except ValueError:
        pass
    cell = cell.strip().lower()
    if cell in _SPELLED:
        return _SPELLED[cell]
    try:
        return float(cell.replace(",", ".")) if comma and "," in cell and "." not in cell else None
    except ValueError:
        return None
