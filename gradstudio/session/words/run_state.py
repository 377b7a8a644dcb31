"""The state of a run in words: the headline above the plots, and the sentence or two under it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gradstudio.core.diagnosis.finding import Finding
from gradstudio.core.history import LOOK_EVERY
from gradstudio.core.row import loss_broke
from gradstudio.core.task_measures import measure
from gradstudio.core.text import number, percent, plural
from gradstudio.session import own_model
from gradstudio.session.record.own_steps import differ, in_own_steps
from gradstudio.session.record.run import Run
from gradstudio.session.running.slow_step import longest_step, slow_step
from gradstudio.session.running.worker import thread_of
from gradstudio.session.words import names
from gradstudio.session.words.outcome_words import LEARNS_NOTHING, OUTCOMES, UNHEALTHY, Outcome, Tone, outcome_key

WINDOW = 300  # latest steps covered by the text
_GROWN = 10.0  # factor within which a gradient norm may vary without counting as growth


@dataclass(frozen=True)
class State:
    tone: Tone
    headline: str
    text: str


def outcome(run: Run) -> Outcome:
    """Return the word for the outcome of a run so far, and its colour."""
    return OUTCOMES[_key(run)]


def _key(run: Run) -> str:
    return outcome_key(run.status, [(finding.rule, finding.severity) for finding in list(run.findings.values())])


def describe(run: Run, parent: Run | None = None) -> State:
    """Return the state of a run as a headline and a sentence or two; `parent` is the run that it branched from."""
    state = _describe(run)
    if parent is None or not run.own or state.tone == "bad":
        return state
    broke = parent.first_nonfinite_step
    fate = f" · its parent diverged at step {broke:,}" if broke is not None and broke >= run.parent_step else ""
    return replace(state, headline=f"{state.headline} · branch “{run.name or run.default_name}”{fate}")


def _describe(run: Run) -> State:
    waits = _unheard(run) or _in_a_slow_step(run) or _before_training(run)
    state = waits or _ended_badly(run) or _over(run) or _in_training(run)
    if not differ(run.history):
        return state
    return replace(state, headline=in_own_steps(run, state.headline), text=in_own_steps(run, state.text))


def _unheard(run: Run) -> State | None:
    """Return the state of a run whose worker is silent, which may be stopped, or in code that blocks it."""
    if not run.unheard or run.over:
        return None
    if math.isinf(run.unheard):
        return State(
            "warning", "Followed no more", "Nothing leads to where it trains. It may go on there: open it again."
        )
    text = "Its rows come as soon as it speaks again. Stop ends it, and its snapshots go with it."
    return State("warning", f"No word from the worker for {run.unheard:,.0f} s", text)


def _in_a_slow_step(run: Run) -> State | None:
    """Return the state of a run whose current step takes far longer than those before it, or does not end."""
    seconds = slow_step(run)
    if seconds is None or run.step_now is None or run.first_nonfinite_step is not None:
        return None
    step, longest = run.step_now[0], longest_step(run)
    if run.watched is not None:
        text = f"The script has made no step after the {plural(step, 'row', 'rows')} that are there"
    else:
        text = f"Step {step:,} has not ended yet"
    at = run.at_line or own_model.line_now(run.experiment, thread_of(run))
    count = min(LOOK_EVERY, len(run.history))
    which = f"longest of the latest {count} rows" if count > 1 else "latest row"
    before = f"; the {which} took {number(longest)} s" if longest else ""
    return State("warning", f"No step for {seconds:,.0f} s", f"{text}{before}.{at}")


def _before_training(run: Run) -> State | None:
    """Return the state of a run that has not begun, is on its way to a step, or has no row yet."""
    count = len(run.history)
    if run.status == "ready":
        return State("dim", "Ready: press Run", _plan(run))
    if run.replayed is not None or (run.status == "starting" and run.parent):
        return State("dim", f"Rewinding to step {count:,}", _on_the_way(run, count))
    if count or run.status == "failed":
        return None
    if run.status == "paused":
        return State("dim", "Paused before the first step", _plan(run))
    if run.status == "interrupted":
        return State("warning", "Interrupted before the first step", f"{names.CUT_OFF.capitalize()}.")
    if run.over:
        return State("dim", "Stopped before the first step", _plan(run))
    return State("dim", "Starting", "Loading PyTorch and the data, and building the model.")


def _ended_badly(run: Run) -> State | None:
    """Return the state of a run that failed or diverged."""
    count, step = len(run.history), run.first_nonfinite_step
    if run.status == "failed":
        kept = f" The {plural(count, 'measured step is', 'measured steps are')} kept." if count else ""
        headline = f"Ended by an error at step {count:,}" if run.environment else "Could not start"
        return State("bad", headline, run.message.rstrip(".") + "." + kept)
    if step is None:
        return None
    row = run.history.row(step)
    broke = f"NaN or Inf in {'a gradient' if row['nonfinite'] else 'the weights'}"
    what = f"the loss is {number(row['loss'])}" if loss_broke(row["loss"]) else broke
    return State("bad", f"Diverged: {what} at step {step:,}", _before(run, step))


def _over(run: Run) -> State | None:
    """Return the state of a run that finished, was stopped or was interrupted, with finite weights."""
    count = len(run.history)
    if run.status == "stopped":
        return State("dim", f"Stopped after {plural(count, 'step', 'steps')}", progress(run))
    if run.status == "interrupted":
        return State("warning", f"Interrupted at step {count:,}", f"{names.CUT_OFF.capitalize()}. {progress(run)}")
    if run.status != "finished":
        return None
    said = measure(run.experiment).headline.format(percent(run.accuracy)).replace(" %", "\u00a0%")
    accuracy = "" if run.accuracy is None else f": {said}"
    but = {UNHEALTHY: ", but unhealthy", LEARNS_NOTHING: ", but learned nothing"}.get(_key(run), "")
    return State(outcome(run).tone, f"Finished{but}{accuracy}", progress(run))


def _in_training(run: Run) -> State:
    """Return the state of a run that is training or paused."""
    count, worst = len(run.history), _critical(run)
    if run.status == "paused" and run.parent and not run.own:
        text = (
            f"Everything is as it was before step {count:,}: change a knob and press Run, and a branch continues "
            "from here."
        )
        return State("dim", f"Rewound to step {count:,}", text + _not_the_same(run))
    if run.status == "paused":
        return State("dim", f"Paused after {plural(count, 'step', 'steps')}", progress(run))
    if worst:
        return State("bad", f"{worst.title} since step {worst.first_step:,}", progress(run))
    return _trend(run)


def _on_the_way(run: Run, count: int) -> str:
    if not run.replayed:
        return "The steps after the nearest snapshot are made again."
    return f"The steps after the nearest snapshot are made again: {run.replayed:,} of {count:,}."


def _not_the_same(run: Run) -> str:
    if run.differs_at is None:
        return ""
    return (
        f" This machine did not repeat the run to the last bit: the loss of step {run.differs_at:,} is not the one "
        "that "
        "was measured first."
    )


def progress(run: Run) -> str:
    """Return the course of the loss and the gradient norms over the last steps."""
    history = run.history
    start = max(len(history) - WINDOW, 0)
    losses, norms = history.column("loss", start), history.column("grad_norm", start)
    clipped = history.column("clipped_norm", start)
    norms, clipped = norms[np.isfinite(norms)], clipped[np.isfinite(clipped)]
    ends = _ends(losses)
    if ends is None:
        return "No step had a finite loss."
    text = (
        f"Over the last {plural(len(losses), 'step', 'steps')} the loss went from {number(ends[0])} to "
        f"{number(ends[1])}"
    )
    if len(norms):
        text += f"; the gradient norm reached {number(norms.max())}"
    if len(norms) and len(clipped) and clipped.max() < norms.max():
        text += f", after clipping {number(clipped.max())}"
    skipped = int((history.scaler_skips(start) == 1).sum())
    left_out = int((history.column("skipped", start) == 1).sum()) - skipped
    text += f". The scaler skipped {plural(skipped, 'update', 'updates')}" if skipped else ""
    return text + (f". {plural(left_out, 'update was', 'updates were')} left out." if left_out else ".")


def _ends(losses: np.ndarray) -> tuple[float, float] | None:
    """Return the means of the first and of the last tenth of the finite losses; None if there are none."""
    finite = losses[np.isfinite(losses)]
    tenth = max(len(finite) // 10, 1)
    return (float(finite[:tenth].mean()), float(finite[-tenth:].mean())) if len(finite) else None


def _before(run: Run, step: int) -> str:
    """Return how far the loss had come, and how the gradient norm grew, before the run diverged."""
    losses, norms = run.history.column("loss", 0, step), run.history.column("grad_norm", max(step - 50, 0), step)
    if step == 0:
        return "It happened at the first step."
    if not np.isfinite(losses).any():
        return "No step before it had a finite loss."
    best = int(np.nanargmin(np.where(np.isfinite(losses), losses, np.nan)))
    text = (
        f"The loss had fallen from {number(losses[0])} to {number(losses[best])} at step {best:,}."
        if losses[best] < losses[0]
        else f"The loss was {number(losses[0])} at the first step, and never lower after it."
    )
    if not np.isfinite(norms).any():
        return text + " No gradient norm in the 50 steps before was finite."
    low = int(np.nanargmin(norms))
    grown = norms[low:][np.isfinite(norms[low:])].max()
    if grown > _GROWN * norms[low]:
        before, told = len(norms) - low, f"went from {number(norms[low])} to {number(grown)}"
    else:
        least, most = number(norms[low]), number(norms[np.isfinite(norms)].max())
        before, told = len(norms), f"was between {least} and {most}" if least != most else f"was {most}"
    return text + f" In the {plural(before, 'step', 'steps')} before it diverged the gradient norm {told}."


def _plan(run: Run) -> str:
    knobs = run.experiment
    network = names.network(knobs)
    return (
        f"{network[0].upper()}{network[1:]} will learn {names.task(knobs)}, with "
        f"{names.OPTIMIZERS[knobs.optimizer.kind]} "
        f"at a learning rate of {number(knobs.optimizer.lr)}, in {plural(knobs.run.steps, 'step', 'steps')}."
    )


def _trend(run: Run) -> State:
    """Return whether the loss falls, by the same figures as in `progress`."""
    ends = _ends(run.history.column("loss", len(run.history) - WINDOW))
    text = progress(run)
    if run.watched is not None and (len(run.history) < 40 or ends is None):
        return State("good", f"Training: step {len(run.history):,}", text)
    if len(run.history) < 40 or ends is None:
        return State("good", f"Training: step {len(run.history):,} of {run.experiment.run.steps:,}", text)
    if run.watched is None and (aim := names.aim(run)):
        return State("good", f"Training: {aim}", text)
    change, size = ends[1] - ends[0], abs(ends[0])
    if change < -0.02 * size:
        return State("good", "Training: the loss falls", text)
    return (
        State("warning", "Training: the loss rises", text)
        if change > 0.05 * size
        else State("dim", "Training: the loss is on a plateau", text)
    )


def _critical(run: Run) -> Finding | None:
    return next((finding for finding in list(run.findings.values()) if finding.severity == "critical"), None)
