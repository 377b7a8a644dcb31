"""Smoothing: an exponential moving average without an initial bias that passes NaN through."""

from __future__ import annotations

import math

import numpy as np

from gradstudio.core.jit import READ_ONLY, jit

SMOOTHING = 0.6  # weight of the mean so far against the new value, by default


@jit(f"void({READ_ONLY.format('float64', 1)}, float64[::1], float64[::1])")
def _smooth(values: np.ndarray, state: np.ndarray, smoothed: np.ndarray) -> None:
    mean, weight, kept = state
    for index in range(values.size):
        value = values[index]
        if math.isfinite(value):
            mean = kept * mean + (1 - kept) * value
            weight = kept * weight + (1 - kept)
            value = mean / weight
        smoothed[index] = value
    state[0], state[1] = mean, weight


class Smoother:
    """A debiased exponential moving average, like TensorBoard's. A non-finite value passes through and leaves no
    trace."""

    def __init__(self, smoothing: float = SMOOTHING) -> None:
        # the mean of the finite values, 0 before the first, and its weight; the share of the mean that each value
        # leaves
        self._state = np.array([0.0, 0.0, smoothing])

    def smooth(self, values: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
        """Return the smoothed values of the steps that follow those of the last call, (steps,)."""
        means = np.empty(len(values)) if into is None else into
        _smooth(values, self._state, means)
        return means
