"""A run's state in words: what the window says above the plots and the first thing that it says beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gradstudio.core.rules import Finding
from gradstudio.core.text import number, plural
from gradstudio.session import wording
from gradstudio.session.run import Run

WINDOW = 300  # steps that the words look back over

Tone = Literal["idle", "busy", "good", "warning", "bad"]


@dataclass(frozen=True)
class State:
    tone: Tone
    headline: str
    text: str


def describe(run: Run, parent: Run | None = None) -> State:
    """The state of a run as one headline and a sentence or two; `parent` is the one that it branched from."""
    state = _described(run)
    if parent is None or not run.own or state.tone == "bad":
        return state
    broke = parent.first_nonfinite_step
    fate = f" · its parent diverged at step {broke:,}" if broke is not None and broke >= run.parent_step else ""
    return replace(state, headline=f"{state.headline} · branch “{run.name or run.what_changed}”{fate}")


def _described(run: Run) -> State:
    count = len(run.history)
    if run.status == "ready":
        return State("idle", "Ready: press Run", _plan(run))
    if run.replayed is not None or (run.status == "starting" and run.parent):
        return State("busy", f"Going back to step {count:,}", _on_the_way(run, count))
    if run.status == "failed":
        kept = f" The {plural(count, 'measured step is', 'measured steps are')} kept." if count else ""
        return State("bad", f"Ended by an error at step {count:,}" if run.environment else "Could not start", run.message + kept)
    if count == 0 and run.status == "paused":
        return State("idle", "Paused before the first step", _plan(run))
    if count == 0 and run.over:
        cut_off = run.status == "interrupted"
        return State(
            "idle", f"{'Interrupted' if cut_off else 'Stopped'} before the first step", f"{wording.CUT_OFF.capitalize()}." if cut_off else _plan(run)
        )
    if count == 0:
        return State("busy", "Starting", "Loading PyTorch and the data, and building the model.")
    if run.first_nonfinite_step is not None:
        step = run.first_nonfinite_step
        row = run.history.row(step)
        broke = "a gradient is NaN or Inf" if row["nonfinite"] else "the weights are NaN or Inf"
        what = f"the loss is {number(row['loss'])}" if not np.isfinite(row["loss"]) else broke
        return State("bad", f"Diverged: {what} at step {step:,}", _before(run, step))
    worst, text = _critical(run), progress(run)
    if run.status == "finished":
        said = wording.measure(run.experiment).headline.format(wording.percent(run.accuracy)).replace(" %", "\u00a0%")
        accuracy = "" if run.accuracy is None else f": {said}"
        return State("bad", f"Finished, but not sound{accuracy}", text) if worst else State("good", f"Finished{accuracy}", text)
    if run.status == "stopped":
        return State("idle", f"Stopped after {plural(count, 'step', 'steps')}", text)
    if run.status == "interrupted":
        return State("idle", f"Interrupted at step {count:,}", f"{wording.CUT_OFF.capitalize()}. {text}")
    if run.status == "paused" and run.parent and not run.own:
        text = f"Everything is as it was before step {count:,} was made: change a knob and press Run, and a branch goes on from here."
        return State("idle", f"Back at step {count:,}", text + _not_the_same(run))
    if run.status == "paused":
        return State("idle", f"Paused after {plural(count, 'step', 'steps')}", text)
    return State("warning", f"{worst.title} since step {worst.first_step:,}", text) if worst else _trend(run)


def _on_the_way(run: Run, count: int) -> str:
    if not run.replayed:
        return "From the nearest snapshot, the steps after it are made again."
    return f"From the nearest snapshot, the steps after it are made again: {run.replayed:,} of {count:,}."


def _not_the_same(run: Run) -> str:
    if run.differs_at is None:
        return ""
    return f" This machine did not repeat the run to the last bit: step {run.differs_at:,} came out otherwise than when it was first made."


def progress(run: Run) -> str:
    """What the loss and the norms did over the last steps."""
    history = run.history
    start = max(len(history) - WINDOW, 0)
    losses, norms = history.column("loss", start), history.column("grad_norm", start)
    clipped = history.column("clipped_norm", start)
    norms, clipped = norms[np.isfinite(norms)], clipped[np.isfinite(clipped)]
    ends = _ends(losses)
    if ends is None:
        return "No step had a finite loss."
    text = f"Over the last {plural(len(losses), 'step', 'steps')} the loss went from {number(ends[0])} to {number(ends[1])}"
    if len(norms):
        text += f"; the gradient norm reached {number(norms.max())}"
    if len(norms) and len(clipped) and clipped.max() < norms.max():
        text += f", what the optimizer saw never exceeded {number(clipped.max())}"
    skipped = int(history.column("skipped", start).sum())
    return text + (f". The scaler skipped {plural(skipped, 'update', 'updates')}." if skipped else ".")


def _ends(losses: np.ndarray) -> tuple[float, float] | None:
    """Mean of the first and of the last tenth of the finite losses, or None without any."""
    finite = losses[np.isfinite(losses)]
    tenth = max(len(finite) // 10, 1)
    return (float(finite[:tenth].mean()), float(finite[-tenth:].mean())) if len(finite) else None


def _before(run: Run, step: int) -> str:
    """How far the run had come, and how the norm grew, up to the step where it broke."""
    losses, norms = run.history.column("loss", 0, step), run.history.column("grad_norm", max(step - 50, 0), step)
    if not np.isfinite(losses).any():
        return "No step before it had a finite loss."
    best = int(np.nanargmin(np.where(np.isfinite(losses), losses, np.nan)))
    text = f"The loss had come from {number(losses[0])} to {number(losses[best])} at step {best:,}."
    if not np.isfinite(norms).any():
        return text + " No gradient norm in the steps before was finite."
    low = int(np.nanargmin(norms))
    grown = norms[low:][np.isfinite(norms[low:])].max()
    return (
        text
        + f" In the {plural(len(norms) - low, 'step', 'steps')} before the end the gradient norm went from {number(norms[low])} to {number(grown)}."
    )


def _plan(run: Run) -> str:
    knobs = run.experiment
    network = wording.network(knobs)
    return (
        f"{network[0].upper()}{network[1:]} will learn {wording.task(knobs)}, with {wording.OPTIMIZERS[knobs.optimizer.kind]} "
        f"at a learning rate of {number(knobs.optimizer.lr)}, in {plural(knobs.run.steps, 'step', 'steps')}."
    )


def _trend(run: Run) -> State:
    """Whether the loss falls, by the figures that `progress` tells."""
    ends = _ends(run.history.column("loss", len(run.history) - WINDOW))
    text = progress(run)
    if len(run.history) < 40 or ends is None:
        return State("good", f"Training: step {len(run.history):,} of {run.experiment.run.steps:,}", text)
    if aim := wording.aim(run):
        return State("good", f"Training: {aim}", text)
    change, size = ends[1] - ends[0], abs(ends[0])
    if change < -0.02 * size:
        return State("good", "Training: the loss falls", text)
    return State("warning", "Training: the loss rises", text) if change > 0.05 * size else State("idle", "Training: the loss stands still", text)


def _critical(run: Run) -> Finding | None:
    return next((finding for finding in list(run.findings.values()) if finding.severity == "critical"), None)
