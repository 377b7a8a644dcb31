"""The story of a run: the headline, the paragraph of a report, the lines for a terminal."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gradstudio.core.knobs import value_text
from gradstudio.core.row import loss_broke
from gradstudio.core.task_measures import has_test_set, measure
from gradstudio.core.text import number, one_line, percent, plural
from gradstudio.core.unknown import is_known
from gradstudio.session.record.own_steps import in_own_steps
from gradstudio.session.record.ranked_findings import ranked_findings
from gradstudio.session.record.run import MOST_ALIKE, Run
from gradstudio.session.record.run_figures import Figures, count_of, figures, skipped_batches
from gradstudio.session.record.run_outcome import is_critical
from gradstudio.session.record.watched_script import WatchedScript
from gradstudio.session.running.investigation import heading, sentence
from gradstudio.session.words import names
from gradstudio.session.words.run_state import outcome


def headline(run: Run) -> str:
    """Return how the run ended, in half a sentence."""
    return in_own_steps(run, _headline(run))


def _headline(run: Run) -> str:
    steps = plural(len(run.history), "step", "steps")
    if run.status == "nonfinite":
        return f"diverged at step {run.first_nonfinite_step}"
    if run.status == "failed":
        return "refused" if run.refused else f"failed after {steps}"
    if run.status == "finished":
        return f"finished {steps}, but training was unhealthy" if is_critical(run) else f"finished {steps}"
    if run.status == "interrupted":
        return f"interrupted after {_of_all(run)}: {names.CUT_OFF}"
    if not run.over:
        return f"still training, {steps} so far"
    return f"stopped after {_of_all(run)}"


def _of_all(run: Run) -> str:
    """Return how many steps were made, and of how many if that is known."""
    if run.watched is not None:
        return plural(len(run.history), "step", "steps")
    return f"{len(run.history):,} of {plural(run.experiment.run.steps, 'step', 'steps')}"


def tone(run: Run) -> Literal["good", "bad", "warning"]:
    """Return whether the run ended well."""
    if is_critical(run):
        return "bad"
    tone = outcome(run).tone
    return "warning" if tone in ("dim", "accent") else tone


def tell(run: Run) -> str:
    """Return the course of the run in a paragraph."""
    parts = (_setup, _branch, _mistakes, _changes, _loss, _norm, _clipping, _describe_skips, _describe_comparison, _end)
    told = " ".join(told for part in parts if (told := part(run))).replace(" %", "\u00a0%")
    return in_own_steps(run, told)


def _setup(run: Run) -> str:
    if run.watched is not None:
        return _describe_script(run.watched)
    knobs = run.experiment
    network, device = names.network(knobs), run.environment.get("device", "")
    where = f" on {device}" if device else ""
    by_hand = "" if knobs.loss.kind == "auto" else f", under a loss written by hand ({knobs.loss.kind})"
    return (
        f"{network[0].upper()}{network[1:]} was trained on {names.task(knobs)} with "
        f"{names.OPTIMIZERS[knobs.optimizer.kind]} at a learning rate of {value_text(knobs.optimizer.lr)}{by_hand}, "
        f"in {knobs.precision.dtype}{where}, with "
        f"seed {knobs.run.seed}."
    )


def _describe_script(script: WatchedScript) -> str:
    """Return a description of the watched script."""
    if script.log:
        return f"The training was read from the log {script.script}."
    facts = "; ".join(f"{name}: {text}" for name, text in script.facts)
    every = f" One of {script.every} steps is recorded, and steps are counted in rows." if script.every > 1 else ""
    return f"The training of {script.script or 'a program'} was watched ({facts}).{every}"


def _branch(run: Run) -> str:
    if not run.parent:
        return ""
    return (
        f"It is a branch: it continues from step {run.parent_step:,} of the run {run.parent}, with {run.what_changed}."
    )


def _mistakes(run: Run) -> str:
    made = [f"{name}{f' ({note})' if note else ''}" for name, note in names.active_mistakes(run).items()]
    return f"{'A mistake was' if len(made) == 1 else 'Mistakes were'} switched on: {'; '.join(made)}." if made else ""


def _changes(run: Run) -> str:
    changes = run.changes
    if not changes:
        return ""
    texts = [
        f"{event.knob} changed from {value_text(event.before)} to {value_text(event.value)} at step {event.step}"
        for event in changes[:3]
    ]
    more = f", and {len(changes) - 3} more changes were made" if len(changes) > 3 else ""
    return f"During the run {', '.join(texts)}{more}."


def _loss(run: Run) -> str:
    loss = run.history.column("loss")
    if not len(loss):
        return ""
    first, last = number(loss[0]), number(loss[-1])
    step = run.first_nonfinite_step
    if step is None:
        best = figures(run).best_loss
        low = f", with {number(best)} as its lowest value" if best is not None and best < loss[-1] else ""
        return f"The loss went from {first} to {last} in {plural(len(loss), 'step', 'steps')}{low}."
    if loss_broke(loss[step]):
        before = f"began at {first}, was {number(loss[step - 1])} at step {step - 1}, and" if step else "itself"
        return f"The loss {before} became {number(loss[step])} at step {step}."
    counted = run.history.row(step)["nonfinite"]
    rest = f"with the loss still at {number(loss[step])}" if is_known(loss[step]) else "with a loss that is not known"
    entries = plural(int(counted), "gradient entry", "gradient entries") if run.history.layers else "the gradient norm"
    return f"The loss began at {first}; at step {step}, {rest}, {entries} became NaN or Inf and reached the weights."


def _norm(run: Run) -> str:
    broke = run.first_nonfinite_step
    norm = run.history.column("grad_norm", 0, None if broke is None else broke + 1)
    finite = np.flatnonzero(np.isfinite(norm))
    if not len(finite):
        return "No gradient norm was ever finite." if len(norm) else ""
    peak = int(finite[np.argmax(norm[finite])])
    overflowed = len(norm) - len(finite)
    lost = f"; in {plural(overflowed, 'step', 'steps')} it was not finite" if overflowed else ""
    if len(finite) == 1:
        return f"The gradient norm was {number(norm[peak])} at step {peak}{lost}."
    return (
        f"The gradient norm before clipping had a median of {number(float(np.median(norm[finite])))} and a peak of "
        f"{number(norm[peak])} at step {peak}{lost}."
    )


def _clipping(run: Run) -> str:
    share = figures(run).clipped_share
    if not share:
        return ""
    return f"Clipping shortened the gradient in {number(100 * share, 2)} % of the steps."


def _describe_skips(run: Run) -> str:
    skipped = figures(run).skipped_steps
    if not skipped:
        return ""
    return (
        f"The loss scaler skipped {plural(skipped, 'update', 'updates')}; the scale ended at "
        f"{loss_scale(figures(run).final_scale)}."
    )


def _describe_comparison(run: Run) -> str:
    told = [f"{names.comparison(compared, run.experiment)} at step {compared.step:,}" for compared in run.compared[:3]]
    more = f", and {len(run.compared) - 3} more were measured" if len(run.compared) > 3 else ""
    return (
        f"The accumulated gradient was compared with that of one large batch: {'; '.join(told)}{more}." if told else ""
    )


def _end(run: Run) -> str:
    if run.status == "failed":
        return f"The run could not go on: {run.message.rstrip('.')}."
    if run.status == "interrupted":
        return (
            "The program ended while it trained. The rows that were measured by then, except at most the last second, "
            f"are kept{'' if run.watched else ', and the run can be repeated'}."
        )
    if run.accuracy is None:
        return ""
    if not np.isfinite(run.accuracy):
        return "The weights are not finite, so the model has no test accuracy."
    return measure(run.experiment).story.format(percent(run.accuracy))


def loss_scale(scale: float | None) -> str:
    """Return a loss scale, as a whole number if it is one: 65,536."""
    return f"{scale:,.0f}" if scale is not None and scale == round(scale, 3) and 1 <= scale < 1e7 else number(scale)


def _gradient(run: Run, summary: Figures) -> str:
    if summary.peak_grad_norm is None and run.watched is not None and run.watched.log:
        return "norm not in the log"
    return f"norm up to {number(summary.peak_grad_norm)}, {_describe_clipping(run, summary)}"


def _describe_clipping(run: Run, summary: Figures) -> str:
    """Return how many of the steps were clipped; if none was, whether clipping was on at all."""
    if summary.clipped_share or any(settings.clipping != "none" for _, settings in run.history.settings):
        return f"clipped in {percent(summary.clipped_share)} of the steps"
    if run.watched is not None and run.watched.log:
        return "clipping not known"
    return "clipping off" if run.history.settings else "not clipped"


def _accuracy_line(run: Run, accuracy: float | None) -> list[str]:
    if run.watched is not None or not has_test_set(run.experiment):
        return []
    if accuracy != accuracy:
        return ["  accuracy   none: the weights are not finite"]
    return [f"  accuracy   {percent(accuracy)} {measure(run.experiment).label}"]


def in_words(run: Run) -> str:
    """Return the outcome as a few lines of text for a terminal."""
    values = figures(run)
    lines = [
        f"{one_line(run.title)}: {headline(run)}",
        f"  loss       {number(values.initial_loss)} -> {number(values.final_loss)} (best {number(values.best_loss)})",
        *_accuracy_line(run, values.accuracy),
        f"  gradient   {_gradient(run, values)}",
    ]
    if run.parent:
        lines.insert(1, f"  branch     of {run.parent} from step {run.parent_step:,}: {run.what_changed}")
    if run.in_force.precision.dtype == "fp16" or values.skipped_steps:
        skipped = values.skipped_steps
        told = "updates skipped: not known" if skipped is None else f"{plural(skipped, 'update', 'updates')} skipped"
        lines.append(f"  scale      {loss_scale(values.final_scale)} at the end, {told}")
    if batches := skipped_batches(run):
        more = " or more" * (len(batches) == MOST_ALIKE)
        count = plural(count_of(batches), "batch", "batches") + more
        lines.append(f"  skipped    {count}; before step {batches[0].step:,} {batches[0].text}")
    for compared in run.compared:
        lines.append(f"  compared   step {compared.step:,}: {names.comparison(compared, run.experiment)}")
    if run.not_compared:
        lines.append(f"  compared   {run.not_compared}")
    for name, note in names.active_mistakes(run).items():
        lines.append(f"  mistake    {name}{f': {note}' if note else ''}")
    if run.watched is None or not run.watched.log:
        device = run.environment.get("device", "no device")
        lines.append(f"  time       {number(values.seconds)} s in {plural(values.steps, 'step', 'steps')} on {device}")
    if run.provenance is not None:
        lines += ["", f"{heading(run.provenance)}: {sentence(run.provenance)}"]
    for finding in ranked_findings(run):  # whose steps already have the script's numbers
        lines += ["", f"{finding.severity}: {finding.title}, {finding.when}", f"  {finding.evidence}"]
        if finding.severity != "info":
            lines.append(f"  {finding.meaning}")
        if finding.remedies:
            said = "change in the script" if run.watched else "try"
            lines.append(f"  {said}: {', or '.join(finding.remedies)}")
    return "\n".join(lines)
