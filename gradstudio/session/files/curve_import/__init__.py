"""Curves of other programs, to be compared with a run: table_file.py reads them from CSV, event_file.py from a
TensorBoard log. May use core and session/files/tensorboard (its format); knows no run."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import count
from pathlib import Path

from gradstudio.session.files.curve_import.imported_curve import LARGEST_STEP, Curve, CurveError

__all__ = ["Curve", "CurveError", "read"]


def read(path: Path) -> list[Curve]:
    """Return every curve in a table of text (such as CSV), a TensorBoard event file or a folder of those.

    CurveError, one line, says which file, where in it, and what is allowed. Nothing is imported that trains or draws.
    """
    from gradstudio.session.files.curve_import import event_file, table_file

    curves = event_file.read(path) if os.path.isdir(path) or "tfevents" in path.name else table_file.read(path)
    for curve in curves:
        if max(abs(curve.steps[0]), abs(curve.steps[-1])) > LARGEST_STEP:
            raise CurveError(path, f"{curve.name}: a step beyond {LARGEST_STEP:,}, the most that is read")
    return _told_apart(curves)


def _told_apart(curves: list[Curve]) -> list[Curve]:
    """Return the curves with a name each: the second of a name gets a number."""
    taken: set[str] = set()
    for place, curve in enumerate(curves):
        names = (curve.name if number == 1 else f"{curve.name} ({number})" for number in count(1))
        name = next(name for name in names if name not in taken)
        taken.add(name)
        curves[place] = replace(curve, name=name)
    return curves
