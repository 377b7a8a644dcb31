"""The hint under a knob: its value compared with the run and with the other knobs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradstudio.core import mistakes
from gradstudio.core.experiment import BROUGHT, KNOBS, WHAT_IT_BRINGS, Experiment
from gradstudio.core.knobs import Condition, Knob, Value
from gradstudio.core.text import number, plural
from gradstudio.session.record.run import Run
from gradstudio.session.words.names import comparison

WINDOW = 500  # latest steps covered by a hint
ENOUGH = 50  # steps before a max_norm is advised
# Share of the steps that a sensible max_norm clips: it cuts the spikes and leaves the other steps unchanged.
OUTLIERS = 0.05
_SLOW_CONVOLUTION = (
    "on a CPU, torch has no fast backward pass for fp16 convolutions: steps took 20 to 350 times as long as in fp32; "
    "bf16 has one, and needs no loss scale"
)
_OF_LONG_GRADIENTS = {"exploding_gradient", "loss_spike", "updates_after_spike"}  # rules


class Hint(NamedTuple):
    text: str = ""
    grave: bool = False


def hint(name: str, requested: Experiment, run: Run) -> Hint:
    """Return the hint under the knob with this name; a mistake has one only while it is switched on."""
    if name.startswith("mistakes.") and requested[name]:
        return Hint(mistakes.note(name, requested))
    maker = _HINTS.get(name)
    return maker(requested, run) if maker else Hint()


def why_not(knob: Knob, requested: Experiment) -> str:
    """Return why a knob has no effect given the others."""
    if requested.studio_file is not None and knob.name in BROUGHT:
        return f"no effect: {requested.studio_file.name} brings its own {WHAT_IT_BRINGS[knob.section]}"
    return applies_to(knob)


def applies_to(knob: Knob) -> str:
    """Return the values of other knobs with which this one has an effect: 'applies to mlp, rnn', 'applies to fp16 with
    scaling dynamic'."""
    return "applies to " + "; or to ".join(_condition(knob, condition) for condition in knob.when)


def _condition(knob: Knob, condition: Condition) -> str:
    """Return one condition in words. The values of its first knob appear without its name, unless they are a kind of
    the knob's own section; the other knobs are named."""
    first, *others = condition.items()
    left_out = [choice for choice in KNOBS[first[0]].choices if choice not in first[1]]
    said = (
        f"every {first[0]} but {' and '.join(left_out)}"
        if 0 < len(left_out) < 3 < len(first[1])
        else ", ".join(map(str, first[1]))
    )
    if KNOBS[first[0]].kind == "int":
        said = f"{KNOBS[first[0]].field} {first[1][0]} to {first[1][-1]}"
    if first[0] == f"{knob.section}.kind" and knob.section not in said:
        said = f"kind {said}"
    more = " and ".join(_of_another(KNOBS[name], values) for name, values in others)
    return f"{said} with {more}" if more else said


def _of_another(knob: Knob, values: tuple[Value, ...]) -> str:
    if values == ("none",):
        return f"no {knob.label}"
    if {*knob.choices} - {*values} == {"none"}:
        return f"any {knob.label}"
    return f"{knob.label} {' or '.join(map(_as_text, values))}"


def _as_text(value: Value) -> str:
    return "on" if value is True else str(value)


def _accumulation(requested: Experiment, run: Run) -> Hint:
    batch, steps = requested.problem.batch_size, requested.accumulation.steps
    text = f"effective batch {batch} × {steps} = {batch * steps}"
    if run.not_compared:
        return Hint(f"{text}\n{run.not_compared}", grave=True)
    if not run.compared:
        return Hint(text)
    latest = run.compared[-1]
    return Hint(f"{text}\nstep {latest.step:,}: {comparison(latest, run.experiment)}", grave=not latest.alike)


def _share_clipped(requested: Experiment, run: Run) -> Hint:
    """Return what share of the last steps was clipped, as shown in the footer of the window; and what share the current
    limit would clip, if a different one was in force for some of them."""
    norms = run.history.column("grad_norm", len(run.history) - WINDOW)
    if not len(norms) or requested.clipping.kind != "norm":
        return Hint()
    clipping, limit = run.in_force.clipping, requested.clipping.max_norm
    share = told = f"{number(100 * share_over(run, limit), 2)} %"
    verb = "would clip"
    if (clipping.kind, clipping.max_norm) == ("norm", limit):
        verb, told = "clipped", f"{number(100 * share_clipped(run), 2)} %"
    text = f"{verb} {told} of the last {plural(len(norms), 'step', 'steps')}"
    # a mistake of the loop may clip another norm than the one that is shown
    if told != share and not run.in_force.mistakes.clips_elsewhere:
        text += f"; {number(limit)} in all of them would clip {share}"
    advised = advised_max_norm(run)
    if advised is not None and not 0.8 < advised / limit < 1.25:
        text += f"; {number(advised)} would clip {number(100 * share_over(run, advised), 2)} %"
    return Hint(text)


def share_clipped(run: Run, stop: int | None = None) -> float:
    """Return the share of clipped steps among the last ones, or among the last before `stop`."""
    stop = len(run.history) if stop is None else stop
    coefficients = run.history.column("clip_coef", max(stop - WINDOW, 0), stop)
    return float(np.count_nonzero(coefficients < 1) / len(coefficients)) if len(coefficients) else 0.0


def share_over(run: Run, limit: float) -> float:
    """Return the share of the last steps whose gradient norm is above a limit, or non-finite."""
    norms = run.history.column("grad_norm", len(run.history) - WINDOW)
    return float((~(norms <= limit)).mean()) if len(norms) else 0.0


def advised_max_norm(run: Run) -> float | None:
    """Return the max_norm that would have clipped a share of OUTLIERS of the last steps; None if there are too few
    steps."""
    norms = run.history.column("grad_norm", len(run.history) - WINDOW)
    norms = np.sort(np.where(np.isnan(norms), np.inf, norms))
    if len(norms) < ENOUGH:
        return None
    limit = float(norms[int((1 - OUTLIERS) * (len(norms) - 1))])
    return float(f"{limit:.2g}") if 0 < limit < 1e30 else None


def clipping_in_question(run: Run) -> bool:
    """Return whether a finding of the run concerns a gradient that clipping limits, or offers clipping as a remedy."""
    findings = dict(run.findings)
    return not findings.keys().isdisjoint(_OF_LONG_GRADIENTS) or any(
        remedy.startswith("clipping.") for finding in findings.values() for remedy in finding.remedies
    )


def _warmup(requested: Experiment, run: Run) -> Hint:
    steps = requested.schedule.warmup_steps
    return Hint(f"lr is {number(requested.optimizer.lr / steps)} at the first step" if steps > 1 else "")


def _dtype(requested: Experiment, run: Run) -> Hint:
    device = requested.run.device
    return Hint(slow_format(requested, run.environment.get("device", "cpu") if device == "auto" else device))


def slow_format(requested: Experiment, device: str) -> str:
    """Return why steps in this number format take far longer than in fp32, "" if no such reason is known."""
    slow = requested.precision.dtype == "fp16" and requested.model.kind == "cnn" and requested.studio_file is None
    return _SLOW_CONVOLUTION if slow and device == "cpu" else ""


_HINTS = {
    "accumulation.steps": _accumulation, "clipping.max_norm": _share_clipped, "precision.dtype": _dtype,
    "schedule.warmup_steps": _warmup,
}  # fmt: skip
