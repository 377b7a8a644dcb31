"""An imported curve as plain data, and the error for a file that cannot be read."""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gradstudio.core import files
from gradstudio.core.text import one_line, plural

LARGEST_FILE = 200_000_000  # bytes
MOST_CURVES = 1000
LARGEST_STEP = 2**53  # beyond it a float cannot distinguish neighbouring steps
LONGEST_NAME = 200  # characters


class CurveError(ValueError):
    """A file that contains no curves, or is damaged. One line for the user."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(one_line(f"{path}{text if text.startswith(',') else ': ' + text}"))


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve. `steps` are finite and never decrease, `values` may be NaN or Inf; both are float64, of the same length
    of at least 1. `note` says how points with repeated steps were handled."""

    name: str
    steps: np.ndarray
    values: np.ndarray
    note: str = ""


def from_rows(columns: Iterable[tuple[str, array, array]], counted: np.ndarray | None) -> list[Curve]:
    """Return a curve for each column: a name, the rows of its values, and the values. `counted` is the step of each
    row. Without it, or if most steps repeat, as when each epoch counts from 0, rows are counted."""
    arrays = [(name, np.array(rows), np.array(values)) for name, rows, values in columns]
    judged = [rows for name, rows, _ in arrays if "epoch" not in name.lower()]  # which stands in every row
    longest = max(judged or [rows for _, rows, _ in arrays], key=len)
    if counted is None or 2 * len(np.unique(counted[longest])) < len(longest):
        note = "" if counted is None else "most steps of the log come again, so its rows are counted"
        return [Curve(name, rows.astype(float), values, note) for name, rows, values in arrays]
    return [from_steps(name, counted[rows], values, sort=True) for name, rows, values in arrays]


def from_steps(name: str, steps: np.ndarray, values: np.ndarray, sort: bool = False) -> Curve:
    """Return a curve of points in the order written. If steps go back, the program resumed from an older state: its
    later points replace the earlier ones. `sort`: steps that are all different are only sorted."""
    ahead = np.minimum.accumulate(steps[::-1])[::-1]  # the smallest step from here on
    kept = np.append(steps[:-1] < ahead[1:], True)
    if kept.all() or (sort and len(np.unique(steps)) == len(steps)):
        order = np.argsort(steps, kind="stable")
        return Curve(name, steps[order].astype(float), values[order])
    lost = values[~kept]
    broken = np.count_nonzero(~np.isfinite(lost))
    how = "go back" if np.any(np.diff(steps) < 0) else "come again"
    note = f"steps {how}: {plural(len(lost), 'point is', 'points are')} replaced by later ones"
    note += f", {broken:,} of them not finite" * bool(broken)
    return Curve(name, steps[kept].astype(float), values[kept], note)


def load(path: Path) -> bytes:
    """Return the content of a file, unpacked if it is gzipped; CurveError if it cannot be read or is too large."""
    try:
        data = files.read_bounded(path, LARGEST_FILE)
        if data.startswith(b"\x1f\x8b"):
            with gzip.open(path) as file:
                data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as fault:
        raise CurveError(path, files.reason(fault)) from None
    except (EOFError, zlib.error):
        raise CurveError(path, "not packed whole; allowed: a file that gzip can unpack") from None
    if len(data) > LARGEST_FILE:
        raise CurveError(path, f"larger than {LARGEST_FILE // 1_000_000} MB, which is the most that is read")
    return data
