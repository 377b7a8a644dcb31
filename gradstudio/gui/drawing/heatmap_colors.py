"""The heatmap's colours: viridis from the lowest to the highest level, and a separate one for NaN and Inf."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyqtgraph as pg
from PySide6.QtGui import QColor

from gradstudio.core.jit import jit
from gradstudio.core.unknown import BITS
from gradstudio.gui.theme import theme

# Indices into the table: 0 to TOP is viridis, and the last is transparent.
TOP, ZERO, NONFINITE, NOTHING = 252, 253, 254, 255


@lru_cache(maxsize=4)
def _table(zero: str, nonfinite: str) -> np.ndarray:
    viridis = pg.colormap.get("viridis")
    assert viridis is not None
    colors = np.asarray(viridis.getLookupTable(nPts=TOP + 1))
    own = [(color.red(), color.green(), color.blue()) for color in map(QColor, (zero, nonfinite))]
    red, green, blue = np.vstack([colors, own]).astype(np.uint32).T
    return np.append(0xFF000000 | red << 16 | green << 8 | blue, np.uint32(0))


def lookup_table() -> np.ndarray:
    """Return 256 colours, (256,) uint32, as Qt packs them: 0xAARRGGBB."""
    return _table(theme.colors.disabled, theme.colors.bad)


@lru_cache(maxsize=8)
def _edges(low: float, high: float, linear: bool) -> np.ndarray:
    edges = np.linspace(low, high, TOP + 1)[1:]
    return np.append(edges if linear else 10**edges, [np.inf, np.inf])


@jit("void(float64[::1], float64[::1], uint8[::1])")
def _search(values: np.ndarray, edges: np.ndarray, counts: np.ndarray) -> None:
    """Count the edges that each value has reached. The last two are Inf; a NaN has reached all. UNKNOWN is NOTHING."""
    for place in range(values.size):
        if np.float64(values[place]).view(np.int64) == BITS:
            counts[place] = NOTHING
            continue
        low, high = 0, edges.size
        while low < high:
            middle = (low + high) // 2
            if values[place] < edges[middle]:
                high = middle
            else:
                low = middle + 1
        counts[place] = low


def indices(values: np.ndarray, levels: tuple[float, float], *, linear: bool) -> np.ndarray:
    """Return the indices into the table for non-negative values, NOTHING where one is UNKNOWN. `levels` are the two
    ends of the scale, as log10 unless `linear`. A value below the scale has its first colour, and one above it the
    last; 0, which has no log, has its own colour."""
    index = np.empty(values.shape, np.uint8)
    _search(values.astype(float).ravel(), _edges(*levels, linear), index.ravel())
    if not linear:
        index[values == 0] = ZERO
    return index
