"""The smoothed loss: an exponential moving average that starts without a bias and lets a NaN pass."""

from __future__ import annotations

import math

import numpy as np

SMOOTHING = 0.6


class Smoother:
    """Debiased exponential moving average, as TensorBoard's: a non-finite value passes through and leaves no trace."""

    def __init__(self) -> None:
        self._mean, self._weight = 0.0, 0.0

    def smoothed(self, values: np.ndarray) -> np.ndarray:
        """(steps,): those that follow what was smoothed before."""
        mean, weight, means = self._mean, self._weight, []
        for value in values.tolist():  # of the few that come in a frame, and of a million, sooner done than by numpy
            if math.isfinite(value):
                mean += (1 - SMOOTHING) * (value - mean)
                weight += (1 - SMOOTHING) * (1 - weight)
                value = mean / weight
            means.append(value)
        self._mean, self._weight = mean, weight
        return np.array(means)
