"""What a curve shows, in words, for a person who listens to it: its last, smallest and largest value, and how many of
its values are not finite. Every number is of the run, and every sentence names the steps that it is about."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradstudio.core.history import History
from gradstudio.core.text import number, percent, plural

# Columns of the history as a curve is called. Those that are not here are told by the plot's own reading.
CURVES: dict[str, str] = {
    "loss": "loss",
    "grad_norm": "gradient norm",
    "clipped_norm": "norm after clipping",
    "lr": "learning rate",
    "scale": "loss scale",
    "test_accuracy": "accuracy on the test set",
    "head_cosine": "cosine at the head",
    "clip_cosine": "cosine of clipping",
    "update_cosine": "cosine of the update",
}
SHARES = {"test_accuracy"}


def column_words(history: History, names: tuple[str, ...], stop: int) -> str:
    """Return the words for some columns of a history before the step `stop`; "" where none of them was measured."""
    told = (
        curve_words(CURVES[name], *history.measured(name, 0, stop), percent if name in SHARES else number)
        for name in names
        if name in CURVES
    )
    return " ".join(filter(None, told))


def curve_words(name: str, steps: np.ndarray, values: np.ndarray, told: Callable[[float], str] = number) -> str:
    """Return the words for one curve: `values`, shape (n,), measured at `steps`, shape (n,), ascending. `told` writes a
    value. "" where nothing was measured."""
    if not len(values):
        return ""
    parts = [f"{name} {told(float(values[-1]))} at step {int(steps[-1]):,}"]
    finite = np.isfinite(values)
    rows = np.flatnonzero(finite)
    if len(rows) and len(values) > 1:
        least, most = rows[np.argmin(values[rows])], rows[np.argmax(values[rows])]
        if values[least] == values[most]:
            parts.append("always the same" if len(rows) == len(values) else "the same wherever it is finite")
        else:
            parts.append(f"smallest {told(float(values[least]))} at step {int(steps[least]):,}")
            parts.append(f"largest {told(float(values[most]))} at step {int(steps[most]):,}")
    if len(rows) < len(values):
        broken = plural(len(values) - len(rows), "value is", "values are")
        parts.append(f"{broken} NaN or Inf, first at step {int(steps[np.argmin(finite)]):,}")
    return f"{', '.join(parts)}."
