"""What is read: plain data, and the one error."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gradstudio.core.text import one_line

LARGEST_FILE = 200_000_000  # bytes
MOST_CURVES = 1000
LONGEST_NAME = 200  # characters


class CurveError(ValueError):
    """A file that holds no curves, or is damaged. One line, fit for a person."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(one_line(f"{path}{text if text.startswith(',') else ': ' + text}"))


@dataclass(frozen=True, eq=False)
class Curve:
    """`steps` never fall and are finite, `values` may be NaN or Inf; both float64 and of one length, at least 1."""

    name: str
    steps: np.ndarray
    values: np.ndarray


def load(path: Path) -> bytes:
    """A file whole; CurveError where it cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as fault:
        raise CurveError(path, (getattr(fault, "strerror", None) or str(fault)).lower()) from None
    if len(data) > LARGEST_FILE:
        raise CurveError(path, f"larger than {LARGEST_FILE // 1_000_000} MB, which is the most that is read")
    return data
