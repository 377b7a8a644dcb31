"""The live changes in a file, each checked as if it were made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gradstudio.core.events import MOST_CHANGES, Change
from gradstudio.core.experiment import KNOBS, Experiment, check_passed, find_knob
from gradstudio.core.knobs import KnobError, of_today, quote


def read_timeline(entries: list[dict], experiment: Experiment) -> tuple[Change, ...]:
    """Return live changes in the order of their steps, each checked as if it were made; KnobError if one is not
    allowed."""
    changes = []
    if len(entries) > MOST_CHANGES:
        raise KnobError(f"timeline: {len(entries):,} changes are not allowed; allowed: at most {MOST_CHANGES:,}")
    for index, entry in enumerate(entries):
        with errors_at(f"timeline.{index}"):
            changes.append((index, _change(entry, experiment)))
    changes.sort(key=lambda made: made[1].step)
    at, passed = 0, 0  # a step, and the number of skipped batches when its changes take effect
    for index, change in changes:
        with errors_at(f"timeline.{index}"):
            if change.step > at:
                at, passed = change.step, experiment.problem.skip_batches
            experiment = experiment.with_value(change.knob, change.value)
            check_passed(experiment, passed)
    return tuple(Change(change.step, change.knob, _as_declared(change)) for _, change in changes)


def _change(entry: dict, experiment: Experiment) -> Change:
    """Return an entry of a timeline as a Change; its value is not checked yet."""
    if set(entry) != {"step", "knob", "value"}:
        raise KnobError("each entry has exactly step, knob and value")
    step, name = entry["step"], entry["knob"]
    if type(step) is not int or not 0 <= step <= KNOBS["run.steps"].maximum:
        raise KnobError(
            f"step = {quote(step)} is not allowed; allowed: a whole number at least 0, at most "
            f"{KNOBS['run.steps'].maximum:g}"
        )
    knob = experiment.find_knob(name)
    if not knob.live:
        live = ", ".join(each.name for each in KNOBS.values() if each.live and each.section == knob.section)
        raise KnobError(
            f"{name} acts on restart and cannot change at step {step}; live in its section: {live or 'none'}"
        )
    return Change(step, name, entry["value"])


@contextlib.contextmanager
def errors_at(place: str) -> Iterator[None]:
    """Prefix errors with the location in the file, so that the knob's own section is not blamed."""
    try:
        yield
    except KnobError as fault:
        raise KnobError(f"{place}: {fault}") from None


def _as_declared(change: Change) -> float | int | str | bool:
    return float(change.value) if find_knob(change.knob).kind == "float" else of_today(change.knob, change.value)
