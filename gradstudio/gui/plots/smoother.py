"""The smoothed loss: an exponential moving average that starts without a bias and lets a NaN pass."""

from __future__ import annotations

import numpy as np

SMOOTHING = 0.6
_LASTING = 72  # steps: what is older is lost in rounding
_AGES = np.arange(_LASTING)
_SHARES = np.tril((1 - SMOOTHING) * SMOOTHING ** np.abs(_AGES[:, None] - _AGES))  # of each step in the mean after each other
_FADED = SMOOTHING ** (_AGES + 1)


class Smoother:
    """Debiased exponential moving average, as TensorBoard's: a non-finite value passes through and leaves no trace."""

    def __init__(self) -> None:
        self._mean, self._weight = 0.0, 0.0

    def smoothed(self, values: np.ndarray) -> np.ndarray:
        """(steps,): those that follow what was smoothed before."""
        finite = np.isfinite(values)
        if not np.logical_and.reduce(finite):
            smooth = values.copy()
            smooth[finite] = self.smoothed(values[finite])
            return smooth
        means = np.empty(len(values))
        for start in range(0, len(values), _LASTING):
            part = values[start : start + _LASTING]
            count = len(part)
            mean = _SHARES[:count, :count] @ part + self._mean * _FADED[:count]
            self._mean = mean.item(-1)
            if self._weight < 1:
                weights = 1 - (1 - self._weight) * _FADED[:count]
                self._weight = 1.0 if count == _LASTING else weights.item(-1)
                mean /= weights
            means[start : start + count] = mean
        return means
