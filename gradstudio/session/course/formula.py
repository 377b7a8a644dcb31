"""Formulas of a lesson as outlines, so that the window can draw them in any colour and size. matplotlib typesets them,
in its subset of TeX (mathtext). Importing it takes long: not on the GUI thread."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradstudio.core.open_fonts import close_fonts


class Outline(NamedTuple):
    """The letters of a formula as paths: `points` (n, 2), in points at a size of 100, y upwards; `codes` (n,) as in
    matplotlib.path.Path: 1 moves, 2 draws a line, 3 and 4 a curve with one and two control points, 79 closes."""

    points: np.ndarray
    codes: np.ndarray


@close_fonts()
def outline(formula: str) -> Outline:
    """Return the outline of a formula; ValueError in one line if mathtext cannot parse it."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(size=100, math_fontfamily="stixsans")
    try:
        points, codes = TextToPath().get_text_path(font, f"${formula}$", ismath=True)
    except ValueError as fault:
        text = str(fault).strip().splitlines()[-1]
        raise ValueError(f"the formula {formula[:80]!r} cannot be read: {text[:120]}") from None
    return Outline(np.array(points, float).reshape(-1, 2), np.array(codes, int))


def why_not_drawn(formula: str) -> str:
    """Return why a formula cannot be drawn, "" if it can."""
    try:
        outline(formula)
    except ValueError as fault:
        return str(fault)
    return ""
