"""What stands under a knob: its value, held against the run."""

from __future__ import annotations

from gradstudio.core.experiment import Experiment
from gradstudio.core.text import number
from gradstudio.session.run import Run

WINDOW = 500


def hint(name: str, requested: Experiment, run: Run) -> str:
    """A line for the knob of that name, or nothing."""
    maker = _HINTS.get(name)
    return maker(requested, run) if maker else ""


def _effective_batch(requested: Experiment, run: Run) -> str:
    batch, steps = requested.problem.batch_size, requested.accumulation.steps
    return f"effective batch {batch} × {steps} = {batch * steps}"


def _share_clipped(requested: Experiment, run: Run) -> str:
    norms = run.history.column("grad_norm", len(run.history) - WINDOW)
    if not len(norms) or requested.clipping.kind != "norm":
        return ""
    share = float((norms > requested.clipping.max_norm).mean())
    clipping = run.in_force.clipping
    verb = "clips" if (clipping.kind, clipping.max_norm) == ("norm", requested.clipping.max_norm) else "would clip"
    return f"{verb} {number(100 * share, 2)} % of the last {len(norms)} steps"


def _warmup(requested: Experiment, run: Run) -> str:
    steps = requested.schedule.warmup_steps
    return f"lr is {number(requested.optimizer.lr / steps)} at the first step" if steps > 1 else ""


_HINTS = {"accumulation.steps": _effective_batch, "clipping.max_norm": _share_clipped, "schedule.warmup_steps": _warmup}
