"""Curves that other programs have measured, to be compared with a run: from a CSV or a TensorBoard log."""

from __future__ import annotations

from pathlib import Path

from gradstudio.session.curves.curve import Curve, CurveError

__all__ = ["Curve", "CurveError", "read"]


def read(path: Path) -> list[Curve]:
    """Every curve in a table of text (CSV and its kin), a TensorBoard event file or a folder of those.

    CurveError, one line, says which file, where in it, and what is allowed. Nothing is imported that trains or draws.
    """
    from gradstudio.session.curves import events, table

    if path.is_dir() or "tfevents" in path.name:
        return events.read(path)
    return table.read(path)
