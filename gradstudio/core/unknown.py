"""A number that nobody measured, which is not one that was measured as NaN. In a column of floats it is a NaN with bits
of its own, as R's NA is, and copies keep them. A reader who does not care sees a gap."""

from __future__ import annotations

import math
import struct

import numpy as np

BITS = 0x7FF8_0000_0000_0001  # of UNKNOWN: no arithmetic on the values of a run makes a NaN with a payload
UNKNOWN: float = struct.unpack("<d", struct.pack("<Q", BITS))[0]


def is_known(value: float) -> bool:
    """Return whether a number was measured; NaN counts, UNKNOWN does not."""
    return not math.isnan(value) or struct.pack("<d", value) != struct.pack("<Q", BITS)


def known_mask(values: np.ndarray) -> np.ndarray:
    """Return for each of some values whether it was measured."""
    return np.ascontiguousarray(values, np.float64).view(np.uint64) != BITS
