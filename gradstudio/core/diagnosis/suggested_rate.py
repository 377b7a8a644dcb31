"""A learning rate that suits the gradients of a run, from the size of its first update."""

from __future__ import annotations

import math

from gradstudio.core.history import History

# |update| / |weights| of the first step. Later, 1e-3 is the rule of thumb; healthy runs here begin with 0.003 to 0.03,
# Adam with the most.
USUAL = 1e-2
CLEARLY = 2.0  # factor by which a rate has to differ from another to be offered beside it
_FAR = 12.0  # times the fitting rate, from which on another is too high for the first gradients, or too low
_LEAST, _MOST = 1e-6, 10.0  # rates beyond these indicate an unusual gradient and are no advice


def fitting_rate(history: History) -> float | None:
    """Return the rate at which the first update would have been USUAL, including the effect of momentum; None if there
    was no update, it was lost in rounding, or that rate is out of the usual range."""
    momentum = history.settings[0][1].momentum if history.settings else 0.0
    kept = 1 - momentum if 0 < momentum < 1 else 1.0
    for step in range(min(len(history), 10)):
        ratio, lr = history.value("update_ratio", step), history.value("lr", step)
        if math.isfinite(ratio) and ratio > 1e-6 and lr > 0:
            rate = float(f"{lr * kept * USUAL / ratio:.2g}")
            return rate if _LEAST <= rate <= _MOST else None
    return None


def is_another(rate: float, *others: float) -> bool:
    """Return whether a rate differs clearly from each of these and is not between any two of them."""
    return rate < min(others) / CLEARLY or rate > CLEARLY * max(others)


def lower(history: History, lr: float) -> tuple[str, ...]:
    """Return lower learning rates as remedies, the best-fitting first; none that is far from the best one."""
    fit = fitting_rate(history)
    rates = [rate for rate in (fit, lr / 10, lr / 100) if rate is not None and 0 < rate < min(lr / CLEARLY, _MOST)]
    rates = [rate for rate in rates if fit not in rates or fit / _FAR < rate < fit * _FAR]
    return tuple(dict.fromkeys(f"optimizer.lr={rate:.2g}" for rate in rates))
