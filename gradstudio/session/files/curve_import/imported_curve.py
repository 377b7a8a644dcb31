"""An imported curve as plain data, and the error for a file that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gradstudio.core import files
from gradstudio.core.text import one_line

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
    of at least 1."""

    name: str
    steps: np.ndarray
    values: np.ndarray


def load(path: Path) -> bytes:
    """Return the content of a file; CurveError if it cannot be read or is too large."""
    try:
        data = files.read_bounded(path, LARGEST_FILE)
    except (OSError, ValueError) as fault:
        raise CurveError(path, files.reason(fault)) from None
    if len(data) > LARGEST_FILE:
        raise CurveError(path, f"larger than {LARGEST_FILE // 1_000_000} MB, which is the most that is read")
    return data
