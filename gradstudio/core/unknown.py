"""A number that was not measured, as opposed to one that was measured as NaN. In a column of floats it is a NaN with a
payload of its own, like R's NA, and copies preserve it, also to float32 and back. Other readers see a gap."""

from __future__ import annotations

import math
import struct

import numpy as np

BITS = 0x7FF8_0000_2000_0000  # of UNKNOWN: no arithmetic on the values of a run makes a NaN with a payload
OLDER_BITS = 0x7FF8_0000_0000_0001  # in the columns of older versions
UNKNOWN: float = struct.unpack("<d", struct.pack("<Q", BITS))[0]


def is_known(value: float) -> bool:
    """Return whether a number was measured; NaN counts, UNKNOWN does not."""
    return not math.isnan(value) or struct.pack("<d", value) != struct.pack("<Q", BITS)


def known_mask(values: np.ndarray) -> np.ndarray:
    """Return for each value whether it was measured."""
    return np.ascontiguousarray(values, np.float64).view(np.uint64) != BITS
