"""The loops that measure on the host: those of numpy, until the jit ones would have paid for loading them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradstudio.core import jit
from gradstudio.engine.gauges import plain_loops

PAYS_AFTER = 0.5  # seconds of numpy; loading a compiler takes as long, and several times that the first time
OF_A_TENSOR, OF_AN_ENTRY = 20e-6, 2.5e-9  # seconds of numpy per step; a clock would give different bits each time


class HostLoops:
    """The loops that measure tensors of these sizes. They change only between two steps, at the same step of each run,
    as the last bits of their sums differ."""

    def __init__(self, sizes: np.ndarray) -> None:
        self._of_a_step = OF_A_TENSOR * sizes.size + OF_AN_ENTRY * float(sizes.sum())
        self._left = PAYS_AFTER
        self._loops: Any = None

    @property
    def now(self) -> Any:
        """The module whose loops measure this step."""
        if self._left > 0:
            return plain_loops
        if self._loops is None:  # imported here: perhaps nothing is ever measured on the host
            self._loops = _compiled() if jit.available() else plain_loops
        return self._loops

    def step_is_over(self) -> None:
        """Count a step."""
        self._left -= self._of_a_step


def _compiled() -> Any:
    """Return the jit loops; those of numpy if they cannot be loaded."""
    try:
        from gradstudio.engine.gauges import scattered

        for loop in (scattered.measure, scattered.copy_and_norm, scattered.all_zero, scattered.copy, scattered.change):
            loop.compile()
    except Exception:  # the script may have a module with the name of one that the compiler imports
        return plain_loops
    return scattered
