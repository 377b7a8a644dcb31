"""The news in the row of a step besides its figures, in words, and the columns that plug-ins add to it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from gradstudio.core import plugins
from gradstudio.core.events import Kind
from gradstudio.core.row import Logged, Row, loss_broke
from gradstudio.core.sections.task_knobs import Problem
from gradstudio.core.text import number


def divergence(row: Row, *, of_log: bool) -> str:
    """Return which part of a row is non-finite; a log has no single entries."""
    if loss_broke(row.loss):
        return f"loss is {number(row.loss)}"
    return f"gradient norm is {number(row.grad_norm)}" if of_log else f"{row.nonfinite} gradient entries are NaN or Inf"


def skip_reason(row: Row, *, in_script: bool) -> str:
    """Return why the update of a row was skipped."""
    if math.isfinite(row.loss) and not row.nonfinite:
        # at the user's request; for a script the notice says why
        return f"update left out{'' if in_script else f': a spike, gradient norm {number(row.grad_norm)}'}"
    overflow = f"overflow at scale {row.scale:g}" if row.scale != 1 else "the gradient is not finite"
    return f"{f'loss is {number(row.loss)}' if loss_broke(row.loss) else overflow}: update skipped"


def comparison(difference: float) -> str:
    return f"accumulated gradient and large batch differ by {number(difference, 2)} (relative norm)"


def of_batch(problem: Problem, step: int) -> Iterator[tuple[Kind, str]]:
    """Yield what happens to the batch of a step."""
    batch = step + problem.skip_batches
    if problem.outlier_every and batch and batch % problem.outlier_every == 0:
        yield "outlier", f"batch replaced by noise of deviation {problem.outlier_scale:g}"
    if problem.nan_every and batch and batch % problem.nan_every == 0:
        yield "nan_batch", "a NaN is in the batch"


def with_columns(row: Row, place: int, gauges: tuple[tuple[str, float], ...]) -> Row:
    """Return the run's row at this position with the columns of plug-ins, and these gauges of theirs."""
    columns = list(gauges)
    for name in plugins.names("columns"):
        value = plugins.attempt("columns", name, lambda name=name: float(plugins.get("columns", name)(row)))
        if value is not None:
            columns.append((name, value))
    logged = tuple(Logged(place, name, value) for name, value in columns)
    return replace(row, logged=(*row.logged, *logged)) if logged else row
