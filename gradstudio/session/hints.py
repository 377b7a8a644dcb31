"""What stands under a knob: its value, held against the run and against the other knobs."""

from __future__ import annotations

from typing import NamedTuple

from gradstudio.core import mistakes
from gradstudio.core.experiment import KNOBS, Experiment
from gradstudio.core.knobs import Condition, Knob
from gradstudio.core.text import number
from gradstudio.session.run import Run
from gradstudio.session.wording import percent

WINDOW = 500
# Relative; an accumulated gradient that is further from the joined batch's is another gradient. Ten times what rounding was measured to do.
ALIKE = {"fp32": 1e-3, "fp16": 1e-2, "bf16": 5e-2}


class Hint(NamedTuple):
    text: str = ""
    grave: bool = False


def hint(name: str, requested: Experiment, run: Run) -> Hint:
    """What there is to say under the knob of that name; of a mistake only while it is switched on."""
    if name.startswith("mistakes.") and requested[name]:
        return Hint(mistakes.note(name, requested))
    maker = _HINTS.get(name)
    return maker(requested, run) if maker else Hint()


def applies_to(knob: Knob) -> str:
    """Beside which values of other knobs this one has an effect: 'applies to mlp, rnn', 'applies to fp16 with scaling dynamic'."""
    return "applies to " + "; or to ".join(_condition(knob, condition) for condition in knob.when)


def _condition(knob: Knob, condition: Condition) -> str:
    """The values of the first knob say by themselves what they are, but for a kind of the knob's own section; those of the others are named."""
    first, *others = condition.items()
    left_out = [choice for choice in KNOBS[first[0]].choices if choice not in first[1]]
    said = f"every {first[0]} but {' and '.join(left_out)}" if 0 < len(left_out) < 3 < len(first[1]) else ", ".join(map(str, first[1]))
    if first[0] == f"{knob.section}.kind" and knob.section not in said:
        said = f"kind {said}"
    more = " and ".join(f"{KNOBS[name].label} {' or '.join(map(str, values))}" for name, values in others)
    return f"{said} with {more}" if more else said


def _accumulation(requested: Experiment, run: Run) -> Hint:
    batch, steps = requested.problem.batch_size, requested.accumulation.steps
    text = f"effective batch {batch} × {steps} = {batch * steps}"
    if not run.compared:
        return Hint(text)
    step, difference = run.compared[-1]
    knobs = run.in_force
    if difference <= ALIKE[knobs.precision.dtype]:
        return Hint(f"{text}\nstep {step:,}: equal to the joined batch within {number(difference, 2)}")
    share = number(difference) if difference != difference else f"by {percent(difference)}"
    why = ", as batch norm sees each micro-batch by itself" if knobs.applies("model.norm") and knobs.model.norm == "batch" else ""
    return Hint(f"{text}\nstep {step:,}: differs from the joined batch {share}{why}", grave=True)


def _share_clipped(requested: Experiment, run: Run) -> Hint:
    norms = run.history.column("grad_norm", len(run.history) - WINDOW)
    if not len(norms) or requested.clipping.kind != "norm":
        return Hint()
    share = float((norms > requested.clipping.max_norm).mean())
    clipping = run.in_force.clipping
    verb = "clips" if (clipping.kind, clipping.max_norm) == ("norm", requested.clipping.max_norm) else "would clip"
    return Hint(f"{verb} {number(100 * share, 2)} % of the last {len(norms)} steps")


def _warmup(requested: Experiment, run: Run) -> Hint:
    steps = requested.schedule.warmup_steps
    return Hint(f"lr is {number(requested.optimizer.lr / steps)} at the first step" if steps > 1 else "")


_HINTS = {"accumulation.steps": _accumulation, "clipping.max_norm": _share_clipped, "schedule.warmup_steps": _warmup}
