"""A training that was interrupted and is resumed in another process: the new run begins with the rows of the previous
one, like a branch."""

from __future__ import annotations

from dataclasses import replace

from gradstudio.core.events import Event
from gradstudio.core.text import LONGEST_TITLE, shorten
from gradstudio.session.record.own_steps import own_step
from gradstudio.session.record.run import Run


def extended_run(run: Run, parent: Run, step: int | None) -> Run:
    """Return a run that has no rows yet, preceded by the rows of another run before the script's own `step`; by all of
    them if the step is unknown. Rows after the first non-finite one are left out."""
    count = len(parent.history) if parent.first_nonfinite_step is None else parent.first_nonfinite_step
    if step is not None:
        count = next((row for row in range(count) if own_step(parent.history, row) >= step), count)
    history = parent.history.until(count)
    name = shorten(f"{parent.title}, on from step {own_step(history, count):,}", LONGEST_TITLE)
    return replace(
        run, name=name, parent=parent.id, parent_step=count, at_fork=run.experiment, history=history,
        ancestors={ancestor: min(end, count) for ancestor, end in parent.ancestors.items()} | {parent.id: count},
        events=[Event(count, "resumed", f"goes on from {parent.title}")],
        seconds=float(history.column("step_seconds").sum()),
    )  # fmt: skip
