"""A run in a dozen figures: how it ended, its loss, accuracy and gradient norm, what was clipped and skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gradstudio.core.events import Event
from gradstudio.core.unknown import is_known, known_mask
from gradstudio.session.record.own_steps import own_step
from gradstudio.session.record.run import Run


@dataclass(frozen=True)
class Figures:
    """A run in figures. NaN and Inf appear as measured; None means not measured."""

    outcome: str
    steps: int
    first_nonfinite_step: int | None
    initial_loss: float | None
    final_loss: float | None
    best_loss: float | None
    accuracy: float | None
    peak_grad_norm: float | None
    clipped_share: float | None
    skipped_steps: int | None
    final_scale: float | None
    seconds: float | None


def figures(run: Run) -> Figures:
    """Return the figures of a run so far. best_loss and peak_grad_norm are the extremes of the finite values, up to the
    step at which the run diverged."""
    history, count = run.history, len(run.history)  # a run that is still training grows between two columns
    loss, norm = history.column("loss", 0, count), history.column("grad_norm", 0, count)
    broke_at = run.first_nonfinite_step
    broke = count if broke_at is None else broke_at + 1  # a watched script may continue
    clip_coef, scale = history.column("clip_coef", 0, count), history.column("scale", 0, count)
    return Figures(
        outcome=run.status if run.over else "stopped",
        steps=len(loss),
        first_nonfinite_step=broke_at if broke_at is None else own_step(history, broke_at),
        initial_loss=_number(loss[:1]),
        final_loss=_number(loss[-1:]),
        best_loss=_extreme(np.min, loss[:broke]),
        accuracy=run.accuracy,
        peak_grad_norm=_extreme(np.max, norm[:broke]),
        clipped_share=float((clip_coef < 1).mean()) if known_mask(clip_coef).any() else None,
        skipped_steps=_count(history.column("skipped", 0, count)),
        final_scale=_number(scale[-1:]),
        seconds=run.seconds if run.seconds == run.seconds else None,
    )


def skipped_batches(run: Run) -> list[Event]:
    """Return the non-finite batches that a watched script has skipped: the first MOST_ALIKE."""
    return [event for event in run.events if event.kind == "nan_batch"] if run.watched is not None else []


def count_of(skipped: Sequence[Event]) -> int:
    """Return how many batches these events cover: one in a row with others is reported with them."""
    return sum(event.value if isinstance(event.value, int) else 1 for event in skipped)


def _number(value: np.ndarray) -> float | None:
    """Return a number that was measured; None for an unknown or missing one."""
    return float(value[0]) if len(value) and is_known(float(value[0])) else None


def _count(marks: np.ndarray) -> int | None:
    """Return how often a mark was set; None if it was never observed."""
    return int(marks.sum()) if known_mask(marks).all() else None


def _extreme(pick: Callable[[np.ndarray], np.floating], values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(pick(finite)) if len(finite) else None
