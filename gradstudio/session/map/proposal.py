"""What to map first for an experiment: the proposal of its preset, or else the learning rate against a knob that
affects how large it may be."""

from __future__ import annotations

import contextlib

from gradstudio.core.experiment import Experiment
from gradstudio.core.knobs import Knob, KnobError, Value
from gradstudio.core.presets import MapProposal, Preset
from gradstudio.core.text import number
from gradstudio.session.map import map_plan
from gradstudio.session.map.journal import JournalContent
from gradstudio.session.map.place import differing_knobs, job_of
from gradstudio.session.record.run import Run

FIRST = "optimizer.lr"
SECOND = ("clipping.max_norm", "clipping.clip_value", "model.init_gain", "problem.batch_size", "problem.input_scale")
NEVER = (
    "distributed.ranks",
    "run.seed",
    "run.steps",
    "run.memory_budget",
    "problem.skip_batches",
)  # no axis: they do not change the training
AROUND = 30.0  # times the current value, up and down, on a logarithmic axis


def proposal(preset: Preset, experiment: Experiment) -> MapProposal:
    """Return what to map for an experiment that began as this preset."""
    if (asked := preset.map) is not None:
        with contextlib.suppress(KnobError):  # the current knobs may be such that an axis has no effect
            changed = preset.model_copy(update={"experiment": experiment})
            map_plan.read_plan(changed, asked.x, asked.y, asked.cells, asked.by, 1, full=False)
            return asked
    second = next(name for name in (*SECOND, *axes(experiment)) if name != FIRST and experiment.applies(name))
    return MapProposal(x=axis_text(experiment, FIRST), y=axis_text(experiment, second))


def done_with_proposal(stored: JournalContent, run: Run) -> frozenset[str]:
    """Return "made" if a complete map is the one that the run's preset proposes, however fine it is and however long
    its runs are, and "opened" as well if the run is one of its cells: one that was trained, or one that is drawn like
    its surroundings."""
    made, proposal = stored.plan, run.preset.map
    knobs = [text.partition("=")[0].strip() for text in (proposal.x, proposal.y, proposal.by)] if proposal else []
    if not proposal or knobs != [made.x.knob, made.y.knob, made.by]:
        return frozenset()
    if set(differing_knobs(made, run.preset.experiment)) - proposal.free:
        return frozenset()
    is_cell = job_of(made, run.experiment) is not None and not differing_knobs(made, run.experiment)
    return frozenset({"made", "opened"} if is_cell else {"made"})


def axes(experiment: Experiment) -> list[str]:
    """Return the names of the knobs that can be an axis: numeric, and with an effect here."""
    return [
        knob.name
        for knob, _ in experiment.items()
        if knob.kind in ("float", "int") and knob.name not in NEVER and experiment.applies(knob.name)
    ]


def axis_text(experiment: Experiment, name: str) -> str:
    """Return a range of a knob around its current value, in the format of the option of `gradstudio map`."""
    knob, now = experiment.find_knob(name), experiment[name]
    low, high, log = _range(knob, now)
    return f"{name}={number(low, 6)}:{number(high, 6)}{':log' if log else ''}"


def _range(knob: Knob, now: Value) -> tuple[float, float, bool]:
    assert isinstance(now, int | float), "a numeric knob has a number"
    if knob.logarithmic and now > 0:
        least = max(knob.minimum, 1.0 if knob.kind == "int" else 0.0)
        low, high = max(_short(now / AROUND), least), min(_short(now * AROUND), knob.maximum)
        return low, max(high, 2 * low), True
    if knob.slider is not None:
        return *knob.slider, knob.logarithmic and knob.slider[0] > 0
    low = now if knob.above_minimum else max(knob.minimum, 0.0)
    return low, min(max(4.0 * now, low + 100), knob.maximum), False


def _short(value: float) -> float:
    """Return a value with one digit."""
    return float(f"{value:.0e}")
